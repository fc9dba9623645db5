"""Rights: whether this user may install or use Berth, and whether each function's account may do its work.
The tables are infra's roles; tests/e2e/test_check.py compares them."""

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor

from berth.api.names import GROUP
from berth.checks.finding import AFTER, BEFORE, Check, Finding, Rule, listed
from berth.checks.inputs import KNATIVE, Inputs
from berth.controller.infra import NAMESPACE
from berth.errors import ClusterRefusedError
from berth.kube.configuration import Right

_AT_ONCE = 8
_RBAC, _ADMISSION = "rbac.authorization.k8s.io", "admissionregistration.k8s.io"

_PODS = (Right("get", "", "pods"), Right("list", "", "pods"), Right("patch", "", "pods/status"))
_IDENTITY = Right("get", "", "namespaces", name="kube-system")
_REVIEW = Right("create", "authentication.k8s.io", "tokenreviews")
_CLAIM = (Right("get", GROUP, "poolclaims"), Right("patch", GROUP, "poolclaims/status"))
_NODES = (Right("get", "", "nodes"), Right("list", "", "nodes"))
_STATUS = (Right("patch", GROUP, "pools/status"), Right("patch", GROUP, "poolclaims/status"))
_POOLS = (Right("list", GROUP, "pools"), Right("list", GROUP, "poolclaims"))

_EVENTS = (Right("create", "events.k8s.io", "events"), Right("patch", "events.k8s.io", "events"))

_PODGROUPS = ("scheduling.k8s.io", "podgroups")
_BOUND = (Right("create", "", "pods/binding"), Right("list", "", "nodes"), Right("get", *_PODGROUPS))
_BIND = (*_PODS, _IDENTITY, *_CLAIM, *_EVENTS, *_BOUND)
FUNCTIONS: dict[str, tuple[Right, ...]] = {
    "filter": (_REVIEW,),
    "prioritize": (_REVIEW,),
    "preempt": (_REVIEW,),
    "bind": (*_BIND, _REVIEW),
    "extender": (*_BIND, _REVIEW),
    "release": (*_PODS, _IDENTITY, *_CLAIM, *_EVENTS, Right("get", "", "nodes")),
    "inventory": (
        *(*_PODS, _IDENTITY, *_NODES, *_POOLS, *_STATUS, *_EVENTS, _REVIEW),
        *(Right("patch", GROUP, "pools"), Right("get", GROUP, "poolclaims")),
    ),
    "reconcile": (*_PODS, _IDENTITY, *_NODES, *_POOLS, *_STATUS, *_EVENTS, Right("list", *_PODGROUPS)),
    "status": (Right("list", "", "pods"), Right("list", "", "nodes"), _IDENTITY),
    "events": tuple(
        Right(verb, group, resource)
        for group, resource in (("", "pods"), ("", "nodes"), (GROUP, "pools"), (GROUP, "poolclaims"))
        for verb in ("get", "list", "watch")
    ),
}
"""What each function asks of the API server, by its account berth-NAME in namespace berth."""

NATIVE = {name: (Right("patch", "", "nodes/status"),) for name in ("inventory", "reconcile")}
"""What is needed besides for Pools with preemption: Native (infra/components/native)."""

RELAY = (
    Right("create", "coordination.k8s.io", "leases", NAMESPACE),
    *(Right(verb, "coordination.k8s.io", "leases", NAMESPACE, "berth-relay") for verb in ("get", "update")),
)
"""What the account berth-events needs besides for a relay in place of Knative's sources."""

_READS, _WRITES = ("get", "list"), ("get", "list", "create", "update", "delete")
LEDGER = {
    **dict.fromkeys(("filter", "prioritize", "preempt", "status"), _READS),
    **dict.fromkeys(("bind", "extender", "release", "inventory", "reconcile"), _WRITES),
}
"""The verbs on ConfigMaps of the ledger's namespace (infra/components/configmap)."""

INSTALLED = (
    ("", "namespaces"),
    ("", "serviceaccounts"),
    ("", "configmaps"),
    ("", "secrets"),
    ("", "resourcequotas"),
    ("apiextensions.k8s.io", "customresourcedefinitions"),
    (_RBAC, "roles"),
    (_RBAC, "clusterroles"),
    (_RBAC, "rolebindings"),
    (_RBAC, "clusterrolebindings"),
    ("apps", "deployments"),
    ("policy", "poddisruptionbudgets"),
    ("networking.k8s.io", "networkpolicies"),
    (_ADMISSION, "validatingadmissionpolicies"),
    (_ADMISSION, "validatingadmissionpolicybindings"),
    (_ADMISSION, "mutatingadmissionpolicies"),
    (_ADMISSION, "mutatingadmissionpolicybindings"),
)
"""The kinds that each of infra/overlays makes; beside them those of Knative's, or:"""

WITHOUT_KNATIVE = (("", "services"), ("autoscaling", "horizontalpodautoscalers"))

_CLUSTER_WIDE = {
    "namespaces",
    "customresourcedefinitions",
    "clusterroles",
    "clusterrolebindings",
    "validatingadmissionpolicies",
    "validatingadmissionpolicybindings",
    "mutatingadmissionpolicies",
    "mutatingadmissionpolicybindings",
}
_OPERATOR = (Right("list", "", "pods"), Right("list", "", "nodes"), _IDENTITY, *_POOLS)
_LOCAL = (Right("watch", "", "pods"), Right("watch", "", "nodes"))

INSTALL = Rule(
    id="rights.install",
    severity="error",
    meaning="This user may not make all that an overlay consists of. kubectl apply stops in the middle.",
    action="Install as a user with these rights, such as one bound to cluster-admin.",
    more="docs/install.md#steps",
)
ESCALATE = Rule(
    id="rights.escalate",
    severity="error",
    meaning=(
        "This user may make roles, but lacks rights that Berth's roles give. The API server lets nobody "
        "give what he does not have."
    ),
    action="Install as a user with these rights, or with the verb escalate on clusterroles.",
    more="docs/access.md#rights",
)
ACCOUNT = Rule(
    id="rights.account",
    severity="error",
    meaning="A function's account lacks a right that the function uses. Its calls are refused.",
    action="Apply the overlay again: it has the roles and their bindings.",
    more="docs/access.md#rights",
)
USER = Rule(
    id="rights.user",
    severity="error",
    meaning=(
        "This user lacks rights that berth's commands use or, where the functions have no accounts, those "
        "that the functions of berth up use."
    ),
    action="Use a kubeconfig of a user with these rights.",
    more="docs/access.md#rights",
)


def lacking(inputs: Inputs, rights: Iterable[Right], account: str = "") -> list[Right]:
    """Return those of the rights that this user, or the account, does not have."""
    wanted = list(dict.fromkeys(rights))
    with ThreadPoolExecutor(_AT_ONCE) as workers:
        answers = list(workers.map(lambda right: inputs.cluster.may(right, account), wanted))
    return [right for right, has in zip(wanted, answers, strict=True) if not has]


def _install(inputs: Inputs) -> Iterator[Finding]:
    knatives = [(group, resource) for resource, _, group in (name.partition(".") for name in KNATIVE)]
    more = WITHOUT_KNATIVE if inputs.missing_of_knative else knatives
    rights = [
        Right(verb, group, resource, "" if resource in _CLUSTER_WIDE else NAMESPACE)
        for group, resource in (*INSTALLED, *more)
        for verb in ("get", "create", "patch")
    ]
    if missing := lacking(inputs, rights):
        names = [str(right) for right in missing]
        yield INSTALL.finding(f"this user may not {listed(names)}", *names)


def _escalate(inputs: Inputs) -> Iterator[Finding]:
    if not lacking(inputs, [Right("escalate", _RBAC, "clusterroles")]):
        return
    given = [right for name in FUNCTIONS for right in (*FUNCTIONS[name], *NATIVE.get(name, ()))]
    ledger = [Right(verb, "", "configmaps", "berth-ledger") for verb in _WRITES]
    relay = RELAY if inputs.missing_of_knative else ()
    if missing := lacking(inputs, [*given, *ledger, *relay]):
        names = [str(right) for right in missing]
        yield ESCALATE.finding(f"this user may not {listed(names)}", *names)


def _accounts(inputs: Inputs) -> Iterator[Finding]:
    if not inputs.accounts:
        inputs.leave(ACCOUNT)
        return
    native = any(pool.spec.preemption == "Native" for pool in inputs.pools.values())
    store = inputs.store or ""
    namespace = store.removeprefix("configmap://").partition("/")[0] if store.startswith("configmap:") else ""
    for name in inputs.accounts:
        rights = [*_used(inputs, FUNCTIONS[name]), *(NATIVE.get(name, ()) if native else ())]
        if name == "events" and inputs.without_knative:
            rights += RELAY
        if namespace:
            rights += [Right(verb, "", "configmaps", namespace) for verb in LEDGER.get(name, ())]
        account = f"{NAMESPACE}/berth-{name}"
        if missing := lacking(inputs, rights, account):
            said = listed(map(str, missing))
            yield ACCOUNT.finding(f"account {account} may not {said}", account)


def _user(inputs: Inputs) -> Iterator[Finding]:
    rights = [*_OPERATOR]
    if not _seen(lambda: inputs.installed):
        rights += [
            *_LOCAL,
            *(right for name in ("bind", "release", "reconcile") for right in _used(inputs, FUNCTIONS[name])),
        ]
    if inputs.options.environment.get("BERTH_POOLS"):
        rights = [right for right in rights if right.resource not in ("pools", "pools/status")]
    if not _seen(lambda: "poolclaims.berth.dev" in inputs.definitions):
        rights = [right for right in rights if right.group != GROUP]
    if missing := lacking(inputs, (right for right in rights if right != _REVIEW)):
        names = [str(right) for right in missing]
        yield USER.finding(f"this user may not {listed(names)}", *names)


def _used(inputs: Inputs, rights: Iterable[Right]) -> list[Right]:
    """Return the rights without those for events about pods, where these are off."""
    set_to = inputs.options.environment.get("BERTH_EVENTS") or inputs.settings.get("BERTH_EVENTS")
    return [right for right in rights if set_to != "off" or right not in _EVENTS]


def _seen(look: Callable[[], bool]) -> bool:
    """Return what the look says; True where this user may not look: what he lacks is told all the same."""
    try:
        return look()
    except ClusterRefusedError:
        return True


CHECKS = (
    Check("this user's rights to install", _install, (INSTALL,), BEFORE),
    Check("this user's rights to install", _escalate, (ESCALATE,), BEFORE),
    Check("the functions' rights", _accounts, (ACCOUNT,), AFTER),
    Check("this user's rights", _user, (USER,), AFTER),
)
