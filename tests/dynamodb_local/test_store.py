"""The stores' contract once more on DynamoDB Local: each test takes this folder's `place`."""

from tests.contract.test_store import *  # noqa: F403
