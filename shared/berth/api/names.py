"""Names as Kubernetes takes them, as parts of regular expressions.
How long a whole name may be is for whoever uses them."""

LABEL = r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?"
"""Of a namespace, or a part of a domain."""

SUBDOMAIN = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*"
"""Of most objects: Kubernetes does not count the signs of each part."""

WORD = r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?"
"""A label's value, or what stands behind the slash of a qualified name."""
