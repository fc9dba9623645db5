"""The status page in a real Chromium: quick with 5,000 domains, for the keyboard, for screen readers.
Beside a real kube-scheduler: tests/e2e/test_status_page.py."""

import json
from collections.abc import Iterator
from contextlib import closing

import pytest
from axe_playwright_python.sync_playwright import Axe  # type: ignore[import-untyped]
from playwright.sync_api import Browser, Error, expect

from berth.ledger.model import Claim, Holding
from berth.testing.api_server import StandIn
from tests.support.builders.ledgers import ledger_on, opened
from tests.support.servers.chromium import Window, browser
from tests.support.servers.framework import function

pytestmark = [pytest.mark.long, pytest.mark.group("browser")]

DOMAINS = 5000
TOKEN = "looking-only"
PAINT = """
() => new Promise((tell) => new PerformanceObserver((list) => {
  for (const entry of list.getEntriesByName("first-contentful-paint")) tell(entry.startTime);
}).observe({ type: "paint", buffered: true }))
"""


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    with browser() as launched:
        yield launched


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A status function on a ledger of 5,000 domains, behind a token."""
    folder = tmp_path_factory.mktemp("page")
    store = f"sqlite:///{folder}/ledger.db"
    wide = {("underlay-ip", f"node-{number}"): 10 for number in range(DOMAINS)}
    with closing(opened(store, {**wide, ("matlab", "*"): 5})) as there:
        ledger = ledger_on(there)
        for number in range(40):
            node = f"node-{number % 7}"
            holding = Holding("underlay-ip", node, 1)
            name, uid = f"web-{number}", f"uid-{number}"
            claim = Claim(uid=uid, namespace="shop", name=name, node=node, holdings=(holding,))
            ledger.confirm(ledger.reserve(claim))
    with StandIn() as api:
        environment = {
            "KUBECONFIG": str(api.kubeconfig(folder / "kubeconfig")),
            "BERTH_STORE": store,
            "BERTH_AUTH_TOKEN": TOKEN,
        }
        with function("status", environment, server="webserver") as url:
            yield url


@pytest.fixture(params=["light", "dark"])
def window(request: pytest.FixtureRequest, chromium: Browser) -> Iterator[Window]:
    window = Window(chromium, request.param, TOKEN)
    yield window
    assert window.wrong == []
    window.close()


PAGES = ("/", "/pools/underlay-ip", "/waiting", "/claims", "/releases", "/units", "/usage", "/pools/none")


@pytest.mark.parametrize("path", PAGES)
def test_axe_has_nothing_serious_to_say(path: str, window: Window, url: str) -> None:
    window.page.goto(f"{url}{path}")
    results = Axe().run(window.page)
    grave = [
        each["id"] for each in results.response["violations"] if each["impact"] in ("serious", "critical")
    ]
    assert grave == [], json.dumps(results.response["violations"], indent=1)
    if path == "/pools/none":
        window.wrong.clear()  # the browser notes that it is a 404


@pytest.mark.parametrize("path", ["/", "/pools/underlay-ip", "/claims"])
def test_with_five_thousand_domains_it_paints_within_a_second(path: str, window: Window, url: str) -> None:
    # The best of some: other tests may have the processor meanwhile.
    paints = []
    for _ in range(5):
        window.page.goto(f"{url}{path}")
        paints.append(window.page.evaluate(PAINT))
    assert min(paints) < 1000, paints


def test_by_the_keyboard_alone_one_gets_to_a_domain(window: Window, url: str) -> None:
    page = window.page
    page.goto(url)
    page.keyboard.press("Tab")
    expect(page.locator(":focus")).to_have_text("Skip to the content")
    page.keyboard.press("Enter")
    expect(page.locator("main")).to_be_focused()
    for _ in range(20):
        page.keyboard.press("Tab")
        if page.locator(":focus").inner_text() == "underlay-ip":
            break
    page.keyboard.press("Enter")
    expect(page.locator("h1")).to_have_text("Pool underlay-ip")
    for _ in range(10):
        page.keyboard.press("Tab")
        if page.locator(":focus").get_attribute("id") == "q":
            break
    page.keyboard.type("node-4711")
    page.keyboard.press("Enter")
    expect(page.locator("tbody th").first).to_have_text("node-4711")
    assert page.locator("tbody tr").count() == 1


def test_it_keeps_its_focus_and_what_is_typed_when_it_refreshes_and_can_be_paused(
    window: Window, url: str
) -> None:
    page = window.page
    page.goto(url)
    page.locator("#q").fill("half a na")
    link = page.locator("main a", has_text="underlay-ip").first
    link.focus()
    page.evaluate("document.querySelector('main h1').dataset.old = 'yes'")
    expect(page.locator("main h1[data-old]")).to_have_count(0, timeout=15_000)
    expect(page.locator(":focus")).to_have_text("underlay-ip")
    expect(page.locator("#q")).to_have_value("half a na")
    page.locator("#pause").click()
    expect(page.locator("#pause")).to_have_attribute("aria-pressed", "true")


def test_without_the_token_nothing_is_shown(chromium: Browser, url: str) -> None:
    window = Window(chromium)
    with pytest.raises(Error, match="ERR_INVALID_AUTH_CREDENTIALS"):
        window.page.goto(url)
    window.close()
