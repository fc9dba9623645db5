"""Units with names, once more on DynamoDB Local: each test takes this folder's `place`."""

from tests.features.test_named import *  # noqa: F403
