"""Which cluster a kubeconfig names: one of its contexts, or those of several files as kubectl joins them."""

import json
import os
from pathlib import Path

import pytest

from berth.errors import NoClusterError, SettingsError
from berth.kube.client import configured, context_namespace, current_context


def kubeconfig(path: Path, current: str | None, **servers: str) -> str:
    """A kubeconfig with a context, a cluster and a user for each of these servers."""
    document = {
        "contexts": [{"name": name, "context": {"cluster": name, "user": name}} for name in servers],
        "clusters": [{"name": name, "cluster": {"server": url}} for name, url in servers.items()],
        "users": [{"name": name, "user": {"token": name}} for name in servers],
        **({} if current is None else {"current-context": current}),
    }
    path.write_text(json.dumps(document))
    return str(path)


def named(monkeypatch: pytest.MonkeyPatch, *paths: str, context: str = "") -> str:
    """The server that is found with these in KUBECONFIG."""
    monkeypatch.setenv("KUBECONFIG", os.pathsep.join(paths))
    monkeypatch.setenv("BERTH_CONTEXT", context)
    return configured().host


def test_a_context_is_taken_in_place_of_the_current_one(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    path = kubeconfig(tmp_path / "one", "a", a="http://a:1", b="http://b:2")
    assert named(monkeypatch, path) == "http://a:1"
    assert named(monkeypatch, path, context="b") == "http://b:2"


def test_a_context_that_is_not_there_is_named_beside_those_that_are(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    path = kubeconfig(tmp_path / "one", "prod-eu", **{"prod-eu": "http://a:1", "test": "http://b:2"})
    with pytest.raises(SettingsError) as caught:
        named(monkeypatch, path, context="prod-ue")
    why = f"there is no context prod-ue in {path}; there are: prod-eu, test (did you mean prod-eu?)"
    assert str(caught.value) == why


def test_without_a_kubeconfig_no_context_can_be_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("KUBECONFIG", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("BERTH_CONTEXT", "b")
    with pytest.raises(SettingsError, match=r"^there is no kubeconfig .* that has context b: set KUBECONFIG"):
        configured()


def test_of_several_kubeconfigs_the_first_that_names_something_counts_as_with_kubectl(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    without = kubeconfig(tmp_path / "without", None, c="http://c:3")
    one = kubeconfig(tmp_path / "one", "a", a="http://a:1")
    two = kubeconfig(tmp_path / "two", "b", a="http://other:1", b="http://b:2")
    assert named(monkeypatch, without, one, two) == "http://a:1"
    assert named(monkeypatch, two, one) == "http://b:2"
    assert named(monkeypatch, one, two, context="b") == "http://b:2"
    assert named(monkeypatch, without, one, context="c") == "http://c:3"
    assert current_context(os.pathsep.join((without, two, one))) == "b"


def test_of_several_kubeconfigs_those_that_are_empty_or_not_there_are_passed_over(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    empty = tmp_path / "empty"
    empty.write_text("")
    one = kubeconfig(tmp_path / "one", "a", a="http://a:1")
    assert named(monkeypatch, str(tmp_path / "none"), str(empty), "", one) == "http://a:1"


def test_of_several_kubeconfigs_one_that_can_t_be_read_is_an_error(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "bad").write_text("[")
    one = kubeconfig(tmp_path / "one", "a", a="http://a:1")
    with pytest.raises(SettingsError, match=r"KUBECONFIG should name a kubeconfig$"):
        named(monkeypatch, one, str(tmp_path / "bad"))


def test_the_namespace_is_that_of_the_context_in_use(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    path = Path(kubeconfig(tmp_path / "one", "a", a="http://a:1", b="http://b:2"))
    document = json.loads(path.read_text())
    document["contexts"][1]["context"]["namespace"] = "team-b"
    path.write_text(json.dumps(document))
    monkeypatch.setenv("KUBECONFIG", str(path))
    monkeypatch.setenv("BERTH_CONTEXT", "")
    assert context_namespace() == "default"
    monkeypatch.setenv("BERTH_CONTEXT", "b")
    assert context_namespace() == "team-b"
    document["contexts"][1]["context"] = ["odd"]
    path.write_text(json.dumps(document))
    assert context_namespace() == "default"
    monkeypatch.setenv("BERTH_CONTEXT", "none")
    with pytest.raises(SettingsError, match="there is no context none"):
        context_namespace()


@pytest.mark.parametrize(
    "text",
    ["[", "5", "[1]", "contexts: 5", "contexts: [5, {name: 5}]", "a: !!bool x", "clusters: {a: 1}", ""],
)
def test_what_is_no_kubeconfig_is_an_error_where_it_was_named_and_else_no_cluster(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, text: str
) -> None:
    file = tmp_path / ".kube" / "config"
    file.parent.mkdir()
    file.write_text(text)
    with pytest.raises(SettingsError, match=r"no cluster to talk to .* KUBECONFIG should name") as caught:
        named(monkeypatch, str(file))
    assert not isinstance(caught.value, NoClusterError)
    assert context_namespace() == "default"
    monkeypatch.delenv("KUBECONFIG")
    monkeypatch.setenv("HOME", str(tmp_path))
    with pytest.raises(NoClusterError, match=r"no cluster to talk to .*: set KUBECONFIG to a kubeconfig$"):
        configured()
