"""Limits of namespaces, once more on DynamoDB Local: each test takes this folder's `place`."""

from tests.features.test_limits import *  # noqa: F403
