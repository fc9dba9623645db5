"""A stand-in for the Kubernetes API server, in memory, for `berth demo` and the tests.
It is no API server: no storage, TLS, users, admission, validation, other kinds, paging, and no kubelets."""

from berth.testing.api_server.server import StandIn

__all__ = ["StandIn"]
