"""The environment variables that operators set, and what is said when one is wrong."""

from pathlib import Path

import pytest

from berth.errors import SettingsError
from berth.settings import Access, Settings, from_environment


def refusal(environment: dict[str, str]) -> str:
    with pytest.raises(SettingsError) as caught:
        from_environment(environment)
    return str(caught.value)


def test_an_empty_environment_gives_the_defaults() -> None:
    found = from_environment({})
    assert found == Settings()
    assert (found.store, found.scheduler_names) == ("sqlite:///.berth/ledger.db", ("berth",))
    assert (found.pools, found.hosts, found.body_limit) == (None, None, 128 * 1024 * 1024)
    for each in (found.access, found.external, found.events):
        assert (each.token, each.accounts, each.audience) == (None, (), "berth")


def test_every_variable_is_read() -> None:
    environment = {
        "BERTH_STORE": "sqlite:////data/ledger.db",
        "BERTH_POOLS": "pools.yaml",
        "BERTH_SCHEDULER_NAMES": "berth",
        "BERTH_AUTH_TOKEN": "s3cret",
        "BERTH_AUTH_ACCOUNTS": "berth/berth-scheduler, other/a.b",
        "BERTH_AUTH_AUDIENCE": "berth.example",
        "BERTH_EXTERNAL_TOKEN": "another",
        "BERTH_EXTERNAL_ACCOUNTS": "licences/poller",
        "BERTH_EVENTS_ACCOUNTS": "berth/release-oidc-eventing.knative.dev-trigger",
        "BERTH_HOSTS": "localhost,[::1]",
        "BERTH_BODY_LIMIT": "1000",
        "BERTH_LOG_LEVEL": "WARNING",
        "BERTH_LOG_FORMAT": "json",
        "BERTH_POOLCLAIMS_PER_NAMESPACE": "50",
        "BERTH_EVENTS": "off",
        "BERTH_USAGE_MONTHS": "3",
    }
    assert from_environment(environment) == Settings(
        store="sqlite:////data/ledger.db",
        pools=Path("pools.yaml"),
        scheduler_names=("berth",),
        access=Access(
            token="s3cret", accounts=("berth/berth-scheduler", "other/a.b"), audience="berth.example"
        ),
        external=Access(
            prefix="BERTH_EXTERNAL",
            token="another",
            accounts=("licences/poller",),
            audience="berth.example",
        ),
        events=Access(
            prefix="BERTH_EVENTS",
            accounts=("berth/release-oidc-eventing.knative.dev-trigger",),
            audience="berth.example",
        ),
        hosts=("localhost", "[::1]"),
        body_limit=1000,
        log_level="WARNING",
        log_format="json",
        poolclaims_per_namespace=50,
        pod_events=False,
        usage_months=3,
    )


def test_variables_that_are_empty_count_as_not_set() -> None:
    names = ("BERTH_STORE", "BERTH_POOLS", "BERTH_LOG_LEVEL", "BERTH_EVENTS")
    assert from_environment(dict.fromkeys(names, "")) == Settings()


@pytest.mark.parametrize("door", ["BERTH_AUTH", "BERTH_EXTERNAL"])
@pytest.mark.parametrize(
    ("name", "what"),
    [
        ("TOKEN", "the token"),
        ("TOKEN_FILE", "the file's path"),
        ("ACCOUNTS", "ServiceAccounts as NAMESPACE/NAME"),
    ],
)
def test_what_is_to_close_a_door_and_is_empty_does_not_leave_it_open(door: str, name: str, what: str) -> None:
    for text in ("", " \n") if name != "TOKEN_FILE" else ("",):
        said = refusal({f"{door}_{name}": text})
        assert said == f"{door}_{name} is empty: name {what}, or unset it"


def test_an_empty_list_of_events_senders_does_not_leave_their_door_open() -> None:
    said = "BERTH_EVENTS_ACCOUNTS is empty: name ServiceAccounts as NAMESPACE/NAME, or unset it"
    assert refusal({"BERTH_EVENTS_ACCOUNTS": " "}) == said


def test_an_empty_audience_is_refused() -> None:
    said = "BERTH_AUTH_AUDIENCE is empty: name an audience, such as berth, or unset it"
    assert refusal({"BERTH_AUTH_AUDIENCE": " "}) == said


@pytest.mark.parametrize("text", ["berth-scheduler", "a/b/c", "/b", "a/", "system:serviceaccount:a:b", "A/b"])
def test_an_account_that_is_none_is_refused(text: str) -> None:
    said = refusal({"BERTH_AUTH_ACCOUNTS": f"berth/ok {text}"})
    assert said == f"BERTH_AUTH_ACCOUNTS: {text!r} should be a ServiceAccount as NAMESPACE/NAME"


@pytest.mark.parametrize("text", ["berth,other", "berth other", " berth , other ", "berth,,other\n"])
def test_scheduler_names_are_a_list(text: str) -> None:
    assert from_environment({"BERTH_SCHEDULER_NAMES": text}).scheduler_names == ("berth", "other")


@pytest.mark.parametrize("text", ["", " ", ",", " , "])
def test_no_scheduler_name_at_all_is_refused(text: str) -> None:
    assert refusal({"BERTH_SCHEDULER_NAMES": text}) == (
        "BERTH_SCHEDULER_NAMES is empty: name at least one scheduler, such as berth"
    )


@pytest.mark.parametrize("text", ["", "0", "-1", "1.5", "1Mi", "lots", " 7", "0x10", "1_000"])
def test_a_body_limit_that_is_no_number_of_bytes_is_refused(text: str) -> None:
    assert refusal({"BERTH_BODY_LIMIT": text}) == (
        f"BERTH_BODY_LIMIT is {text!r}: it should be a number of bytes above 0, such as 134217728"
    )


@pytest.mark.parametrize("text", ["", "0", "-1", "many"])
def test_a_bound_of_poolclaims_that_is_no_number_is_refused(text: str) -> None:
    assert refusal({"BERTH_POOLCLAIMS_PER_NAMESPACE": text}) == (
        f"BERTH_POOLCLAIMS_PER_NAMESPACE is {text!r}: it should be a number above 0, such as 1024"
    )


@pytest.mark.parametrize("text", ["ON", "true", "0", "no"])
def test_a_switch_that_is_neither_on_nor_off_is_refused(text: str) -> None:
    assert refusal({"BERTH_EVENTS": text}) == f"BERTH_EVENTS is {text!r}: it should be one of on, off"


@pytest.mark.parametrize("text", ["info", "ERROR", "10"])
def test_a_log_level_that_there_is_not_is_refused(text: str) -> None:
    said = f"BERTH_LOG_LEVEL is {text!r}: it should be one of DEBUG, INFO, WARNING"
    assert refusal({"BERTH_LOG_LEVEL": text}) == said


@pytest.mark.parametrize("text", ["JSON", "logfmt"])
def test_a_log_format_that_there_is_not_is_refused(text: str) -> None:
    said = f"BERTH_LOG_FORMAT is {text!r}: it should be one of json, text, auto"
    assert refusal({"BERTH_LOG_FORMAT": text}) == said


def test_a_token_may_come_from_a_file_without_its_last_newline(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text("s3cret\n")
    assert from_environment({"BERTH_AUTH_TOKEN_FILE": str(file)}).access.token == "s3cret"


@pytest.mark.parametrize("text", ["", "\n", " \t\n"])
def test_an_empty_token_file_is_refused_and_does_not_open_the_door(tmp_path: Path, text: str) -> None:
    file = tmp_path / "token"
    file.write_text(text)
    said = refusal({"BERTH_AUTH_TOKEN_FILE": str(file)})
    assert said == f"BERTH_AUTH_TOKEN_FILE: {file} is empty: put the token into it"


def test_a_token_file_that_cannot_be_read_is_refused(tmp_path: Path) -> None:
    gone = tmp_path / "gone"
    said = refusal({"BERTH_AUTH_TOKEN_FILE": str(gone)})
    assert said == f"BERTH_AUTH_TOKEN_FILE: can't read {gone}: No such file or directory"
    assert refusal({"BERTH_AUTH_TOKEN_FILE": str(tmp_path)}).endswith("Is a directory")


def test_a_token_file_that_is_no_text_is_refused_without_its_bytes(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_bytes(b"\xffs3cret")
    said = refusal({"BERTH_AUTH_TOKEN_FILE": str(file)})
    assert said == f"BERTH_AUTH_TOKEN_FILE: can't read {file}: it is not UTF-8 text"


def test_two_tokens_are_refused_without_naming_either(tmp_path: Path) -> None:
    said = refusal({"BERTH_AUTH_TOKEN": "s3cret", "BERTH_AUTH_TOKEN_FILE": str(tmp_path / "token")})
    assert said == "BERTH_AUTH_TOKEN and BERTH_AUTH_TOKEN_FILE are both set: keep one"
