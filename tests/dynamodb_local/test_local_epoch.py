"""What the stores' contract says of the epoch, once more on DynamoDB Local (this folder's `place`)."""

from tests.stores.test_contract_epoch import *  # noqa: F403
