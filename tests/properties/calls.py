"""Calls of the verbs that can be stopped at any point: before and after each call they make themselves.
Those that are to be paused run on threads, but only while they are let: an example is the same every time."""

import threading
from collections.abc import Callable, Sequence
from typing import NamedTuple

from berth.errors import BerthError

HANGS_SECONDS = 120.0  # for a machine under load; a call that is let go on takes milliseconds
LAGS_LOOKS = 3


class KilledError(BaseException):
    """Stands in for kill -9: nothing in the product may catch it."""


class Order(NamedTuple):
    """What is to happen when a call comes to a point for the so-manieth time: it is paused, its process is
    killed, what it asks for there (or the answer to it) is lost ("lose"), and all it asks for after ("out");
    or the store tells it of no change there and the next times ("lag"), as it may for a while.
    """

    what: str
    point: str = ""  # such as "before commit" or "after GET"; any if empty
    times: int = 1


KILL = Order("kill")


class Call:
    """One call of a verb; `answer` is empty for success, else the error's text, and None while there is none
    and for ever if it was killed."""

    def __init__(
        self,
        kind: str,
        work: Callable[[], object],
        uid: str = "",
        node: str = "",
        expected: tuple[int, set[str]] | None = None,
        offered: Sequence[str] = (),
    ) -> None:
        self.kind, self.uid, self.node, self.expected = kind, uid, node, expected
        self.offered = offered
        self.ahead = 0.0  # how far its clock is from the right time
        self.ended = False
        self.answer: str | None = None
        self.result: object = None
        self.unexpected: Exception | None = None
        # What happened on its way, for those who judge the answer.
        self.paused = self.landed = self.heard = self.lags = False
        self.lost_by_store = self.lost_by_api = self.lost_since_landing = 0
        self.owed: set[str] = set()
        self.woken: set[str] = set()
        self._orders: list[Order] = []
        self._old_looks = 0
        self._let, self._back = threading.Semaphore(0), threading.Semaphore(0)
        self._work = work
        self._thread: threading.Thread | None = None

    @property
    def disturbed(self) -> bool:
        return bool(self.paused or self.lost_by_store or self.lost_by_api or self.lags or self.ahead)

    def go(self, orders: Sequence[Order] = ()) -> None:
        """Begin, or go on, until it ends or an order pauses it."""
        self._orders = list(orders)
        if self._thread is None and all(order.what != "pause" for order in orders):
            self._run()
            return
        if self._thread is None:
            self._thread = threading.Thread(target=self._run_while_let, daemon=True)
            self._thread.start()
        self._let.release()
        assert self._back.acquire(timeout=HANGS_SECONDS), f"{self.kind} hangs"
        if self.ended:
            self._thread.join()

    def at(self, point: str, lost: Callable[[], BaseException]) -> None:
        """Called from within, at each point; raises what `lost` makes if that is the order."""
        if not self._orders or self._orders[0].point not in ("", point):
            return
        order = self._orders[0]
        if order.times > 1:
            self._orders[0] = order._replace(times=order.times - 1)
            return
        del self._orders[0]
        if order.what == "pause":
            order = self._pause()
        if order.what == "kill":
            raise KilledError
        if order.what == "lag":
            self.lags, self._old_looks = True, LAGS_LOOKS
        if order.what == "out":
            self._orders = [Order("out")]
        if order.what in ("lose", "out"):
            raise lost()

    def looks_back(self) -> bool:
        """Whether the store tells it of no change now."""
        self._old_looks -= 1
        return self._old_looks >= 0

    def _pause(self) -> Order:
        """What to do when it goes on."""
        self.paused = True
        self._back.release()
        self._let.acquire()
        return KILL if self._orders == [KILL] else Order("go on")

    def _run_while_let(self) -> None:
        self._let.acquire()
        try:
            self._run()
        finally:
            self._back.release()

    def _run(self) -> None:
        try:
            self.result = self._work()
            self.answer = ""
        except BerthError as error:
            self.answer = str(error) or type(error).__name__
        except KilledError:
            pass
        except Exception as error:  # noqa: BLE001 - the machine tells it
            self.unexpected = error
        finally:
            self.ended = True
