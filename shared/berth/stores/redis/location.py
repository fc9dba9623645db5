"""Where a ledger is in Redis, as BERTH_STORE's URL says it.
It opens nothing: whether a server is there, and lets us in, is told by the first call."""

import re
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import SplitResult, parse_qsl, unquote, urlsplit

from berth.errors import SettingsError

FORM = "redis://[USER:PASSWORD@]HOST[:PORT][/DATABASE][?prefix=NAME]"
_PORT = 6379
_PREFIX = re.compile(r"[A-Za-z0-9._-]+")
_ESCAPED = re.compile(r"(?:[^%]|%[0-9A-Fa-f]{2})*")
_OPTIONS = ("prefix", "ssl_ca_certs")


@dataclass(frozen=True)
class Location:
    """`prefix` sets apart ledgers in one database; `ca_certs` is a file of the authorities to trust."""

    host: str
    port: int = _PORT
    database: int = 0
    user: str | None = None
    password: str | None = field(default=None, repr=False)
    tls: bool = False
    ca_certs: str | None = None
    prefix: str = "berth"

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}" + (f"/{self.database}" if self.database else "")


def parse(url: str) -> Location:
    """Raises SettingsError, which never quotes the user's part of the URL."""
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError:
        # Its text may quote the URL: a password with a bare / or # ends up where host and port are.
        raise _wrong(f"its host and port can't be read: the form is {FORM}, {_HINT}") from None
    if parts.fragment or "#" in url:
        raise _wrong(f"a # has no place in it, {_HINT}")
    if not host or "@" in parts.path + parts.query:
        raise _wrong(f"the form is {FORM}, {_HINT}")
    user, password = _login(parts)
    tls = parts.scheme == "rediss"
    options = _options(parts.query)
    return Location(
        host=host,
        port=_PORT if port is None else port,
        database=_database(parts.path),
        user=user,
        password=password,
        tls=tls,
        ca_certs=_ca_certs(options.get("ssl_ca_certs"), tls),
        prefix=_prefix(options.get("prefix", Location.prefix)),
    )


_HINT = "with signs such as / # ? @ in a password escaped (%2F %23 %3F %40)"


def _wrong(what: str) -> SettingsError:
    return SettingsError(f"BERTH_STORE, a Redis URL: {what}")


def _login(parts: SplitResult) -> tuple[str | None, str | None]:
    login, at, _ = parts.netloc.rpartition("@")
    if not at:
        return None, None
    user, _, password = login.partition(":")
    if "@" in login or not _ESCAPED.fullmatch(login):
        raise _wrong(f"its user or password can't be read, {_HINT} and % as %25")
    if not password:
        raise _wrong("a user needs a password: USER:PASSWORD@, or :PASSWORD@ for the default user")
    return unquote(user) or None, unquote(password)


def _database(path: str) -> int:
    text = path.removeprefix("/")
    if text and not (text.isascii() and text.isdigit()):
        raise _wrong(f"after host and port comes the number of a database, such as /0: the form is {FORM}")
    return int(text or 0)


def _options(query: str) -> dict[str, str]:
    try:
        pairs = parse_qsl(query, keep_blank_values=True, strict_parsing=bool(query), errors="strict")
    except ValueError:
        raise _wrong("its options can't be read: they are NAME=VALUE, joined by &") from None
    for name in (name for name, _ in pairs if name not in _OPTIONS):
        raise _wrong(f"there is no option {name!r}; there are {' and '.join(_OPTIONS)}")
    if len(pairs) > len(dict(pairs)):
        raise _wrong("an option stands in it twice")
    return dict(pairs)


def _prefix(name: str) -> str:
    if not _PREFIX.fullmatch(name):
        raise _wrong(f"prefix={name} should be letters, digits, dots, dashes and underscores")
    return name


def _ca_certs(path: str | None, tls: bool) -> str | None:
    if path is None:
        return None
    if not tls:
        raise _wrong("ssl_ca_certs is for rediss://, which speaks TLS; redis:// does not")
    # Processes that share the URL need not share a folder.
    if not Path(path).is_absolute() or not Path(path).is_file():
        raise _wrong(f"ssl_ca_certs={path} should be the absolute path of a file of certificates")
    return path
