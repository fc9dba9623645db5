"""The environment variables of docs/operations.md#settings, read once when a process starts.
It does not open anything they point to."""

import os
from collections.abc import Mapping
from pathlib import Path

import msgspec

from berth.errors import SettingsError

DEFAULT_STORE = "sqlite:///.berth/ledger.db"
DEFAULT_BODY_LIMIT = 256 * 1024 * 1024
_LOG_LEVELS = ("DEBUG", "INFO", "WARNING")


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """What a function is told from outside. `token` None: calls need none; sizes are in bytes."""

    store: str = DEFAULT_STORE
    pools: Path | None = None
    scheduler_names: tuple[str, ...] = ("berth",)
    token: str | None = None
    body_limit: int = DEFAULT_BODY_LIMIT
    log_level: str = "INFO"


def from_environment(environment: Mapping[str, str] = os.environ) -> Settings:
    """Read BERTH_*; raises SettingsError that names the variable and what it should hold."""
    names = tuple(environment.get("BERTH_SCHEDULER_NAMES", "berth").replace(",", " ").split())
    if not names:
        raise SettingsError("BERTH_SCHEDULER_NAMES is empty: name at least one scheduler, such as berth")
    pools = environment.get("BERTH_POOLS")
    return Settings(
        store=environment.get("BERTH_STORE") or DEFAULT_STORE,
        pools=Path(pools) if pools else None,
        scheduler_names=names,
        token=_token(environment),
        body_limit=_bytes(environment, "BERTH_BODY_LIMIT", DEFAULT_BODY_LIMIT),
        log_level=_log_level(environment.get("BERTH_LOG_LEVEL") or "INFO"),
    )


def _token(environment: Mapping[str, str]) -> str | None:
    token, path = environment.get("BERTH_AUTH_TOKEN"), environment.get("BERTH_AUTH_TOKEN_FILE")
    if token and path:
        raise SettingsError("BERTH_AUTH_TOKEN and BERTH_AUTH_TOKEN_FILE are both set: keep one")
    if not path:
        return (token or "").strip() or None
    try:
        token = Path(path).read_text(encoding="utf-8").strip()
    except (OSError, UnicodeError) as error:
        raise SettingsError(f"BERTH_AUTH_TOKEN_FILE: can't read {path}: {_reason(error)}") from error
    if not token:
        # An empty file must not switch authentication off in silence.
        raise SettingsError(f"BERTH_AUTH_TOKEN_FILE: {path} is empty: put the token into it")
    return token


def _bytes(environment: Mapping[str, str], name: str, default: int) -> int:
    text = environment.get(name)
    if text is None:
        return default
    if not text.isdecimal() or int(text) == 0:
        raise SettingsError(f"{name} is {text!r}: it should be a number of bytes above 0, such as {default}")
    return int(text)


def _log_level(text: str) -> str:
    if text not in _LOG_LEVELS:
        raise SettingsError(f"BERTH_LOG_LEVEL is {text!r}: it should be one of {', '.join(_LOG_LEVELS)}")
    return text


def _reason(error: Exception) -> str:
    return getattr(error, "strerror", None) or "it is not UTF-8 text"
