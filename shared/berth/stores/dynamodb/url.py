"""Where a ledger is in DynamoDB, according to BERTH_STORE's URL: a table, its region, another endpoint.
It opens nothing, and has no credentials: those come by AWS' own rules (environment, profile, role)."""

import re
from dataclasses import dataclass
from urllib.parse import urlsplit

from berth.errors import SettingsError
from berth.stores import urls

FORM = "dynamodb://TABLE[?region=REGION][&endpoint=URL][&timeout=SECONDS]"
_TABLE = re.compile(r"[A-Za-z0-9_.-]{3,255}")
_REGION = re.compile(r"[a-z0-9-]{1,63}")
_OPTIONS = ("region", "endpoint", "timeout")


@dataclass(frozen=True)
class DynamoDbUrl:
    """Without `region` AWS' own rules name one; `endpoint` is for stand-ins of DynamoDB. `seconds` limit a
    connection, an answer, and a call that is tried again."""

    table: str
    region: str | None = None
    endpoint: str | None = None
    seconds: float = 1.0

    def __str__(self) -> str:
        where = ", ".join(part for part in (self.region, self.endpoint) if part)
        return f"{self.table} ({where})" if where else self.table

    @property
    def printable(self) -> str:
        """The URL as in BERTH_STORE, with the options that were given."""
        timeout = None if self.seconds == 1 else f"{self.seconds:g}"
        options = {"region": self.region, "endpoint": self.endpoint, "timeout": timeout}
        query = "&".join(f"{name}={value}" for name, value in options.items() if value)
        return f"dynamodb://{self.table}" + (f"?{query}" if query else "")


def parse(url: str) -> DynamoDbUrl:
    """Return where the URL leads. Raises SettingsError, which quotes nothing that may be a secret key."""
    _, _, rest = url.partition("://")
    if "@" in rest:
        raise _wrong(
            "credentials have no place in it: give them by AWS' own rules (AWS_ACCESS_KEY_ID and "
            "AWS_SECRET_ACCESS_KEY, a profile, or the pod's role)"
        )
    table, _, query = rest.partition("?")
    if "#" in rest or not _TABLE.fullmatch(table):
        raise _wrong(
            f"the form is {FORM}; a table's name has 3 to 255 letters, digits, dots, dashes and underscores"
        )
    options = urls.options(query, _OPTIONS, _wrong)
    return DynamoDbUrl(
        table,
        _region(options.get("region")),
        _endpoint(options.get("endpoint")),
        urls.seconds(options, _wrong),
    )


def _wrong(what: str) -> SettingsError:
    return SettingsError(f"BERTH_STORE, a DynamoDB URL: {what}")


def _region(name: str | None) -> str | None:
    if name is not None and not _REGION.fullmatch(name):
        raise _wrong(f"region={name} should be a region's name, such as eu-central-1")
    return name


def _endpoint(url: str | None) -> str | None:
    if url is None:
        return None
    try:
        parts = urlsplit(url)
        usable = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        usable = False
    if not usable or parts.path not in ("", "/") or parts.query:
        raise _wrong(f"endpoint={url} should be http://HOST[:PORT] or https://HOST[:PORT]")
    return url.rstrip("/")
