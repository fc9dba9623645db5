"""What Berth asks of the Kubernetes API: pods, nodes, Bindings, a pod's condition, Pools, PoolClaims.
What an answer means for a claim the caller decides."""

import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing
from typing import TYPE_CHECKING, Any, Generic, TypeVar
from urllib.parse import quote, urlencode

import msgspec

from berth.deadline import NO_DEADLINE, Deadline
from berth.errors import BadInputError, ClusterRefusedError, ClusterUnavailableError
from berth.kube.client import DEFAULT_TIMEOUT, ApiServer, Client, Request, configured
from berth.kube.types import EndedPod, Node, Pod, PodGroup, PodInFull, PodToBind, PriorityClass

if TYPE_CHECKING:
    from berth.kube.configuration import Right

T = TypeVar("T")

_API_VERSION = "berth.dev/v1alpha1"
BERTH_API = f"/apis/{_API_VERSION}"
POOLS = f"{BERTH_API}/pools"
POOL_CLAIMS = f"{BERTH_API}/poolclaims"

_PAGE = 500
_CLAIMS_PAGE = 100  # a PoolClaim may be a megabyte
_WATCH_SECONDS = 240
_REVIEWS, _ACCOUNTS = "/apis/authentication.k8s.io/v1/tokenreviews", "system:serviceaccount:"
_KUBE_SYSTEM = "/api/v1/namespaces/kube-system"
_AUTHORIZATION = "authorization.k8s.io/v1"
_POD_GROUPS = tuple(f"/apis/scheduling.k8s.io/{version}" for version in ("v1beta1", "v1alpha2"))  # 1.37, 1.36
_IDENTITY_SECONDS = 1.0  # within bind's deadline
_MERGE = "application/merge-patch+json"
_STRATEGIC_MERGE = "application/strategic-merge-patch+json"
_APPLY = "application/apply-patch+yaml"
_EVENTS = "/apis/events.k8s.io/v1/namespaces"
_EVENT_SECONDS = 5.0


class _ListMeta(msgspec.Struct, frozen=True):
    continue_: str | None = msgspec.field(default=None, name="continue")


class _List(msgspec.Struct, Generic[T]):
    metadata: _ListMeta = _ListMeta()
    items: list[T] | None = None


class _Any(msgspec.Struct):
    metadata: dict[str, Any] = {}
    items: list[dict[str, Any]] | None = None


class _Version(msgspec.Struct, rename="camel"):
    git_version: str = ""


class _ClaimMeta(msgspec.Struct, rename="camel", omit_defaults=True):
    """What is read of a PoolClaim's metadata; its annotations, which may be large, are skipped."""

    name: str
    namespace: str
    uid: str = ""
    resource_version: str = ""
    creation_timestamp: str = ""
    generation: int | None = None


class _Claim(msgspec.Struct, omit_defaults=True):
    metadata: _ClaimMeta
    spec: Any = None
    status: Any = None


class _Event(msgspec.Struct):
    type: str
    object: dict[str, Any] = {}


class _User(msgspec.Struct, frozen=True):
    username: str = ""


class _Review(msgspec.Struct, frozen=True):
    authenticated: bool = False
    user: _User = _User()
    audiences: list[str] | None = None


class _Reviewed(msgspec.Struct, frozen=True):
    status: _Review = _Review()


class _Resource(msgspec.Struct, frozen=True):
    name: str = ""


class _Resources(msgspec.Struct, frozen=True):
    resources: list[_Resource] | None = None


class _Allowed(msgspec.Struct, frozen=True):
    allowed: bool = False


class _AccessReviewed(msgspec.Struct, frozen=True):
    status: _Allowed = _Allowed()


class Cluster:
    """One API server, as the kubernetes client's own rules find it (KUBECONFIG, or in a pod its account).

    Every call may raise ClusterUnavailableError (no answer in time, 429, 5xx: it may have been done) or
    ClusterRefusedError (4xx: it was not done). `timeout` is in seconds. Safe to use from many threads.
    """

    def __init__(
        self, api: Client, monotonic: Callable[[], float] = time.monotonic, *, connections: int = 0
    ) -> None:
        """`connections` as in ApiServer."""
        self._api, self._monotonic = api, monotonic
        self._server = ApiServer(api, connections)
        self.host = self._server.host
        self._identity = ""

    def now(self) -> float:
        """Return the API server's time in Unix seconds, as its last answers told; this machine's own before
        the first one. All that decides by times goes by it."""
        return self._server.clock.now()

    def clock_ahead(self) -> float | None:
        """Return how many seconds this machine's clock is ahead of the API server's, below 0 where it is
        behind; None: its answers have no Date."""
        return self._server.clock.ahead()

    def identity(self) -> str:
        """Return the UID of namespace kube-system, which exists as long as its cluster; requested once."""
        if not self._identity:
            namespace = self._get(_Any, _KUBE_SYSTEM, _IDENTITY_SECONDS)
            if namespace is None:  # a new API server makes it a moment after it began to answer
                raise ClusterUnavailableError(f"the cluster at {self.host} has no namespace kube-system yet")
            self._identity = str(namespace.metadata["uid"])
        return self._identity

    def pod(
        self, namespace: str, name: str, timeout: float = DEFAULT_TIMEOUT, *, uid: str = ""
    ) -> Pod | None:
        """Return the pod as it is now (a consistent read), or None; with a `uid` None for any other pod."""
        pod = self._get(Pod, _pod_path(namespace, name), timeout)
        return None if pod is None or (uid and pod.metadata.uid != uid) else pod

    def pod_to_bind(self, namespace: str, name: str, timeout: float, *, uid: str) -> PodToBind | None:
        """Return the pod with this UID as it is now (a consistent read), with its conditions, or None."""
        pod = self._get(PodToBind, _pod_path(namespace, name), timeout)
        return None if pod is None or pod.metadata.uid != uid else pod

    def pod_with_conditions(self, namespace: str, name: str) -> PodInFull | None:
        """Return the pod as it is now (a consistent read), with its conditions, or None."""
        return self._get(PodInFull, _pod_path(namespace, name))

    def ended_pod(self, pod: Pod, timeout: float = DEFAULT_TIMEOUT) -> EndedPod | None:
        """Return this pod as it is now (a consistent read), with all that tells whether it ran, or None."""
        there = self._get(EndedPod, _pod_path(pod.namespace, pod.metadata.name), timeout)
        return None if there is None or there.metadata.uid != pod.metadata.uid else there

    def node(self, name: str, timeout: float = DEFAULT_TIMEOUT) -> Node | None:
        """Return the node as it is now (a consistent read), or None."""
        return self._get(Node, _node_path(name), timeout)

    def set_node_status(self, name: str, status: Mapping[str, Any]) -> None:
        """Merge this into the node's status; None takes a field away."""
        self._merge(f"{_node_path(name)}/status", {"status": status})

    def pods(self, wanted: Callable[[Pod], bool] | None = None) -> list[Pod]:
        """Return all pods that are wanted (None: all), as of one moment at or after the call. The others are
        not kept while the list is read: a large cluster's pods take some hundred megabytes."""
        return self._items(_List[Pod], "/api/v1/pods", {}, wanted=wanted)

    def unbound_pods(self, scheduler: str, timeout: float = DEFAULT_TIMEOUT) -> list[Pod]:
        """Return the pods of one schedulerName that have no node, as of one moment at or after the call."""
        query = {"fieldSelector": f"spec.nodeName=,spec.schedulerName={scheduler}"}
        return self._items(_List[Pod], "/api/v1/pods", query, timeout)

    def pending_pods(self, timeout: float = DEFAULT_TIMEOUT) -> list[PodInFull]:
        """Return the pods of any schedulerName that have no node and are not finished, with what is said of
        them, as of one moment at or after the call."""
        query = {"fieldSelector": "spec.nodeName="}
        path = "/api/v1/pods"
        return self._items(_List[PodInFull], path, query, timeout, wanted=lambda pod: not pod.finished)

    def pods_in(self, namespace: str, wanted: Callable[[Pod], bool], timeout: float) -> list[PodInFull]:
        """Return the pods of one namespace that are wanted, with which nodes they may have, as of one moment
        at or after the call."""
        path = f"/api/v1/namespaces/{_segment(namespace)}/pods"
        return self._items(_List[PodInFull], path, {}, timeout, wanted=wanted)

    def nodes(self, timeout: float = DEFAULT_TIMEOUT) -> list[Node]:
        """Return all nodes, as of one moment at or after the call."""
        return self._items(_List[Node], "/api/v1/nodes", {}, timeout)

    def priority_classes(self) -> list[PriorityClass]:
        """Return all PriorityClasses."""
        return self._items(_List[PriorityClass], "/apis/scheduling.k8s.io/v1/priorityclasses", {})

    def pod_group(self, namespace: str, name: str, timeout: float = DEFAULT_TIMEOUT) -> PodGroup | None:
        """Return the PodGroup as it is now (a consistent read), or None; also None where the cluster serves
        no such kind. `timeout` is for each version of the kind that is tried."""
        tail = f"namespaces/{_segment(namespace)}/podgroups/{_segment(name)}"
        for version in _POD_GROUPS:
            if (group := self._get(PodGroup, f"{version}/{tail}", timeout)) is not None:
                return group
        return None

    def pod_groups(self) -> list[PodGroup]:
        """Return all namespaces' PodGroups, as of one moment; none where the cluster serves no such kind."""
        for version in _POD_GROUPS:
            groups = self.collection(PodGroup, f"{version}/podgroups")
            if groups is not None:
                return groups
        return []

    def bind(self, pod: Pod, node: str, annotations: Mapping[str, str], timeout: float) -> None:
        """Put the pod on the node; the annotations are merged into the pod in the same write.

        The Binding carries the UID and resourceVersion that `pod` was read with: if the pod was written
        since, the answer is 409, a ClusterRefusedError (source: registry/core/pod/storage, BindingREST).
        """
        meta = pod.metadata
        body = {
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": {
                "name": meta.name,
                "uid": meta.uid,
                "resourceVersion": meta.resource_version,
                "annotations": dict(annotations),
            },
            "target": {"apiVersion": "v1", "kind": "Node", "name": node},
        }
        path = f"{_pod_path(pod.namespace, meta.name)}/binding"
        self._server.call(Request("POST", path, timeout, body))

    def set_condition(
        self, pod: Pod, condition: Mapping[str, str], timeout: float = DEFAULT_TIMEOUT
    ) -> Pod | None:
        """Set one condition in the pod's status. Return the pod as it is after the write, None if it is gone.

        After this write no Binding that carries an older resourceVersion can succeed. `timeout` is for the
        write and for reading the pod after a refusal, together.
        """
        deadline = Deadline.after(timeout, self._monotonic)
        meta = pod.metadata
        body = {"metadata": {"uid": meta.uid}, "status": {"conditions": [dict(condition)]}}
        path = f"{_pod_path(pod.namespace, meta.name)}/status"
        request = Request("PATCH", path, timeout, body, _STRATEGIC_MERGE)
        try:
            return _decode(Pod, self._server.call(request))
        except ClusterRefusedError:
            # 404, or 409 or 422 for a UID that is another pod's: it is gone, unless a read shows it.
            if self.pod(pod.namespace, meta.name, deadline.timeout(), uid=meta.uid) is not None:
                raise
            return None

    def account_of(self, token: str, audience: str, timeout: float) -> str:
        """Return the ServiceAccount, NAMESPACE/NAME, whose token for this audience it is; empty: nobody's."""
        body = {
            "apiVersion": "authentication.k8s.io/v1",
            "kind": "TokenReview",
            "spec": {"token": token, "audiences": [audience]},
        }
        request = Request("POST", _REVIEWS, timeout, body, again=True)
        review = _decode(_Reviewed, self._server.call(request)).status
        valid = review.authenticated and audience in (review.audiences or ())
        if not valid or not review.user.username.startswith(_ACCOUNTS):
            return ""
        return review.user.username.removeprefix(_ACCOUNTS).replace(":", "/", 1)

    def pools(self) -> list[dict[str, Any]] | None:
        """Return Pool objects as documents; None where the cluster serves no such resource."""
        page = self._get(_Any, POOLS)
        return None if page is None else [_document("Pool", item) for item in page.items or ()]

    def apply_pool(self, document: Mapping[str, Any]) -> None:
        """Create the Pool object, or change it to this one (server-side apply, as berth)."""
        self._apply(f"{POOLS}/{document['metadata']['name']}", document)

    def applied(self, document: Mapping[str, Any]) -> tuple[dict[str, Any] | None, dict[str, Any]]:
        """Return the Pool or PoolClaim object as it is now (None: it is not there), and as it would be with
        its document applied. Nothing is written; the right to write it is needed all the same."""
        meta = document["metadata"]
        claim = document["kind"] == "PoolClaim"
        path = pool_claim_path(meta["namespace"], meta["name"]) if claim else f"{POOLS}/{meta['name']}"
        after = _decode(dict[str, Any], self._apply(path, document, {"dryRun": "All"}))
        return self._get(dict[str, Any], path), after

    def patch_pool(self, pool: Mapping[str, Any], spec: Mapping[str, Any]) -> None:
        """Merge these fields into the Pool object's spec; None takes one away. Raises ClusterRefusedError,
        status 409, if it was written since `pool` was read."""
        path = _with_query(f"{POOLS}/{pool['metadata']['name']}", {"fieldManager": "berth"})
        self._merge(path, {"metadata": _version(pool), "spec": spec})

    def set_pool_status(self, pool: Mapping[str, Any], status: Mapping[str, Any]) -> None:
        """Merge this into the Pool object's status. Raises ClusterRefusedError, status 409, if it was written
        since `pool` was read."""
        path = f"{POOLS}/{pool['metadata']['name']}/status"
        self._merge(path, {"metadata": _version(pool), "status": status})

    def poolclaims(self) -> list[dict[str, Any]] | None:
        """Return all namespaces' PoolClaim objects as documents, with names, versions, spec and status; None
        where the cluster serves no such resource."""
        claims = _if_there(lambda: self._items(_List[_Claim], POOL_CLAIMS, {}, most=_CLAIMS_PAGE))
        if claims is None:
            return None
        return [_document("PoolClaim", msgspec.to_builtins(claim)) for claim in claims]

    def pool_claim(
        self, namespace: str, name: str, timeout: float = DEFAULT_TIMEOUT
    ) -> dict[str, Any] | None:
        """Return the PoolClaim as it is now (a consistent read), or None."""
        return self._get(dict[str, Any], pool_claim_path(namespace, name), timeout)

    def apply_pool_claim(self, document: Mapping[str, Any]) -> None:
        """Create the PoolClaim object, or change it to this one (server-side apply, as berth)."""
        meta = document["metadata"]
        self._apply(pool_claim_path(meta["namespace"], meta["name"]), document)

    def set_pool_claim_status(
        self, document: Mapping[str, Any], status: Mapping[str, Any], timeout: float = DEFAULT_TIMEOUT
    ) -> None:
        """Replace the PoolClaim's status. Raises ClusterRefusedError, status 409, if it was written since
        `document` was read."""
        meta = document["metadata"]
        removed = dict.fromkeys(document.get("status") or ())
        path = f"{pool_claim_path(meta['namespace'], meta['name'])}/status"
        self._merge(path, {"metadata": _version(document), "status": {**removed, **status}}, timeout)

    def aside(self) -> "Cluster":
        """Return this cluster by one connection of its own, which takes none from calls in a hurry."""
        return Cluster(self._api, self._monotonic, connections=1)

    def create_event(self, namespace: str, document: Mapping[str, Any]) -> None:
        """Create an Event object (events.k8s.io/v1)."""
        path = f"{_EVENTS}/{_segment(namespace)}/events"
        self._server.call(Request("POST", path, _EVENT_SECONDS, document))

    def repeat_event(self, namespace: str, name: str, series: Mapping[str, Any]) -> None:
        """Write into an Event object how often the event came, and last when."""
        path = f"{_EVENTS}/{_segment(namespace)}/events/{_segment(name)}"
        self._merge(path, {"series": series}, _EVENT_SECONDS)

    def date(self) -> str:
        """Return the time that the API server puts on an answer, as HTTP writes it; empty if it puts none."""
        return self._server.header(Request("GET", "/version"), "Date")

    def served(self, group_version: str) -> frozenset[str]:
        """Return the resources that the API server has in this version of a group; none: it has no such."""
        answer = self._get(_Resources, f"/apis/{group_version}") or _Resources()
        return frozenset(resource.name for resource in answer.resources or ())

    def one(self, shape: type[T], path: str, timeout: float = DEFAULT_TIMEOUT) -> T | None:
        """Return one object; None where it is not there."""
        return self._get(shape, path, timeout)

    def all(self, shape: type[T], path: str, wanted: Callable[[T], bool] | None = None) -> list[T]:
        """Return a collection's objects as `collection` does; none where no such kind is served."""
        return self.collection(shape, path, wanted) or []

    def collection(
        self,
        shape: type[T],
        path: str,
        wanted: Callable[[T], bool] | None = None,
        timeout: float = DEFAULT_TIMEOUT,
    ) -> list[T] | None:
        """Return a collection's objects that are wanted (None: all), as of one moment, page by page; None
        where no such kind is served. `timeout` is for each page."""
        page: Any = _List[shape]  # type: ignore[valid-type]
        return _if_there(lambda: self._items(page, path, {}, timeout, wanted=wanted))

    def may(self, right: "Right", account: str = "") -> bool:
        """Whether this user, or a ServiceAccount (NAMESPACE/NAME), has the right."""
        kind = "SubjectAccessReview" if account else "SelfSubjectAccessReview"
        spec = {"resourceAttributes": right.attributes(), **(_subject(account) if account else {})}
        body = {"apiVersion": _AUTHORIZATION, "kind": kind, "spec": spec}
        request = Request("POST", f"/apis/{_AUTHORIZATION}/{kind.lower()}s", body=body, again=True)
        return _decode(_AccessReviewed, self._server.call(request)).status.allowed

    def version(self, timeout: float = DEFAULT_TIMEOUT) -> str:
        """Return the API server's version, such as v1.36.3."""
        answer = self._server.call(Request("GET", "/version", timeout))
        return _decode(_Version, answer).git_version

    def create(self, path: str, document: Mapping[str, Any]) -> None:
        """Create one object in a collection."""
        self._server.call(Request("POST", path, body=document))

    def delete(self, path: str) -> None:
        """Delete one object at once, without a grace period."""
        self._server.call(Request("DELETE", path, body={"gracePeriodSeconds": 0}))

    def log(self, namespace: str, pod: str, query: Mapping[str, str]) -> str:
        """Return what a container of the pod wrote; `query` is as in the API (container, sinceSeconds, …)."""
        path = _with_query(f"{_pod_path(namespace, pod)}/log", query)
        return self._server.call(Request("GET", path, accept="*/*")).decode(errors="replace")

    def snapshot(self, path: str, query: Mapping[str, str]) -> tuple[list[dict[str, Any]], str]:
        """Return a list's objects, and the resourceVersion from which to watch on."""
        page = _decode(_Any, self._server.call(Request("GET", _with_query(path, query))))
        return page.items or [], str(page.metadata.get("resourceVersion", ""))

    def watch(
        self, path: str, query: Mapping[str, str], version: str, stop: threading.Event
    ) -> Iterator[tuple[str, dict[str, Any]]]:
        """Yield ADDED, MODIFIED or DELETED with the object for each change since `version`, until the server
        ends the watch.

        It ends as well where `version` is too old: take a new snapshot then; changes between were missed.
        """
        more = {"watch": "1", "resourceVersion": version, "timeoutSeconds": str(_WATCH_SECONDS)}
        request = Request("GET", _with_query(path, {**query, **more}), _WATCH_SECONDS + 10.0)
        with closing(self._server.lines(request)) as lines:
            for line in lines:
                event = _decode(_Event, line)
                if stop.is_set() or event.type == "ERROR":
                    return
                if event.type != "BOOKMARK":
                    yield event.type, event.object

    def _apply(self, path: str, document: Mapping[str, Any], more: Mapping[str, str] = {}) -> bytes:
        target = _with_query(path, {"fieldManager": "berth", "force": "true", **more})
        return self._server.call(Request("PATCH", target, body=document, content_type=_APPLY))

    def _merge(self, path: str, body: Mapping[str, Any], timeout: float = DEFAULT_TIMEOUT) -> None:
        self._server.call(Request("PATCH", path, timeout, body, _MERGE))

    def _get(self, shape: type[T], path: str, timeout: float = DEFAULT_TIMEOUT) -> T | None:
        return _if_there(lambda: _decode(shape, self._server.call(Request("GET", path, timeout))))

    def _items(
        self,
        shape: type[_List[T]],
        path: str,
        query: Mapping[str, str],
        timeout: float = DEFAULT_TIMEOUT,
        most: int = _PAGE,
        wanted: Callable[[T], bool] | None = None,
    ) -> list[T]:
        """Return a whole list as of one moment, read page by page: its continue token keeps the version."""
        items: list[T] = []
        token = ""
        while True:
            more = {"continue": token} if token else {}
            target = _with_query(path, {**query, "limit": str(most), **more})
            page = _decode(shape, self._server.call(Request("GET", target, timeout)))
            listed = page.items or ()
            items += listed if wanted is None else filter(wanted, listed)
            token = page.metadata.continue_ or ""
            if not token:
                return items


def connect(monotonic: Callable[[], float] = time.monotonic) -> Cluster:
    """Return the cluster that KUBECONFIG or the pod's own account names. Raises SettingsError."""
    return Cluster(configured(), monotonic)


def list_waiting(
    cluster: Cluster,
    schedulers: Iterable[str],
    deadline: Deadline = NO_DEADLINE,
    most: float = DEFAULT_TIMEOUT,
) -> list[Pod]:
    """Return the pods of these schedulers that wait, as the API server lists them now. `most` is the time-out
    of each list."""
    return [
        pod
        for name in schedulers
        for pod in cluster.unbound_pods(name, deadline.timeout(most))
        if pod.waiting
    ]


def _subject(account: str) -> dict[str, Any]:
    """Return the user and groups of a ServiceAccount, NAMESPACE/NAME."""
    namespace, _, name = account.partition("/")
    groups = ["system:serviceaccounts", f"system:serviceaccounts:{namespace}", "system:authenticated"]
    return {"user": f"{_ACCOUNTS}{namespace}:{name}", "groups": groups}


def _document(kind: str, item: Mapping[str, Any]) -> dict[str, Any]:
    """Return an object of Berth's kinds as a document: in a list it has neither apiVersion nor kind."""
    return {"apiVersion": _API_VERSION, "kind": kind, **item}


def _version(document: Mapping[str, Any]) -> dict[str, str]:
    return {"resourceVersion": document["metadata"]["resourceVersion"]}


def _if_there(read: Callable[[], T]) -> T | None:
    try:
        return read()
    except ClusterRefusedError as error:
        if error.status == 404:
            return None
        raise


def _pod_path(namespace: str, name: str) -> str:
    return f"/api/v1/namespaces/{_segment(namespace)}/pods/{_segment(name)}"


def _node_path(name: str) -> str:
    return f"/api/v1/nodes/{_segment(name)}"


def pool_claim_path(namespace: str, name: str) -> str:
    """Return the path of a PoolClaim object."""
    return f"{BERTH_API}/namespaces/{_segment(namespace)}/poolclaims/{_segment(name)}"


def _with_query(path: str, query: Mapping[str, str]) -> str:
    return f"{path}?{urlencode(query)}" if query else path


def _segment(name: str) -> str:
    """Return a name as one segment of a path: a call or event may bring a name that tries to be more."""
    if name in ("", ".", ".."):
        raise BadInputError(f"{name!r} is not the name of a Kubernetes object")
    return quote(name, safe="")


def _decode(shape: type[T], content: bytes) -> T:
    try:
        return msgspec.json.decode(content, type=shape)
    except msgspec.DecodeError as error:
        raise ClusterUnavailableError(f"the API server's answer can't be read: {error}") from error
