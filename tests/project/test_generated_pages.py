"""Pages that are made of something else are as `make docs` writes them now.
The page of settings is written by hand: it has every setting that is read, and its default."""

import re
from collections.abc import Iterator
from pathlib import Path
from xml.etree import ElementTree

import pytest

from berth import settings
from berth.local import ports
from tests.docs import benchmarks_page, demo_picture, kept_figures
from tests.docs.pages import PAGES
from tests.support.references import ROOT

SVG = "{http://www.w3.org/2000/svg}"
ELSEWHERE = {"BERTH_PORTS": f"{ports.FIRST}-{ports.LAST}", "KUBECONFIG": None, "BERTH_CONTEXT": None}


_SLOW = ("docs/screens.md",)  # what commands say, each of which is run


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.nightly) if name in _SLOW else name for name in PAGES]
)
def test_the_page_is_as_make_docs_writes_it(name: str) -> None:
    assert (ROOT / name).read_text() == PAGES[name](), "run `make docs`"


@pytest.mark.parametrize(
    "path", sorted(demo_picture.PICTURE.parent.glob("*.svg")), ids=lambda path: path.name
)
def test_a_picture_is_readable_without_eyes_and_on_dark_pages(path: Path) -> None:
    root = ElementTree.fromstring(path.read_text())
    assert root.attrib["role"] == "img"
    assert root.findtext(f"{SVG}title")
    assert root.findtext(f"{SVG}desc")
    assert "prefers-color-scheme: dark" in (root.findtext(f"{SVG}style") or "")


def test_the_benchmarks_page_shows_all_figures_that_are_kept() -> None:
    kept = {path.stem for path in kept_figures.FOLDER.glob("*.json")}
    assert kept == set(benchmarks_page.names())


def test_a_recording_shows_every_line_whole_and_in_order() -> None:
    """That docs/pictures/demo.svg has the lines that the demo prints: tests/cli/test_demo.py."""
    lines = ["1. A <step> & more.", f"   berth:         {'word ' * 40}end", "", "the last"]
    recorded = demo_picture.shown(demo_picture.picture(lines))
    assert recorded == [" ".join(line.split()) for line in lines]


def test_two_recordings_differ_by_what_they_say_and_not_by_what_was_measured() -> None:
    assert demo_picture.plain("bound  0.3 s after") == demo_picture.plain("bound 12 s after")
    assert demo_picture.plain("9 bound") != demo_picture.plain("8 bound")


class Asked(dict[str, str]):
    """An environment without any variable, which notes what it is asked for."""

    def __init__(self) -> None:
        super().__init__()
        self.names: set[str] = set()

    def get(self, key: str, default: str | None = None) -> str | None:  # type: ignore[override]
        self.names.add(key)
        return default


def sections() -> Iterator[tuple[list[str], str]]:
    """The variables of each heading in docs/reference/settings.md, and the text below it."""
    page = (ROOT / "docs" / "reference" / "settings.md").read_text()
    for section in page.split("\n## ")[1:]:
        heading, _, text = section.partition("\n")
        yield re.findall(r"`([A-Z_]+)`", heading), text


def test_the_page_of_settings_has_every_variable_that_is_read_and_no_other() -> None:
    asked = Asked()
    settings.from_environment(asked)
    told = [name for names, _ in sections() for name in names]
    assert sorted(told) == sorted({*asked.names, *ELSEWHERE})


def test_the_page_of_settings_says_the_defaults() -> None:
    read = settings.Settings()
    defaults = {
        "BERTH_STORE": read.store,
        "BERTH_SCHEDULER_NAMES": ",".join(read.scheduler_names),
        "BERTH_AUTH_AUDIENCE": settings.DEFAULT_AUDIENCE,
        "BERTH_BODY_LIMIT": str(read.body_limit),
        "BERTH_POOLCLAIMS_PER_NAMESPACE": str(read.poolclaims_per_namespace),
        "BERTH_USAGE_MONTHS": str(read.usage_months),
        "BERTH_LOG_LEVEL": read.log_level,
        "BERTH_LOG_FORMAT": read.log_format,
        "BERTH_EVENTS": "on" if read.pod_events else "off",
        **{name: value for name, value in ELSEWHERE.items() if value},
    }
    told = {
        name: match[1]
        for names, text in sections()
        for name in names
        if (match := re.search(r"^Default: `(.*)`", text, re.MULTILINE))
    }
    assert told == defaults
