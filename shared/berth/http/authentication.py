"""Who may call a function: whoever has the shared token, or an account that the API server vouches for.
Of a token nothing is kept but its hash, and none is ever logged or told."""

import base64
import binascii
import hashlib
import hmac
import threading
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Collection
from functools import cache

import msgspec

from berth.errors import BerthError, RetryableError
from berth.settings import Admission

GOOD_SECONDS, BAD_SECONDS = 60.0, 10.0
"""So long a review's outcome is believed: what was deleted or revoked meanwhile is seen after that."""

AWAY_SECONDS = 300.0
"""So long a token that was good is taken while the API server can't say."""

_AGAIN_SECONDS = 5.0  # until an API server that is away is asked again about a token that was good
_REVIEW_SECONDS = 1.0  # kube-scheduler waits for 5, and the verb needs its time
_AT_ONCE, _A_SECOND, _KEPT = 2, 10, 256
_LONGEST = 8192  # a token of a ServiceAccount has some 1,000 bytes


class _Claims(msgspec.Struct):
    aud: str | list[str] = ""


_claims = msgspec.json.Decoder(_Claims)


class CrowdedReviewsError(RetryableError):
    """More unknown tokens were offered at once than are asked about."""


class _Verdict(msgspec.Struct):
    good: bool
    until: float
    seen: float  # when the API server said so


class Reviews:
    """Tells by TokenReview whether a token is one of the accounts'; safe for many calls at once.

    `ask` returns the token's account as NAMESPACE/NAME, or nothing. Strangers may offer any number of
    tokens, and anybody in the cluster has true ones of other accounts. So what is asked, and what is kept,
    is bounded, and they can't push out the tokens that are good.
    """

    def __init__(
        self,
        ask: Callable[[str], str],
        accounts: Collection[str],
        audience: str,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._ask, self._accounts, self._audience = ask, frozenset(accounts), audience
        self._monotonic = monotonic
        self._good, self._bad = OrderedDict[bytes, _Verdict](), OrderedDict[bytes, _Verdict]()
        self._begun = deque[float](maxlen=_A_SECOND)
        self._slots, self._lock = threading.BoundedSemaphore(_AT_ONCE), threading.Lock()

    def good(self, token: str) -> bool:
        """Whether the token is one of the accounts'. Raises cluster errors, CrowdedReviewsError."""
        if not self._is_for_us(token):
            return False
        key = hashlib.sha256(token.encode()).digest()
        verdict = self._known(key)
        if verdict is not None and self._monotonic() < verdict.until:
            return verdict.good
        if not self._slots.acquire(timeout=_REVIEW_SECONDS):
            return self._in_doubt(key, CrowdedReviewsError(_CROWDED))
        try:
            return self._reviewed(key, token)
        finally:
            self._slots.release()

    def _reviewed(self, key: bytes, token: str) -> bool:
        known = self._known(key)
        if known is not None and self._monotonic() < known.until:
            return known.good  # others have asked meanwhile
        if (known is None or not known.good) and not self._may_begin():
            raise CrowdedReviewsError(_CROWDED)
        try:
            good = self._ask(token) in self._accounts
        except RetryableError as error:
            return self._in_doubt(key, error)
        now = self._monotonic()
        self._note(key, _Verdict(good, now + (GOOD_SECONDS if good else BAD_SECONDS), now))
        return good

    def _in_doubt(self, key: bytes, error: BerthError) -> bool:
        """Take a token that was good a while ago; raise the error for any other."""
        known, now = self._known(key), self._monotonic()
        if known is None or not known.good or now >= known.seen + GOOD_SECONDS + AWAY_SECONDS:
            raise error
        self._note(key, _Verdict(good=True, until=now + _AGAIN_SECONDS, seen=known.seen))
        return True

    def _known(self, key: bytes) -> _Verdict | None:
        with self._lock:
            return self._good.get(key) or self._bad.get(key)

    def _note(self, key: bytes, verdict: _Verdict) -> None:
        with self._lock:
            for kept in (self._good, self._bad):
                kept.pop(key, None)
            kept = self._good if verdict.good else self._bad
            kept[key] = verdict
            if len(kept) > _KEPT:
                kept.popitem(last=False)

    def _may_begin(self) -> bool:
        """Whether one more token that was never good may be asked about in this second."""
        with self._lock:
            now = self._monotonic()
            if len(self._begun) == _A_SECOND and now - self._begun[0] < 1:
                return False
            self._begun.append(now)
            return True

    def _is_for_us(self, token: str) -> bool:
        """Whether it says that it is for our audience: what does not is not worth a request."""
        if len(token) > _LONGEST:
            return False
        parts = token.split(".")
        try:
            said = _claims.decode(base64.urlsafe_b64decode(parts[1] + "==")).aud if len(parts) == 3 else ""
        except (binascii.Error, ValueError, msgspec.DecodeError, RecursionError):
            return False
        return self._audience in ([said] if isinstance(said, str) else said)


_CROWDED = "too many callers with tokens that berth does not know"


class Callers:
    """Whom one door of a function lets in."""

    def __init__(self, admission: Admission, reviews: Reviews | None = None) -> None:
        self._secret = None if admission.token is None else admission.token.encode()
        self._reviews, self._needs = reviews, _needs(admission)

    def refusal(self, authorization: str) -> str:
        """What is wrong with this header; empty: its sender may call. Raises what Reviews raises."""
        offered = _offered(authorization)
        if offered is not None:
            if self._secret is not None and hmac.compare_digest(offered, self._secret):
                return ""
            if self._reviews is not None and offered.isascii() and self._reviews.good(offered.decode()):
                return ""
        return self._needs


@cache
def door(admission: Admission) -> Callers | None:
    """Whom this lets in; None where it names nobody. Raises SettingsError without a cluster to ask.

    The verbs of one process share what was reviewed.
    """
    if admission.token is None and not admission.accounts:
        return None
    if not admission.accounts:
        return Callers(admission)
    # The kubernetes client is not loaded for it in a pod (tests/unit/test_cold_start.py).
    from berth.kube.cluster import connect

    cluster, audience = connect(), admission.audience

    def ask(token: str) -> str:
        return cluster.account_of(token, audience, _REVIEW_SECONDS)

    return Callers(admission, Reviews(ask, admission.accounts, audience))


def _needs(admission: Admission) -> str:
    """What a caller needs, in words."""
    ways = []
    if admission.token is not None:
        ways.append(f"the token of {admission.prefix}_TOKEN, as Basic or Bearer authorization")
    if admission.accounts:
        whose = " or ".join(admission.accounts)
        ways.append(f"a token of the ServiceAccount {whose} for the audience {admission.audience}, as Bearer")
    return f"needs {', or '.join(ways)}"


def _offered(authorization: str) -> bytes | None:
    """The token in the header, if it has one: Basic with any user name, or Bearer."""
    scheme, _, value = authorization.partition(" ")
    offered = value.strip().encode()
    if scheme.lower() == "bearer":
        return offered
    if scheme.lower() != "basic":
        return None
    try:
        return base64.b64decode(offered, validate=True).partition(b":")[2]
    except binascii.Error:
        return None
