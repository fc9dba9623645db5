"""What is found in a scheduler's configuration, one change at a time of one that is right."""

import copy
from collections.abc import Callable
from typing import Any

import pytest
import yaml
from hypothesis import given as given_any
from hypothesis import strategies as st

from berth.checks import scheduler as checks
from berth.checks.inputs import _read
from berth.kube.configuration import Extender, PluginConfig, Profile, SchedulerConfiguration
from berth.scheduler_config.kube_scheduler import Calls, Lease, configuration
from tests.unit.checks.inputs import inputs_of, scheduler

VERBS = ("filter", "prioritize", "preempt", "bind")
URLS = {name: f"http://127.0.0.1:808{number}" for number, name in enumerate(VERBS)}
LEASE = Lease("berth", "scheduler")
SEVERAL = configuration(Calls(URLS), kubeconfig=None, schedulers=["berth"], lease=LEASE)
ONE = configuration(
    Calls({"extender": "http://127.0.0.1:8087"}),
    kubeconfig=None,
    schedulers=["berth"],
    managed=["berth.dev/ip"],
    lease=LEASE,
)


def pool(name: str = "ip", **spec: Any) -> dict[str, Any]:
    head = {"apiVersion": "berth.dev/v1alpha1", "kind": "Pool", "metadata": {"name": name}}
    return {**head, "spec": {"capacity": {"perDomain": 1}, **spec}}


def ids(document: Any, *pools: Any, replicas: int | None = None, **read: Any) -> dict[str, str]:
    """The rules that are broken, with their severity."""
    given = inputs_of(schedulers=scheduler(document, replicas), pools=[*pools], **read)
    return {finding.id: finding.severity for check in checks.CHECKS for finding in check.look(given)}


def changed(document: Any, change: Callable[[Any], object]) -> Any:
    copied = copy.deepcopy(document)
    change(copied)
    return copied


@pytest.mark.parametrize("document", [SEVERAL, ONE], ids=["several", "one"])
def test_nothing_is_found_in_what_berth_writes_itself(document: Any) -> None:
    assert ids(document, pool(), replicas=2) == {}


def extender(number: int = 0, **fields: Any) -> Callable[[Any], object]:
    return lambda document: document["extenders"][number].update(fields)


def foreign(**fields: Any) -> Callable[[Any], object]:
    entry = {"urlPrefix": "http://127.0.0.1/x", "managedResources": [{"name": "nvidia.com/gpu"}], **fields}
    return lambda document: document["extenders"].append(entry)


PROFILE = "profiles"
CASES: list[tuple[Any, Callable[[Any], object], dict[str, str]]] = [
    (SEVERAL, lambda it: it[PROFILE][0].pop("percentageOfNodesToScore"), {"scheduler.sampling": "error"}),
    (SEVERAL, lambda it: it[PROFILE][0].pop("pluginConfig"), {"scheduler.counted": "error"}),
    (SEVERAL, lambda it: it[PROFILE][0].update(schedulerName="other"), {"scheduler.names": "error"}),
    (
        SEVERAL,
        lambda it: it[PROFILE].append({**it[PROFILE][0], "schedulerName": "default-scheduler"}),
        {"scheduler.default": "error"},
    ),
    (SEVERAL, extender(3, httpTimeout="4.9s"), {"scheduler.timeout": "error"}),
    (SEVERAL, extender(3, httpTimeout="5000ms"), {}),
    (SEVERAL, extender(3, httpTimeout="soon"), {"scheduler.timeout": "error"}),
    (SEVERAL, extender(3, httpTimeout=None), {}),
    (SEVERAL, extender(1, weight=None), {"scheduler.weight": "error"}),
    (SEVERAL, extender(1, weight=101), {"scheduler.weight": "warning"}),
    (SEVERAL, extender(0, nodeCacheCapable=False), {"scheduler.nodes": "warning"}),
    (SEVERAL, extender(0, urlPrefix="http://a:b@127.0.0.1/"), {"scheduler.credentials": "error"}),
    (SEVERAL, extender(0, urlPrefix="http://filter.berth"), {"scheduler.plain": "warning"}),
    (SEVERAL, extender(0, urlPrefix="https://filter.berth"), {}),
    (SEVERAL, extender(0, enableHTTPS=True), {"scheduler.certificates": "warning"}),
    (SEVERAL, lambda it: it["extenders"].pop(3), {"scheduler.verbs": "error"}),
    (SEVERAL, lambda it: it["extenders"].pop(2), {"scheduler.preempt": "warning"}),
    (SEVERAL, extender(2, bindVerb="bind"), {"scheduler.binder": "error"}),
    (SEVERAL, lambda it: it.pop("leaderElection"), {"scheduler.election": "error"}),
    (SEVERAL, lambda it: it["leaderElection"].update(leaderElect=False), {"scheduler.election": "error"}),
    (ONE, extender(0, managedResources=[{"name": "berth.dev/ip"}]), {"scheduler.counted": "error"}),
    (ONE, extender(0, bindVerb=None), {"scheduler.verbs": "error"}),
    (ONE, foreign(filterVerb="filter"), {}),
    (
        ONE,
        foreign(
            managedResources=[{"name": "berth.dev/ip", "ignoredByScheduler": True}], nodeCacheCapable=True
        ),
        {"scheduler.twice": "error"},
    ),
]


@pytest.mark.parametrize(("document", "change", "wanted"), CASES, ids=range(len(CASES)))
def test_one_change_is_found_and_nothing_else(
    document: Any, change: Callable[[Any], object], wanted: dict[str, str]
) -> None:
    wrong = changed(document, change)
    for entry in wrong["extenders"]:
        for key in [key for key, value in entry.items() if value is None]:
            del entry[key]
    assert ids(wrong, pool(), replicas=2) == wanted


def test_another_extender_that_binds_keeps_berth_from_it() -> None:
    wrong = changed(changed(ONE, lambda it: it["extenders"][0].pop("bindVerb")), foreign(bindVerb="bind"))
    assert ids(wrong, pool()) == {"scheduler.binder": "error"}


def test_a_resource_that_is_not_listed_is_found() -> None:
    assert ids(ONE, pool(), pool("licence")) == {"scheduler.managed": "error"}


def test_preemption_needs_its_verb_and_a_resource_that_kube_scheduler_counts() -> None:
    native = pool(preemption="Native")
    without = changed(SEVERAL, lambda it: it["extenders"].pop(2))
    assert ids(without, native) == {"scheduler.preempt": "error"}
    groups = {"ignoredResourceGroups": ["berth.dev", "native.berth.dev"]}
    ignoring = changed(SEVERAL, lambda it: it[PROFILE][0]["pluginConfig"][0].update(args=groups))
    assert ids(ignoring, native) == {"scheduler.native": "error"}


def test_no_login_is_in_what_is_said() -> None:
    wrong = changed(SEVERAL, extender(0, urlPrefix="http://berth:guess@far/", httpTimeout="1s"))
    given = inputs_of(schedulers=scheduler(wrong))
    said = [finding for check in checks.CHECKS for finding in check.look(given)]
    assert len(said) == 3
    assert "guess" not in repr(said)


def test_without_a_configuration_nothing_is_called_right() -> None:
    given = inputs_of(schedulers=())
    assert [finding for check in checks.CHECKS for finding in check.look(given)] == []
    assert "scheduler.sampling" in given.unlooked
    assert [*given.unchecked] == [
        "the scheduler's configuration could not be checked: none is in the cluster (--scheduler-config)"
    ]


HEAD = "kind: KubeSchedulerConfiguration\n"


@pytest.mark.parametrize(
    ("text", "trouble"),
    [
        ("kind: 2026-11-25", "its kind is 2026-11-25, and should be KubeSchedulerConfiguration"),
        ("kind: !!bool x", "it is not YAML: a value is not what its tag says"),
        ("kind: !!timestamp x", "it is not YAML: a value is not what its tag says"),
        ("", "it holds 0 documents, and should hold one"),
        ("extenders: [{urlPrefix: http://a:token@b}", "it is not YAML, line 1: while parsing"),
        (f"{HEAD}profiles: [null]", "Expected `object`, got `null` - at `$.profiles[0]`"),
        (
            f"{HEAD}profiles: [{{pluginConfig: [{{args: {{ignoredResourceGroups: 5}}}}]}}]",
            "Expected `array`, got `int` - at `$.profiles[0].pluginConfig[0].args.ignoredResourceGroups`",
        ),
    ],
)
def test_a_configuration_that_can_t_be_read_says_why(text: str, trouble: str) -> None:
    read = _read("a.yaml", text, None)
    assert read.configuration is None
    assert read.trouble.startswith(trouble)
    assert "token" not in read.trouble


def test_what_is_null_or_empty_is_what_kube_scheduler_takes_without_it() -> None:
    nulls = (
        "profiles: []\nleaderElection: null\nextenders: [{urlPrefix: http://a, weight: null, bindVerb: }]\n"
    )
    plugins = "profiles: [{schedulerName: null, pluginConfig: [{name: NodeResourcesFit, args: null}]}]\n"
    empty, absent = (_read("a.yaml", f"{HEAD}{text}", None).configuration for text in (nulls, plugins))
    assert empty == SchedulerConfiguration(HEAD.split()[1], extenders=[Extender(url_prefix="http://a")])
    assert absent is not None
    assert absent.profiles == (Profile(plugin_config=[PluginConfig("NodeResourcesFit")]),)


RUBBISH = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.dates() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=3), inner, max_size=2),
    max_leaves=4,
)


@given_any(st.sampled_from([SEVERAL, ONE]), st.lists(st.integers(0, 40), max_size=8), RUBBISH)
def test_rubbish_anywhere_is_a_finding_or_is_passed_over(document: Any, way: list[int], rubbish: Any) -> None:
    odd = holder = copy.deepcopy({"": document})
    key: Any = ""
    for step in way:
        if not isinstance(holder[key], dict | list) or not holder[key]:
            break
        holder = holder[key]
        keys = [*holder] if isinstance(holder, dict) else range(len(holder))
        key = keys[step % len(keys)]
    holder[key] = rubbish
    read = _read("a.yaml", yaml.safe_dump(odd[""]), 2)
    given = inputs_of(schedulers=(read,), pools=[pool()])
    found = [finding for check in checks.CHECKS for finding in check.look(given)]
    assert found or not read.trouble
