"""The call under way in this thread: who asks what, in which trace, and what was decided.
Its facts are in every line of the log that is written meanwhile, and in its span. Without a call all of it
does nothing but log."""

import logging
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar

from berth.errors import RetryableError
from berth.telemetry import traces
from berth.telemetry.traceparent import TraceParent, parsed
from berth.telemetry.traces import Fact, Facts, Kind, Span

_current: ContextVar["Call | None"] = ContextVar("berth_call", default=None)
_NOTHING: AbstractContextManager[Span] = nullcontext(traces.NO_SPAN)


class Call:
    """One call of a function, while it is answered; `outcome` is how it ended, in a word.

    Every filter call makes one: what few calls need is made when it is needed.
    """

    outcome = "answered"
    span: Span | None = None
    _facts: Facts | None = None

    def __init__(self, function: str, traceparent: str | None = None, tracestate: str | None = None) -> None:
        self.function = function
        self._headers = traceparent, tracestate
        self.began = time.perf_counter()

    def __enter__(self) -> "Call":
        self._token = _current.set(self)
        if traces.tracer is not None:
            self.span = traces.tracer.begin(self.function, Kind.SERVER, self.parent, self._headers[1])
            self.span.set({"function": self.function})
        return self

    def __exit__(self, *_: object) -> None:
        _current.reset(self._token)
        if self.span is not None:
            self.span.end(self.outcome)

    @property
    def facts(self) -> Facts:
        """What the call is about."""
        return self._facts or {}

    @property
    def parent(self) -> TraceParent | None:
        """Where its caller is in a trace."""
        return parsed(self._headers[0])

    @property
    def trace(self) -> TraceParent | None:
        """Where it is in its trace: its own span, or its caller's where spans are off."""
        return self.parent if self.span is None else self.span.traceparent

    def add(self, facts: Facts) -> None:
        self._facts = {**self.facts, **facts}
        if self.span is not None:
            self.span.set(facts)


def current() -> Call | None:
    """Return the call under way in this thread."""
    return _current.get()


def tells(log: logging.Logger) -> bool:
    """Whether a decision that changes nothing is told to anybody: ask before finding words for it."""
    return traces.tracer is not None or log.isEnabledFor(logging.DEBUG)


def about(**facts: Fact) -> None:
    """Say what the call is about (pod, uid, node, pool …), for all that is told of it from now on."""
    call = _current.get()
    if call is not None:
        call.add(facts)


def decided(
    log: logging.Logger,
    decision: str,
    facts: Facts,
    message: str,
    *arguments: object,
    level: int = logging.INFO,
) -> None:
    """Log one line about one decision, a word, with how long the call has taken, and note it in the call's
    span. The message is logging's, with its arguments."""
    call = _current.get()
    told: Facts = {**facts, "decision": decision}
    if call is not None:
        told["duration"] = time.perf_counter() - call.began
        if call.span is not None:
            call.span.note(decision, told)
    if log.isEnabledFor(level):
        log.log(level, message, *arguments, extra={"facts": told})


def part(name: str, facts: Facts) -> AbstractContextManager[Span]:
    """Be a span of the call under way, for work that others do for it; outside a call nothing."""
    return _NOTHING if traces.tracer is None or _current.get() is None else _span(name, Kind.CLIENT, facts)


def producing(name: str) -> AbstractContextManager[Span]:
    """Be the span of an event that is sent, which begins a trace."""
    return _NOTHING if traces.tracer is None else _span(name, Kind.PRODUCER, {})


@contextmanager
def _span(name: str, kind: Kind, facts: Facts) -> Iterator[Span]:
    assert traces.tracer is not None
    span = traces.tracer.begin(name, kind)
    span.set(facts)
    try:
        yield span
    except Exception as error:
        span.end("unavailable" if isinstance(error, RetryableError) else "failed")
        raise
    span.end()


def outgoing(span: Span | None = None) -> str:
    """Return the header traceparent of a request that is made for the call; empty: none is due."""
    within = None if span is None else span.traceparent
    call = _current.get()
    if within is None and call is not None:
        within = call.trace
    return "" if within is None else str(within)
