"""A kube-scheduler's configuration: whether it asks Berth for each pod that it should, in time, in private.
It is read, not tried: what kube-scheduler refuses when it starts is told here before."""

import re
from collections import Counter
from collections.abc import Iterator
from typing import NamedTuple
from urllib.parse import urlsplit

from berth.api.names import GROUP, NATIVE
from berth.checks.finding import AFTER, Check, Finding, Rule, listed
from berth.checks.inputs import Inputs, Scheduler
from berth.kube.configuration import Extender, Profile

_CONFIGURATION = "docs/install.md#the-schedulers-configuration"
_BIND_SECONDS = 5.0  # bind takes up to 4.8
_MOST_WEIGHT = 100
_LOCAL = ("localhost", "127.0.0.1", "::1")
_DURATION = re.compile(r"(\d+(?:\.\d+)?)(ns|us|µs|ms|s|m|h)")
_SECONDS = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}

UNREADABLE = Rule(
    id="scheduler.unreadable",
    severity="error",
    meaning="The scheduler's configuration can't be read, so kube-scheduler does not start with it.",
    action="Write it anew with berth scheduler-config.",
    more=_CONFIGURATION,
)
MISSING = Rule(
    id="scheduler.missing",
    severity="warning",
    meaning=(
        "Berth is installed, and the Deployment berth-scheduler is not, or mounts no configuration. If no "
        "other scheduler calls Berth, its pods wait for ever."
    ),
    action="Apply the overlay again, or name the other scheduler's configuration by --scheduler-config.",
    more="docs/install.md#a-kube-scheduler",
)
VERBS = Rule(
    id="scheduler.verbs",
    severity="error",
    meaning="No extender sends Berth the calls filter and bind. Without bind nothing is counted.",
    action="Add filterVerb and bindVerb, or write the configuration anew with berth scheduler-config.",
    more=_CONFIGURATION,
)
PREEMPT = Rule(
    id="scheduler.preempt",
    severity="warning",
    meaning=(
        "No extender sends Berth the call preempt. Pods are evicted in vain where units are short. It is an "
        "error while a Pool has preemption: Native."
    ),
    action="Add preemptVerb: preempt to an extender.",
    more="docs/concepts/preemption.md#in-a-cluster",
)
BINDER = Rule(
    id="scheduler.binder",
    severity="error",
    meaning="Another extender owns bind. kube-scheduler takes one that binds, and Berth must be it.",
    action="Give Berth's pods a scheduler of their own, without that extender.",
    more="docs/kubernetes.md#several-extenders",
)
TWICE = Rule(
    id="scheduler.twice",
    severity="error",
    meaning="Two extenders manage the same resource. kube-scheduler refuses to start.",
    action=(
        "Take one URL for all verbs (functions/extender), or leave managedResources out of Berth's entries."
    ),
    more="docs/kubernetes.md#several-extenders",
)
SAMPLING = Rule(
    id="scheduler.sampling",
    severity="error",
    meaning=(
        "kube-scheduler looks at a share of the nodes before it calls Berth. A pool that few nodes have is "
        "missed, and pods wait beside free units."
    ),
    action="Set percentageOfNodesToScore: 100 in the profile.",
    more="docs/kubernetes.md#sampling",
)
COUNTED = Rule(
    id="scheduler.counted",
    severity="error",
    meaning=(
        "kube-scheduler counts a Pool's resource itself. No node has that resource, so it refuses each pod "
        "that asks for it."
    ),
    action=(
        "List the resource's domain in ignoredResourceGroups of NodeResourcesFit, or, with "
        "managedResources, set ignoredByScheduler: true."
    ),
    more="docs/kubernetes.md#ignored-resources",
)
NATIVE_IGNORED = Rule(
    id="scheduler.native",
    severity="error",
    meaning=(
        "kube-scheduler ignores the resource of a Pool with preemption: Native. It finds nobody to evict."
    ),
    action=f"Take {NATIVE} out of ignoredResourceGroups, and ignoredByScheduler: true from its resources.",
    more="docs/kubernetes.md#what-kube-scheduler-evicts-for",
)
MANAGED = Rule(
    id="scheduler.managed",
    severity="error",
    meaning=(
        "managedResources does not list a Pool's resource. kube-scheduler does not ask Berth for its pods."
    ),
    action="Add the resource to managedResources, and restart kube-scheduler.",
    more=_CONFIGURATION,
)
TIMEOUT = Rule(
    id="scheduler.timeout",
    severity="error",
    meaning="httpTimeout is below what bind may take. kube-scheduler gives up while the Binding is made.",
    action="Set httpTimeout: 5s or more.",
    more="docs/kubernetes.md#time-outs",
)
WEIGHT = Rule(
    id="scheduler.weight",
    severity="warning",
    meaning=(
        "The weight of Berth's scores is odd: above 100 it outweighs all plugins together. None at all is "
        "an error, for kube-scheduler refuses to start."
    ),
    action="Set weight: 1, which is a plugin's, or a few times that.",
    more="docs/kubernetes.md#scores",
)
NODES = Rule(
    id="scheduler.nodes",
    severity="warning",
    meaning=(
        "nodeCacheCapable is not true. kube-scheduler sends whole nodes, and forgets the pods on them when "
        "it scores."
    ),
    action="Set nodeCacheCapable: true.",
    more="docs/kubernetes.md#node-names-only",
)
CREDENTIALS = Rule(
    id="scheduler.credentials",
    severity="error",
    meaning="A URL holds a login. kube-scheduler prints it into its log and into the events of pods.",
    action="Take it out, make a new token, and let a proxy add that (berth scheduler-config --proxy).",
    more="docs/kubernetes.md#credentials",
)
PLAIN = Rule(
    id="scheduler.plain",
    severity="warning",
    meaning=(
        "kube-scheduler calls Berth on another host without TLS. Who is between them can read and change it."
    ),
    action="Call by https, or through a proxy beside kube-scheduler.",
    more="docs/install.md#the-proxy",
)
UNVERIFIED = Rule(
    id="scheduler.certificates",
    severity="warning",
    meaning="The certificate of Berth's URL is not checked.",
    action="Take enableHTTPS away (an https URL does without), or name an authority in tlsConfig.caFile.",
    more="docs/kubernetes.md#certificates",
)
NAMES = Rule(
    id="scheduler.names",
    severity="error",
    meaning="The scheduler's names are not those that Berth takes for its own. bind refuses their pods.",
    action="Make the profiles' schedulerName and BERTH_SCHEDULER_NAMES the same.",
    more="docs/install.md#what-is-in-it",
)
DEFAULT = Rule(
    id="scheduler.default",
    severity="error",
    meaning=(
        "The default scheduler calls Berth for every pod. Its functions are pods of that scheduler: while "
        "none runs, none can start."
    ),
    action="Give Berth a scheduler of its own, or take functions/extender with managedResources.",
    more="docs/kubernetes.md#functions-are-pods-too",
)
ELECTION = Rule(
    id="scheduler.election",
    severity="error",
    meaning=(
        "Replicas of the scheduler do not elect one, or they share the lease of the cluster's own scheduler "
        "and wait for it for ever."
    ),
    action="Set leaderElect: true with a resourceNamespace and resourceName of its own (--lease).",
    more=_CONFIGURATION,
)
OTHER = Rule(
    id="scheduler.other",
    severity="warning",
    meaning="Another scheduler with an extender that binds is in the cluster. No pod can be placed by both.",
    action="Let no pod ask for the resources of both.",
    more="docs/kubernetes.md#several-extenders",
)
_OTHERS = ("hami-scheduler", "gpushare-schd-extender", "gpushare-scheduler-extender", "gpu-admission")


class _Entries(NamedTuple):
    """A configuration's extenders: those of Berth, and others."""

    ours: list[Extender]
    others: list[Extender]

    @property
    def managed(self) -> dict[str, bool]:
        """Resources for which alone Berth is called, and whether kube-scheduler ignores them; none: it is
        called for every pod."""
        resources = [each for extender in self.ours for each in extender.managed_resources or ()]
        return {resource.name: resource.ignored_by_scheduler for resource in resources}


def _unreadable(inputs: Inputs) -> Iterator[Finding]:
    for scheduler in inputs.schedulers:
        if scheduler.configuration is None:
            yield UNREADABLE.finding(f"{scheduler.source}: {scheduler.trouble}", scheduler.source)


def _missing(inputs: Inputs) -> Iterator[Finding]:
    if inputs.installed and not inputs.schedulers:
        yield MISSING.finding("Deployment berth/berth-scheduler mounts no configuration, or is not there")


def _readable(inputs: Inputs) -> Iterator[tuple[Scheduler, _Entries]]:
    rules = [rule for check in CHECKS for rule in check.rules if rule not in (MISSING, OTHER)]
    if not inputs.schedulers:
        inputs.skip("the scheduler's configuration", "none is in the cluster (--scheduler-config)", *rules)
    for scheduler in inputs.schedulers:
        if scheduler.configuration is None:
            inputs.leave(*rules)  # UNREADABLE tells why
        else:
            entries = _Entries([], [])
            for extender in scheduler.configuration.extenders or ():
                (entries.ours if _is_ours(extender, inputs) else entries.others).append(extender)
            yield scheduler, entries


def _is_ours(extender: Extender, inputs: Inputs) -> bool:
    """Whether it is Berth's: other extenders are for resources of their own."""
    managed = extender.managed_resources or ()
    return not managed or any(inputs.is_ours(resource.name) for resource in managed)


def _verbs(inputs: Inputs) -> Iterator[Finding]:
    for scheduler, entries in _readable(inputs):
        given = {"filter": "filter_verb", "bind": "bind_verb"}
        missing = [verb for verb, field in given.items() if not any(getattr(e, field) for e in entries.ours)]
        foreign = [_host(extender) for extender in entries.others if extender.bind_verb]
        if foreign:
            missing = [verb for verb in missing if verb != "bind"]
            yield BINDER.finding(f"{scheduler.source}: {listed(foreign)} binds", *foreign)
        elif sum(bool(extender.bind_verb) for extender in entries.ours) > 1:
            yield BINDER.finding(f"{scheduler.source}: two extenders have a bindVerb", scheduler.source)
        if missing:
            yield VERBS.finding(f"{scheduler.source}: no extender has {_fields(missing)}", scheduler.source)
        if not missing and not any(extender.preempt_verb for extender in entries.ours):
            native = sorted(pool.name for pool in inputs.pools.values() if pool.spec.preemption == "Native")
            why = f", and {listed(native)} has preemption: Native" if native else ""
            said = f"{scheduler.source}: no extender has preemptVerb{why}"
            yield PREEMPT.finding(said, scheduler.source, *native, severity="error" if native else None)


def _fields(verbs: list[str]) -> str:
    return " and ".join(f"{verb}Verb" for verb in verbs)


def _twice(inputs: Inputs) -> Iterator[Finding]:
    for scheduler, entries in _readable(inputs):
        extenders = (*entries.ours, *entries.others)
        counted = Counter(each.name for extender in extenders for each in extender.managed_resources or ())
        if twice := sorted(name for name, count in counted.items() if count > 1):
            yield TWICE.finding(f"{scheduler.source}: {listed(twice)} is in two extenders", *twice)


def _profiles(inputs: Inputs) -> Iterator[tuple[Scheduler, _Entries, Profile]]:
    """Yield the profiles by which Berth's pods are placed."""
    for scheduler, entries in _readable(inputs):
        assert scheduler.configuration is not None
        for profile in scheduler.configuration.profiles:
            if profile.scheduler_name in inputs.scheduler_names or not entries.managed:
                yield scheduler, entries, profile


def _sampling(inputs: Inputs) -> Iterator[Finding]:
    for scheduler, _, profile in _profiles(inputs):
        assert scheduler.configuration is not None
        whole, own = (
            scheduler.configuration.percentage_of_nodes_to_score,
            profile.percentage_of_nodes_to_score,
        )
        share = whole if own is None else own
        if share != 100:
            said = "is not set" if share is None else f"is {share}"
            name = profile.scheduler_name
            yield SAMPLING.finding(
                f"{scheduler.source}: profile {name}: percentageOfNodesToScore {said}", name
            )


def _counted(inputs: Inputs) -> Iterator[Finding]:
    for scheduler, entries, profile in _profiles(inputs):
        groups, resources = _ignored(profile)
        name = f"{scheduler.source}: profile {profile.scheduler_name}"
        if entries.managed:
            resources = {*resources, *(each for each, ignored in entries.managed.items() if ignored)}
            known = set(entries.managed)
        else:
            known = set(inputs.resources) or {f"{GROUP}/*"}
        ignored = {each for each in known if each in resources or each.partition("/")[0] in groups}
        counted = {each for each in known - ignored if inputs.is_ours(each) and not _is_native(each)}
        if counted:
            yield COUNTED.finding(f"{name}: {listed(sorted(counted))} is not ignored", *sorted(counted))
        if NATIVE in groups or any(map(_is_native, ignored)):
            yield NATIVE_IGNORED.finding(f"{name}: {NATIVE} is ignored", profile.scheduler_name)


def _is_native(resource: str) -> bool:
    return resource.startswith(f"{NATIVE}/")


def _ignored(profile: Profile) -> tuple[set[str], set[str]]:
    """Return the groups and the resources that the profile's NodeResourcesFit does not count."""
    for plugin in profile.plugin_config or ():
        if plugin.name == "NodeResourcesFit":
            return set(plugin.args.ignored_resource_groups), set(plugin.args.ignored_resources)
    return set(), set()


def _managed(inputs: Inputs) -> Iterator[Finding]:
    for scheduler, entries in _readable(inputs):
        if entries.managed and (missing := sorted(inputs.resources.keys() - entries.managed.keys())):
            yield MANAGED.finding(f"{scheduler.source}: managedResources lacks {listed(missing)}", *missing)


def _calls(inputs: Inputs) -> Iterator[Finding]:
    """How each of Berth's extenders is called."""
    for scheduler, entries in _readable(inputs):
        for extender in entries.ours:
            where = f"{scheduler.source}: {_host(extender)}{_verb(extender)}"
            yield from _answered(where, extender)
            yield from _private(where, extender)


def _answered(where: str, extender: Extender) -> Iterator[Finding]:
    seconds = _duration(extender.http_timeout)
    if seconds is None or 0 < seconds < _BIND_SECONDS:  # kube-scheduler takes 5 s for none
        yield TIMEOUT.finding(f"{where}: httpTimeout is {extender.http_timeout}", _host(extender))
    if extender.prioritize_verb and not 0 < (extender.weight or 0) <= _MOST_WEIGHT:
        none = not extender.weight or extender.weight < 0
        said = f"{where}: weight is {extender.weight if extender.weight is not None else 'missing'}"
        yield WEIGHT.finding(said, _host(extender), severity="error" if none else None)
    if not extender.node_cache_capable:
        yield NODES.finding(f"{where}: nodeCacheCapable is not true", _host(extender))


def _private(where: str, extender: Extender) -> Iterator[Finding]:
    host = _host(extender)
    if "@" in _authority(extender):
        yield CREDENTIALS.finding(f"{where}: its urlPrefix holds a login", host)
    https = extender.url_prefix.startswith("https:") or extender.enable_https
    if not https and _hostname(extender) not in _LOCAL:
        yield PLAIN.finding(f"{where} is called by http", host)
    tls = extender.tls_config
    if (extender.enable_https and (tls is None or not (tls.ca_file or tls.ca_data))) or (
        tls and tls.insecure
    ):
        yield UNVERIFIED.finding(f"{where}: its certificate is not checked", host)


def _authority(extender: Extender) -> str:
    return extender.url_prefix.partition("://")[2].partition("/")[0]


def _hostname(extender: Extender) -> str:
    try:
        return urlsplit(f"//{_authority(extender)}").hostname or ""
    except ValueError:
        return ""


def _host(extender: Extender) -> str:
    """Return the URL's host and port, without a login."""
    return _authority(extender).rpartition("@")[2]


def _verb(extender: Extender) -> str:
    verbs = (extender.filter_verb, extender.prioritize_verb, extender.preempt_verb, extender.bind_verb)
    named = [verb for verb in verbs if verb]
    return f" ({', '.join(named)})" if named else ""


def _duration(text: str | int | None) -> float | None:
    """Return a Go duration's seconds, 0 where there is none; None where it can't be read."""
    if not text:
        return 0.0
    if isinstance(text, int):
        return text / 1e9
    parts = _DURATION.findall(text)
    if "".join(number + unit for number, unit in parts) != text:
        return None
    return sum(float(number) * _SECONDS[unit] for number, unit in parts)


def _names(inputs: Inputs) -> Iterator[Finding]:
    ours = inputs.scheduler_names
    for scheduler, entries in _readable(inputs):
        assert scheduler.configuration is not None
        profiles = [profile.scheduler_name for profile in scheduler.configuration.profiles]
        foreign = [name for name in profiles if name not in ours]
        if not entries.managed and "default-scheduler" in profiles:
            yield DEFAULT.finding(f"{scheduler.source}: profile default-scheduler", "default-scheduler")
            foreign.remove("default-scheduler") if "default-scheduler" in foreign else None
        wrong = foreign and (not entries.managed or not set(profiles) & set(ours))
        if wrong:
            said = f"{scheduler.source}: profiles {listed(profiles)}; Berth's are {listed(ours)}"
            yield NAMES.finding(said, *foreign)


def _election(inputs: Inputs) -> Iterator[Finding]:
    for scheduler, _ in _readable(inputs):
        assert scheduler.configuration is not None
        election = scheduler.configuration.leader_election
        profiles = [profile.scheduler_name for profile in scheduler.configuration.profiles]
        lease = (election.resource_namespace, election.resource_name)
        if election.leader_elect and lease == ("kube-system", "kube-scheduler"):
            if "default-scheduler" not in profiles:
                said = f"{scheduler.source}: it elects by the lease kube-system/kube-scheduler"
                yield ELECTION.finding(said, scheduler.source)
        elif not election.leader_elect and (scheduler.replicas or 0) > 1:
            said = f"{scheduler.source}: {scheduler.replicas} replicas, and leaderElect is false"
            yield ELECTION.finding(said, scheduler.source)


def _other(inputs: Inputs) -> Iterator[Finding]:
    if others := inputs.deployments_of(_OTHERS):
        yield OTHER.finding(f"Deployment {listed(others)}", *others)


CHECKS = (
    Check("the scheduler's configuration", _unreadable, (UNREADABLE,)),
    Check("the scheduler's configuration", _missing, (MISSING,), AFTER),
    Check("the scheduler's extenders", _verbs, (VERBS, PREEMPT, BINDER)),
    Check("the scheduler's extenders", _twice, (TWICE,)),
    Check("the scheduler's profiles", _sampling, (SAMPLING,)),
    Check("the scheduler's profiles", _counted, (COUNTED, NATIVE_IGNORED)),
    Check("the scheduler's extenders", _managed, (MANAGED,)),
    Check(
        "the scheduler's extenders",
        _calls,
        (TIMEOUT, WEIGHT, NODES, CREDENTIALS, PLAIN, UNVERIFIED),
    ),
    Check("the scheduler's profiles", _names, (NAMES, DEFAULT)),
    Check("the scheduler's lease", _election, (ELECTION,)),
    Check("other schedulers", _other, (OTHER,)),
)
