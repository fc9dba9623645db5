"""What is taken out of text before it leaves the house, and what stays readable."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from berth import redaction
from berth.redaction import Redactor, is_secret, shown

PLANTED = "hunter2-planted"
KEY = "RSA PRIVATE KEY"
PIECES = [
    *("Authorization", "authorization", ": ", "=", "Bearer", "BASIC", " ", "abcd1234", "://", "@", "\n", '"'),
    *(
        "eyJhbGci",
        ".",
        "AKIA",
        "ASIA",
        "ABCDEFGHIJKL0",
        f"-----BEGIN {KEY}-----",
        f"-----END {KEY}-----",
        "a",
    ),
]
"""Of what secrets look like."""


@pytest.mark.parametrize(
    ("text", "after"),
    [
        (f"GET /x Authorization: Bearer {PLANTED}", "GET /x Authorization: ***"),
        (f'{{"authorization": "{PLANTED}", "a": 1}}', '{"authorization": "***", "a": 1}'),
        (f"sent bearer {PLANTED} to it", "sent bearer *** to it"),
        (f"redis://user:{PLANTED}@host:6379/0 is away", "redis://***@host:6379/0 is away"),
        (f'{{"url": "https://:{PLANTED}@h", "at": "x@y"}}', '{"url": "https://***@h", "at": "x@y"}'),
        (f"rediss://:{PLANTED}/@host", "rediss://***@host"),
        ("token eyJhbGciOi.eyJpc3MiOiJ.c2ln_x is old", "token *** is old"),
        ("AKIA" + "ABCDEFGHIJKLMNOP", "***"),
        (
            f"a\n-----BEGIN {KEY}-----\n{PLANTED}\n-----END {KEY}-----\nb",
            "a\n***\nb",
        ),
    ],
)
def test_what_looks_like_a_secret_is_taken_out_of_any_text(text: str, after: str) -> None:
    assert Redactor().text(text) == after


@pytest.mark.parametrize(
    "text",
    [
        f'{{\\"token\\": \\"{PLANTED}\\"}}',
        f'password = "a, {PLANTED}"',
        f"token={PLANTED}",
        f"my_password: {PLANTED}",
        f'{{"apiKey":"{PLANTED}"}}',
        f"SECRET='{PLANTED}'",
        f"db_pwd={PLANTED}",
        f"redis_auth: {PLANTED}",
        f'"private-key": "{PLANTED}"',
        f"GET /x?key={PLANTED}",
    ],
)
def test_what_is_named_like_a_secret_is_taken_out_of_what_others_wrote(text: str) -> None:
    assert PLANTED not in Redactor().free_text(text)


def test_a_line_of_a_megabyte_takes_no_time_that_grows_with_its_square() -> None:
    """What is quadratic takes hours for these, so no clock is looked at."""
    for text in ("a-" * 500_000, "a" * 1_000_000, "://" * 50_000, "token " * 150_000, "eyJ" * 300_000):
        assert Redactor().free_text(text) == text


@given(st.lists(st.sampled_from(PIECES), max_size=8).map("".join))
def test_a_hint_leaves_out_no_pattern_that_matches(text: str) -> None:
    whole = text
    for _, pattern, instead in redaction._PATTERNS:
        whole = pattern.sub(instead, whole)
    assert Redactor().text(text) == whole


def test_what_is_known_is_taken_out_in_each_spelling() -> None:
    redactor = Redactor()
    redactor.learn_settings(
        {"BERTH_STORE": 'redis://:p%40s"s%2Fword@host', "BERTH_AUTH_TOKEN": "  a-token\n"}
    )
    redactor.learn([None, "", "abc"])
    text = 'p%40s"s%2Fword p@s"s/word p@s\\"s/word a-token abc'
    assert redactor.text(text) == "*** *** *** *** abc"


def test_a_password_with_a_slash_in_it_is_known_too() -> None:
    redactor = Redactor()
    redactor.learn_settings({"BERTH_STORE": "redis://user:ab/cd#ef@host/0"})
    assert redactor.text("ab/cd#ef") == "***"


def test_what_is_no_secret_stays() -> None:
    for text in (
        'underlay-ip: 0 of 10 free, 1 asked; {"uid": "0f9d"} sha256:12ab http://127.0.0.1:8080/filter',
        "BERTH_AUTH_ACCOUNTS=berth/berth-scheduler BERTH_AUTH_TOKEN_FILE: /run/token key: a passed: 3",
    ):
        assert Redactor().free_text(text) == text


def test_of_a_setting_is_shown_what_may_be() -> None:
    assert shown("BERTH_AUTH_TOKEN", "x") == "***"
    assert shown("BERTH_AUTH_TOKEN_FILE", "/run/token") == "/run/token"
    assert shown("BERTH_STORE", "redis://u:p@h/0") == "redis://u:***@h/0"
    assert shown("BERTH_SCHEDULER_NAMES", "berth") == "berth"
    assert shown("BERTH_AUTH_ACCOUNTS", "berth/berth-scheduler") == "berth/berth-scheduler"
    assert shown("BERTH_AUTH_AUDIENCE", "berth") == "berth"
    for name in ("AWS_SECRET_ACCESS_KEY", "MYSQL_PWD", "REDISCLI_AUTH", "ENCRYPTION_KEY"):
        assert is_secret(name)
