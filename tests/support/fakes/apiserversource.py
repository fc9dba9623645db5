"""Plays Knative's ApiServerSource for pods: watches a real API server, and posts what was recorded of it.

What it does by itself it was seen to do (tests/support/captures, and a test compares); what it does wrong
a test switches on. It takes answers as a Broker does, which is stricter than the source. It is not `berth
up`'s relay, and has no Broker between, no other kinds of objects, no filters.
"""

import contextlib
import http.client
import json
import threading
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple, Self
from urllib.parse import urlencode, urlsplit

import urllib3

from tests.support.cluster import Object, wait

PAUSES = (0.1, 0.2, 0.4, 0.8, 1.6)  # five retries in 3.1 s
RETRIED = (0, 404, 413, 425, 429, 502, 503, 504)  # 0: no answer
RESOURCE, REFERENCE = "dev.knative.apiserver.resource.", "dev.knative.apiserver.ref."
STRUCTURED, BATCH = "application/cloudevents+json", "application/cloudevents-batch+json"
_CHANGES = {"ADDED": "add", "MODIFIED": "update", "DELETED": "delete"}
_PATIENCE = 60.0
_ANSWER_SECONDS = 120.0  # of a function on a machine that is busy


class Event(NamedTuple):
    """The CloudEvent's attributes, without any prefix, and its data."""

    attributes: Mapping[str, str]
    data: bytes

    @property
    def change(self) -> str:
        return self.attributes["type"].rpartition(".")[2]

    @property
    def name(self) -> str:
        return self.attributes["name"]


class Answer(NamedTuple):
    status: int
    text: str


def as_a_broker_takes(status: int, headers: Mapping[str, str], body: bytes) -> Answer:
    """Return what the Broker's filter makes of an answer: a body that is no CloudEvent turns a success into a
    failure (knative.dev/eventing, pkg/broker/filter, writeResponse). An empty one is right."""
    names = {name.lower(): value for name, value in headers.items()}
    event = "ce-specversion" in names or names.get("content-type", "").startswith("application/cloudevents")
    text = body.decode(errors="replace")
    if 200 <= status < 300 and body and not event:
        return Answer(502, f"received a non-empty response not recognized as CloudEvent: {text}")
    return Answer(status, text)


class Sent(NamedTuple):
    """An event and what each of its tries was answered; it was dropped unless the last one is 200 to 299."""

    event: Event
    answers: Sequence[Answer]

    @property
    def status(self) -> int:
        return self.answers[-1].status


Message = tuple[dict[str, str], bytes]
Dress = Callable[[Event], Message]


def event_of(source: str, change: str, item: Object, kind: str = RESOURCE) -> Event:
    """As the source makes it of a watch's line; mode Reference has another `kind`, and no UID."""
    meta, version = item["metadata"], item["apiVersion"]
    named = {"kind": item["kind"], "namespace": meta["namespace"], "name": meta["name"]}
    whole = json.dumps(item, separators=(",", ":"), sort_keys=True)
    short = json.dumps({**named, "apiVersion": version}, separators=(",", ":"))
    attributes = {
        **named,
        "apiversion": version,
        "id": str(uuid.uuid4()),
        "source": source,
        "specversion": "1.0",
        "subject": f"/apis/{version}/namespaces/{meta['namespace']}/{item['kind'].lower()}s/{meta['name']}",
        "time": f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%S.%fZ}",
        "type": f"{kind}{change}",
    }
    return Event(attributes, (whole if kind == RESOURCE else short).encode())


def anew(event: Event) -> Event:
    """Return the event as if sent once more, under another id."""
    return event._replace(attributes={**event.attributes, "id": str(uuid.uuid4())})


# How an event is dressed for HTTP


def binary(event: Event) -> Message:
    """The source's own mode."""
    named = {f"Ce-{name.capitalize()}": value for name, value in event.attributes.items()}
    return {**named, "Content-Type": "application/json"}, event.data


def structured(event: Event) -> Message:
    return {"Content-Type": STRUCTURED}, json.dumps(_whole(event)).encode()


def batch(event: Event) -> Message:
    return {"Content-Type": BATCH}, json.dumps([_whole(event)]).encode()


def _whole(event: Event) -> Object:
    return {**event.attributes, "datacontenttype": "application/json", "data": json.loads(event.data)}


class ApiServerSource:
    """Posts every change of the pods that `selector` (of labels) takes to `sink`, one after the other.

    A test may set: `kind` (REFERENCE), `dress`, and `way`: what becomes of each event, none or several
    posts; `pause` waits between the tries of one. `sent` is all that was posted, in its order.
    """

    def __init__(
        self,
        server: str,
        token: str,
        authority: Path | None,
        sink: str,
        *,
        selector: str = "",
        extensions: Mapping[str, str] | None = None,
        pause: Callable[[float], object] = time.sleep,
    ) -> None:
        self.sink, self.pause = sink, pause
        self.kind = RESOURCE
        self.dress: Dress = binary
        self.way: Callable[[Event], Iterable[Event]] = lambda event: [event]
        self.sent: list[Sent] = []
        self._server, self._selector, self._extensions = server, selector, dict(extensions or {})
        self._headers = {"Authorization": f"Bearer {token}"}
        self._http = urllib3.PoolManager(ca_certs=str(authority) if authority else None, retries=False)
        self._guard = threading.Lock()
        self._watching = False
        self._stream: urllib3.BaseHTTPResponse | None = None
        self._thread: threading.Thread | None = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
        self._http.clear()

    def start(self) -> None:
        """What exists is listed, and told to nobody."""
        self._watching = True
        first = self._watch()
        assert first is not None
        self._thread = threading.Thread(target=self._follow, args=(first,), name="source", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Ends after the event that it is at."""
        with self._guard:
            self._watching = False
            # ValueError: the stream has ended by itself.
            with contextlib.suppress(ValueError, OSError):
                if self._stream is not None:
                    self._stream.shutdown()
        if self._thread is not None:
            self._thread.join(_PATIENCE)
            assert not self._thread.is_alive(), "the source is still at an event"

    @contextmanager
    def blind(self) -> Iterator[None]:
        """As at a watch that was reset, at one that is too old, and at a restart: the next list has in it
        what changed meanwhile, and no event tells of it."""
        self.stop()
        try:
            yield
        finally:
            self.start()

    def post(self, event: Event) -> Sent:
        """With the source's retries; what every try was answered."""
        headers, body = self.dress(event)
        answers = [self.once(headers, body)]
        for pause in PAUSES:
            if answers[-1].status not in RETRIED:
                break
            self.pause(pause)
            answers.append(self.once(headers, body))
        self.sent.append(Sent(event, answers))
        return self.sent[-1]

    def once(self, headers: Mapping[str, str], body: bytes) -> Answer:
        """One try, of whatever is in the body."""
        client = http.client.HTTPConnection(urlsplit(self.sink).netloc, timeout=_ANSWER_SECONDS)
        all_headers = {
            "User-Agent": "Go-http-client/1.1",
            **headers,
            "Kn-Namespace": "default",
            "Accept-Encoding": "gzip",
        }
        try:
            client.request("POST", "/", body, all_headers)
            reply = client.getresponse()
            return as_a_broker_takes(reply.status, dict(reply.getheaders()), reply.read())
        except (OSError, http.client.HTTPException) as error:
            return Answer(0, type(error).__name__)
        finally:
            client.close()

    def told(self, change: str, name: str) -> list[Sent]:
        """What was posted about this pod."""
        return [each for each in list(self.sent) if (each.event.change, each.event.name) == (change, name)]

    def wait_told(self, change: str, name: str, times: int = 1) -> Sent:
        """The last of them, once there are so many."""
        wait(lambda: len(self.told(change, name)) >= times, _PATIENCE, f"{times} events: {change} {name}")
        return self.told(change, name)[-1]

    def _follow(self, stream: urllib3.BaseHTTPResponse | None) -> None:
        while stream is not None:
            try:
                # An ERROR's object is no pod: it ends the watch.
                for line in map(json.loads, stream):
                    if not self._watching or line["type"] not in _CHANGES:
                        break
                    self._take(_CHANGES[line["type"]], line["object"])
            except (urllib3.exceptions.HTTPError, json.JSONDecodeError):
                pass  # cut off
            finally:
                stream.close()
            stream = self._watch()

    def _watch(self) -> urllib3.BaseHTTPResponse | None:
        """From a new list on; None once stopped."""
        with self._guard:
            if not self._watching:
                return None
            version = json.loads(self._get({}, preload=True).data)["metadata"]["resourceVersion"]
            self._stream = self._get({"watch": "1", "resourceVersion": version}, preload=False)
            return self._stream

    def _get(self, query: Mapping[str, str], *, preload: bool) -> urllib3.BaseHTTPResponse:
        chosen = {"labelSelector": self._selector} if self._selector else {}
        url = f"{self._server}/api/v1/pods?{urlencode({**query, **chosen})}"
        timeout = urllib3.Timeout(connect=30, read=120 if preload else None)
        found = self._http.request(
            "GET", url, headers=self._headers, timeout=timeout, preload_content=preload
        )
        assert found.status == 200, f"the source may not read pods: {found.status} {found.data.decode()}"
        return found

    def _take(self, change: str, item: Object) -> None:
        event = event_of(self._server, change, item, self.kind)
        for each in self.way(event._replace(attributes={**event.attributes, **self._extensions})):
            self.post(each)
