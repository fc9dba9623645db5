"""Berth lets kube-scheduler place pods by scarce things that it cannot count itself.

The modules below are the functions' own; only the command line, the manifests and the wire formats are stable.
"""

__version__ = "0.1.0"
