"""Limits of namespaces, once more on DynamoDB Local, at night: each test takes this folder's `place`."""

import pytest

from tests.features.test_limits import *  # noqa: F403

pytestmark = pytest.mark.nightly
