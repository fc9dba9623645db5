"""Where a ledger is in Redis, according to BERTH_STORE's URL.
It opens nothing: whether a server is there, and lets us in, is known after the first call."""

import re
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import NamedTuple
from urllib.parse import unquote, urlsplit

from berth.errors import SettingsError
from berth.stores import urls

FORM = "redis://[USER:PASSWORD@]HOST[:PORT][,HOST[:PORT]…][/DATABASE][?prefix=NAME]"
_PORT, _SENTINEL_PORT = 6379, 26379
_NAME = re.compile(r"[A-Za-z0-9._-]+")
_ESCAPED = re.compile(r"(?:[^%]|%[0-9A-Fa-f]{2})*")
_OPTIONS = ("prefix", "sentinel", "ssl_ca_certs", "wait")


class Address(NamedTuple):
    """Where one server listens."""

    host: str
    port: int = _PORT

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


@dataclass(frozen=True)
class RedisUrl:
    """`hosts` are one server, or nodes of one Redis Cluster, or, with `sentinel`, the Sentinels that know the
    primary by this name. A commit returns once `wait` replicas have it; `prefix` separates ledgers in one
    database; `ca_certs` is a file of the authorities to trust."""

    hosts: tuple[Address, ...]
    database: int = 0
    user: str | None = None
    password: str | None = field(default=None, repr=False)
    tls: bool = False
    ca_certs: str | None = None
    prefix: str = "berth"
    sentinel: str | None = None
    wait: int = 0

    def __str__(self) -> str:
        return ",".join(map(str, self.hosts)) + (f"/{self.database}" if self.database else "")

    @property
    def printable(self) -> str:
        """The URL as in BERTH_STORE, without the user's part and most options."""
        name = "" if self.sentinel is None else f"?sentinel={self.sentinel}"
        return f"{'rediss' if self.tls else 'redis'}://{self}{name}"

    def at(self, address: Address) -> "RedisUrl":
        """Return the URL of this ledger on this server alone."""
        return replace(self, hosts=(address,), sentinel=None)


def parse(url: str) -> RedisUrl:
    """Return where the URL leads. Raises SettingsError, which never quotes the user's part of the URL."""
    scheme, _, rest = url.partition("://")
    before, _, query = rest.partition("?")
    netloc, _, path = before.partition("/")
    if "#" in url:
        raise _wrong(f"a # has no place in it, {_HINT}")
    if "@" in path + query:
        raise _wrong(f"the form is {FORM}, {_HINT}")
    user, password = _login(netloc)
    tls = scheme == "rediss"
    options = urls.options(query, _OPTIONS, _wrong)
    sentinel = options.get("sentinel")
    port = _PORT if sentinel is None else _SENTINEL_PORT
    return RedisUrl(
        hosts=tuple(_address(host, port) for host in netloc.rpartition("@")[2].split(",")),
        database=_database(path),
        user=user,
        password=password,
        tls=tls,
        ca_certs=_ca_certs(options.get("ssl_ca_certs"), tls),
        prefix=_name("prefix", options.get("prefix", RedisUrl.prefix)),
        sentinel=None if sentinel is None else _name("sentinel", sentinel),
        wait=urls.number("wait", options["wait"], 1, 99, _wrong) if "wait" in options else 0,
    )


_HINT = "with characters such as / # ? @ in a password escaped (%2F %23 %3F %40)"


def _wrong(what: str) -> SettingsError:
    return SettingsError(f"BERTH_STORE, a Redis URL: {what}")


def _address(text: str, port: int) -> Address:
    try:
        parts = urlsplit(f"//{text}")
        address = Address(parts.hostname or "", port if parts.port is None else parts.port)
    except ValueError:
        # Its text may quote the URL: a password with a bare / or # ends up where host and port are.
        raise _wrong(f"its host and port can't be read: the form is {FORM}, {_HINT}") from None
    if not address.host:
        raise _wrong(f"the form is {FORM}, {_HINT}")
    return address


def _login(netloc: str) -> tuple[str | None, str | None]:
    login, at, _ = netloc.rpartition("@")
    if not at:
        return None, None
    user, _, password = login.partition(":")
    if "@" in login or not _ESCAPED.fullmatch(login):
        raise _wrong(f"its user or password can't be read, {_HINT} and % as %25")
    if not password:
        raise _wrong("a user needs a password: USER:PASSWORD@, or :PASSWORD@ for the default user")
    return unquote(user) or None, unquote(password)


def _database(text: str) -> int:
    if text and not (text.isascii() and text.isdigit()):
        raise _wrong(f"after host and port comes the number of a database, such as /0: the form is {FORM}")
    return int(text or 0)


def _name(option: str, name: str) -> str:
    if not _NAME.fullmatch(name):
        raise _wrong(f"{option}={name} should be letters, digits, dots, dashes and underscores")
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
