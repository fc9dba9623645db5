"""The alerts as an object of Prometheus Operator, made of the file that Prometheus itself reads.
It changes nothing in them."""

from tests.support.references import ROOT

PAGE = "infra/components/monitoring/rule.yaml"
RULES = ROOT / "infra/components/monitoring/alerts.yaml"
_HEAD = """# Written by `make docs` from alerts.yaml.
apiVersion: monitoring.coreos.com/v1
kind: PrometheusRule
metadata: {name: berth, namespace: berth}
spec:
"""


def page() -> str:
    """Return the object's manifest."""
    rules = RULES.read_text()
    lines = rules[rules.index("groups:") :].splitlines()
    return _HEAD + "".join(f"  {line}".rstrip() + "\n" for line in lines)
