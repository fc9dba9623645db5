"""The clocks of the API server and of this machine, as far apart as an answer's Date tells: whole seconds."""

from collections.abc import Iterator
from email.utils import parsedate_to_datetime

from berth.checks.finding import Check, Finding, Rule
from berth.checks.inputs import Inputs

MOST = 2.0  # seconds apart

SERVER = Rule(
    id="clock.server",
    severity="warning",
    meaning=(
        "The API server's clock and this machine's are more than two seconds apart. Functions that act go by "
        "the API server's; ages that commands show, and what filter knows of rests, are wrong by that."
    ),
    action="Let both machines take their time from a time server (NTP).",
    more="docs/promises.md#clocks",
)


def apart(theirs: float, before: float, after: float, precision: float = 0.0) -> float:
    """Return how far their clock is from ours at least, in seconds: it was read between two looks at ours,
    and is cut off to `precision`."""
    return max(0.0, before - theirs - precision, theirs - after)


def _server(inputs: Inputs) -> Iterator[Finding]:
    before = inputs.clock()
    date = inputs.cluster.date()
    after = inputs.clock()
    try:
        theirs = parsedate_to_datetime(date).timestamp()
    except ValueError:
        inputs.skip("the API server's clock", "its answers have no Date", SERVER)
        return
    seconds = apart(theirs, before, after, precision=1.0)
    if seconds > MOST:
        yield SERVER.finding(f"the API server's clock and this machine's are {seconds:.0f} s apart")


CHECKS = (Check("the API server's clock", _server, (SERVER,)),)
