"""Has each call of a store be a span of the function's call that makes it, where there are traces.
The store stays what it is, with all its abilities; without traces nothing is changed at all."""

from collections.abc import Callable
from functools import wraps
from typing import ParamSpec, TypeVar

from berth.stores.base import Store
from berth.telemetry import calls, traces

P = ParamSpec("P")
R = TypeVar("R")

_CALLS = ("read", "commit", "changes", "changes_at_once")


def traced(store: Store, scheme: str) -> Store:
    """Return the store, with spans for its calls if there are traces."""
    for name in _CALLS if traces.tracer is not None else ():
        call = getattr(store, name, None)
        if call is not None:
            setattr(store, name, _spanned(name, scheme, call))
    return store


def _spanned(name: str, scheme: str, call: Callable[P, R]) -> Callable[P, R]:
    facts: dict[str, traces.Fact] = {"db.system.name": scheme, "db.operation.name": name}

    @wraps(call)
    def within_a_span(*arguments: P.args, **options: P.kwargs) -> R:
        with calls.part(f"store {name}", facts) as span:
            answer = call(*arguments, **options)
            span.set({"outcome": _outcome(name, answer)})
            return answer

    return within_a_span


def _outcome(name: str, answer: object) -> str:
    if name != "commit":
        return "answered"
    return "committed" if answer else "conflict"
