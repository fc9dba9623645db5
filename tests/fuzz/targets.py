"""What takes bytes from outside, each as a function of these bytes alone, and what it may do with them.

It may refuse them in words. It may not raise anything else, answer with an internal error, take more than
SECONDS of the processor's time, or more memory than MEMORY tells. Whether it takes what it should, others
test.
"""

import contextlib
import io
import json
import time
import tracemalloc
from base64 import b64decode
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path

import msgspec
import pytest
import yaml

from berth.api import pool as pools
from berth.api import poolclaim, quantity
from berth.controller.annotation import ALLOCATED, with_annotated_units
from berth.errors import BerthError
from berth.handlers import bind, filter, inventory, preempt, prioritize, reconcile, release  # noqa: A004
from berth.http.endpoint import Endpoint, Router, respond
from berth.kube.types import Meta, Pod
from berth.ledger.keys import domain_key, node_key, pool_key
from berth.ledger.model import Claim, Holding
from berth.ledger.view import View
from berth.settings import Access, Settings
from berth.stores.base import EPOCH
from berth.stores.configmap import content
from berth.testing.api_server import StandIn
from tests.support.servers.framework import send

Target = Callable[[bytes], None]

SECONDS = 2.0
MEMORY = 60, 16 * 1024 * 1024
"""Bytes that may be taken: so many for each that came, and so many besides."""
STATUSES = {200, 204, 400, 401, 404, 405, 409, 413, 422, 503}

POOLS = """apiVersion: berth.dev/v1alpha1
kind: Pool
metadata: {name: underlay-ip}
spec: {capacity: {perDomain: 10}, limits: {"*": 5}, reserved: {priorityAtLeast: 10, units: 1}}
---
apiVersion: berth.dev/v1alpha1
kind: Pool
metadata: {name: k80}
spec:
  units: {n1: [k80-0, k80-1], n2: ["10.0.0.0/29"]}
  sticky: {by: Pod, forSeconds: 60}
  adoptFrom: example.com/unit
"""
EVENTS = Path(__file__).parents[2] / "events"
SAMPLES = {
    "filter": "extender/filter-*",
    "prioritize": "extender/prioritize-*",
    "preempt": "extender/preempt-*",
    "bind": "extender/bind*",
    "release": "cloudevents/pod-*",
    "inventory": "cloudevents/*",
    "external": "http/external*",
}
NAMES = (
    *SAMPLES,
    *("release-binary", "pools", "pool", "poolclaim", "quantity", "annotations", "configmap"),
    *("stored-domain", "stored-pool", "stored-place", "stored-epoch"),
)
_STRUCTURED = {"content-type": "application/cloudevents+json"}


def _call(endpoint: Endpoint | Router, path: str = "/", headers: Mapping[str, str] | None = None) -> Target:
    def target(body: bytes) -> None:
        reply = respond(
            endpoint, "POST", path, headers or {"content-type": "application/json"}, io.BytesIO(body)
        )
        assert reply.status in STATUSES, reply
        assert b"internal error" not in reply.body, reply
        assert reply.status == 204 or isinstance(json.loads(reply.body), dict | list)
        assert b"\n" not in reply.body

    return target


def _binary(endpoint: Endpoint | Router) -> Target:
    names = {"specversion": "1.0", "id": "1", "source": "s", "type": "dev.knative.apiserver.resource.delete"}
    return _call(endpoint, headers={f"ce-{name}": value for name, value in names.items()})


def _pools(body: bytes) -> None:
    """A file of Pools, as BERTH_POOLS names it."""
    try:
        documents = list(yaml.safe_load_all(body.decode(errors="replace")))
    except (yaml.YAMLError, ValueError, RecursionError):
        return
    _parsed(documents)


def _pool(body: bytes) -> None:
    """A Pool as the API server has it."""
    try:
        _parsed([msgspec.json.decode(body)])
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return


def _parsed(documents: list[object]) -> None:
    try:
        for pool in pools.parse(documents, "a fuzzer").values():
            assert pool.name
    except BerthError:
        return


def _poolclaim(body: bytes) -> None:
    try:
        poolclaim.parse(msgspec.json.decode(body))
    except (BerthError, msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return


def _quantity(body: bytes) -> None:
    with contextlib.suppress(ValueError):
        assert 0 <= quantity.units(body.decode(errors="replace")) <= quantity.LARGEST


def _annotations(body: bytes) -> None:
    """What a running pod says that it uses, which users can write."""
    text, found = body.decode(errors="replace"), pools.parse(yaml.safe_load_all(POOLS), "fuzz")
    pod = Pod(Meta(name="a", uid="u", annotations={ALLOCATED: text, "example.com/unit": text}))
    holdings = (Holding("k80", "n1", 2), Holding("underlay-ip", "n1", 1))
    claim = Claim(uid="u", namespace="default", name="a", node="n1", holdings=holdings)
    noted = with_annotated_units(claim, pod, found)
    assert sum(each.count for each in noted.at_places("k80")) == 2


def _content(body: bytes) -> None:
    """A ConfigMap of the ledger."""
    content.decode(body)


def _stored(key: str) -> Target:
    """A document of the ledger."""

    def target(body: bytes) -> None:
        view = View()
        try:
            view.update({key: body}, 0.0)
            view.refresh(0.0)
        except BerthError:
            return
        for shares in view.free.values():
            assert all(units >= 0 for units, _ in shares.values())

    return target


def seeds(name: str) -> list[bytes]:
    """What is almost right for a target: the samples of events/, and its corpus."""
    samples = [path.read_bytes() for path in sorted(EVENTS.glob(SAMPLES.get(name, "none")))]
    return [*samples, *map(_bytes, sorted((Path(__file__).parent / "corpus" / name).glob("*")))]


def _bytes(path: Path) -> bytes:
    """What is no text is written in base64."""
    return b64decode(path.read_bytes()) if path.suffix == ".b64" else path.read_bytes()


@contextmanager
def targets(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Mapping[str, Target]]:
    """All of them by name, on a ledger with two Pools and three nodes."""
    (folder / "pools.yaml").write_text(POOLS)
    with ExitStack() as stack:
        api = stack.enter_context(StandIn())
        for number in range(3):
            node = json.dumps({"metadata": {"name": f"n{number}"}}).encode()
            send(api.url, "POST", "/api/v1/nodes", node, {"Content-Type": "application/json"})
        monkeypatch.setenv("KUBECONFIG", str(api.kubeconfig(folder / "kubeconfig")))
        token = Access(prefix="BERTH_EXTERNAL", token="t")
        place = f"sqlite:///{folder}/ledger.db"
        settings = Settings(store=place, pools=folder / "pools.yaml", external=token)
        _call(reconcile.endpoint(settings))(b"")
        taken = inventory.router(settings)
        yield {
            "filter": _call(filter.endpoint(settings)),
            "prioritize": _call(prioritize.endpoint(settings)),
            "preempt": _call(preempt.endpoint(settings)),
            "bind": _call(bind.endpoint(settings)),
            "release": _call(release.endpoint(settings), headers=_STRUCTURED),
            "release-binary": _binary(release.endpoint(settings)),
            "inventory": _call(taken, headers=_STRUCTURED),
            "external": _call(taken, "/external", {"authorization": "Bearer t"}),
            "pools": _pools,
            "pool": _pool,
            "poolclaim": _poolclaim,
            "quantity": _quantity,
            "annotations": _annotations,
            "configmap": _content,
            "stored-domain": _stored(domain_key("underlay-ip", "n1")),
            "stored-pool": _stored(pool_key("underlay-ip")),
            "stored-place": _stored(node_key("n1")),
            "stored-epoch": _stored(EPOCH),
        }


def bounded(target: Target, body: bytes) -> None:
    """Run it within its bounds."""
    tracemalloc.start()
    try:
        began = time.thread_time()  # a busy machine is no failure
        target(body)
        took, (_, peak) = time.thread_time() - began, tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert took < SECONDS, f"it took {took:.1f} s for {len(body)} bytes"
    each, more = MEMORY
    assert peak < each * len(body) + more, f"it took {peak} bytes for {len(body)}"
