"""`make docs`: write the pages that are made of something else in the project, into docs/."""

from tests.docs.pages import PAGES
from tests.support.references import ROOT

if __name__ == "__main__":
    for name, page in PAGES.items():
        (ROOT / name).parent.mkdir(parents=True, exist_ok=True)
        (ROOT / name).write_text(page())
