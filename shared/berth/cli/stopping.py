"""What ends a command that runs until it is told to stop."""

import queue
import signal
import threading


def stop_signal() -> threading.Event:
    """Return an event that Ctrl-C, SIGTERM or a closed terminal sets (not under `nohup` and the like).

    A handler only puts into a queue: it may interrupt the thread that holds the event's lock, and would hang.
    """
    stop, signals = threading.Event(), queue.SimpleQueue[int]()
    ignored = signal.getsignal(signal.SIGHUP) == signal.SIG_IGN
    for number in (signal.SIGINT, signal.SIGTERM, *(() if ignored else (signal.SIGHUP,))):
        signal.signal(number, lambda number, _: signals.put(number))

    def pass_on() -> None:
        signals.get()
        stop.set()

    threading.Thread(target=pass_on, name="signals", daemon=True).start()
    return stop
