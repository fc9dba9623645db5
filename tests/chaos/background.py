"""What goes on in a thread of its own all through a fault. What that is, its subclasses say."""

import threading
from abc import ABC, abstractmethod
from concurrent.futures import ThreadPoolExecutor
from typing import Self

PATIENCE = 240.0  # of a machine that is busy


class Background(ABC):
    """`_run` goes on from the block's begin until its end sets `_stop`. The block fails if it failed."""

    def __init__(self) -> None:
        self._stop = threading.Event()
        self._thread = ThreadPoolExecutor(1)

    def __enter__(self) -> Self:
        self._running = self._thread.submit(self._run)
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._stop.set()
        try:
            if kind is None:
                self._running.result(PATIENCE)
        finally:
            self._thread.shutdown(wait=kind is None)

    @abstractmethod
    def _run(self) -> None:
        """Go on until `_stop` is set."""
