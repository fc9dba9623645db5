"""Changes of state that `berth up` and `berth relay` say: as a line of JSON, or in words."""

import contextlib
import json
import sys
from collections.abc import Mapping


def say_json(what: Mapping[str, object]) -> None:
    print_line(json.dumps(what, separators=(",", ":")))


def say_text(what: Mapping[str, object]) -> None:
    print_line(words(what))


def words(what: Mapping[str, object]) -> str:
    if "cluster" in what:
        return _words_of_cluster(what)
    function = what.get("function")
    if "replica" in what:
        function = f"{function} (replica {what['replica']})"
    subjects = ("event", "watch", "ledger", "schedulerConfig", "proxy", "relay")
    subject = function or next((what[key] for key in subjects if key in what), None)
    more = " ".join(str(what[key]) for key in ("url", "to", "exit") if key in what)
    why = f": {what['why']}" if "why" in what else ""
    told = {
        "died": "died, starting it again",
        "hung": "hangs, ending it",
        "lost": "lost on its way to",
        "mended": "mended (it was)",
        "ready": "ready" if subject else "ready: all functions answer, the ledger is reconciled",
    }
    state = str(what.get("state"))
    return " ".join(filter(None, ("berth:", str(subject or ""), told.get(state, state), more))) + why


def _words_of_cluster(what: Mapping[str, object]) -> str:
    if what["state"] == "back":
        return f"berth: the API server at {what['cluster']} answers again, after {what['seconds']} s"
    return f"berth: no API server since {what['time']}: {what['why']}"


def print_line(line: str) -> None:
    """Print a line, even if nobody reads it: the threads that keep the functions alive must not end."""
    with contextlib.suppress(OSError, ValueError):
        # One write: `print` writes the line's end separately, and another thread's line could come between.
        sys.stdout.write(f"{line}\n")
        sys.stdout.flush()
