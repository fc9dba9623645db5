"""What a ledger promises, once more on DynamoDB Local: each test takes this folder's `place`."""

from tests.ledger.test_ledger import *  # noqa: F403
