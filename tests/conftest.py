"""What all tests share. It holds no fixtures itself."""

from hypothesis import settings

pytest_plugins = ["tests.support.fixtures", "tests.support.neighbours"]

# A busy laptop is no failure: what an example costs is not what these tests are about.
settings.register_profile("berth", deadline=None)
settings.load_profile("berth")
