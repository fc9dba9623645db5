"""Where a ledger's file is, according to BERTH_STORE's URL.
It opens nothing: whether the file is there, and may be read, is known after the first call."""

from pathlib import Path

from berth.errors import SettingsError


def parse(url: str) -> Path:
    """Return the file's path. Raises SettingsError."""
    # Three slashes and a relative path, four and an absolute one: the way SQLAlchemy made common.
    path = url.removeprefix("sqlite:///")
    if path in ("", url) or "?" in path or "#" in path:
        raise SettingsError(
            f"BERTH_STORE: {url!r} should be sqlite:///relative/path or sqlite:////absolute/path"
        )
    return Path(path)
