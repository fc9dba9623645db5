"""One of several equal processes leads, by a Lease of Kubernetes and the kubernetes client's own algorithm.
Two may lead for some seconds while one of them is cut off: what they do must bear that."""

import logging
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, NamedTuple

import urllib3

from berth.errors import SettingsError, reason
from berth.kube.client import library_client

LEASE_SECONDS = 8
"""How long a leader that said nothing more is taken for one; then another leads."""

_USUAL = (404, 409)  # there is none yet; another process was quicker
_NO_RIGHT, _RIGHTS = (401, 403), ": give its account the rights to get, create and update leases there"
_RENEW_SECONDS, _RETRY_SECONDS, _REQUEST_SECONDS = 5, 1, 2.0

log = logging.getLogger("berth.election")


class Lease(NamedTuple):
    """A Lease by its namespace and name; `holder` is what this process is called in it."""

    namespace: str
    name: str
    holder: str


def parsed(text: str, holder: str) -> Lease:
    """Return the Lease that NAMESPACE/NAME says. Raises SettingsError for anything else."""
    namespace, _, name = text.partition("/")
    if not namespace or not name or "/" in name:
        raise SettingsError(f"the Lease {text!r} should be NAMESPACE/NAME, such as berth/berth-relay")
    return Lease(namespace, name, holder)


def take_part(lease: Lease, lead: Callable[[], None]) -> None:
    """Wait until this process leads, call `lead` in a thread, and return once it leads no more.

    What `lead` began goes on: the caller ends it. It waits for as long as the Lease can't be had.
    """
    from kubernetes.leaderelection import electionconfig, leaderelection

    # It tells each look at the Lease, one a second.
    logging.getLogger("leaderelection").setLevel(logging.WARNING)
    config = electionconfig.Config(  # type: ignore[no-untyped-call]
        _lock(lease),
        lease_duration=LEASE_SECONDS,
        renew_deadline=_RENEW_SECONDS,
        retry_period=_RETRY_SECONDS,
        onstarted_leading=lead,
        onstopped_leading=lambda: log.warning("%s leads no more", lease.holder),
    )
    leaderelection.LeaderElection(config).run()  # type: ignore[no-untyped-call]


def _lock(lease: Lease) -> Any:
    """Return the kubernetes client's lock, whose requests end in time, and fail as it expects. What keeps the
    Lease from everybody is logged once, for the kubernetes client says nothing of it."""
    from kubernetes import client
    from kubernetes.leaderelection.resourcelock.leaselock import LeaseLock

    logged = ""

    def warn(error: Any) -> None:
        nonlocal logged
        said = " ".join(filter(None, (str(error.status or ""), error.reason)))
        text = (
            f"the Lease {lease.namespace}/{lease.name} can't be had ({said}); until it can, this relay sends "
            f"no event and no tick{_RIGHTS if error.status in _NO_RIGHT else ''}"
        )
        if error.status not in _USUAL and text != logged:
            logged = text
            log.warning("%s", text)

    def bounded(call: Callable[..., Any]) -> Callable[..., Any]:
        def called(*arguments: Any, **options: Any) -> Any:
            try:
                return call(*arguments, **options, _request_timeout=_REQUEST_SECONDS)
            except client.ApiException as error:
                warn(error)
                raise
            except (urllib3.exceptions.HTTPError, OSError) as error:
                failed = client.ApiException(status=0, reason=reason(error))
                warn(failed)
                raise failed from error

        return called

    lock: Any = LeaseLock(lease.name, lease.namespace, lease.holder)  # type: ignore[no-untyped-call]
    api = client.CoordinationV1Api(library_client())
    calls = ("read_namespaced_lease", "create_namespaced_lease", "replace_namespaced_lease")
    lock.api_instance = SimpleNamespace(**{name: bounded(getattr(api, name)) for name in calls})
    return lock
