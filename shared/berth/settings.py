"""The environment variables of docs/reference/settings.md, read once when a process starts.
It does not open anything they point to."""

import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from berth.errors import SettingsError

DEFAULT_STORE = "sqlite:///.berth/ledger.db"
DEFAULT_AUDIENCE = "berth"
DEFAULT_BODY_LIMIT = (
    128 * 1024 * 1024
)  # under functions-framework filter takes twice that; infra gives it 512 MiB
DEFAULT_POOLCLAIMS = 1024
DEFAULT_USAGE_MONTHS = 13
_LOG_LEVELS = ("DEBUG", "INFO", "WARNING")
_LOG_FORMATS = ("json", "text", "auto")
_ACCOUNT = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?/[a-z0-9]([-a-z0-9.]*[a-z0-9])?")


class Access(msgspec.Struct, frozen=True, kw_only=True):
    """Who may call: a caller with the token, or one of the accounts (NAMESPACE/NAME) with a token for the
    audience.

    `prefix` is how the names of its variables begin.
    """

    prefix: str = "BERTH_AUTH"
    token: str | None = None
    accounts: tuple[str, ...] = ()
    audience: str = DEFAULT_AUDIENCE


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """The settings of a function; sizes are in bytes.

    `access` is for filter, prioritize, preempt and bind: with neither token nor accounts anyone may call.
    `external` is for inventory's path /external: with neither nobody may call there. `events` is for
    release, inventory and reconcile, and has no token, since Knative sends none. `scrapes` has a token alone:
    who shows it may read metrics, besides those of `access`, and do nothing else. `hosts` None: calls may
    name any. `poolclaims_per_namespace` is the most that a namespace's PoolClaims may weigh together: see
    api.poolclaim. `pod_events`: tell of pods by Kubernetes Events. `usage_months` is how many months
    of the journal of use are kept.
    """

    store: str = DEFAULT_STORE
    pools: Path | None = None
    scheduler_names: tuple[str, ...] = ("berth",)
    access: Access = Access()
    external: Access = Access(prefix="BERTH_EXTERNAL")
    events: Access = Access(prefix="BERTH_EVENTS")
    scrapes: Access = Access(prefix="BERTH_METRICS")
    hosts: tuple[str, ...] | None = None
    body_limit: int = DEFAULT_BODY_LIMIT
    log_level: str = "INFO"
    log_format: str = "auto"
    poolclaims_per_namespace: int = DEFAULT_POOLCLAIMS
    pod_events: bool = True
    usage_months: int = DEFAULT_USAGE_MONTHS


def from_environment(environment: Mapping[str, str] = os.environ) -> Settings:
    """Return the settings of the BERTH_* variables. Raises SettingsError that names the variable."""
    names = tuple(environment.get("BERTH_SCHEDULER_NAMES", "berth").replace(",", " ").split())
    if not names:
        raise SettingsError("BERTH_SCHEDULER_NAMES is empty: name at least one scheduler, such as berth")
    pools = environment.get("BERTH_POOLS")
    return Settings(
        store=environment.get("BERTH_STORE") or DEFAULT_STORE,
        pools=Path(pools) if pools else None,
        scheduler_names=names,
        access=_access(environment, "BERTH_AUTH", _token(environment, "BERTH_AUTH_TOKEN")),
        external=_access(environment, "BERTH_EXTERNAL", _token(environment, "BERTH_EXTERNAL_TOKEN")),
        events=_access(environment, "BERTH_EVENTS"),
        scrapes=Access(prefix="BERTH_METRICS", token=_token(environment, "BERTH_METRICS_TOKEN")),
        hosts=_hosts(environment),
        body_limit=_number(environment, "BERTH_BODY_LIMIT", DEFAULT_BODY_LIMIT, "of bytes "),
        log_level=log_level(environment),
        log_format=log_format(environment),
        poolclaims_per_namespace=_number(environment, "BERTH_POOLCLAIMS_PER_NAMESPACE", DEFAULT_POOLCLAIMS),
        pod_events=_switch(environment, "BERTH_EVENTS"),
        usage_months=_number(environment, "BERTH_USAGE_MONTHS", DEFAULT_USAGE_MONTHS, "of months "),
    )


def log_level(environment: Mapping[str, str] = os.environ, default: str = "INFO") -> str:
    """Return from which level on Berth's own lines are logged. Raises SettingsError."""
    return _one_of(_LOG_LEVELS, environment, "BERTH_LOG_LEVEL", default)


def log_format(environment: Mapping[str, str] = os.environ) -> str:
    """Return the form of a log's lines. Raises SettingsError."""
    return _one_of(_LOG_FORMATS, environment, "BERTH_LOG_FORMAT", "auto")


def _access(environment: Mapping[str, str], prefix: str, token: str | None = None) -> Access:
    audience = environment.get("BERTH_AUTH_AUDIENCE", DEFAULT_AUDIENCE).strip()
    accounts = _accounts(environment, f"{prefix}_ACCOUNTS")
    if not audience:
        raise SettingsError(_empty("BERTH_AUTH_AUDIENCE", f"an audience, such as {DEFAULT_AUDIENCE}"))
    return Access(prefix=prefix, token=token, accounts=accounts, audience=audience)


def _token(environment: Mapping[str, str], name: str) -> str | None:
    token, path = environment.get(name), environment.get(f"{name}_FILE")
    if token is not None and path is not None:
        raise SettingsError(f"{name} and {name}_FILE are both set: keep one")
    # An empty one, such as a script's variable that was not set, must not silently switch authentication off.
    if token is not None and not token.strip():
        raise SettingsError(_empty(name, "the token"))
    if path is None:
        return None if token is None else token.strip()
    if not path:
        raise SettingsError(_empty(f"{name}_FILE", "the file's path"))
    try:
        token = Path(path).read_text(encoding="utf-8").strip()
    except (OSError, UnicodeError) as error:
        raise SettingsError(f"{name}_FILE: can't read {path}: {_reason(error)}") from error
    if not token:
        raise SettingsError(f"{name}_FILE: {path} is empty: put the token into it")
    return token


def _accounts(environment: Mapping[str, str], name: str) -> tuple[str, ...]:
    text = environment.get(name)
    if text is None:
        return ()
    accounts = tuple(text.replace(",", " ").split())
    if not accounts:
        raise SettingsError(_empty(name, "ServiceAccounts as NAMESPACE/NAME"))
    for account in accounts:
        if not _ACCOUNT.fullmatch(account):
            raise SettingsError(f"{name}: {account!r} should be a ServiceAccount as NAMESPACE/NAME")
    return accounts


def _hosts(environment: Mapping[str, str]) -> tuple[str, ...] | None:
    text = environment.get("BERTH_HOSTS")
    return None if text is None else tuple(text.replace(",", " ").lower().split())


def _empty(name: str, what: str) -> str:
    return f"{name} is empty: name {what}, or unset it"


def _number(environment: Mapping[str, str], name: str, default: int, what: str = "") -> int:
    text = environment.get(name)
    if text is None:
        return default
    if not text.isdecimal() or int(text) == 0:
        raise SettingsError(f"{name} is {text!r}: it should be a number {what}above 0, such as {default}")
    return int(text)


def _switch(environment: Mapping[str, str], name: str) -> bool:
    return _one_of(("on", "off"), environment, name, "on") == "on"


def _one_of(words: Sequence[str], environment: Mapping[str, str], name: str, default: str) -> str:
    text = environment.get(name) or default
    if text not in words:
        raise SettingsError(f"{name} is {text!r}: it should be one of {', '.join(words)}")
    return text


def _reason(error: Exception) -> str:
    return getattr(error, "strerror", None) or "it is not UTF-8 text"
