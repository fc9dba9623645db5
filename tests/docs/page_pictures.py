"""Takes the pictures of docs/dashboard.md anew, in a real Chromium: python -m tests.docs.page_pictures
A picture depends on the machine's fonts, so no test compares it."""

import time
from contextlib import closing
from pathlib import Path
from tempfile import TemporaryDirectory

from berth.ledger.last_reconcile import LastReconcile
from berth.ledger.model import Claim, Holding
from berth.testing.api_server import StandIn
from tests.support.builders.ledgers import ledger_on, opened
from tests.support.builders.objects import pool
from tests.support.cluster import Cluster
from tests.support.references import ROOT
from tests.support.servers.chromium import Window, browser
from tests.support.servers.framework import function

_PICTURES = ROOT / "docs" / "pictures"
_CAPACITIES = {
    **{("underlay-ip", f"node-{number}"): 10 for number in range(1, 7)},
    **{("k80", f"node-{number}"): 4 for number in range(1, 3)},
    ("matlab", "*"): 5,
}
_HELD = [("underlay-ip", f"node-{1 + number % 4}") for number in range(31)] + [("matlab", "*")] * 5


def main() -> None:
    """Write the pictures into docs/pictures."""
    with TemporaryDirectory() as made, StandIn() as api, browser() as chromium:
        folder = Path(made)
        store = f"sqlite:///{folder}/ledger.db"
        _fill(store, api)
        environment = {"KUBECONFIG": str(api.kubeconfig(folder / "kubeconfig")), "BERTH_STORE": store}
        with function("status", environment, server="webserver") as url:
            for scheme in ("light", "dark"):
                window = Window(chromium, scheme)
                window.page.goto(url)
                window.page.screenshot(path=_PICTURES / f"status-page-{scheme}.png")
                window.close()


def _fill(store: str, api: StandIn) -> None:
    """Write a ledger with claims, and pods that wait for licences."""
    now = time.time()
    with closing(opened(store, _CAPACITIES)) as there, closing(Cluster(api.url, "")) as cluster:
        ledger = ledger_on(there)
        names = ("underlay-ip", "k80")
        pools = {name: pool(name) for name in names}
        ledger.apply_pools({**pools, "matlab": pool("matlab", scope="Cluster")})
        ledger.set_places({f"node-{number}": {"matlab": "*"} for number in range(1, 7)}, {})
        for number in range(3):
            asked = {"berth.dev/matlab": "1"}
            container = {"name": "main", "image": "x", "resources": {"limits": asked, "requests": asked}}
            body = {
                "metadata": {"name": f"solver-{number + 90}"},
                "spec": {"schedulerName": "berth", "containers": [container]},
            }
            cluster.call("POST", "/api/v1/namespaces/shop/pods", body)
        for number, (of, domain) in enumerate(_HELD):
            name = f"web-{number}" if of == "underlay-ip" else f"solver-{number}"
            node = domain if domain != "*" else f"node-{1 + number % 6}"
            holdings = (Holding(of, domain, 1),)
            claim = Claim(
                uid=f"uid-{number}",
                namespace="shop",
                name=name,
                node=node,
                holdings=holdings,
                since=now - number,
            )
            ledger.confirm(ledger.reserve(claim))
        ledger.note_reconcile(LastReconcile(at=now - 20, seconds=0.4, mended={"released": 1}))


if __name__ == "__main__":
    main()
