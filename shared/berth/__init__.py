"""Berth lets kube-scheduler place pods by scarce things that it cannot count itself.

Its modules are the functions' own; only the command line, manifests and wire formats are stable.
"""

__version__ = "0.1.0"
