"""Brings the events of pods to the function that takes them; where the story says so late, never, twice or
forged, as may happen anywhere (docs/kubernetes.md#events-get-lost). It retries nothing."""

import json
import threading
import uuid

import urllib3

from berth.errors import BerthError
from berth.testing.loopback import Loopback, Reply, Request

_SECONDS = 30.0
_PATIENCE = 120.0  # then an event goes on by itself
_DELETE = "dev.knative.apiserver.resource.delete"


class Parcel:
    """The delete event of one pod: held back until `sent` is set, then delivered so many times."""

    def __init__(self, times: int) -> None:
        self.times = times
        self.sent, self.delivered = threading.Event(), threading.Event()


class Courier(Loopback):
    """Listens at `url`, and delivers pods' events to the function at `target`; it drops all others."""

    def __init__(self, target: str) -> None:
        super().__init__(self._answer)
        self._target = target
        self._parcels: dict[str, Parcel] = {}
        self._last: dict[str, Request] = {}

    def expect_delete(self, pod: str, times: int) -> Parcel:
        """Hold the pod's delete event back; once sent, it arrives so many times."""
        parcel = self._parcels[pod] = Parcel(times)
        return parcel

    def knows_node_of(self, pod: str) -> bool:
        """Whether an event of the pod has passed that says where it runs."""
        last = self._last.get(pod)
        return last is not None and bool(json.loads(last.body)["spec"].get("nodeName"))

    def forge_delete(self, pod: str) -> None:
        """Deliver the last event of a living pod, changed into a delete event."""
        last = self._last[pod]
        headers = {**last.headers, "Ce-Type": _DELETE, "Ce-Id": str(uuid.uuid4())}
        reply = self._deliver(last._replace(headers=headers))
        if reply.status not in (200, 204):
            raise BerthError(f"the event's function at {self._target} answered {reply.status}")

    def _answer(self, request: Request) -> Reply:
        if request.headers.get("Ce-Kind") != "Pod":
            return Reply(200)
        name = request.headers.get("Ce-Name", "")
        self._last[name] = request
        deleted = request.headers.get("Ce-Type") == _DELETE
        parcel = self._parcels.pop(name, None) if deleted else None
        if parcel is None:
            return self._deliver(request)
        parcel.sent.wait(_PATIENCE)
        reply = Reply(200)
        for _ in range(parcel.times):
            reply = self._deliver(request)
        parcel.delivered.set()
        return reply

    def _deliver(self, request: Request) -> Reply:
        try:
            with urllib3.PoolManager(timeout=_SECONDS, retries=False) as http:
                reply = http.request("POST", self._target, body=request.body, headers=request.headers)
        except urllib3.exceptions.HTTPError:
            return Reply(503)
        return Reply(reply.status, reply.data)
