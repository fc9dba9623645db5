"""What a process knows of a ledger's generations in Redis, which it sends to the server with each call.
It notices no loss itself: the server's script does, by what it was sent (generation.lua)."""

import threading
from typing import NamedTuple

_OVER = 16  # generations remembered as over


class Known(NamedTuple):
    """The latest that was seen here: a generation, a revision of it, and which generations are over."""

    generation: str = ""
    rev: int = 0
    over: tuple[str, ...] = ()


class Generations:
    """Safe to use from many threads."""

    def __init__(self) -> None:
        self.known = Known()
        self._lock = threading.Lock()

    def learn(self, before: Known, generation: str, rev: int) -> None:
        """Take an answer in; `before` is what was known when it was asked for."""
        if generation and generation == self.known.generation and rev <= self.known.rev:
            return
        with self._lock:
            now = self.known
            if not generation:
                self.known = Known()  # who only reads takes what is there next as it is
            elif generation == now.generation:
                self.known = now._replace(rev=max(rev, now.rev))
            # Answers come out of order: an old one may name a generation that is over.
            elif before.generation == now.generation and generation not in now.over:
                over = (*now.over, now.generation)[-_OVER:] if now.generation else ()
                self.known = Known(generation, rev, over)
