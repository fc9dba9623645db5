"""What all tests share. It holds no fixtures itself."""

pytest_plugins = ["tests.support.fixtures"]
