"""README's commands for one function alone do what README says, as they stand there.
Only the port is another one, because 8080 may be taken on a developer's machine."""

import json
import re
import shlex
import subprocess
from pathlib import Path

from tests.support.framework import ROOT, free_port, started

_MARK = "<!-- run by tests/functions/test_readme.py -->\n```sh\n"


def test_readme_starts_one_function_and_sends_it_a_sample(tmp_path: Path) -> None:
    port = str(free_port())
    start, call = (
        shlex.split(block.partition("\n```")[0].replace("8080", port))
        for block in (ROOT / "README.md").read_text().split(_MARK)[1:]
    )
    with started(start, {"BERTH_STORE": f"sqlite:///{tmp_path}/ledger.db"}, int(port)):
        answer = subprocess.run(call, cwd=ROOT, capture_output=True, check=True, timeout=30).stdout
    assert json.loads(answer)["Error"].startswith("berth's ledger is being rebuilt from the pods")


def test_every_file_that_readme_and_docs_link_to_is_there() -> None:
    for page in (ROOT / "README.md", *(ROOT / "docs").rglob("*.md")):
        for target in re.findall(r"\]\((?!https?:)([^)#]+)", page.read_text()):
            assert (page.parent / target).exists(), f"{page.name} links to {target}"
