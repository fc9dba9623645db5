"""What Berth relies on in lists, watches, deletions and nodes, on the stand-in and on the real API server.
Bookmarks and paging are not compared: neither is relied on."""

from itertools import islice

import pytest

from tests.support.servers.apiservers import NOBODY, Api, fresh_api, seen, served_api, told, version

__all__ = ["fresh_api", "served_api"]  # fixtures
NODES = "/api/v1/nodes"


# Lists


def test_lists_are_selected_by_fields_and_labels(api: Api) -> None:
    for name, group in (("one", "a"), ("two", "a"), ("three", "b")):
        api.create(name, labels={"group": group, "test": api.namespace})
    api.create("four", labels={"test": api.namespace}, spec={"schedulerName": "other"})
    api.bind("two", "node-2")
    api.patch_status("two", {"phase": "Succeeded"})
    mine = f"test={api.namespace}"
    everywhere = "/api/v1/pods"
    assert api.names(api.pods, fieldSelector="spec.nodeName=") == {"one", "three", "four"}
    assert api.names(everywhere, fieldSelector="spec.nodeName==node-2", labelSelector=mine) == {"two"}
    assert api.names(everywhere, fieldSelector="spec.nodeName!=", labelSelector=mine) == {"two"}
    waiting = "spec.schedulerName=berth,spec.nodeName="
    assert api.names(everywhere, fieldSelector=waiting, labelSelector=mine) == {"one", "three"}
    unfinished = "status.phase!=Succeeded,status.phase!=Failed"
    assert api.names(api.pods, fieldSelector=unfinished) == {"one", "three", "four"}
    assert api.names(api.pods, fieldSelector="metadata.name=one") == {"one"}
    assert api.names(api.pods, labelSelector="group!=a") == {"three", "four"}
    assert api.names(api.pods, labelSelector="group=a", fieldSelector="spec.nodeName=") == {"one"}


def test_a_list_is_a_pod_list_of_bare_items(api: Api) -> None:
    pod = api.create("one")
    found = api.call("GET", f"{api.pods}?limit=500").body
    bare = {key: value for key, value in pod.items() if key not in ("kind", "apiVersion")}
    assert (found["kind"], found["items"]) == ("PodList", [bare])


@pytest.mark.parametrize("selector", ["spec.berth=1", "spec.nodeName"])
@pytest.mark.parametrize("watch", ["", "1"])
def test_a_selector_that_is_not_known_is_refused(api: Api, selector: str, watch: str) -> None:
    reply = api.call("GET", f"{api.pods}?fieldSelector={selector}&watch={watch}")
    assert told(reply) == (400, "BadRequest")


# Watches


def test_a_watch_goes_on_from_a_list_and_tells_every_write_in_order(api: Api) -> None:
    api.create("before")
    since = api.revision()
    pod = api.create("one")
    api.bind("one")
    api.patch_status("one", {"phase": "Running"})
    api.delete("one")
    with api.watch(since) as events:
        told = list(islice(events, 5))
        api.create("after")
        assert seen(events, 1) == [("ADDED", "after")]
    assert [event["type"] for event in told] == ["ADDED", "MODIFIED", "MODIFIED", "MODIFIED", "DELETED"]
    assert told[0]["object"] == pod
    assert {event["object"]["metadata"]["uid"] for event in told} == {pod["metadata"]["uid"]}
    versions = [int(version(event["object"])) for event in told]
    assert versions == sorted(set(versions))
    assert "deletionTimestamp" in told[3]["object"]["metadata"]
    assert told[4]["object"]["spec"]["nodeName"] == "node-1"


def test_a_watch_tells_what_happens_after_it_began(api: Api) -> None:
    with api.watch(api.revision()) as events:
        pod = api.create("one")
        assert next(events) == {"type": "ADDED", "object": pod}


def test_a_watch_can_go_on_from_any_object_it_told_of(api: Api) -> None:
    first = api.create("one")
    api.create("two")
    with api.watch(version(first)) as events:
        assert seen(events, 1) == [("ADDED", "two")]


@pytest.mark.parametrize("since", ["", "0"])
def test_a_watch_without_a_version_begins_with_what_there_is(api: Api, since: str) -> None:
    api.create("one")
    api.bind("one")
    # The real one serves "0" from its cache; what is asked consistently first is in there.
    api.revision()
    with api.watch(since) as events:
        assert seen(events, 1) == [("ADDED", "one")]


def test_a_pod_that_begins_or_ceases_to_match_is_told_as_added_or_deleted(api: Api) -> None:
    since = api.revision()
    pod = api.create("one")
    api.bind("one", "node-1")
    bound = api.get("one")
    api.create("last")
    with api.watch(since, fieldSelector="spec.nodeName=") as events:
        appeared, gone, _ = islice(events, 3)
    assert appeared == {"type": "ADDED", "object": pod}
    # The last state that matched, with the version of the write that ended it.
    metadata = {**pod["metadata"], "resourceVersion": version(bound)}
    assert gone == {"type": "DELETED", "object": {**pod, "metadata": metadata}}
    api.create("on-node", spec={"nodeName": "node-1"})
    with api.watch(since, fieldSelector="spec.nodeName=node-1") as events:
        assert next(events) == {"type": "ADDED", "object": bound}
        assert seen(events, 1) == [("ADDED", "on-node")]


def test_a_label_taken_off_looks_like_a_deletion_to_a_watch_by_that_label(api: Api) -> None:
    api.create("one", labels={"app": api.namespace})
    since = api.revision()
    api.patch_status("one", {}, "merge", labels={"app": None})
    with api.watch(since, path="/api/v1/pods", labelSelector=f"app={api.namespace}") as events:
        event = next(events)
    assert event["type"] == "DELETED"
    assert event["object"]["metadata"]["labels"] == {"app": api.namespace}
    assert "deletionTimestamp" not in event["object"]["metadata"]


def test_a_watch_of_one_namespace_hears_nothing_of_another(api: Api) -> None:
    since = api.revision()
    elsewhere = f"{api.namespace}-b"
    api.prepare_namespace(elsewhere)
    spec = {"containers": [{"name": "main", "image": "none"}]}
    body = {"metadata": {"name": "elsewhere"}, "spec": spec}
    assert api.call("POST", f"/api/v1/namespaces/{elsewhere}/pods", body).status == 201
    api.create("here")
    with api.watch(since) as events:
        assert seen(events, 1) == [("ADDED", "here")]


def test_a_watch_of_pods_hears_nothing_of_nodes(api: Api) -> None:
    since = api.revision()
    api.cluster.create_node(f"{api.namespace}-n")
    api.create("one")
    with api.watch(since, path="/api/v1/pods") as events:
        assert seen(events, 1) == [("ADDED", "one")]


def test_a_watch_ends_when_its_time_is_up(api: Api) -> None:
    with api.watch(api.revision(), timeoutSeconds="1", allowWatchBookmarks="true") as events:
        assert list(events) == []


def test_a_watch_from_a_forgotten_version_is_told_410_in_its_stream(api: Api) -> None:
    since = api.revision()
    api.create("one")
    api.forget()
    with api.watch(since) as events:
        event = next(events)
    assert (event["type"], event["object"]["code"], event["object"]["reason"]) == ("ERROR", 410, "Expired")


# Deletion


def test_a_deletion_without_grace_removes_the_pod_at_once(api: Api) -> None:
    api.create("one")
    api.bind("one")
    reply = api.delete("one", grace=0)
    assert (reply.status, reply.body["kind"]) == (200, "Pod")
    assert api.call("GET", f"{api.pods}/one").status == 404


def test_a_deletion_with_grace_marks_the_pod_and_waits_for_a_second_one(api: Api) -> None:
    api.create("one")
    api.bind("one")
    since = api.revision()
    marked = api.delete("one", grace=None).body
    assert marked["metadata"]["deletionGracePeriodSeconds"] == 30
    assert version(api.delete("one", grace=None).body) == version(marked)
    assert api.get("one")["metadata"]["deletionTimestamp"] == marked["metadata"]["deletionTimestamp"]
    api.delete("one", grace=0)
    with api.watch(since) as events:
        assert [event["type"] for event in islice(events, 3)] == ["MODIFIED", "MODIFIED", "DELETED"]


def test_a_pod_that_is_not_bound_or_has_finished_goes_at_once_whatever_grace_is_asked(api: Api) -> None:
    api.create("unbound")
    api.create("finished", spec={"nodeName": "node-1"})
    api.patch_status("finished", {"phase": "Succeeded"})
    assert api.delete("unbound", grace=None).status == 200
    assert api.delete("finished", grace=30).status == 200
    assert api.names(api.pods) == set()


def test_a_deletion_for_another_uid_is_refused(api: Api) -> None:
    api.create("one")
    body = {"gracePeriodSeconds": 0, "preconditions": {"uid": NOBODY}}
    assert told(api.call("DELETE", f"{api.pods}/one", body)) == (409, "Conflict")


# Nodes


def test_a_node_is_created_patched_listed_watched_and_deleted(api: Api) -> None:
    name, other = f"{api.namespace}-n", f"{api.namespace}-o"
    path, since = f"{NODES}/{name}", api.revision(NODES)
    body = {"metadata": {"name": name, "labels": {"a": "b"}}, "status": {"allocatable": {"cpu": "4"}}}
    node = api.call("POST", NODES, body)
    assert node.status == 201
    assert node.body["status"]["allocatable"] == {"cpu": "4"}
    change = {"metadata": {"annotations": {"count": "3"}, "labels": {"a": None}}}
    patched = api.call("PATCH", path, change, "merge").body
    assert patched["metadata"]["annotations"] == {"count": "3"}
    assert "labels" not in patched["metadata"]
    assert version(api.call("PATCH", path, change, "merge").body) == version(patched)
    api.cluster.create_node(other)
    assert api.names(NODES) >= {name, other}
    assert api.names(NODES, fieldSelector=f"metadata.name={other}") == {other}
    assert api.call("DELETE", path).body["status"] == "Success"
    assert [api.call(method, path).status for method in ("GET", "DELETE")] == [404, 404]
    with api.watch(since, NODES, fieldSelector=f"metadata.name={name}") as events:
        assert [event["type"] for event in islice(events, 3)] == ["ADDED", "MODIFIED", "DELETED"]


def test_a_node_patch_keeps_to_its_version_and_uid(api: Api) -> None:
    name = f"{api.namespace}-n"
    api.cluster.create_node(name)
    stale = {"metadata": {"resourceVersion": "1", "annotations": {"a": "b"}}}
    wrong = {"metadata": {"uid": NOBODY, "annotations": {"a": "b"}}}
    assert told(api.call("PATCH", f"{NODES}/{name}", stale, "merge")) == (409, "Conflict")
    assert told(api.call("PATCH", f"{NODES}/{name}", wrong, "merge")) == (422, "Invalid")
    assert told(api.call("PATCH", f"{NODES}/none", {"metadata": {}}, "merge")) == (404, "NotFound")
    assert told(api.call("POST", NODES, {"metadata": {"name": name}})) == (409, "AlreadyExists")


def test_a_deleted_pod_with_a_finalizer_is_marked_and_stays(api: Api) -> None:
    api.create("one", finalizers=["example.com/kept"])
    assert api.delete("one").status == 200
    metadata = api.get("one")["metadata"]
    assert metadata["deletionGracePeriodSeconds"] == 0
    assert metadata["deletionTimestamp"].endswith("Z")
    assert api.bind("one").status == 409
