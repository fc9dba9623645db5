"""A real etcd, kube-apiserver and kube-scheduler on loopback ports, each test's own.

The class is Berth's, for `berth demo --real`; the tests know it by this name.
"""

from berth.testing.control_plane import Component, ControlPlane, ControlPlaneError

__all__ = ["Component", "ControlPlane", "ControlPlaneError"]
