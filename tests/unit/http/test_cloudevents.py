"""CloudEvents in both modes: the samples, what they are about, and what is refused."""

import base64
import json
import logging
from collections.abc import Callable, Mapping
from io import BytesIO
from typing import Any, NoReturn
from unittest import mock

import pytest
from hypothesis import given
from hypothesis import strategies as st

from berth.api.poolclaim import parse
from berth.errors import BadInputError, StoreFailedError, StoreUnavailableError
from berth.http import cloudevents
from berth.http.cloudevents import Event
from berth.http.endpoint import Reply, respond
from berth.kube.types import Gate, Node, Pod
from berth.settings import Settings
from tests.support.builders.ledgers import Time
from tests.support.builders.objects import EVENTS

STRUCTURED = {"content-type": "application/cloudevents+json"}
SAMPLES = sorted(path.stem for path in (EVENTS / "cloudevents").glob("*.json"))
NEEDED = {"specversion": "1.0", "id": "1", "source": "s", "type": "dev.knative.apiserver.resource.delete"}
BINARY = {f"ce-{name}": value for name, value in NEEDED.items()} | {"content-type": "application/json"}
GPU_POD = "e156b01f-d674-46b9-bf61-3f539c015159"


def sample(name: str) -> dict[str, Any]:
    document: dict[str, Any] = json.loads((EVENTS / "cloudevents" / f"{name}.json").read_bytes())
    return document


def structured(name: str) -> Event:
    return cloudevents.decode(STRUCTURED, (EVENTS / "cloudevents" / f"{name}.json").read_bytes())


def binary(name: str) -> Event:
    document = sample(name)
    data = json.dumps(document.pop("data")).encode()
    content_type = document.pop("datacontenttype")
    headers = {f"ce-{key}": value for key, value in document.items()}
    return cloudevents.decode({**headers, "content-type": content_type}, data)


def refusal(headers: Mapping[str, str], body: bytes) -> str:
    with pytest.raises(BadInputError) as caught:
        cloudevents.decode(headers, body).kind()
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_there_are_samples() -> None:
    assert len(SAMPLES) == 13
    readme = (EVENTS / "README.md").read_text()
    assert all(f"`{name}.json`" in readme for name in SAMPLES)


@pytest.mark.parametrize("name", SAMPLES)
def test_each_sample_reads_the_same_in_binary_and_structured_mode(name: str) -> None:
    for found in (structured(name), binary(name)):
        assert (found.event_type, found.object_as(object)) == (sample(name)["type"], sample(name)["data"])


@pytest.mark.parametrize("name", [name for name in SAMPLES if name.startswith("pod-") and "ref" not in name])
def test_a_pod_event_carries_its_pod(name: str) -> None:
    found = structured(name)
    assert found.kind() == "Pod"
    pod = found.object_as(Pod)
    assert pod.metadata.uid == sample(name)["data"]["metadata"]["uid"]
    assert found.deletion == name.startswith("pod-delete")


def test_the_samples_of_one_life_are_about_one_pod() -> None:
    life = ("pod-add", "pod-update-finished", "pod-update-graceful-deletion", "pod-delete")
    pods = {name: structured(name).object_as(Pod) for name in life}
    assert {pod.metadata.uid for pod in pods.values()} == {GPU_POD}
    assert [name for name, pod in pods.items() if pod.finished] == ["pod-update-finished"]
    assert pods["pod-update-graceful-deletion"].metadata.deletion_timestamp == "2026-11-21T09:32:39Z"


def test_a_label_taken_off_is_told_as_a_deletion_of_a_pod_that_lives() -> None:
    found = structured("pod-delete-label-removed")
    assert found.deletion
    pod = found.object_as(Pod)
    assert (pod.metadata.deletion_timestamp, pod.finished) == (None, False)


@pytest.mark.parametrize("read", [structured, binary])
def test_the_event_of_a_pod_with_scheduling_gates_carries_its_pod(read: Callable[[str], Event]) -> None:
    pod = read("pod-add-gated").object_as(Pod)
    assert pod.metadata.name == "gated"
    assert pod.spec.scheduling_gates == [Gate("example.com/later")]
    assert not pod.waiting


def test_a_nodes_a_pools_and_a_poolclaims_event_say_what_they_are_about() -> None:
    assert structured("node-update").kind() == "Node"
    assert structured("node-update").object_as(Node).metadata.name == "n1"
    assert structured("pool-update").kind() == "Pool"
    for name, gone in {"poolclaim-add": False, "poolclaim-delete": True}.items():
        found = structured(name)
        assert (found.kind(), found.deletion) == ("PoolClaim", gone)
        assert parse(found.object_as(object)).label == "default/k80-erc"


def test_mode_reference_is_refused_saying_how_to_set_the_source() -> None:
    with pytest.raises(BadInputError, match=r"mode Reference, which has no UID: set spec\.mode: Resource"):
        structured("pod-delete-reference").kind()


def test_a_ping_is_about_no_object() -> None:
    ping = structured("ping")
    assert (ping.event_type, ping.deletion) == ("dev.knative.sources.ping", False)
    with pytest.raises(BadInputError, match=r"event type dev\.knative\.sources\.ping with no object"):
        ping.kind()


@pytest.mark.parametrize("body", [b"", b'{"kind": "Po', b"[1]", b"{}", b'{"kind": 5}', b"null"])
def test_an_objects_event_that_carries_no_object_is_told_what_it_lacks(body: bytes) -> None:
    headers = {f"ce-{name}": value for name, value in NEEDED.items()}
    event = cloudevents.decode({**headers, "ce-type": "dev.knative.apiserver.resource.delete"}, body)
    said = r"resource\.delete: its body is no JSON object with a kind; mode Resource sends the whole object$"
    with pytest.raises(BadInputError, match=said):
        event.kind()


def test_headers_may_come_in_any_case() -> None:
    upper = {name.upper(): value for name, value in BINARY.items()}
    assert cloudevents.decode(upper, b'{"kind":"Pod"}').kind() == "Pod"


@pytest.mark.parametrize("body", [b"", b"null", b"[]", b'"x"', b"{}", b"not JSON", b"\xff", b"[" * 100_000])
def test_what_is_no_cloudevent_is_refused_in_one_line(body: bytes) -> None:
    for mode in (STRUCTURED, {"Content-Type": STRUCTURED["content-type"]}):
        told = refusal(mode, body)
        assert told.startswith("not a CloudEvent: ")
        assert "it has neither" not in told
    for kind in ({}, {"Content-Type": "application/json"}):
        said = "not a CloudEvent: it has neither the headers ce-id, ce-source, ce-specversion and ce-type"
        assert refusal(kind, body) == f"{said} nor the content type application/cloudevents+json"


@pytest.mark.parametrize("kind", ["", "; charset=utf-8"])
@pytest.mark.parametrize("body", [b"[]", json.dumps([NEEDED]).encode(), json.dumps(NEEDED).encode(), b"{"])
def test_a_batch_is_refused_saying_how_to_send_it(kind: str, body: bytes) -> None:
    said = "this is a batch of CloudEvents: send each in a request of its own, in binary or structured mode"
    for name in ("content-type", "Content-Type"):
        assert refusal({name: f"application/cloudevents-batch+json{kind}"}, body) == said


@pytest.mark.parametrize("attribute", NEEDED)
def test_an_event_without_a_needed_attribute_is_refused(attribute: str) -> None:
    left = {name: value for name, value in NEEDED.items() if name != attribute}
    assert refusal(STRUCTURED, json.dumps(left).encode()).startswith("not a CloudEvent: ")
    headers = {name: value for name, value in BINARY.items() if name != f"ce-{attribute}"}
    assert refusal(headers, b"{}") == f"not a CloudEvent: it has no header ce-{attribute}"


@pytest.mark.parametrize("kind", [5, None, ["t"], {}])
def test_a_type_that_is_no_string_is_refused(kind: object) -> None:
    assert refusal(STRUCTURED, json.dumps({**NEEDED, "type": kind}).encode()).startswith("not a CloudEvent: ")


@pytest.mark.parametrize(
    "body", [b"", b"{", b"null", b"[]", b"7", b"{}", b'{"kind":7}', b"\xff", b"[" * 100_000]
)
def test_an_event_without_an_object_is_refused(body: bytes) -> None:
    assert refusal(BINARY, body)


@pytest.mark.parametrize(
    "data",
    [{}, {"metadata": None}, {"metadata": []}, {"metadata": {"uid": 7}}, {"metadata": {}, "spec": 1}],
    ids=str,
)
def test_an_object_of_another_shape_is_refused(data: dict[str, object]) -> None:
    found = cloudevents.decode(BINARY, json.dumps({"kind": "Pod", **data}).encode())
    with pytest.raises(BadInputError, match=r"^event type .*: its object is not what it should be: "):
        found.object_as(Pod)


def test_a_failure_that_a_retry_may_mend_is_503_and_any_other_one_that_nobody_tries_again() -> None:
    assert (cloudevents.failed("busy", True).status, cloudevents.failed("internal error", False).status) == (
        503,
        422,
    )
    assert cloudevents.failed("busy", True).body == b'{"error":"busy"}'


# How events are answered


def no_trouble() -> None:
    """The store is there."""


def test_an_event_may_be_so_large_and_reconcile_reads_none() -> None:
    def taken(limit: int, size: int, *, reads_body: bool = True) -> Reply:
        def handle(_: Mapping[str, str], body: bytes) -> dict[str, object]:
            return {"read": len(body)}

        settings = Settings(body_limit=limit)
        found = cloudevents.subscriber("release", handle, no_trouble, settings, reads_body=reads_body)
        return respond(found, "POST", "/", {}, BytesIO(b"x" * size))

    largest = cloudevents.LARGEST_EVENT
    assert taken(2 * largest, largest) == Reply(200, b'{"read":%d}' % largest)
    for refused, why in (
        (taken(2 * largest, largest + 1), f"{largest} bytes (the largest event that is taken)"),
        (taken(1000, 1001), "1000 bytes (BERTH_BODY_LIMIT)"),
    ):
        assert (refused.status, json.loads(refused.body)["error"]) == (413, f"the body is larger than {why}")
    assert taken(1000, 10, reads_body=False) == Reply(200, b'{"read":0}')


def test_data_in_base64_are_read() -> None:
    data = base64.b64encode(b'{"kind": "Pod", "metadata": {"uid": "u"}}').decode()
    event = cloudevents.decode(STRUCTURED, json.dumps({**NEEDED, "data_base64": data}).encode())
    assert (event.kind(), event.object_as(Pod).metadata.uid) == ("Pod", "u")
    with pytest.raises(BadInputError, match=r"^not a CloudEvent: "):
        cloudevents.decode(STRUCTURED, json.dumps({**NEEDED, "data_base64": "x"}).encode())


def asked(headers: Mapping[str, str], body: bytes = b"{}", done: Mapping[str, object] | None = None) -> Reply:
    """What a subscriber answers that has done this."""
    told = {"released": 0, "why": "it lives"} if done is None else done
    found = cloudevents.subscriber("release", lambda *_: told, no_trouble, Settings())
    return respond(found, "POST", "/", headers, BytesIO(body))


@pytest.mark.parametrize(
    "headers",
    [
        BINARY,
        {name.title(): value for name, value in BINARY.items()},
        STRUCTURED,
        {"Content-Type": " Application/CloudEvents+json; charset=utf-8"},
        {"content-type": "application/cloudevents-batch+json"},
        {"ce-type": "dev.knative.sources.ping"},
    ],
    ids=str,
)
def test_an_event_in_whichever_mode_is_answered_with_an_empty_2xx(headers: dict[str, str]) -> None:
    assert asked(headers) == Reply(204, b"")


@pytest.mark.parametrize("headers", [{}, {"content-type": "application/json"}, {"x-ce-type": "a"}], ids=str)
def test_a_person_is_answered_with_what_was_done(headers: dict[str, str]) -> None:
    assert asked(headers) == Reply(200, b'{"released":0,"why":"it lives"}')


@pytest.mark.parametrize(
    "error", [BadInputError("why"), StoreFailedError("why"), StoreUnavailableError("why")]
)
def test_a_failure_says_why_to_an_event_s_sender_too(error: Exception) -> None:
    """Knative writes it into the dead letter."""

    def fail(*_: object) -> NoReturn:
        raise error

    found = cloudevents.subscriber("release", fail, no_trouble, Settings())
    replies = [respond(found, "POST", "/", headers, BytesIO(b"{}")) for headers in (BINARY, {})]
    assert [reply.body for reply in replies] == [b'{"error":"why"}'] * 2
    assert {reply.status for reply in replies} <= {400, 422, 503}


@pytest.mark.parametrize(
    ("done", "level"),
    [
        ({"released": 2, "woken": 1}, logging.INFO),
        ({"released": 0, "woken": 0}, logging.DEBUG),
        ({"released": 0, "why": "it lives"}, logging.DEBUG),
        ({"rebuilt": False, "problems": []}, logging.DEBUG),
        ({"rebuilt": False, "problems": ["no such field"]}, logging.WARNING),
    ],
    ids=str,
)
def test_the_log_says_what_an_event_did_as_loud_as_it_matters(
    caplog: pytest.LogCaptureFixture, done: dict[str, object], level: int
) -> None:
    subject = "/apis/v1/namespaces/default/pods/web"
    caplog.set_level(logging.DEBUG, "berth")
    asked({**BINARY, "ce-subject": subject}, done=done)
    asked(STRUCTURED, json.dumps({**NEEDED, "subject": subject}).encode(), done)
    told = json.dumps(done, separators=(",", ":"))
    line = f"release: {NEEDED['type']} {subject}: {told}"
    assert [(each.levelno, each.getMessage()) for each in caplog.records] == [(level, line)] * 2
    assert {each.name for each in caplog.records} == {"berth.events"}


@pytest.mark.parametrize(
    ("done", "level"),
    [({"released": 2, "problems": []}, logging.INFO), ({"released": 0, "problems": ["one"]}, logging.DEBUG)],
    ids=str,
)
def test_the_log_says_what_a_person_s_call_changed_and_leaves_problems_to_its_answer(
    caplog: pytest.LogCaptureFixture, done: dict[str, object], level: int
) -> None:
    caplog.set_level(logging.DEBUG, "berth")
    asked({}, done=done)
    line = f"release: a call: {json.dumps(done, separators=(',', ':'))}"
    assert [(each.levelno, each.getMessage()) for each in caplog.records] == [(level, line)]


def test_the_log_says_once_a_minute_that_senders_are_refused(caplog: pytest.LogCaptureFixture) -> None:
    class Shut:
        def refusal(self, authorization: str) -> str:
            return "" if authorization == "good" else "needs a token of x"

        def knows(self, authorization: str) -> bool:
            return authorization != "unknown"

    time = Time()
    authenticator = cloudevents.LoggingAuthenticator("release", Shut(), time)
    for passed in (0.0, cloudevents.LOG_SECONDS - 0.001, 0.001, 1.0):
        time.advance(passed)
        assert authenticator.refusal("bad secret") == "needs a token of x"
    assert authenticator.refusal("good") == ""
    assert (authenticator.knows("good"), authenticator.knows("unknown")) == (True, False)
    line = "release: refused an event or a call: it needs a token of x"
    assert [(each.levelno, each.getMessage()) for each in caplog.records] == [(logging.WARNING, line)] * 2


def test_an_event_that_is_no_good_is_logged_and_a_person_s_call_is_not(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def refuse(*_: object) -> NoReturn:
        raise BadInputError("mode Reference")

    found = cloudevents.subscriber("release", refuse, no_trouble, Settings())
    for headers in (BINARY, {}):
        assert respond(found, "POST", "/", headers, BytesIO(b"{}")) == Reply(
            400, b'{"error":"mode Reference"}'
        )
    assert [each.getMessage() for each in caplog.records] == [f"release: {NEEDED['type']}: mode Reference"]


def test_a_dead_letter_is_logged_with_who_refused_it_and_why(caplog: pytest.LogCaptureFixture) -> None:
    error = json.dumps({"error": "berth's ledger can't be written"})
    letter = {
        "ce-knativeerrordest": "http://release.berth.svc.cluster.local",
        "ce-knativeerrorcode": "422",
        "ce-knativeerrordata": base64.b64encode(error.encode()).decode(),
    }
    asked({**BINARY, **letter})
    about = f"{NEEDED['type']} was not taken by http://release.berth.svc.cluster.local (422)"
    assert [each.getMessage() for each in caplog.records] == [f"release: dead letter: {about}: {error}"]


@pytest.mark.parametrize(("data", "why"), [("YWJjZGVmZw", "abcdef"), ("no base64!", "no base64!"), ("", "")])
def test_the_reason_in_a_dead_letter_may_be_cut_or_be_plain(
    caplog: pytest.LogCaptureFixture, data: str, why: str
) -> None:
    asked({**BINARY, "ce-knativeerrordest": "http://x", "ce-knativeerrordata": data})
    assert caplog.records[0].getMessage().partition("(): ")[2] == why


@given(st.sampled_from([STRUCTURED, BINARY]), st.binary() | st.text().map(str.encode), st.text())
def test_whatever_an_event_says_of_itself_makes_one_line_of_the_log(
    headers: dict[str, str], body: bytes, said: str
) -> None:
    odd = json.dumps({**NEEDED, "subject": said, "knativeerrordest": said, "knativeerrordata": said})
    for sent in (body, odd.encode()):
        with (
            mock.patch.object(cloudevents.log, "log") as log,
            mock.patch.object(cloudevents.log, "warning") as warning,
        ):
            assert asked({**headers, "ce-subject": said}, sent) == Reply(204, b"")
        for call in (*log.call_args_list, *warning.call_args_list):
            assert len(" ".join(map(str, call.args)).splitlines()) == 1


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)
attributes = st.fixed_dictionaries(
    {},
    optional={
        name: st.just(value) | json_values for name, value in (NEEDED | {"data": {}, "time": "now"}).items()
    },
)


@given(
    st.sampled_from([STRUCTURED, BINARY, {}]),
    st.binary() | attributes.map(lambda found: json.dumps(found).encode()),
)
def test_whatever_comes_is_an_event_or_refused(headers: dict[str, str], body: bytes) -> None:
    try:
        found = cloudevents.decode(headers, body)
        found.kind()
        found.object_as(Pod)
    except BadInputError as error:
        assert "\n" not in str(error)  # noqa: PT017 - it may also be a good event
