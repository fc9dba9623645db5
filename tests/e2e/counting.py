"""A filter function that also writes down, for each call, the pod it was asked about.

It answers as Berth's own; the rest of the functions are Berth's own.
"""

from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from tests.e2e.harness import faulty_functions

_FILTER = """
from pathlib import Path

from berth.handlers import filter as verb
from berth.http.function import serve

told = verb.run


def run(look, call, **how):
    with Path(%r).open("a") as calls:
        calls.write(call.pod.metadata.name + "\\n")
    return told(look, call, **how)


verb.run = run
filter = serve(verb.endpoint)
"""


@dataclass
class CountedFilter:
    """`functions` is for Berth's --functions; `calls` how often each pod was asked about so far."""

    folder: Path

    def __post_init__(self) -> None:
        self._file = self.folder / "filter-calls"
        self._file.touch()
        self.functions = faulty_functions(self.folder, filter=_FILTER % str(self._file))

    @property
    def calls(self) -> Counter[str]:
        return Counter(self._file.read_text().split())
