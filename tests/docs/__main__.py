"""`make docs`: write the pages and pictures of docs/ that are made of something else in the project.
The demo is played for its recording, which takes half a minute."""

from tests.docs import demo_picture
from tests.docs.pages import PAGES
from tests.support.references import ROOT

if __name__ == "__main__":
    for name, page in PAGES.items():
        (ROOT / name).write_text(page())
    demo_picture.PICTURE.write_text(demo_picture.anew())
