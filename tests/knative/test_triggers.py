"""What an event costs in Knative's Broker: its dispatcher asks the filter once for each Trigger, and the
filter calls a function only for what its Trigger takes.

Counted is each request of Knative's programs by its event's id, as it goes by name: exactly what was sent.
"""

import json
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from itertools import count
from pathlib import Path

import pytest
import urllib3

from tests.knative.overlay import Overlay
from tests.knative.programs import DOMAIN
from tests.support.builders.earlier import TRIGGERS, documented_step, garbage_collected
from tests.support.builders.earlier import triggers as eleven
from tests.support.builders.manifests import NAMESPACE, rendered
from tests.support.cluster import wait

CHANNELS = f"/apis/messaging.knative.dev/v1/namespaces/{NAMESPACE}/inmemorychannels"
INGRESS = f"http://broker-ingress.knative-eventing.{DOMAIN}/{NAMESPACE}/berth"
CHANGES = ("add", "update", "delete")
EACH = 5
INVENTORY = {(kind, change): "inventory" for kind in ("Node", "Pool", "PoolClaim") for change in CHANGES}
TOLD = {("Pod", "update"): "release", ("Pod", "delete"): "release", **INVENTORY}
SENT = [*TOLD, ("Pod", "add")]  # the last is for nobody
_numbers = count()


def send(overlay: Overlay, kind: str, change: str) -> str:
    """An event as ApiServerSource sends it, of an object that is not there; its id."""
    event = f"counted-{next(_numbers)}"
    body = {
        "apiVersion": "v1",
        "kind": kind,
        "metadata": {"name": event, "namespace": "default", "uid": event},
    }
    headers = {
        "Content-Type": "application/json",
        "Ce-Specversion": "1.0",
        "Ce-Id": event,
        "Ce-Source": "https://127.0.0.1:6443",
        "Ce-Type": f"dev.knative.apiserver.resource.{change}",
        "Ce-Subject": f"/apis/v1/namespaces/default/{kind.lower()}s/{event}",
        "Ce-Kind": kind,
        "Ce-Name": event,
        "Ce-Namespace": "default",
    }
    with urllib3.ProxyManager(overlay.names.url, retries=False) as http:
        assert http.request("POST", INGRESS, body=json.dumps(body), headers=headers).status == 202
    return event


def asked(overlay: Overlay, event: str) -> list[int]:
    """How the filter answered of this event, each time."""
    return [each.status for each in overlay.filter_calls() if each.event == event]


def cost(overlay: Overlay, triggers: int, told: int) -> None:
    """Send each kind of event some times, and see that each costs a call of the filter for each Trigger, and
    so many calls of the function that it is for."""
    overlay.wait_quiet()
    events = {send(overlay, *what): what for what in SENT for _ in range(EACH)}

    def calls() -> Counter[str]:
        return Counter(each.event for each in overlay.filter_calls() if each.event in events)

    wait(
        lambda: calls().total() >= triggers * len(events),
        120,
        "the filter is asked about all events",
        every=0.2,
    )
    overlay.wait_quiet()
    assert calls() == dict.fromkeys(events, triggers)
    heard = Counter(
        (each.event, function, each.status)
        for function in ("release", "inventory", "reconcile")
        for each in overlay.calls(function)
        if each.event in events
    )
    assert heard == {(event, TOLD[what], 204): told for event, what in events.items() if what in TOLD}


def wait_triggers(overlay: Overlay, number: int) -> None:
    """Until the dispatcher asks the filter for so many Triggers, and the filter knows them all."""

    def subscribed() -> bool:
        (channel,) = overlay.cluster.get(CHANNELS)["items"]
        return len(channel["status"].get("subscribers", [])) == number

    def known() -> bool:
        event = send(overlay, "Pod", "add")
        with suppress(AssertionError):
            wait(lambda: len(asked(overlay, event)) >= number, 3, "the filter is asked for each Trigger")
        return asked(overlay, event) == [200] * number

    wait(subscribed, 60, f"the Broker's channel has {number} subscribers", every=0.2)
    wait(known, 180, f"an event is looked at for {number} Triggers", every=0.5)


def delete_eleven(overlay: Overlay, *more: str) -> None:
    with garbage_collected(overlay.cluster):
        for command in documented_step():
            overlay.knative.kubectl(*command, *more)


@contextmanager
def eleven_beside(overlay: Overlay, folder: Path) -> Iterator[None]:
    """Those that an upgrade leaves over, beside today's two."""
    file = folder / "triggers.json"
    file.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": eleven()}))
    overlay.knative.kubectl("apply", "-f", file)
    try:
        yield
    finally:
        delete_eleven(overlay, "--ignore-not-found")


def test_an_event_costs_one_call_of_the_filter_for_each_of_two_triggers(overlay: Overlay) -> None:
    assert len(rendered("per-verb", "Trigger")) == len(overlay.cluster.get(TRIGGERS)["items"]) == 2
    wait_triggers(overlay, 2)
    cost(overlay, triggers=2, told=1)


@pytest.mark.nightly
def test_old_triggers_cost_eleven_calls_more_until_the_documented_step(
    overlay: Overlay, tmp_path: Path
) -> None:
    with eleven_beside(overlay, tmp_path):
        wait_triggers(overlay, 2 + 11)
        cost(overlay, triggers=2 + 11, told=2)
        delete_eleven(overlay)
        wait_triggers(overlay, 2)
        cost(overlay, triggers=2, told=1)
