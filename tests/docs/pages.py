"""The pages, pictures and manifests that are made of something else in the project, each with what makes it.
tests/project/test_generated_pages.py sees that they are as they would be made now."""

from collections.abc import Callable, Mapping
from functools import partial

from tests.docs import (
    benchmarks_page,
    checks_page,
    cli_page,
    crd_page,
    deployments,
    pictures,
    ratios_picture,
    rule_object,
    screens_page,
)

PAGES: Mapping[str, Callable[[], str]] = {
    "docs/reference/pool.md": partial(crd_page.page, "infra/base/crds/pool.yaml"),
    "docs/reference/poolclaim.md": partial(crd_page.page, "infra/base/crds/poolclaim.yaml"),
    "docs/reference/cli.md": cli_page.page,
    "docs/reference/checks.md": checks_page.page,
    **{f"docs/pictures/{name}.svg": partial(pictures.made_from_text, name) for name in pictures.sources()},
    screens_page.PAGE: screens_page.page,
    benchmarks_page.PAGE: benchmarks_page.page,
    ratios_picture.PICTURE: ratios_picture.picture,
    rule_object.PAGE: rule_object.page,
    **{name: partial(deployments.page, name) for name in deployments.PAGES},
}
