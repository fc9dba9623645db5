"""Which headers name a trace, and which are none."""

import pytest

from berth.telemetry.traceparent import TraceParent, parsed

TRACE, SPAN = "1a" * 16, "2b" * 8
HEADER = f"00-{TRACE}-{SPAN}-01"


@pytest.mark.parametrize("header", [HEADER, f" {HEADER} ", f"cc-{TRACE}-{SPAN}-01-what-a-later-version-adds"])
def test_a_header_names_a_trace_and_the_caller_s_span_in_it(header: str) -> None:
    assert parsed(header) == TraceParent(TRACE, SPAN, "01")
    assert str(parsed(header)) == HEADER


@pytest.mark.parametrize(
    "header",
    [
        None,
        "",
        "00",
        f"{HEADER},{HEADER}",
        f"{HEADER}-more",
        f"ff-{TRACE}-{SPAN}-01",
        f"00-{'0' * 32}-{SPAN}-01",
        f"00-{TRACE}-{'0' * 16}-01",
        HEADER.upper(),
        f"cc-{TRACE}-{SPAN}-01-{'x' * 5000}",
    ],
)
def test_what_is_no_such_header_names_none(header: str | None) -> None:
    assert parsed(header) is None
