"""Who may call a function: a caller with the shared token, or a ServiceAccount, by the API server's
TokenReview. Of a reviewed token only the hash is remembered; no token is ever logged or answered."""

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
from berth.http.endpoint import Authenticator
from berth.settings import Access, Settings

GOOD_SECONDS, BAD_SECONDS = 60.0, 10.0
"""How long a review's result is used: an account that is deleted meanwhile is refused after that."""

AWAY_SECONDS = 300.0
"""How long a token that was good is accepted while the API server does not answer."""

_AGAIN_SECONDS = 5.0  # until the API server, which did not answer, is asked again about a token that was good
_REVIEW_SECONDS = 1.0  # kube-scheduler waits for 5, and the function needs its time
_AT_ONCE, _A_SECOND, _CACHED = 2, 10, 256
_LONGEST = 8192  # a token of a ServiceAccount has some 1,000 bytes


class _Claims(msgspec.Struct):
    aud: str | list[str] = ""


_claims = msgspec.json.Decoder(_Claims)


class TooManyReviewsError(RetryableError):
    """More unknown tokens came at once than are reviewed."""


class _Verdict(msgspec.Struct):
    good: bool
    until: float
    seen: float  # when the API server answered so


class TokenReviews:
    """TokenReviews of the API server, with their results cached; safe to use from many threads.

    `ask` returns the token's account as NAMESPACE/NAME, or nothing. Strangers may send any number of tokens,
    and any pod in the cluster has a valid one of another account. So there is a limit for reviews, and for
    results in the cache, and no result pushes out one that is good.
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
        """Whether the token is of one of the accounts. Raises cluster errors and TooManyReviewsError."""
        if not self._is_for_us(token):
            return False
        key = hashlib.sha256(token.encode()).digest()
        verdict = self._known(key)
        if verdict is not None and self._monotonic() < verdict.until:
            return verdict.good
        if not self._slots.acquire(timeout=_REVIEW_SECONDS):
            return self._in_doubt(key, TooManyReviewsError(_CROWDED))
        try:
            return self._reviewed(key, token)
        finally:
            self._slots.release()

    def knows(self, token: str) -> bool:
        """Whether `good` need not ask the API server."""
        if not self._is_for_us(token):
            return True
        verdict = self._known(hashlib.sha256(token.encode()).digest())
        return verdict is not None and self._monotonic() < verdict.until

    def _reviewed(self, key: bytes, token: str) -> bool:
        known = self._known(key)
        if known is not None and self._monotonic() < known.until:
            return known.good  # another thread has asked meanwhile
        if (known is None or not known.good) and not self._may_begin():
            raise TooManyReviewsError(_CROWDED)
        try:
            good = self._ask(token) in self._accounts
        except RetryableError as error:
            return self._in_doubt(key, error)
        now = self._monotonic()
        self._note(key, _Verdict(good, now + (GOOD_SECONDS if good else BAD_SECONDS), now))
        return good

    def _in_doubt(self, key: bytes, error: BerthError) -> bool:
        """Accept a token that was good a while ago; raise the error for any other."""
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
            for verdicts in (self._good, self._bad):
                verdicts.pop(key, None)
            verdicts = self._good if verdict.good else self._bad
            verdicts[key] = verdict
            if len(verdicts) > _CACHED:
                verdicts.popitem(last=False)

    def _may_begin(self) -> bool:
        """Whether one more token that was never good may be reviewed in this second."""
        with self._lock:
            now = self._monotonic()
            if len(self._begun) == _A_SECOND and now - self._begun[0] < 1:
                return False
            self._begun.append(now)
            return True

    def _is_for_us(self, token: str) -> bool:
        """Whether the token claims to be for our audience: one that does not needs no review."""
        if len(token) > _LONGEST:
            return False
        parts = token.split(".")
        try:
            audience = (
                _claims.decode(base64.urlsafe_b64decode(parts[1] + "==")).aud if len(parts) == 3 else ""
            )
        except (binascii.Error, ValueError, msgspec.DecodeError, RecursionError):
            return False
        return self._audience in ([audience] if isinstance(audience, str) else audience)


_CROWDED = "too many callers with tokens that berth does not know"


class TokenAuthenticator:
    """Lets in callers with the shared token, or with one of the accounts' tokens."""

    def __init__(self, access: Access, reviews: TokenReviews | None = None) -> None:
        self._secret = None if access.token is None else access.token.encode()
        self._reviews, self._needs = reviews, _needs(access)

    def refusal(self, authorization: str) -> str:
        """Return what a caller with this header lacks; empty: it may call. Raises what TokenReviews
        raises."""
        offered = _offered(authorization)
        if offered is not None:
            if self._secret is not None and hmac.compare_digest(offered, self._secret):
                return ""
            if self._reviews is not None and offered.isascii() and self._reviews.good(offered.decode()):
                return ""
        return self._needs

    def knows(self, authorization: str) -> bool:
        """Whether `refusal` need not ask the API server."""
        offered = _offered(authorization)
        if self._reviews is None or offered is None or not offered.isascii():
            return True
        shared = self._secret is not None and hmac.compare_digest(offered, self._secret)
        return shared or self._reviews.knows(offered.decode())


@cache
def authenticator(access: Access) -> TokenAuthenticator | None:
    """Return the authenticator for these settings; None where they let anyone in. Raises SettingsError
    where there is no cluster to ask.

    The functions of one process share it, and with it the cache of reviews.
    """
    if not access.accounts:
        return None if access.token is None else TokenAuthenticator(access)
    # The kubernetes client is not loaded for it in a pod (tests/unit/test_cold_start.py).
    from berth.kube.cluster import connect

    cluster, audience = connect(), access.audience

    def ask(token: str) -> str:
        return cluster.account_of(token, audience, _REVIEW_SECONDS)

    return TokenAuthenticator(access, TokenReviews(ask, access.accounts, audience))


class EitherAuthenticator:
    """Lets in whom one of two lets in; it asks the first one first."""

    def __init__(self, first: Authenticator, second: Authenticator) -> None:
        self._first, self._second = first, second

    def refusal(self, authorization: str) -> str:
        """Return what a caller with this header lacks for the first; empty: it may call."""
        lacking = self._first.refusal(authorization)
        return lacking and self._second.refusal(authorization) and lacking

    def knows(self, authorization: str) -> bool:
        """Whether `refusal` need not ask the API server."""
        return not self._first.refusal(authorization) or self._second.knows(authorization)


def scrapers(settings: Settings) -> Authenticator | None:
    """Return the authenticator for GET /metrics: the metrics' own token opens it, and what opens the verbs;
    None where anyone may read them. Raises SettingsError as `authenticator`."""
    callers = authenticator(settings.access)
    if settings.scrapes.token is None:
        return callers
    own = TokenAuthenticator(settings.scrapes)
    return own if callers is None else EitherAuthenticator(own, callers)


def _needs(access: Access) -> str:
    """Return in words what a caller needs."""
    ways = []
    if access.token is not None:
        ways.append(f"the token of {access.prefix}_TOKEN, as Basic or Bearer authorization")
    if access.accounts:
        whose = " or ".join(access.accounts)
        ways.append(f"a token of the ServiceAccount {whose} for the audience {access.audience}, as Bearer")
    return f"needs {', or '.join(ways)}"


def _offered(authorization: str) -> bytes | None:
    """Return the token in the header, if there is one: Basic with any user name, or Bearer."""
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
