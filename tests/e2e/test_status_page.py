"""The status page in a real Chromium beside a real kube-scheduler: a pool fills up before one's eyes."""

import pytest
from playwright.sync_api import expect

from tests.e2e.conftest import Systems
from tests.e2e.harness import pool
from tests.support.servers.chromium import Window, browser

pytestmark = pytest.mark.long

SECONDS = 60_000


def test_a_pool_fills_up_and_who_waits_appears_with_reason_and_place(system_of: Systems) -> None:
    system = system_of(1, pools=[pool(units=2)])
    with browser() as chromium:
        window = Window(chromium)
        page = window.page
        page.goto(system.berth.urls["status"])
        row = page.locator("tr", has=page.get_by_role("rowheader", name="underlay-ip", exact=True)).first
        expect(row.locator("progress")).to_have_attribute("value", "0")
        system.cluster.create_pods("a", "b", "c")
        expect(row.locator("progress")).to_have_attribute("value", "100", timeout=SECONDS)
        waits = page.locator("section[aria-labelledby=waiting] tbody tr")
        expect(waits).to_have_count(1, timeout=SECONDS)
        expect(waits.locator("td").first).to_have_text("1")
        expect(waits).to_contain_text("underlay-ip: 0 of 2 free, 1 asked", timeout=SECONDS)
        waiter = waits.locator("th").inner_text().partition("/")[2]
        holder = next(name for name in ("a", "b", "c") if name != waiter)
        system.cluster.delete_pod(holder)
        expect(page.locator("section[aria-labelledby=waiting]")).to_contain_text(
            "Nobody waits", timeout=SECONDS
        )
        expect(page.locator("section[aria-labelledby=claims]")).to_contain_text(f"default/{waiter}")
        assert window.wrong == []
