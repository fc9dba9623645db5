"""The KubeSchedulerConfiguration: one entry a function, or one for all that calls for our own pods only.

That a real kube-scheduler runs it as it is, is shown by tests/e2e.
"""

from pathlib import Path
from typing import Any

import pytest
import yaml

from berth.controller.settle import BIND_SECONDS
from berth.errors import SettingsError
from berth.handlers.bind import _WAKE_SECONDS
from berth.scheduler_config.kube_scheduler import Calls, Lease, as_yaml, configuration, policy, write

URLS = {
    name: f"http://127.0.0.1:{port}"
    for port, name in enumerate(("filter", "prioritize", "preempt", "bind", "extender"), start=8080)
}
COMMON = {"nodeCacheCapable": True, "httpTimeout": "5s"}


def made(**options: Any) -> dict[str, Any]:
    calls = Calls(**{"urls": URLS, **{name: options.pop(name) for name in Calls._fields if name in options}})
    return configuration(calls, **{"kubeconfig": "/k", "schedulers": ["berth"], **options})


def test_one_url_a_function_is_four_entries_without_managed_resources() -> None:
    assert made()["extenders"] == [
        {"urlPrefix": URLS["filter"], "filterVerb": "filter", **COMMON},
        {"urlPrefix": URLS["prioritize"], "prioritizeVerb": "prioritize", "weight": 1, **COMMON},
        {"urlPrefix": URLS["preempt"], "preemptVerb": "preempt", **COMMON},
        {"urlPrefix": URLS["bind"], "bindVerb": "bind", **COMMON},
    ]


def test_bind_s_own_deadline_is_below_what_kube_scheduler_waits_for_it() -> None:
    """That it keeps its deadline is shown by tests/e2e."""
    waits = [
        float(each["httpTimeout"].removesuffix("s")) for each in made()["extenders"] if "bindVerb" in each
    ]
    assert len(waits) == 1
    assert waits[0] > BIND_SECONDS + _WAKE_SECONDS


def test_one_url_a_function_ignores_the_pools_groups_in_every_profile() -> None:
    document = made(schedulers=("berth", "second"), groups=["example.com", "berth.dev", "example.com"])
    ignored = {
        "name": "NodeResourcesFit",
        "args": {"ignoredResourceGroups": ["berth.dev", "example.com"]},
    }
    assert document["profiles"] == [
        {"schedulerName": name, "percentageOfNodesToScore": 100, "pluginConfig": [ignored]}
        for name in ("berth", "second")
    ]


def test_one_url_for_all_is_one_entry_that_manages_the_pools_resources() -> None:
    resources = ["berth.dev/underlay-ip", "example.com/seat", "berth.dev/k80", "example.com/seat"]
    assert made(managed=resources)["extenders"] == [
        {
            "urlPrefix": URLS["extender"],
            "filterVerb": "filter",
            "prioritizeVerb": "prioritize",
            "weight": 1,
            "preemptVerb": "preempt",
            "bindVerb": "bind",
            # Each once: kube-scheduler refuses one that is listed twice.
            "managedResources": [
                {"name": name, "ignoredByScheduler": True}
                for name in ("berth.dev/k80", "berth.dev/underlay-ip", "example.com/seat")
            ],
            **COMMON,
        }
    ]


def test_one_url_for_all_ignores_no_group_so_that_an_unlisted_pool_is_not_placed_uncounted() -> None:
    document = made(managed=["berth.dev/underlay-ip"], groups=["berth.dev"])
    assert document["profiles"] == [{"schedulerName": "berth", "percentageOfNodesToScore": 100}]


def test_kube_scheduler_counts_the_resources_of_pools_with_preemption_native_too() -> None:
    """It finds nobody to evict for what it does not count (decision 0016)."""
    (entry,) = made(managed=["native.berth.dev/k80", "berth.dev/seat"])["extenders"]
    ignored = {each["name"]: each["ignoredByScheduler"] for each in entry["managedResources"]}
    assert ignored == {"berth.dev/seat": True, "native.berth.dev/k80": False}
    with pytest.raises(SettingsError, match="kube-scheduler must count the group"):
        made(groups=["berth.dev", "native.berth.dev"])


def test_one_url_for_all_needs_no_other_function() -> None:
    only = {"extender": URLS["extender"]}
    document = configuration(Calls(only), kubeconfig="/k", schedulers=["berth"], managed=["berth.dev/k80"])
    assert [each["urlPrefix"] for each in document["extenders"]] == [URLS["extender"]]


def test_no_resource_to_manage_is_refused_because_every_pod_would_be_sent() -> None:
    with pytest.raises(SettingsError, match="no Pool is known, and an extender that manages no resource"):
        made(managed=[])


@pytest.mark.parametrize("managed", [None, ["berth.dev/k80"]])
def test_with_a_proxy_it_is_all_that_is_called_and_it_alone_checks_certificates(
    managed: list[str] | None,
) -> None:
    document = made(proxy="http://127.0.0.1:8089", managed=managed, urls=HTTPS, ca="/etc/ca.crt")
    assert {each["urlPrefix"] for each in document["extenders"]} == {"http://127.0.0.1:8089"}
    assert "tlsConfig" not in str(document)


@pytest.mark.parametrize("login", ["berth:s3cret", "berth", ":s3cret", "TOKEN", "berth:s3cret@x"])
@pytest.mark.parametrize("proxy", [None, "http://127.0.0.1:8089"])
def test_a_url_with_a_login_is_refused_with_the_reason_and_without_the_login(
    login: str, proxy: str | None
) -> None:
    with pytest.raises(SettingsError) as caught:
        made(urls={**URLS, "bind": f"https://{login}@bind.berth/x"}, proxy=proxy)
    said = str(caught.value)
    assert said.startswith(
        "bind's URL holds a login, which kube-scheduler would print into its log and into the"
    )
    assert login not in said


@pytest.mark.parametrize("url", ["berth:s3cret@bind/x", "//berth:s3cret@bind", "http:/berth:s3cret@bind"])
def test_a_url_that_is_none_is_refused_without_its_login(url: str) -> None:
    with pytest.raises(SettingsError, match="bind's URL holds a login") as caught:
        made(urls={**URLS, "bind": url})
    assert "s3cret" not in str(caught.value)


def test_the_file_is_for_its_owner_alone_and_holds_the_document(tmp_path: Path) -> None:
    path = tmp_path / "new" / "scheduler.yaml"
    document = made(managed=["berth.dev/k80"])
    write(path, as_yaml(document), "--output")
    assert yaml.safe_load(path.read_text()) == document
    assert path.stat().st_mode & 0o777 == 0o600


def test_a_file_that_others_could_read_is_closed_to_them_first(tmp_path: Path) -> None:
    path = tmp_path / "scheduler.yaml"
    path.touch(mode=0o644)
    path.chmod(0o644)
    write(path, as_yaml(made()), "--output")
    assert path.stat().st_mode & 0o777 == 0o600


def test_a_file_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    path = tmp_path / "scheduler.yaml"
    path.mkdir()
    with pytest.raises(SettingsError, match=r"can't write .*scheduler\.yaml \(--output\): Is a dir"):
        write(path, as_yaml(made()), "--output")


HTTPS = {name: url.replace("http://", "https://") for name, url in URLS.items()}


def test_certificates_are_checked_by_the_ca_or_by_the_system_s_and_never_not_at_all() -> None:
    """enableHTTPS without a CA would skip the check (docs/kubernetes.md#certificates)."""
    for ca, tls in (("/etc/ca.crt", {"tlsConfig": {"caFile": "/etc/ca.crt"}}), (None, {})):
        first = made(urls=HTTPS, ca=ca)["extenders"][0]
        assert first == {"urlPrefix": HTTPS["filter"], "filterVerb": "filter", **COMMON, **tls}


@pytest.mark.parametrize(
    ("url", "options", "why"),
    [
        ("", {}, "should be http://HOST"),
        ("filter:8080", {}, "should be http://HOST"),
        ("ftp://filter", {}, "should be http://HOST"),
        ("http://filter:port", {}, "should be http://HOST"),
        ("http://filter?x=1", {}, "should be http://HOST"),
        ("http://filter:0", {}, "should be http://HOST"),
        ("http://filter:65536", {}, "should be http://HOST"),
        ("http://fil ter", {}, "should be http://HOST"),
        ("http://filter/%zz", {}, "should be http://HOST"),
        ("http://filter/a b", {}, "should be http://HOST"),
        ("http://filter/\n", {}, "should be http://HOST"),
        ("http://[::1", {}, "should be http://HOST"),
        ("http://[::g]", {}, "should be http://HOST"),
        ("http://[1:2]", {}, "should be http://HOST"),
        ("http://me:secret@filter", {}, "holds a login"),
        ("http://filter", {"ca": "/ca.crt"}, "is not https"),
        ("http://filter", {"weight": 0}, "weight 0 should be 1 or more"),
    ],
)
def test_what_kube_scheduler_would_refuse_or_not_do_is_refused(
    url: str, options: dict[str, Any], why: str
) -> None:
    with pytest.raises(SettingsError, match=why):
        made(urls={**URLS, "filter": url}, **options)


@pytest.mark.parametrize(
    "url",
    ["http://[::1]:8080/a/b", "https://10.0.0.1", "http://my_filter.ns.svc.cluster.local:65535/~x@y/%20"],
)
def test_a_url_that_can_be_called_stays_as_it_is(url: str) -> None:
    assert made(urls={**URLS, "filter": url})["extenders"][0]["urlPrefix"] == url


@pytest.mark.parametrize("name", ["", "my scheduler", "a/b/c", "-berth", "Example.com/berth", "a" * 64])
def test_a_scheduler_s_name_whose_events_the_api_server_would_refuse_is_refused(name: str) -> None:
    with pytest.raises(SettingsError, match="should be a name such as berth"):
        made(schedulers=["berth", name])


@pytest.mark.parametrize(
    "lease", [Lease("Berth", "x"), Lease("a.b", "x"), Lease("a", "X"), Lease("a", "x/y")]
)
def test_a_lease_that_the_api_server_would_refuse_is_refused(lease: Lease) -> None:
    with pytest.raises(SettingsError, match="should be NAMESPACE/NAME"):
        made(lease=lease)


def test_two_profiles_of_one_name_are_refused() -> None:
    with pytest.raises(SettingsError, match="given twice"):
        made(schedulers=["berth", "berth"])


def test_replicas_elect_by_a_lease_of_their_own_and_a_pod_uses_its_account() -> None:
    document = made(kubeconfig=None, lease=Lease("berth", "berth-scheduler"))
    assert "clientConnection" not in document
    assert document["leaderElection"] == {
        "leaderElect": True,
        "resourceNamespace": "berth",
        "resourceName": "berth-scheduler",
    }


def test_a_policy_for_old_schedulers_has_its_times_in_nanoseconds() -> None:
    document = policy(Calls(URLS, weight=3), ["berth.dev/k80"])
    assert document == {
        "kind": "Policy",
        "apiVersion": "v1",
        "extenders": [
            {
                "urlPrefix": URLS["extender"],
                "filterVerb": "filter",
                "prioritizeVerb": "prioritize",
                "weight": 3,
                "preemptVerb": "preempt",
                "bindVerb": "bind",
                "managedResources": [{"name": "berth.dev/k80", "ignoredByScheduler": True}],
                "nodeCacheCapable": True,
                "httpTimeout": 5_000_000_000,
            }
        ],
    }
