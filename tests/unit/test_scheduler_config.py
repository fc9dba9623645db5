"""The KubeSchedulerConfiguration: one entry a function, or one for all that calls for our own pods only.

That a real kube-scheduler runs it as it is, is shown by tests/e2e.
"""

from pathlib import Path
from typing import Any

import pytest
import yaml

from berth.cli.scheduler_config import configuration, write
from berth.errors import SettingsError
from berth.steps.claims import BIND_SECONDS
from berth.verbs.bind import _WAKE_SECONDS

URLS = {
    name: f"http://127.0.0.1:{port}"
    for port, name in enumerate(("filter", "prioritize", "bind", "extender"), start=8080)
}
COMMON = {"nodeCacheCapable": True, "httpTimeout": "5s"}


def made(**options: Any) -> dict[str, Any]:
    return configuration(URLS, **{"kubeconfig": "/k", "schedulers": ["berth"], **options})


def test_one_url_a_function_is_three_entries_without_managed_resources() -> None:
    assert made()["extenders"] == [
        {"urlPrefix": URLS["filter"], "filterVerb": "filter", **COMMON},
        {"urlPrefix": URLS["prioritize"], "prioritizeVerb": "prioritize", "weight": 1, **COMMON},
        {"urlPrefix": URLS["bind"], "bindVerb": "bind", **COMMON},
    ]


def test_bind_s_own_deadline_is_below_what_kube_scheduler_waits_for_it() -> None:
    """That it keeps its deadline is shown by tests/e2e, as well as a busy machine can show it."""
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


def test_one_url_for_all_needs_no_other_function() -> None:
    only = {"extender": URLS["extender"]}
    document = configuration(only, kubeconfig="/k", schedulers=["berth"], managed=["berth.dev/k80"])
    assert [each["urlPrefix"] for each in document["extenders"]] == [URLS["extender"]]


def test_no_resource_to_manage_is_refused_because_every_pod_would_be_sent() -> None:
    with pytest.raises(SettingsError, match="no Pool is known, and an extender that manages no resource"):
        made(managed=[])


@pytest.mark.parametrize("managed", [None, ["berth.dev/k80"]])
def test_the_token_goes_into_every_url_and_nowhere_else(managed: list[str] | None) -> None:
    document = made(token="s3:c@r/t", managed=managed)
    prefixes = [each["urlPrefix"] for each in document["extenders"]]
    assert all(prefix.startswith("http://berth:s3%3Ac%40r%2Ft@127.0.0.1:80") for prefix in prefixes)
    assert str(document).count("s3%3Ac%40r%2Ft") == len(prefixes)


def test_the_file_is_for_its_owner_alone_and_holds_the_document(tmp_path: Path) -> None:
    path = tmp_path / "new" / "scheduler.yaml"
    document = made(managed=["berth.dev/k80"])
    write(path, document)
    assert yaml.safe_load(path.read_text()) == document
    assert path.stat().st_mode & 0o777 == 0o600


def test_a_file_that_others_could_read_is_closed_to_them_first(tmp_path: Path) -> None:
    path = tmp_path / "scheduler.yaml"
    path.touch(mode=0o644)
    path.chmod(0o644)
    write(path, made())
    assert path.stat().st_mode & 0o777 == 0o600


def test_a_file_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    path = tmp_path / "scheduler.yaml"
    path.mkdir()
    with pytest.raises(
        SettingsError, match=r"can't write .*scheduler\.yaml \(--scheduler-config\): Is a dir"
    ):
        write(path, made())
