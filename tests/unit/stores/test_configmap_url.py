"""The ConfigMap store without an API server: its URL, and which ConfigMap a document is in."""

import re
import socket
import tracemalloc
import zlib
from collections import Counter
from pathlib import Path

import pytest

from berth.errors import SettingsError, StoreUnavailableError
from berth.kube.client import connect
from berth.stores import open_store
from berth.stores.compression import LARGEST, unpack
from berth.stores.configmap import ConfigMapStore
from berth.stores.configmap.content import (
    UNREADABLE,
    Committed,
    Content,
    Generation,
    Intent,
    applied,
    decode,
    encode,
)
from berth.stores.configmap.url import ConfigMapUrl, parse

FORM = "configmap://NAMESPACE/NAME[?shards=N&timeout=SECONDS]"
SECONDS = "whole number from 1 to 3 seconds, since kube-scheduler waits for 5"
NAMES = "with names of lower-case letters, digits and dashes, 63 characters at most"
KUBECONFIG = """apiVersion: v1
kind: Config
clusters: [{name: c, cluster: {server: "http://127.0.0.1:1"}}]
users: [{name: u, user: {}}]
contexts: [{name: x, context: {cluster: c, user: u}}]
current-context: x
"""


@pytest.mark.parametrize(
    ("url", "location"),
    [
        ("configmap://berth/ledger", ConfigMapUrl("berth", "ledger")),
        ("configmap://kube-system/b", ConfigMapUrl("kube-system", "b")),
        ("configmap://berth/ledger-2?shards=512", ConfigMapUrl("berth", "ledger-2", 512)),
        ("configmap://berth/ledger?timeout=2", ConfigMapUrl("berth", "ledger", None, 2.0)),
        ("configmap://berth/ledger?timeout=3&shards=1", ConfigMapUrl("berth", "ledger", 1, 3.0)),
    ],
)
def test_a_configmap_url_names_a_namespace_and_a_ledger(url: str, location: ConfigMapUrl) -> None:
    assert parse(url) == location
    assert str(location) == url.partition("?")[0]


@pytest.mark.parametrize(
    ("url", "said"),
    [
        *(
            (url, f"the form is {FORM}, {NAMES}")
            for url in (
                "configmap://",
                "configmap://berth",
                "configmap://berth/",
                "configmap:///ledger",
                "configmap://berth/a/b",
                "configmap://Berth/ledger",
                "configmap://berth/ledger-",
                "configmap://berth/ledger.v1",
                "configmap://berth:80/ledger",
                "configmap://me:s3cr3t@berth/ledger",
                f"configmap://berth/{64 * 'a'}",
                "configmap://berth/ledger#x",
            )
        ),
        ("configmap://[berth/ledger", f"it can't be read: the form is {FORM}"),
        ("configmap://berth/ledger?shards", "its options can't be read: they are NAME=VALUE, joined by &"),
        (
            "configmap://berth/ledger?shards=%ff",
            "its options can't be read: they are NAME=VALUE, joined by &",
        ),
        ("configmap://berth/ledger?shard=3", "there is no option 'shard'; there are shards and timeout"),
        ("configmap://berth/ledger?shards=3&shards=4", "an option is given twice"),
        ("configmap://berth/ledger?shards=0", "shards=0 should be a whole number from 1 to 512"),
        ("configmap://berth/ledger?shards=513", "shards=513 should be a whole number from 1 to 512"),
        ("configmap://berth/ledger?shards=-1", "shards=-1 should be a whole number from 1 to 512"),
        (
            f"configmap://berth/ledger?shards={5000 * '1'}",
            f"shards={5000 * '1'} should be a whole number from 1 to 512",
        ),
        ("configmap://berth/ledger?timeout=0.5", f"timeout=0.5 should be a {SECONDS}"),
        ("configmap://berth/ledger?timeout=4", f"timeout=4 should be a {SECONDS}"),
    ],
)
def test_a_configmap_url_that_is_wrong_is_refused_with_its_form(url: str, said: str) -> None:
    with pytest.raises(SettingsError) as caught:
        open_store(url)
    assert str(caught.value) == f"BERTH_STORE, a ConfigMap URL: {said}"


def test_a_configmap_url_opens_a_store_that_asks_nothing_yet(
    tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path_factory.mktemp("kube") / "config"
    file.write_text(KUBECONFIG)
    monkeypatch.setenv("KUBECONFIG", str(file))
    store = open_store("configmap://berth/ledger")
    assert isinstance(store, ConfigMapStore)
    store.close()


def test_an_api_server_that_is_silent_is_said_to_be_with_how_long_it_was_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        server = f"http://127.0.0.1:{silent.getsockname()[1]}"
        file = tmp_path / "config"
        file.write_text(KUBECONFIG.replace("http://127.0.0.1:1", server))
        monkeypatch.setenv("KUBECONFIG", str(file))
        store = ConfigMapStore(ConfigMapUrl("berth", "ledger", timeout=0.1), connect())
        with pytest.raises(StoreUnavailableError) as caught:
            store.read(["a"])
        store.close()
    assert str(caught.value) == (
        "berth's ledger is unreachable (configmap://berth/ledger, no answer within 0.1 s); if this lasts, "
        f"see to the API server at {server}, or to KUBECONFIG"
    )


def test_without_a_cluster_to_talk_to_the_store_is_not_opened(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KUBECONFIG", raising=False)
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    monkeypatch.setenv("HOME", "/no/such")
    with pytest.raises(SettingsError) as caught:
        open_store("configmap://berth/ledger")
    assert str(caught.value) == (
        "no cluster to talk to: no kubeconfig found (KUBECONFIG, ~/.kube/config); set KUBECONFIG to one"
    )


def kubeconfig(cluster: str = "server: https://127.0.0.1:1", user: str = "token: t") -> bytes:
    return f"""
        clusters: [{{name: c, cluster: {{{cluster}}}}}]
        users: [{{name: u, user: {{{user}}}}}]
        contexts: [{{name: c, context: {{cluster: c, user: u}}}}]
        current-context: c
        """.encode()


@pytest.mark.parametrize(
    "content",
    [
        None,
        b"",
        b"[",
        b"text",
        b"a: 1",
        b"\xff\xfe",
        kubeconfig("server: 5"),
        kubeconfig("server: 'http://[::1'"),
        kubeconfig("server: https://127.0.0.1:1, certificate-authority-data: abcde"),
        kubeconfig(user="auth-provider: {name: gcp}"),
    ],
)
def test_a_kubeconfig_that_is_none_is_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, content: bytes | None
) -> None:
    file = tmp_path / "config"
    if content is not None:
        file.write_bytes(content)
    monkeypatch.setenv("KUBECONFIG", str(file))
    with pytest.raises(SettingsError) as caught:
        open_store("configmap://berth/ledger")
    assert re.fullmatch(
        rf"no cluster to talk to \({re.escape(str(file))}: .*[^.]\); KUBECONFIG should name a kubeconfig",
        str(caught.value),
    )


def test_documents_are_spread_evenly_by_the_last_part_of_their_key() -> None:
    generation = Generation("1a2b", 32)
    places = Counter(generation.place("berth", f"domain/ip/node-{number}") for number in range(3200))
    assert len(places) == 32
    assert 60 < min(places.values()) <= max(places.values()) < 140
    assert places.keys() == set(generation.names("berth"))
    assert generation.place("berth", "domain/ip/zone/a") == generation.place("berth", "domain/seat/zone/a")
    assert generation.place("berth", "pool/ip") != "berth"


def test_a_place_is_the_same_in_every_process_and_release() -> None:
    """It is where the documents of a ledger that is in use are: it can't be changed without a new format."""
    generation = Generation("1a2b", 32)
    keys = ("domain/ip/node-1", "domain/ip/node-2", "domain/licence/*", "pool/ip", "epoch")
    assert [generation.place("berth", key) for key in keys] == [
        "berth-1a2b-26",
        "berth-1a2b-06",
        "berth-1a2b-11",
        "berth-1a2b-31",
        "berth",
    ]


def test_a_place_follows_from_the_life_s_key_if_it_has_one() -> None:
    """Who knows a hash without a key finds names for one shard as quickly as for many."""
    keys = [f"domain/ip/!team-a/c{number}" for number in range(3200)]
    chosen = [key for key in keys if Generation("1a2b", 32).place("berth", key) == "berth-1a2b-07"]
    assert len(chosen) > 60
    generations = [Generation("1a2b", 32, key=key) for key in ("00" * 16, "0123456789abcdef" * 2)]
    for generation in generations:
        places = Counter(generation.place("berth", key) for key in chosen)
        assert max(places.values()) < len(chosen) / 4
    assert generations[0].place("berth", chosen[0]) != generations[1].place("berth", chosen[0])
    assert generations[1].place("berth", "domain/ip/n7") == generations[1].place("berth", "domain/seat/n7")
    assert {generation.place("berth", "epoch") for generation in generations} == {"berth"}


def test_what_is_encoded_is_decoded_and_what_is_not_is_unreadable() -> None:
    content = Content(
        rev=7,
        documents={"epoch": ("v1", b"\x00\xff"), "domain/ip/ü": ("v2", b"")},
        intent=Intent("tx", "berth-1a2b-00", {"a": b"1", "b": None}),
        committed={"tx0": Committed(2.5, ("berth-1a2b-01",))},
        generation=Generation("1a2b", 2, "uid", ("uid-0", "uid-1")),
    )
    assert decode(encode(content)) == content
    for data in (b"", b"rubbish", encode(content)[:-5]):
        assert decode(data) is UNREADABLE


def test_what_unpacks_into_more_than_was_ever_packed_is_not_unpacked() -> None:
    tracemalloc.start()
    try:
        bomb = zlib.compress(bytes(4 * LARGEST), 9)
        before = tracemalloc.get_traced_memory()[0]
        tracemalloc.reset_peak()
        with pytest.raises(ValueError, match="too large"):
            unpack(bomb)
        assert tracemalloc.get_traced_memory()[1] - before < 2.1 * LARGEST
    finally:
        tracemalloc.stop()
    assert decode(bomb) is UNREADABLE


def test_an_intent_that_is_carried_out_writes_and_deletes_with_its_own_version() -> None:
    content = Content(
        documents={"a": ("v1", b"1"), "b": ("v1", b"1"), "c": ("v1", b"1")},
        intent=Intent("tx", "berth-1a2b-00", {"a": b"2", "b": None, "d": b"2"}),
    )
    done = applied(content)
    assert done.documents == {"a": ("tx", b"2"), "c": ("v1", b"1"), "d": ("tx", b"2")}
    assert done.intent is None
    assert len(content.documents) == 3
