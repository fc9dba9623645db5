"""What goes wrong inside a function's process; orders come as files in the folder FAULTS.

bind names each call it makes and can die, or kill another, after any of them; preempt can die before it
decides and before it answers. release and inventory can lose, double and keep back events. reconcile lets the
clock's ticks pass. What comes of it is not looked at here.
"""

import contextlib
import functools
import importlib
import json
import os
import signal
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar
from unittest import mock
from urllib.parse import urlsplit

import urllib3
from msgspec.structs import replace

from berth.handlers import inventory
from berth.http.endpoint import Endpoint, Reply, Router
from berth.http.function import Response, serve
from berth.ledger.ledger import Ledger
from berth.metrics import Metrics
from berth.settings import Settings
from berth.stores.base import Changes, Document, Store

FAULTS = Path(os.environ.get("FAULTS", "."))
T = TypeVar("T")
BINDING = "POST binding"
TAKEN = "taken-"
CUT, LOST, CHANGED = "cut", "answer lost", "changed"
UNDECIDED, DECIDED = "undecided", "decided"
OK = Reply(204, b"")
PHASES = ("reserve", "confirm", "cancel", "release", "adopt")


def faulty(name: str) -> Callable[..., Response]:
    """The function, as serve makes it, with its faults."""
    if name == "bind":
        _watch_calls()
    if name == "inventory":
        return serve(_told_inventory)
    wrapped = {"bind": _ordered, "preempt": _mortal, "reconcile": _timeless, "release": _told}[name]
    endpoint = importlib.import_module(f"berth.handlers.{name}").endpoint

    def built(settings: Settings, *, metrics: Metrics) -> Endpoint:
        return wrapped(endpoint(settings, metrics=metrics))

    return serve(built)


# bind: one request at a time follows an order


class _Here(threading.local):
    """What this thread's request was ordered to do, whether it has done so, the calls it has made, and what
    it is at."""

    order: dict[str, Any] | None = None
    through: bool
    calls: list[str]
    phases: list[str]


_here = _Here()


def _ordered(endpoint: Endpoint) -> Endpoint:
    def answer(headers: Mapping[str, str], body: bytes) -> Reply:
        order = _take()
        if order is None:
            return endpoint.answer(headers, body)
        _here.order, _here.through, _here.calls, _here.phases = order, False, [], []
        try:
            return endpoint.answer(headers, body)
        finally:
            _here.order = None
            if not _here.through:
                _leave(order, _here.calls)

    return replace(endpoint, answer=answer)


def _take() -> dict[str, Any] | None:
    """An order goes to one request; who renames it first has it. The name tells whose it is, for a process
    may die of something else."""
    try:
        (FAULTS / "order").rename(_taken())
    except FileNotFoundError:
        return None
    order: dict[str, Any] = json.loads(_taken().read_text())
    return order


def _taken() -> Path:
    return FAULTS / f"{TAKEN}{os.getpid()}"


def _leave(order: dict[str, Any], calls: list[str]) -> None:
    """The request came to its end without the step; the next one is to follow the order, if it may."""
    if order["tries"] > 1:
        _write(_taken().name, json.dumps({**order, "tries": order["tries"] - 1}))
        _taken().rename(FAULTS / "order")
    else:
        _done(calls, reached=False)


def _done(calls: list[str], *, reached: bool, killed: Collection[int] = ()) -> None:
    _taken().unlink()
    _write("done", json.dumps({"calls": calls, "reached": reached, "killed": list(killed)}))


def _step(call: str) -> None:
    """A call was made. Only the first of its name is a step: a wake may patch a dozen pods."""
    order = _here.order
    if order is None:
        return
    step = ": ".join([*_here.phases, call])
    if step in _here.calls:
        return
    _here.calls.append(step)
    if step == order["step"]:
        _here.through = True  # before the next order is given, which another request may take at once
        victims = order["victims"]
        killed = [each for each in victims if _killed(each)] if victims else [os.getpid()]
        _done(_here.calls, reached=True, killed=killed)
        if not victims:
            _die()


def _killed(group: int) -> bool:
    """Whether this process group was there to be killed."""
    try:
        os.killpg(group, signal.SIGKILL)
    except ProcessLookupError:
        return False
    return True


def _die() -> None:
    """This process; its server starts a new worker."""
    os.kill(os.getpid(), signal.SIGKILL)


@contextlib.contextmanager
def _phase(name: str) -> Iterator[None]:
    if _here.order is None:
        yield
        return
    _here.phases.append(name)
    try:
        yield
    finally:
        _here.phases.pop()


def _watch_calls() -> None:
    for name in PHASES:
        _within(Ledger, name)
    _within(importlib.import_module("berth.handlers.bind"), "wake")
    made = Ledger.__init__

    def watched(self: Ledger, store: Store, **options: Any) -> None:
        made(self, _Watched(store), **options)

    mock.patch.object(Ledger, "__init__", watched).start()
    sent = urllib3.HTTPConnectionPool.urlopen

    def urlopen(self: urllib3.HTTPConnectionPool, method: str, url: str, *more: Any, **options: Any) -> Any:
        if not urlsplit(url).path.startswith("/api"):  # a store's, of boto3's
            return sent(self, method, url, *more, **options)
        return _sent(functools.partial(sent, self), method, url, options)

    mock.patch.object(urllib3.HTTPConnectionPool, "urlopen", urlopen).start()


def _within(owner: Any, name: str) -> None:
    real: Callable[..., Any] = getattr(owner, name)

    @functools.wraps(real)
    def wrapped(*arguments: Any, **options: Any) -> Any:
        with _phase(name):
            return real(*arguments, **options)

    mock.patch.object(owner, name, wrapped).start()


class _Watched:
    """A store whose calls are steps."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.batches, self.close = store.batches, store.close

    def read(self, keys: Collection[str]) -> Mapping[str, Document]:
        return self._called("read", lambda: self._store.read(keys))

    def commit(self, writes: Mapping[str, bytes | None], expected: Mapping[str, str | None]) -> bool:
        return self._called("commit", lambda: self._store.commit(writes, expected))

    def changes(self, since: str | None) -> Changes:
        return self._called("changes", lambda: self._store.changes(since))

    def _called(self, name: str, call: Callable[[], T]) -> T:
        with _phase(name):
            result = call()
        _step(name)
        return result


def _sent(send: Callable[..., Any], method: str, url: str, options: dict[str, Any]) -> Any:
    """One request to the API server; the first Binding goes the way it was ordered to."""
    call = f"{method} {_kind(urlsplit(url).path)}"
    order = _here.order
    way = order["way"] if order is not None and call == BINDING and BINDING not in _here.calls else ""
    if way == CHANGED:
        pod = url.removesuffix("/binding")
        send("PATCH", pod, **{**options, "headers": _merge(options["headers"]), "body": _note()})
    answer = None if way == CUT else send(method, url, **options)
    _step(call)
    if way == CHANGED:
        _here.phases.append("again")  # until the request's end
    if way in (CUT, LOST):
        raise urllib3.exceptions.ProtocolError("the test cut the connection")
    return answer


def _kind(path: str) -> str:
    """binding, status, pods, configmaps: what a path is about, without names."""
    parts = path.strip("/").split("/")
    below = parts[parts.index("namespaces") + 1 :] if "namespaces" in parts else parts[1:]
    if len(below) == 4:
        return below[3]
    return {1: "namespace" if "namespaces" in parts else f"all {below[0]}", 2: below[-1]}.get(
        len(below), below[1].removesuffix("s") if len(below) > 1 else path
    )


def _merge(headers: Mapping[str, str]) -> dict[str, str]:
    return {**headers, "Content-Type": "application/merge-patch+json"}


def _note() -> bytes:
    return json.dumps({"metadata": {"annotations": {"chaos": str(time.monotonic_ns())}}}).encode()


# preempt: one call is not answered


def _mortal(endpoint: Endpoint) -> Endpoint:
    def answer(headers: Mapping[str, str], body: bytes) -> Reply:
        order = _text("preempt")
        if order == UNDECIDED:
            _die_of("preempt")
        reply = endpoint.answer(headers, body)
        if order == DECIDED and b'"UID"' in reply.body:  # it has chosen somebody
            _die_of("preempt")
        return reply

    return replace(endpoint, answer=answer)


def _die_of(order: str) -> None:
    """Only one process does."""
    with contextlib.suppress(FileNotFoundError):
        (FAULTS / order).rename(FAULTS / f"{order}-taken")
        _write(f"{order}-killed", str(os.getpid()))
        _die()


# Events


def _told(endpoint: Endpoint) -> Endpoint:
    """The endpoint, to which events come as the order says."""
    name = endpoint.name

    def answer(headers: Mapping[str, str], body: bytes) -> Reply:
        mode = _text("events")
        if not mode:
            return endpoint.answer(headers, body)
        _count(f"struck-{name}-{headers.get('ce-type', '').rpartition('.')[2]}")
        if mode == "kept":
            kept = {"function": name, "headers": dict(headers), "body": body.decode()}
            _write(f"kept-{time.monotonic_ns():020}-{name}", json.dumps(kept))
        if mode != "doubled":
            return Reply(204, b"")
        with ThreadPoolExecutor(2) as twice:
            replies = twice.map(lambda _: endpoint.answer(headers, body), range(2))
            return max(replies, key=lambda reply: reply.status)

    return replace(endpoint, answer=answer)


def _told_inventory(settings: Settings, *, metrics: Metrics) -> Router:
    router = inventory.router(settings, metrics=metrics)
    assert router.default is not None
    return replace(router, default=_told(router.default))


def _timeless(endpoint: Endpoint) -> Endpoint:
    def answer(headers: Mapping[str, str], body: bytes) -> Reply:
        if headers.get("user-agent") == "berth-up" and (FAULTS / "no-tick").exists():
            return Reply(200, b"{}")
        return endpoint.answer(headers, body)

    return replace(endpoint, answer=answer)


def _text(name: str) -> str:
    try:
        return (FAULTS / name).read_text()
    except FileNotFoundError:
        return ""


def _count(name: str) -> None:
    with (FAULTS / name).open("ab") as file:
        file.write(b".")


def _write(name: str, text: str) -> None:
    fresh = FAULTS / f".{name}.{threading.get_ident()}"
    fresh.write_text(text)
    fresh.rename(FAULTS / name)
