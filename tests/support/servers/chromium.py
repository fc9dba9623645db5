"""A headless Chromium, as Debian has it, driven by Playwright. It talks to this machine alone."""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

import pytest
from playwright.sync_api import Browser, Page, Request, sync_playwright

MISSING = "no chromium here: tests/support/install chromium installs it"
_FLAGS = [
    *("--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
]


def chromium_binary() -> Path:
    """Where it is; where it is missing the test is skipped, and fails in CI."""
    there = shutil.which("chromium")
    if there is not None:
        return Path(there)
    if os.environ.get("CI") != "true":
        pytest.skip(MISSING)
    pytest.fail(MISSING, pytrace=False)


@contextmanager
def browser() -> Iterator[Browser]:
    """A browser without any history."""
    program = chromium_binary()
    with sync_playwright() as playwright:
        launched = playwright.chromium.launch(executable_path=str(program), headless=True, args=_FLAGS)
        try:
            yield launched
        finally:
            launched.close()


class Window:
    """A page in a browser, and what went wrong in it: errors of the console, of scripts and of requests."""

    def __init__(self, browser: Browser, scheme: Literal["light", "dark"] = "light", token: str = "") -> None:
        credentials = {"username": "anybody", "password": token} if token else None
        self._context = browser.new_context(
            color_scheme=scheme,
            http_credentials=credentials,  # type: ignore[arg-type]
            viewport={"width": 1280, "height": 860},
        )
        self.page: Page = self._context.new_page()
        self.wrong: list[str] = []
        self.page.on("console", lambda said: self.wrong.append(said.text) if said.type == "error" else None)
        self.page.on("pageerror", lambda error: self.wrong.append(str(error)))
        self.page.on("requestfailed", self._failed)

    def _failed(self, request: Request) -> None:
        # What is on its way when one leaves a page, as its icon may be, is aborted by the browser itself.
        if request.failure != "net::ERR_ABORTED":
            self.wrong.append(request.url)

    def close(self) -> None:
        self._context.close()
