"""Takes secrets out of text that leaves the house: known ones, and what looks like one.
It errs on the side of taking too much. It can't know a secret that looks like any other word."""

import json
import re
from collections.abc import Iterable, Mapping
from urllib.parse import quote, unquote, urlsplit

GONE = "***"

SECRETIVE = r"token|pass(?!ed)|pwd|secret|credential|private|auth|[\w?&-]key"
"""A pattern for what is in the names of options and variables whose values are secret, in any case."""
# No option of ours, but people take such URLs from elsewhere.
_SECRET = re.compile(rf"((?:{SECRETIVE})[^=&#?/]*=)[^&#]*", re.IGNORECASE)
_LOGIN = re.compile(r"^([^:/@]*:/+)?([^:@/]*:)?.*@", re.DOTALL)

_SHORTEST = 4  # a known secret of fewer letters would take half the text with it
_SECRET_NAME = re.compile(SECRETIVE, re.IGNORECASE)
# It only says where a secret is, or whose.
_POINTER = re.compile(r"_(FILE|PATH|NAME|ACCOUNTS|AUDIENCE)$", re.IGNORECASE)

_PATTERNS = (
    ("authorization", re.compile(r"(?i)(authorization[\"']?\s*[:=]\s*[\"']?)[^\"'\r\n]+"), rf"\1{GONE}"),
    ("bearer", re.compile(r"(?i)\b(bearer)\s+[\w.~+/=-]{4,}"), rf"\1 {GONE}"),
    ("basic", re.compile(r"(?i)\b(basic)\s+[\w.~+/=-]{4,}"), rf"\1 {GONE}"),
    ("://", re.compile(r"(://)[^\s\"'<>\\]{0,2048}@"), rf"\1{GONE}@"),
    ("eyj", re.compile(r"\beyJ[\w-]{4,}\.[\w-]+(\.[\w-]*)?"), GONE),  # a JSON web token
    ("akia", re.compile(r"\bAKIA[A-Z0-9]{12,}"), GONE),  # an AWS access key's ID
    ("asia", re.compile(r"\bASIA[A-Z0-9]{12,}"), GONE),  # a temporary one
    (
        "-----begin",
        re.compile(r"-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(-----END [A-Z ]*PRIVATE KEY-----|\Z)", re.DOTALL),
        GONE,
    ),
)
"""What looks like a secret, what to put in its place, and before both what such a text has in lower case: to
look for that is quicker by far, and each line of a log is looked through, field by field."""

_PAIR = re.compile(
    rf"(?i)((?:{SECRETIVE})[\w.-]{{0,64}})"
    r"(\\?[\"']?\s{0,8}[:=]\s{0,8}\\?)(\"[^\"\r\n]*\"|'[^'\r\n]*'|[^\s\"',;&}\\]+)"
)
"""A name like a secret's, and its value. All runs of this and the patterns above are bounded or begin with a
word of their own: a log may have a line of megabytes."""

_ASSIGNED = re.compile(rf"(?i)((?:{SECRETIVE})[\w.-]{{0,64}}=)[^\s\"'&;,#]+")
"""Such a name with `=`, and its value."""


class Redactor:
    """Takes secrets out of text. More of them may become known as it goes: redact last."""

    def __init__(self) -> None:
        self._known: set[str] = set()
        self._longest_first: list[str] = []

    def learn(self, secrets: Iterable[str | None]) -> None:
        """Remember secrets, in each spelling in which they may stand somewhere."""
        for secret in filter(None, secrets):
            for spelling in (secret, unquote(secret), quote(secret, safe="")):
                if len(spelling.strip()) >= _SHORTEST:
                    self._known |= {spelling.strip(), json.dumps(spelling.strip())[1:-1]}
        self._longest_first = sorted(self._known, key=len, reverse=True)

    def learn_settings(self, environment: Mapping[str, str]) -> None:
        """Remember what is secret in the values of these variables."""
        self.learn(value for name, value in environment.items() if is_secret(name))
        for value in environment.values():
            self.learn(_passwords(value))

    def text(self, text: str) -> str:
        """Return the text of a file without secrets."""
        for secret in self._longest_first:
            text = text.replace(secret, GONE)
        lowered = text.lower()
        for hint, pattern, instead in _PATTERNS:
            if hint in lowered:
                text = pattern.sub(instead, text)
        return text

    def line(self, text: str) -> str:
        """Return a line of Berth's own log, also without values such as `?password=…` has. What is before a
        colon there may be a pod's name."""
        text = self.text(text)
        return _ASSIGNED.sub(rf"\1{GONE}", text) if "=" in text else text

    def free_text(self, text: str) -> str:
        """Return text that somebody else wrote, such as a log, also without the values of what is named like
        a secret (`token=…`)."""
        return _PAIR.sub(
            lambda pair: f"{pair[1]}{pair[2]}{GONE}" if is_secret(pair[1]) else pair[0], self.text(text)
        )


def is_secret(name: str) -> bool:
    """Whether a variable of this name has a secret for its value."""
    return bool(_SECRET_NAME.search(name)) and not _POINTER.search(name)


def redacted(url: str) -> str:
    """Return the URL as it may be printed: without its password."""
    if url.startswith("sqlite:"):
        return url
    return _SECRET.sub(r"\1***", _LOGIN.sub(lambda login: f"{login[1] or ''}{login[2] or ''}***@", url))


def shown(name: str, value: str) -> str:
    """Return a setting's value as it may be shown."""
    if is_secret(name):
        return GONE
    return redacted(value) if "://" in value else value


def _passwords(value: str) -> list[str]:
    """Return the password in a URL, if it is one."""
    if "://" not in value or "@" not in value:
        return []
    try:
        password = urlsplit(value).password
    except ValueError:
        password = None
    rough = value.partition("://")[2].rpartition("@")[0].partition(":")[2]  # it may have / or # in it
    return [*filter(None, (password, rough))]
