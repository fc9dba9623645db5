"""What all tests share. It holds no fixtures itself."""

import signal
import threading

import pytest

pytest_plugins = [
    "tests.support.fixtures",
    "tests.support.opened_stores",
    "tests.support.neighbours",
    "tests.support.selection",
]


def pytest_configure() -> None:
    """SIGTERM as Ctrl-C: fixtures end what they started."""
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, _end)


def _end(number: int, _: object) -> None:
    # `timeout` sends it twice: the second one must not disturb what ends in order.
    signal.signal(signal.SIGTERM, lambda *_: None)
    pytest.exit("SIGTERM", returncode=128 + number)
