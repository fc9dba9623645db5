"""When keys are due: one time a key, however often it is set. One thread changes it."""

import heapq

Key = tuple[str, str]


class Due:
    """Keys by the time from which they are due."""

    def __init__(self) -> None:
        self._times: dict[Key, float] = {}
        # With those too that were set anew since, which are passed over: at most two a key, and a few.
        self._queue: list[tuple[float, Key]] = []

    def set(self, key: Key, time: float | None) -> None:
        """Say when the key is due; None: it is not."""
        if self._times.get(key) == time:
            return
        if time is None:
            del self._times[key]
        else:
            self._times[key] = time
            heapq.heappush(self._queue, (time, key))
        if len(self._queue) > 2 * len(self._times) + 8:
            self._queue = [(time, key) for key, time in self._times.items()]
            heapq.heapify(self._queue)

    def until(self, time: float) -> dict[Key, float]:
        """Return the keys that are due by then, with their times. Any thread may call it."""
        return {key: due for key, due in list(self._times.items()) if due <= time}

    def take(self, now: float) -> list[Key]:
        """Return the keys that are due by now; they have no time any more."""
        due = []
        while self._queue and self._queue[0][0] <= now:
            time, key = heapq.heappop(self._queue)
            if self._times.get(key) == time:
                del self._times[key]
                due.append(key)
        return due
