"""Stores by URL: what each means, what is said of one that is wrong, and that no password is ever shown."""

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from berth.errors import SettingsError
from berth.stores import open_store, redacted
from berth.stores.redis.url import Address, RedisUrl, parse
from berth.stores.sqlite import SqliteStore

SECRET = "s3cr3t"
HOST = RedisUrl((Address("host"),))


def refusal(url: str) -> str:
    with pytest.raises(SettingsError) as caught:
        open_store(url)
    seen: BaseException | None = caught.value
    while seen is not None:
        assert SECRET not in str(seen)
        seen = seen.__cause__
    return str(caught.value)


# What opens what


def test_a_sqlite_url_names_a_file() -> None:
    assert isinstance(open_store("sqlite:///ledger.db"), SqliteStore)


@pytest.mark.parametrize(
    ("url", "guess"),
    [
        ("", ""),
        ("ledger.db", ": did you mean sqlite:///ledger.db?"),
        ("/var/lib/ledger.db", ": did you mean sqlite:////var/lib/ledger.db?"),
        ("redis:/host", ""),
        ("mysql://host", ""),
        ("REDIS://host", ": did you mean redis?"),
        ("sqllite:///a.db", ": did you mean sqlite?"),
        ("unix:///s", ""),
    ],
)
def test_a_url_of_no_store_is_refused_with_examples(url: str, guess: str) -> None:
    assert refusal(url) == (
        f"BERTH_STORE {url!r} should be a store's URL: sqlite:///PATH, redis://HOST, "
        f"configmap://NAMESPACE/NAME or dynamodb://TABLE?region=REGION{guess}"
    )


def test_a_url_of_no_store_is_shown_without_its_password() -> None:
    assert "'postgres://me:***@host/db'" in refusal(f"postgres://me:{SECRET}@host/db")


def test_without_the_redis_package_the_url_is_refused_with_what_to_install() -> None:
    script = (
        "import sys; sys.modules['redis'] = None\n"
        "from berth.stores import open_store\n"
        "from berth.errors import SettingsError\n"
        "try: open_store('redis://u:s3cr3t@host')\n"
        "except SettingsError as error: print(error)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60)
    assert done.stdout == (
        "BERTH_STORE: redis://u:***@host needs the package redis: pip install 'berth-scheduler[redis]'\n"
    )


# Redis


@pytest.mark.parametrize(
    ("url", "location"),
    [
        ("redis://host", HOST),
        ("redis://host/", HOST),
        ("redis://host:7000/3", RedisUrl((Address("host", 7000),), database=3)),
        ("redis://10.0.0.1", RedisUrl((Address("10.0.0.1"),))),
        ("redis://[::1]:7000", RedisUrl((Address("::1", 7000),))),
        (
            "redis://a,[::1],b:7000/1",
            RedisUrl((Address("a"), Address("::1"), Address("b", 7000)), database=1),
        ),
        ("redis://me:s3cr3t@host", replace(HOST, user="me", password="s3cr3t")),
        ("redis://:s3,cr3t@host", replace(HOST, password="s3,cr3t")),
        ("redis://m%40e:%2F%3A%23%25@host", replace(HOST, user="m@e", password="/:#%")),
        ("redis://me:a:b@host", replace(HOST, user="me", password="a:b")),
        ("rediss://host", replace(HOST, tls=True)),
        ("redis://host?prefix=blue-2.x_y", replace(HOST, prefix="blue-2.x_y")),
        ("redis://host/1?prefix=blue", replace(HOST, database=1, prefix="blue")),
        (
            "redis://a,b:7000?sentinel=my.primary",
            RedisUrl((Address("a", 26379), Address("b", 7000)), sentinel="my.primary"),
        ),
        ("redis://host?wait=2", replace(HOST, wait=2)),
    ],
)
def test_a_redis_url_says_where_and_as_whom(url: str, location: RedisUrl) -> None:
    assert parse(url) == location


def test_tls_trusts_a_file_of_authorities_if_one_is_named(tmp_path: Path) -> None:
    file = tmp_path / "ca 1.pem"
    file.touch()
    url = f"rediss://host?ssl_ca_certs={str(file).replace(' ', '%20')}"
    assert parse(url) == replace(HOST, tls=True, ca_certs=str(file))


@pytest.mark.parametrize(
    ("url", "said"),
    [
        (
            "redis://",
            "the form is redis://[USER:PASSWORD@]HOST[:PORT][,HOST[:PORT]…][/DATABASE][?prefix=NAME]",
        ),
        ("redis://a,,b", "the form is"),
        ("redis://a,b:c", "its host and port can't be read"),
        ("redis://me:s3cr3t@", "the form is"),
        ("redis://host:port", "its host and port can't be read"),
        ("redis://host:70000", "its host and port can't be read"),
        ("redis://[::1", "its host and port can't be read"),
        ("redis://:s3cr3t/x@host", r"characters such as / # ? @ in a password escaped (%2F %23 %3F %40)"),
        ("redis://:1234/s3cr3t@host", "in a password escaped"),
        ("redis://:1?s3cr3t@host", "in a password escaped"),
        ("redis://:1#s3cr3t@host", "in a password escaped"),
        ("redis://:s3cr3t@x@host", "its user or password can't be read"),
        ("redis://:s3cr3t%zz@host", "its user or password can't be read"),
        ("redis://s3cr3t@host", "a user needs a password"),
        ("redis://me:@host", "a user needs a password"),
        ("redis://host#x", "a # has no place in it"),
        ("redis://host/x", "the number of a database, such as /0"),
        ("redis://host/-1", "the number of a database"),
        ("redis://host/0/1", "the number of a database"),
        ("redis://host?prefix=", "prefix= should be letters, digits, dots, dashes and underscores"),
        ("redis://host?prefix={x}", "prefix={x} should be"),
        ("redis://host?prefix=a%0A", "should be letters"),
        ("redis://host?prefix=a&prefix=b", "an option is given twice"),
        ("redis://host?prefix", "its options can't be read: they are NAME=VALUE, joined by &"),
        ("redis://host?db=1", "no option 'db'; there are prefix, sentinel, ssl_ca_certs and wait"),
        ("redis://host?sentinel=", "sentinel= should be letters, digits, dots, dashes and underscores"),
        ("redis://host?wait=0", "wait=0 should be a whole number from 1 to 99"),
        ("redis://host?wait=one", "wait=one should be a whole number"),
        ("redis://host?ssl_cert_reqs=none", "there is no option 'ssl_cert_reqs'"),
        ("redis://host?ssl_ca_certs=/etc/ssl/ca.pem", "ssl_ca_certs is for rediss://"),
        ("rediss://host?ssl_ca_certs=ca.pem", "should be the absolute path of a file of certificates"),
        ("rediss://host?ssl_ca_certs=/no/such.pem", "should be the absolute path of a file of certificates"),
    ],
)
def test_a_redis_url_that_can_t_be_meant_is_refused_without_its_password(url: str, said: str) -> None:
    text = refusal(url)
    assert text.startswith("BERTH_STORE, a Redis URL: ")
    assert said in text


def test_a_location_is_named_without_its_password() -> None:
    location = parse("redis://me:s3cr3t@[::1]:7000,host/3?sentinel=x")
    assert str(location) == "[::1]:7000,host:26379/3"
    assert SECRET not in repr(location)


# What may be shown


@pytest.mark.parametrize(
    ("url", "text"),
    [
        ("sqlite:////a/b@c:d.db", "sqlite:////a/b@c:d.db"),
        ("redis://host:6379/0?prefix=x", "redis://host:6379/0?prefix=x"),
        ("redis://me:s3cr3t@host:6379/0", "redis://me:***@host:6379/0"),
        ("redis://me:s3cr3t@a:1,b:2/0?sentinel=x", "redis://me:***@a:1,b:2/0?sentinel=x"),
        ("rediss://:s3cr3t@host", "rediss://:***@host"),
        ("redis://s3cr3t@host", "redis://***@host"),
        ("redis://me:s3cr3t/s3cr3t#@s3cr3t@host", "redis://me:***@host"),
        ("redis://s3cr3t/x@host", "redis://***@host"),
        ("mongodb://me:s3cr3t@host", "mongodb://me:***@host"),
        ("REDIS://me:s3cr3t@host", "REDIS://me:***@host"),
        ("redis:/me:s3cr3t@host", "redis:/me:***@host"),
        ("me:s3cr3t@host", "me:***@host"),
        ("redis://host?password=s3cr3t&prefix=x", "redis://host?password=***&prefix=x"),
        ("redis:/host?a=b&Auth_Token=s3cr3t", "redis:/host?a=b&Auth_Token=***"),
        ("db://me:s3cr3t@host?passwd=s3cr3t#x", "db://me:***@host?passwd=***#x"),
        ("db://host?key=s3cr3t&credentials=s3cr3t&x=1", "db://host?key=***&credentials=***&x=1"),
        ("db://host?accountKey=s3cr3t=&private=s3cr3t", "db://host?accountKey=***&private=***"),
        ("redis://tokens/0?prefix=auth", "redis://tokens/0?prefix=auth"),
        ("dynamodb://keys?region=eu-central-1", "dynamodb://keys?region=eu-central-1"),
        ("", ""),
    ],
)
def test_a_url_is_shown_without_what_may_be_a_password(url: str, text: str) -> None:
    assert redacted(url) == text
