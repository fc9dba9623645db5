"""Who may use a ledger in ConfigMaps, and what is said where it can't be used; on a real API server.
The Role is the one of docs/stores/configmap.md."""

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from berth.errors import ClusterUnavailableError, StoreFailedError, StoreUnavailableError
from berth.local.ports import free_port
from berth.stores.base import EPOCH
from berth.stores.configmap import ConfigMapStore
from berth.stores.configmap.url import parse
from tests.support.cluster import wait
from tests.support.servers.configmaps import CONFIGMAPS, USER, Opened

DOCS = Path(__file__).resolve().parents[2] / "docs" / "stores" / "configmap.md"
RBAC = "/apis/rbac.authorization.k8s.io/v1"
NEEDED = ["get", "list", "create", "update", "delete"]


@pytest.fixture
def namespace(configmaps: Opened) -> str:
    """A namespace of this test's own."""
    configmaps.server.admin.create_namespace(configmaps.ledger)
    return configmaps.ledger


@pytest.fixture
def user(configmaps: Opened) -> Iterator[Callable[..., ConfigMapStore]]:
    """A store in a namespace, opened as somebody who has no rights of his own."""
    made: list[ConfigMapStore] = []

    def opened(namespace: str, token: str = USER, *, reads_only: bool = False) -> ConfigMapStore:
        location = parse(f"configmap://{namespace}/berth?shards=3&timeout=30")
        made.append(ConfigMapStore(location, configmaps.api(token), reads_only=reads_only))
        return made[-1]

    yield opened
    for each in made:
        each.close()


def documented_role(name: str = "berth-ledger") -> dict[str, Any]:
    (text,) = re.findall(r"```yaml\n(kind: Role\n.*?)```", DOCS.read_text(), re.DOTALL)
    roles = {each["metadata"]["name"]: each for each in yaml.safe_load_all(text)}
    found: dict[str, Any] = roles[name]
    return found


def grant(configmaps: Opened, namespace: str, verbs: list[str]) -> None:
    """The documented Role with these verbs, which the API server heeds a moment later."""
    path, role = f"{RBAC}/namespaces/{namespace}", documented_role()
    meta = {"name": "berth-ledger"}
    role["metadata"] = meta
    role["rules"][0]["verbs"] = verbs
    configmaps.server.admin.call("POST", f"{path}/roles", role)
    binding = {
        "metadata": meta,
        "roleRef": {"kind": "Role", "name": "berth-ledger", "apiGroup": "rbac.authorization.k8s.io"},
        "subjects": [{"kind": "User", "name": USER, "apiGroup": "rbac.authorization.k8s.io"}],
    }
    configmaps.server.admin.call("POST", f"{path}/rolebindings", binding)
    asked = {"namespace": namespace, "verb": verbs[0], "resource": "configmaps"}
    review = {"spec": {"user": USER, "resourceAttributes": asked}}
    reviews = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
    admin = configmaps.server.admin
    wait(lambda: admin.call("POST", reviews, review)["status"]["allowed"], 60, "the Role is heeded")


def use(store: ConfigMapStore) -> None:
    """A new ledger, commits in one ConfigMap and over several, and a loss."""
    keys = [f"domain/ip/n{number}" for number in range(12)]
    assert store.commit({EPOCH: b"e", **dict.fromkeys(keys, b"1")}, {EPOCH: None})
    cursor = store.changes(None).cursor
    assert store.commit({keys[0]: b"2"}, {EPOCH: store.read([EPOCH])[EPOCH].version})
    assert dict(store.changes(cursor).documents) == {keys[0]: b"2"}


def test_the_documented_role_is_enough_also_after_a_loss(
    configmaps: Opened, namespace: str, user: Callable[[str], ConfigMapStore]
) -> None:
    assert documented_role()["rules"][0]["verbs"] == NEEDED
    grant(configmaps, namespace, NEEDED)
    store = user(namespace)
    use(store)
    configmaps.server.admin.call("DELETE", f"/api/v1/namespaces/{namespace}/configmaps/berth")
    use(store)


def test_the_documented_role_of_readers_is_enough_to_read_also_after_a_loss(
    configmaps: Opened, namespace: str, user: Callable[..., ConfigMapStore]
) -> None:
    """The admin is the function that writes."""
    grant(configmaps, namespace, documented_role("berth-ledger-reader")["rules"][0]["verbs"])
    reader, writer = user(namespace, reads_only=True), user(namespace, "")
    assert reader.read([EPOCH]) == {}
    assert reader.changes(None).documents == {}
    use(writer)
    found = reader.changes(None)
    assert len(found.documents) == 13
    assert writer.commit({"domain/ip/n1": b"2"}, {})
    assert dict(reader.changes(found.cursor).documents) == {"domain/ip/n1": b"2"}
    configmaps.server.admin.call("DELETE", f"/api/v1/namespaces/{namespace}/configmaps/berth")
    for _ in range(2):
        assert reader.changes(found.cursor).documents == {}
    use(writer)
    assert len(reader.changes(found.cursor).documents) == 13
    path = f"/api/v1/namespaces/{namespace}/configmaps"
    attacks = (("DELETE", f"{path}/berth"), ("DELETE", path), ("PUT", f"{path}/berth"), ("POST", path))
    for method, target in attacks:
        assert configmaps.server.admin.request(method, target, {}, USER).status == 403


@pytest.mark.parametrize("missing", NEEDED)
def test_without_one_of_the_rights_it_says_which_are_needed(
    configmaps: Opened, namespace: str, user: Callable[[str], ConfigMapStore], missing: str
) -> None:
    grant(configmaps, namespace, [verb for verb in NEEDED if verb != missing])
    store = user(namespace)

    def use_and_lose() -> None:
        use(store)
        configmaps.server.admin.call("DELETE", f"/api/v1/namespaces/{namespace}/configmaps/berth")
        use(store)

    with pytest.raises(StoreFailedError) as caught:
        use_and_lose()
    said = str(caught.value)
    assert said.startswith(f"berth's ledger configmap://{namespace}/berth: the API server refused ")
    assert f'User "{USER}" cannot {missing} resource "configmaps"' in said
    assert said.endswith(
        f"; berth needs get, list, create, update and delete of configmaps in the namespace {namespace}"
    )


def test_without_its_namespace_it_says_how_to_make_it(configmaps: Opened) -> None:
    store = ConfigMapStore(parse("configmap://no-such/berth?timeout=30"), configmaps.api())
    with pytest.raises(StoreFailedError) as caught:
        store.read([EPOCH])
    store.close()
    assert str(caught.value) == (
        "berth's ledger configmap://no-such/berth: there is no namespace no-such; make it (kubectl create "
        "namespace no-such) or name another in BERTH_STORE"
    )


def test_a_configmap_of_somebody_else_is_left_as_it_is(configmaps: Opened) -> None:
    theirs = {"metadata": {"name": configmaps.ledger}, "data": {"a": "1"}}
    admin = configmaps.server.admin
    admin.call("POST", CONFIGMAPS, theirs)
    store = configmaps.store()
    for call in (
        lambda: store.read([EPOCH]),
        lambda: store.commit({"a": b"1"}, {}),
        lambda: store.changes(None),
    ):
        with pytest.raises(StoreFailedError) as caught:
            call()
        assert str(caught.value) == (
            f"berth's ledger configmap://default/{configmaps.ledger}: the ConfigMap {configmaps.ledger} is "
            "none of berth's (it lacks the label berth.dev/ledger); name another in BERTH_STORE, or delete it"
        )
    assert admin.get(f"{CONFIGMAPS}/{configmaps.ledger}")["data"] == {"a": "1"}
    admin.call("DELETE", f"{CONFIGMAPS}/{configmaps.ledger}")


def test_a_ledger_of_another_version_of_berth_is_left_as_it_is(configmaps: Opened) -> None:
    configmaps.apart()
    found = configmaps.server.objects(configmaps.ledger)[configmaps.ledger]
    found["binaryData"] = {"ledger-v9": ""}
    configmaps.server.put_back(found)
    with pytest.raises(
        StoreFailedError, match=r"another version of berth wrote it \(ledger-v9\); run one version"
    ):
        configmaps.store().read([EPOCH])


def test_a_token_that_is_not_known_is_said_so(configmaps: Opened) -> None:
    store = configmaps.store(configmaps.api("nobodys-token"))
    with pytest.raises(
        StoreFailedError, match=r"\(401\): .*; check the credentials in KUBECONFIG or the pod's"
    ):
        store.read([EPOCH])


def test_an_api_server_that_is_away_or_out_of_sorts_is_said_to_be_so_and_may_come_back(
    configmaps: Opened,
) -> None:
    api = configmaps.api()
    store = configmaps.store(api)
    assert store.commit({EPOCH: b"e"}, {})
    host, port = api.host, free_port()
    api.lead(f"https://127.0.0.1:{port}")
    with pytest.raises(StoreUnavailableError) as caught:
        store.read([EPOCH])
    assert str(caught.value) == (
        f"berth's ledger is unreachable (configmap://default/{configmaps.ledger}, connection refused); if "
        f"this lasts, see to the API server at https://127.0.0.1:{port}, or to KUBECONFIG"
    )
    api.lead(host)

    def overloaded(method: str, path: str) -> None:
        raise ClusterUnavailableError(f"the API server answered 429 to {method} {path}: too many requests")

    api.before = overloaded
    key, *_ = configmaps.apart()
    texts = set()
    for each in (key, "domain/ip/n0", "domain/ip/n1", "domain/ip/n2"):
        with pytest.raises(StoreUnavailableError) as caught:
            store.read([each])
        texts.add(str(caught.value))
    assert f"{configmaps.ledger}-…: too many requests); if this lasts, see to the API server" in texts.pop()
    assert not texts, "a text that differs from shard to shard makes pods be tried again and again"
    api.before = lambda *_: None
    assert store.read([EPOCH])[EPOCH].body == b"e"
