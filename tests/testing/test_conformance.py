"""What Berth and the demonstration rely on in the API server, on the stand-in and on the real kube-apiserver.
It compares codes, objects and events, and words only where a person would miss them."""

import pytest

from tests.support.cluster import wait
from tests.support.servers.apiservers import (
    NOBODY,
    WAITING,
    Api,
    at_once,
    conditions,
    fresh_api,
    seen,
    served_api,
    told,
    version,
)

__all__ = ["fresh_api", "served_api"]  # fixtures


# The server itself


def test_it_is_ready_and_tells_its_version(api: Api) -> None:
    assert [api.call("GET", path).body for path in ("/healthz", "/readyz")] == ["ok", "ok"]
    assert api.call("GET", "/version").body["gitVersion"].startswith("v1.37.")


def test_the_cluster_is_told_by_the_uid_of_a_namespace_that_stays(api: Api) -> None:
    def uid() -> str:
        reply = api.call("GET", "/api/v1/namespaces/kube-system")
        return reply.body["metadata"]["uid"] if reply.status == 200 else ""

    first = wait(uid, 60, "namespace kube-system, which the real one makes once it is ready")
    assert (len(first), uid()) == (36, first)


def test_pools_that_are_not_defined_are_not_found(api: Api) -> None:
    assert api.call("GET", "/apis/berth.dev/v1alpha1/pools").status == 404


def test_an_unknown_call_is_a_status_of_not_found(api: Api) -> None:
    reply = api.call("GET", "/api/v1/berths")
    assert (reply.body["kind"], *told(reply)) == ("Status", 404, "NotFound")


# Creating and reading pods


def test_a_created_pod_has_an_identity_and_waits(api: Api) -> None:
    pod = api.create("one", annotations={"a": "b"})
    assert pod["metadata"]["uid"]
    assert int(version(pod)) > 0
    assert pod["metadata"]["creationTimestamp"].endswith("Z")
    assert pod["metadata"]["namespace"] == api.namespace
    assert pod["metadata"]["annotations"] == {"a": "b"}
    assert pod["status"]["phase"] == "Pending"
    assert "nodeName" not in pod["spec"]
    assert api.get("one") == pod


def test_a_pod_without_a_scheduler_goes_to_the_default_one(api: Api) -> None:
    body = {"metadata": {"name": "one"}, "spec": {"containers": [{"name": "main", "image": "none"}]}}
    assert api.call("POST", api.pods, body).body["spec"]["schedulerName"] == "default-scheduler"


def test_a_status_sent_with_a_new_pod_is_not_believed(api: Api) -> None:
    spec = {"containers": [{"name": "main", "image": "none"}]}
    body = {"metadata": {"name": "one"}, "spec": spec, "status": {"phase": "Running"}}
    assert api.call("POST", api.pods, body).body["status"]["phase"] == "Pending"


def test_a_name_is_taken_only_once(api: Api) -> None:
    api.create("one")
    spec = {"containers": [{"name": "main", "image": "none"}]}
    reply = api.call("POST", api.pods, {"metadata": {"name": "one"}, "spec": spec})
    assert told(reply) == (409, "AlreadyExists")


def test_a_name_used_again_is_another_uid(api: Api) -> None:
    first = api.create("one")
    api.delete("one")
    assert api.create("one")["metadata"]["uid"] != first["metadata"]["uid"]


def test_a_pod_may_be_created_on_a_node_that_does_not_exist(api: Api) -> None:
    assert api.create("one", spec={"nodeName": "nowhere"})["spec"]["nodeName"] == "nowhere"


def test_a_missing_pod_is_not_found_whatever_is_asked(api: Api) -> None:
    replies = [
        api.call("GET", f"{api.pods}/none"),
        api.bind("none", uid=NOBODY),
        api.patch_status("none", {"conditions": [WAITING]}, uid=NOBODY),
        api.delete("none"),
    ]
    assert [told(reply) for reply in replies] == [(404, "NotFound")] * 4


# Binding


def test_a_binding_puts_the_pod_on_its_node_in_one_write(api: Api) -> None:
    pod = api.create("one", labels={"l": "1", "m": "1"}, annotations={"k": "old", "o": "1"})
    since = api.revision()
    metadata = {"uid": pod["metadata"]["uid"], "resourceVersion": version(pod)}
    reply = api.bind("one", **metadata, annotations={"k": "new", "n": "1"}, labels={"l": "2"})
    bound = api.get("one")
    assert (reply.status, reply.body["kind"], reply.body["status"]) == (201, "Status", "Success")
    assert bound["spec"]["nodeName"] == "node-1"
    assert bound["metadata"]["annotations"] == {"k": "new", "o": "1", "n": "1"}
    assert bound["metadata"]["labels"] == {"l": "2", "m": "1"}
    assert conditions(bound)["PodScheduled"]["status"] == "True"
    with api.watch(since) as events:
        assert next(events) == {"type": "MODIFIED", "object": bound}


def test_a_binding_replaces_the_condition_that_said_why_not(api: Api) -> None:
    api.create("one")
    refused = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "full"}
    api.patch_status("one", {"conditions": [refused, WAITING]})
    api.bind("one")
    pod = api.get("one")
    found = conditions(pod)
    assert sorted(each["type"] for each in pod["status"]["conditions"]) == ["PodScheduled", WAITING["type"]]
    assert found["PodScheduled"]["status"] == "True"
    assert "reason" not in found["PodScheduled"]


def test_a_binding_without_preconditions_is_taken(api: Api) -> None:
    api.create("one")
    assert api.bind("one", uid="", resourceVersion="").status == 201


def test_a_binding_for_another_uid_is_refused(api: Api) -> None:
    pod = api.create("one")
    assert told(api.bind("one", uid=NOBODY, resourceVersion=version(pod))) == (409, "Conflict")
    assert api.get("one") == pod


def test_a_binding_with_the_right_uid_and_a_stale_version_is_refused(api: Api) -> None:
    pod = api.create("one")
    now = api.patch_status("one", {"conditions": [WAITING]}).body
    reply = api.bind("one", uid=pod["metadata"]["uid"], resourceVersion=version(pod))
    assert told(reply) == (409, "Conflict")
    assert version(pod) in reply.body["message"]
    assert api.get("one") == now


def test_a_binding_with_the_right_uid_alone_is_taken_though_the_pod_has_changed(api: Api) -> None:
    pod = api.create("one")
    api.patch_status("one", {"conditions": [WAITING]})
    assert api.bind("one", uid=pod["metadata"]["uid"]).status == 201


@pytest.mark.parametrize("node", ["node-1", "node-2"])
def test_a_second_binding_is_refused_even_to_the_same_node(api: Api, node: str) -> None:
    api.create("one")
    api.bind("one", "node-1")
    reply = api.bind("one", node)
    assert told(reply) == (409, "Conflict")
    assert 'already assigned to node "node-1"' in reply.body["message"]


def test_a_stale_version_is_told_before_the_pod_being_bound(api: Api) -> None:
    pod = api.create("one")
    api.bind("one")
    reply = api.bind("one", resourceVersion=version(pod))
    assert told(reply) == (409, "Conflict")
    assert "already assigned" not in reply.body["message"]


def test_of_eight_bindings_at_once_one_lands(api: Api) -> None:
    pod = api.create("one")
    statuses = at_once(8, lambda number: api.bind("one", f"node-{number}", uid=pod["metadata"]["uid"]))
    assert sorted(statuses) == [201] + [409] * 7


def test_a_pod_that_is_being_deleted_is_not_bound(api: Api) -> None:
    api.create("one", spec={"nodeName": "node-1"})
    api.delete("one", grace=30)
    reply = api.bind("one")
    assert told(reply) == (409, "Conflict")
    assert "being deleted" in reply.body["message"]


def test_a_gated_pod_is_not_bound_and_says_so_itself(api: Api) -> None:
    pod = api.create("one", spec={"schedulingGates": [{"name": "example.com/wait"}]})
    reply = api.bind("one", uid=pod["metadata"]["uid"])
    assert conditions(pod)["PodScheduled"]["reason"] == "SchedulingGated"
    assert told(reply) == (409, "Conflict")
    assert "schedulingGates" in reply.body["message"]


def test_a_binding_for_another_name_or_for_no_node_is_refused(api: Api) -> None:
    api.create("one")
    assert api.bind("one", name="two").status == 400
    assert api.bind("one", node="").status == 500


# The status patch: the wake and the fence


@pytest.mark.parametrize("how", ["strategic", "merge"])
def test_a_status_patch_makes_a_new_version_and_answers_the_whole_pod(api: Api, how: str) -> None:
    pod = api.create("one")
    reply = api.patch_status("one", {"conditions": [WAITING]}, how, uid=pod["metadata"]["uid"])
    assert reply.status == 200
    assert int(version(reply.body)) > int(version(pod))
    assert conditions(reply.body)["berth.dev/Waiting"].items() >= WAITING.items()
    assert reply.body["spec"] == pod["spec"]
    assert api.get("one") == reply.body


def test_a_strategic_patch_merges_conditions_by_type(api: Api) -> None:
    api.create("one")
    api.patch_status("one", {"conditions": [WAITING, {"type": "Other", "status": "True"}]})
    change = {"type": "berth.dev/Waiting", "message": "why"}
    found = conditions(api.patch_status("one", {"conditions": [change]}).body)
    assert found["berth.dev/Waiting"].items() >= {**WAITING, "message": "why"}.items()
    assert found["Other"]["status"] == "True"
    removal = {"type": "Other", "$patch": "delete"}
    assert set(conditions(api.patch_status("one", {"conditions": [removal]}).body)) == {"berth.dev/Waiting"}


def test_a_merge_patch_replaces_the_conditions(api: Api) -> None:
    api.create("one")
    api.patch_status("one", {"conditions": [{"type": "Other", "status": "True"}]})
    assert set(conditions(api.patch_status("one", {"conditions": [WAITING]}, "merge").body)) == {
        WAITING["type"]
    }


@pytest.mark.parametrize("how", ["strategic", "merge"])
def test_a_status_patch_that_changes_nothing_is_no_write_and_no_event(api: Api, how: str) -> None:
    api.create("one")
    before = api.patch_status("one", {"conditions": [WAITING]}).body
    since = api.revision()
    again = api.patch_status("one", {"conditions": [WAITING]}, how, labels={"absent": None})
    api.create("two")
    assert (again.status, version(again.body)) == (200, version(before))
    with api.watch(since) as events:
        assert seen(events, 1) == [("ADDED", "two")]


def test_a_status_patch_that_changes_nothing_fences_nothing(api: Api) -> None:
    api.create("one")
    before = api.patch_status("one", {"conditions": [WAITING]}).body
    api.patch_status("one", {"conditions": [WAITING]})
    assert api.bind("one", resourceVersion=version(before)).status == 201


@pytest.mark.parametrize("how", ["strategic", "merge"])
def test_a_status_patch_for_another_uid_is_invalid(api: Api, how: str) -> None:
    pod = api.create("one")
    reply = api.patch_status("one", {"conditions": [WAITING]}, how, uid=NOBODY)
    assert told(reply) == (422, "Invalid")
    assert "metadata.uid" in reply.body["message"]
    assert api.get("one") == pod


@pytest.mark.parametrize("how", ["strategic", "merge"])
@pytest.mark.parametrize("uid", [None, NOBODY])
def test_a_status_patch_with_a_stale_version_is_a_conflict_first(api: Api, how: str, uid: str | None) -> None:
    pod = api.create("one")
    api.patch_status("one", {"conditions": [WAITING]})
    change = {"conditions": [{**WAITING, "reason": "Other"}]}
    reply = api.patch_status("one", change, how, resourceVersion=version(pod), uid=uid)
    assert told(reply) == (409, "Conflict")


def test_a_status_patch_reaches_labels_and_annotations_but_no_spec(api: Api) -> None:
    api.create("one")
    body = {"metadata": {"labels": {"a": "b"}, "annotations": {"c": "d"}}, "spec": {"nodeName": "node-1"}}
    pod = api.call("PATCH", f"{api.pods}/one/status", body, "strategic").body
    assert (pod["metadata"]["labels"], pod["metadata"]["annotations"]) == ({"a": "b"}, {"c": "d"})
    assert "nodeName" not in pod["spec"]


def test_a_patch_of_an_unknown_kind_is_refused(api: Api) -> None:
    api.create("one")
    assert api.call("PATCH", f"{api.pods}/one/status", {"status": {}}).status == 415
