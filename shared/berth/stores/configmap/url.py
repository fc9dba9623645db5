"""Where a ledger is in Kubernetes, according to BERTH_STORE's URL: a namespace, and the name of its
ConfigMaps. It opens nothing: whether the namespace is there, and lets us in, is known after the first
call."""

import re
from dataclasses import dataclass
from urllib.parse import urlsplit

from berth.errors import SettingsError
from berth.stores import urls

FORM = "configmap://NAMESPACE/NAME[?shards=N&timeout=SECONDS]"
SHARDS, MOST_SHARDS = 32, 512
_OPTIONS = ("shards", "timeout")
_NAME = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")


@dataclass(frozen=True)
class ConfigMapUrl:
    """`timeout` is in seconds, for a request, and for a call that waits for other writers.

    `shards` is how many ConfigMaps beside the head the ledger gets when it is made, or made again after a
    loss; None: as many as it had, or SHARDS."""

    namespace: str
    name: str
    shards: int | None = None
    timeout: float = 1.0

    def __str__(self) -> str:
        return f"configmap://{self.namespace}/{self.name}"


def parse(url: str) -> ConfigMapUrl:
    """Return where the URL leads. Raises SettingsError."""
    try:
        parts = urlsplit(url)
    except ValueError:
        raise _wrong(f"it can't be read: the form is {FORM}") from None
    name = parts.path.removeprefix("/")
    if "#" in url or not _NAME.fullmatch(parts.netloc) or not _NAME.fullmatch(name):
        raise _wrong(
            f"the form is {FORM}, with names of lower-case letters, digits and dashes, 63 characters at most"
        )
    options = urls.options(parts.query, _OPTIONS, _wrong)
    return ConfigMapUrl(
        parts.netloc,
        name,
        urls.number("shards", options["shards"], 1, MOST_SHARDS, _wrong) if "shards" in options else None,
        urls.seconds(options, _wrong),
    )


def _wrong(what: str) -> SettingsError:
    return SettingsError(f"BERTH_STORE, a ConfigMap URL: {what}")
