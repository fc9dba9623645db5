"""Where a ledger is in Kubernetes, as BERTH_STORE's URL says it: a namespace, and the name of its ConfigMaps.
It opens nothing: whether the namespace is there, and lets us in, is told by the first call."""

import re
from dataclasses import dataclass
from urllib.parse import parse_qsl, urlsplit

from berth.errors import SettingsError

FORM = "configmap://NAMESPACE/NAME[?shards=N&timeout=SECONDS]"
SHARDS, MOST_SHARDS = 32, 512
_MOST_SECONDS = 60
_OPTIONS = ("shards", "timeout")
_NAME = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")


@dataclass(frozen=True)
class Location:
    """`timeout` is in seconds, for a request, and for a call that others keep waiting.

    `shards` is how many ConfigMaps beside the head the ledger gets when it is made, or made again after a
    loss; None: as many as it had, or SHARDS."""

    namespace: str
    name: str
    shards: int | None = None
    timeout: float = 1.0

    def __str__(self) -> str:
        return f"configmap://{self.namespace}/{self.name}"


def parse(url: str) -> Location:
    """Raises SettingsError."""
    try:
        parts = urlsplit(url)
        pairs = parse_qsl(parts.query, keep_blank_values=True, strict_parsing=bool(parts.query))
    except ValueError:
        raise _wrong(f"it can't be read: the form is {FORM}") from None
    name = parts.path.removeprefix("/")
    if "#" in url or not _NAME.fullmatch(parts.netloc) or not _NAME.fullmatch(name):
        raise _wrong(
            f"the form is {FORM}, with names of small letters, digits and dashes, 63 signs at the most"
        )
    for option in (option for option, _ in pairs if option not in _OPTIONS):
        raise _wrong(f"there is no option {option!r}; there are {' and '.join(_OPTIONS)}")
    options = dict(pairs)
    if len(pairs) > len(options):
        raise _wrong("an option stands in it twice")
    return Location(
        parts.netloc,
        name,
        _number("shards", options["shards"], MOST_SHARDS) if "shards" in options else None,
        float(_number("timeout", options["timeout"], _MOST_SECONDS)) if "timeout" in options else 1.0,
    )


def _number(option: str, text: str, most: int) -> int:
    if not (text.isascii() and text.isdigit() and 1 <= int(text) <= most):
        raise _wrong(f"{option}={text} should be a whole number from 1 to {most}")
    return int(text)


def _wrong(what: str) -> SettingsError:
    return SettingsError(f"BERTH_STORE, a ConfigMap URL: {what}")
