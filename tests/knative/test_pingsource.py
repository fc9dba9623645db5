"""PingSource's own adapter (eventing's cmd/mtping) on infra's PingSource: the clock of reconcile."""

from collections.abc import Iterator
from contextlib import contextmanager

from tests.knative.install import EVENTING
from tests.knative.overlay import Overlay
from tests.knative.programs import Call, Program
from tests.support.builders.manifests import NAMESPACE
from tests.support.cluster import wait

ADAPTER = f"/apis/apps/v1/namespaces/{EVENTING}/deployments/pingsource-mt-adapter"
PING = f"/apis/sources.knative.dev/v1/namespaces/{NAMESPACE}/pingsources/berth-reconcile"
OVERLAYS = ("per-verb", "direct")
UNITS = 500
A_MINUTE = 60.0


@contextmanager
def clock(overlay: Overlay) -> Iterator[Program]:
    """The adapter while the block runs; its Deployment is completed by Knative's controller."""
    deployment = wait(
        lambda: found if (found := overlay.cluster.get(ADAPTER))["spec"]["replicas"] else None,
        60,
        "Knative's controller wants an adapter",
    )
    assert deployment is not None
    program = overlay.knative.pods.run(deployment)
    try:
        overlay.knative.pods.mark_available(deployment)
        overlay.wait_ready(PING)
        yield program
    finally:
        program.stop()


def ticks(overlay: Overlay, since: int) -> list[Call]:
    return [each for each in overlay.calls("reconcile", since) if each.type == "dev.knative.sources.ping"]


def test_a_tick_is_answered_with_nothing_and_frees_what_no_event_told_of(overlay: Overlay) -> None:
    overlay.cluster.create_pods("stays", "goes")
    overlay.cluster.wait_bound("stays", "goes")
    overlay.wait_quiet()
    since = overlay.names.count()
    overlay.adapter("berth-pods").stop()
    overlay.cluster.delete_pod("goes")
    with clock(overlay) as program:
        wait(lambda: ticks(overlay, since), A_MINUTE + 30, "a tick reaches reconcile", every=0.2)
        overlay.wait_free(UNITS - 1, 10)
        said = program.tail()
    overlay.restart_adapter("berth-pods")
    (tick,) = ticks(overlay, since)
    assert tick.status == 204, said
    assert tick.path == "/"
    assert [each.status for each in overlay.calls("reconcile", since)] == [204]
