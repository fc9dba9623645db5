"""The stores' contract once more on DynamoDB Local: each test takes this folder's `place`."""

from tests.stores.test_contract import *  # noqa: F403
