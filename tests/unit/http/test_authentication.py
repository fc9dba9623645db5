"""Who may call: which tokens are believed, for how long, and what strangers can make a function ask."""

import base64
import hashlib
import json
import threading
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from berth.errors import ClusterRefusedError, ClusterUnavailableError
from berth.http import authentication
from berth.http.authentication import (
    AWAY_SECONDS,
    BAD_SECONDS,
    GOOD_SECONDS,
    TokenAuthenticator,
    TokenReviews,
    TooManyReviewsError,
)
from berth.settings import Access
from tests.support.builders.ledgers import Time

SCHEDULER = "berth/berth-scheduler"
AUDIENCE = "berth"
DEEP = b'{"x":' + b"[" * 6000  # deeper than Python recurses, and no longer than a token may be


def jwt(name: str, audience: Any = AUDIENCE) -> str:
    """As a ServiceAccount's token looks; only the API server can tell whether it is one."""

    def part(said: Mapping[str, Any]) -> str:
        return base64.urlsafe_b64encode(json.dumps(said).encode()).decode().rstrip("=")

    return f"{part({'alg': 'RS256'})}.{part({'aud': audience, 'sub': name})}.c2ln"


class Server:
    """The API server's word on tokens."""

    def __init__(self) -> None:
        self.accounts = {jwt("scheduler"): SCHEDULER, jwt("tenant"): "team-a/default"}
        self.asked: list[str] = []
        self.away: Exception | None = None

    def __call__(self, token: str) -> str:
        self.asked.append(token)
        if self.away is not None:
            raise self.away
        return self.accounts.get(token, "")


@pytest.fixture
def server() -> Server:
    return Server()


@pytest.fixture
def time() -> Time:
    return Time()


@pytest.fixture
def reviews(server: Server, time: Time) -> TokenReviews:
    return TokenReviews(server, [SCHEDULER], AUDIENCE, time)


def test_a_token_of_the_account_is_good_and_no_other(reviews: TokenReviews) -> None:
    assert reviews.good(jwt("scheduler"))
    assert not reviews.good(jwt("tenant"))  # a true one, of another account
    assert not reviews.good(jwt("nobody"))


@pytest.mark.parametrize("audience", [[AUDIENCE, "https://kubernetes.default.svc"], [AUDIENCE], AUDIENCE])
def test_a_token_for_our_audience_is_asked_about(
    server: Server, reviews: TokenReviews, audience: Any
) -> None:
    reviews.good(jwt("x", audience))
    assert len(server.asked) == 1


@pytest.mark.parametrize(
    "token",
    [
        *("", "s3cret", "a.b", "a.b.c", "a.b.c.d", "..", "a.e30.c", "a.!!.c", f"a.{'x' * 9000}.c"),
        f"a.{base64.urlsafe_b64encode(DEEP).decode()}.c",
        *(jwt("x", audience) for audience in ("", "https://kubernetes.default.svc", [], ["berths"], 7, None)),
    ],
)
def test_what_is_no_token_for_our_audience_is_refused_and_nobody_is_asked(
    server: Server, reviews: TokenReviews, token: str
) -> None:
    assert not reviews.good(token)
    assert server.asked == []


def test_a_good_token_is_believed_for_a_minute_and_not_a_second_more(
    server: Server, reviews: TokenReviews, time: Time
) -> None:
    assert reviews.good(jwt("scheduler"))
    server.accounts.clear()
    time.advance(GOOD_SECONDS - 0.001)
    assert reviews.good(jwt("scheduler"))
    assert len(server.asked) == 1
    time.advance(0.001)
    assert not reviews.good(jwt("scheduler"))


def test_a_token_that_was_not_good_yet_is_asked_about_again_soon(
    server: Server, reviews: TokenReviews, time: Time
) -> None:
    assert not reviews.good(jwt("new"))
    server.accounts[jwt("new")] = SCHEDULER
    time.advance(BAD_SECONDS - 0.001)
    assert not reviews.good(jwt("new"))
    time.advance(0.001)
    assert reviews.good(jwt("new"))


def test_while_the_api_server_is_away_a_token_that_was_good_stays_so_for_five_minutes(
    server: Server, reviews: TokenReviews, time: Time
) -> None:
    assert reviews.good(jwt("scheduler"))
    server.away = ClusterUnavailableError("no answer")
    with pytest.raises(ClusterUnavailableError):
        reviews.good(jwt("unknown"))
    time.advance(GOOD_SECONDS)
    for _ in range(100):
        assert reviews.good(jwt("scheduler"))
    assert len(server.asked) == 3  # it costs one time-out in five seconds, not one a call
    time.advance(AWAY_SECONDS - 0.001)
    assert reviews.good(jwt("scheduler"))
    time.advance(5)
    with pytest.raises(ClusterUnavailableError):
        reviews.good(jwt("scheduler"))


def test_a_right_that_is_missing_is_said_and_nothing_is_believed(
    server: Server, reviews: TokenReviews, time: Time
) -> None:
    assert reviews.good(jwt("scheduler"))
    time.advance(GOOD_SECONDS)
    server.away = ClusterRefusedError("the API server refused it", 403)
    with pytest.raises(ClusterRefusedError):
        reviews.good(jwt("scheduler"))


def test_strangers_make_it_ask_ten_times_a_second_at_most(server: Server, reviews: TokenReviews) -> None:
    crowded = 0
    for number in range(1000):
        try:
            assert not reviews.good(jwt(f"stranger-{number}"))
        except TooManyReviewsError:
            crowded += 1
    assert (len(server.asked), crowded) == (10, 990)


def test_strangers_do_not_push_out_who_is_known(server: Server, reviews: TokenReviews, time: Time) -> None:
    assert reviews.good(jwt("scheduler"))
    for number in range(1000):
        time.advance(0.05)  # within the minute that it is believed for
        try:
            reviews.good(jwt(f"stranger-{number}"))
        except TooManyReviewsError:
            continue
    asked = len(server.asked)
    assert reviews.good(jwt("scheduler"))
    assert len(server.asked) == asked
    assert len(reviews._bad) == 256


def test_a_known_token_is_asked_about_anew_however_many_strangers_there_are(
    reviews: TokenReviews, time: Time
) -> None:
    assert reviews.good(jwt("scheduler"))
    time.advance(GOOD_SECONDS)
    for number in range(10):
        reviews.good(jwt(f"stranger-{number}"))
    with pytest.raises(TooManyReviewsError):
        reviews.good(jwt("one more"))
    assert reviews.good(jwt("scheduler"))


def test_of_calls_at_once_with_a_new_token_two_ask_at_most(time: Time) -> None:
    everyone, asked = threading.Barrier(16), []

    def ask(token: str) -> str:
        asked.append(token)
        return SCHEDULER

    reviews = TokenReviews(ask, [SCHEDULER], AUDIENCE, time)

    def call(_: int) -> bool:
        everyone.wait()
        return reviews.good(jwt("scheduler"))

    with ThreadPoolExecutor(16) as calls:
        assert all(calls.map(call, range(16)))
    assert len(asked) in (1, 2)


def test_no_token_is_kept(reviews: TokenReviews) -> None:
    token = jwt("scheduler")
    assert reviews.good(token)
    assert list(reviews._good) == [hashlib.sha256(token.encode()).digest()]
    assert token not in repr(vars(reviews))


@pytest.mark.parametrize("header", [f"Bearer {jwt('scheduler')}", "Bearer s3cret", "Basic YmVydGg6czNjcmV0"])
def test_a_shared_token_and_a_reviewed_one_open_beside_each_other(reviews: TokenReviews, header: str) -> None:
    """So that functions take both while schedulers are changed from one to the other."""
    both = TokenAuthenticator(Access(token="s3cret", accounts=(SCHEDULER,)), reviews)
    assert both.refusal(header) == ""


@pytest.mark.parametrize("header", ["", "Bearer", "Bearer \xff", "Basic \xff", "Digest x", "Bearer wrong"])
def test_a_refusal_says_what_is_needed_and_nothing_of_what_was_offered(
    reviews: TokenReviews, header: str
) -> None:
    both = TokenAuthenticator(Access(token="s3cret", accounts=(SCHEDULER, "a/b")), reviews)
    assert both.refusal(header) == (
        "needs the token of BERTH_AUTH_TOKEN, as Basic or Bearer authorization, or a token of the "
        "ServiceAccount berth/berth-scheduler or a/b for the audience berth, as Bearer"
    )


def test_a_door_without_a_token_and_without_accounts_is_no_door() -> None:
    assert authentication.authenticator(Access()) is None
