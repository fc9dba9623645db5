"""`berth scheduler-config`, as an operator meets it. That kube-scheduler runs what it writes: tests/e2e."""

import json
from pathlib import Path

import pytest
import yaml

from berth.cli import main

EACH = ["--filter", "http://f", "--prioritize", "http://p", "--preempt", "http://e", "--bind", "http://b"]
ALL = ["--extender", "http://e"]
RESOURCE = ["--resource", "berth.dev/k80"]


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AUTH_TOKEN", "AUTH_TOKEN_FILE", "AUTH_ACCOUNTS", "SCHEDULER_NAMES"):
        monkeypatch.setenv(f"BERTH_{name}", "")  # so that what a command sets is taken back, too
        monkeypatch.delenv(f"BERTH_{name}")


def test_it_is_printed_for_a_scheduler_of_its_own(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["scheduler-config", *EACH, "--group", "example.com", "--lease", "berth/scheduler"]) == 0
    found = yaml.safe_load(capsys.readouterr().out)
    assert [each["urlPrefix"] for each in found["extenders"]] == EACH[1::2]
    ignored = found["profiles"][0]["pluginConfig"][0]["args"]["ignoredResourceGroups"]
    assert ignored == ["berth.dev", "example.com"]
    assert found["leaderElection"]["resourceName"] == "scheduler"


def test_with_a_proxy_the_scheduler_calls_it_alone_and_its_files_are_written(tmp_path: Path) -> None:
    out, proxy = tmp_path / "scheduler.yaml", tmp_path / "beside" / "haproxy.cfg"
    options = [
        "--proxy",
        str(proxy),
        "--proxy-port",
        "81",
        "--proxy-token",
        "/a/token",
        "--proxy-health",
        "82",
    ]
    assert main(["scheduler-config", *EACH, *options, "--timeout", "30", "-o", str(out)]) == 0
    extenders = yaml.safe_load(out.read_text())["extenders"]
    assert {each["urlPrefix"] for each in extenders} == {"http://127.0.0.1:81"}
    assert len(extenders) == 4
    said = proxy.read_text()
    for line in ("bind 127.0.0.1:81", "bind :82", "timeout server 29900ms", "server filter f:80 resolvers"):
        assert f"    {line}" in said
    assert said.count("http-request lua.add_token /a/token\n") == 4
    assert "core.register_action" in (proxy.parent / "proxy.lua").read_text()


def test_with_certificates_the_proxy_takes_the_scheduler_s_calls_alone(tmp_path: Path) -> None:
    out, proxy = tmp_path / "scheduler.yaml", tmp_path / "haproxy.cfg"
    options = ["--proxy", str(proxy), "--proxy-tls", "/tls", "-o", str(out)]
    assert main(["scheduler-config", *EACH, *options]) == 0
    for extender in yaml.safe_load(out.read_text())["extenders"]:
        assert extender["urlPrefix"] == "https://127.0.0.1:8089"
        files = {
            "caFile": "/tls/proxy-ca.crt",
            "certFile": "/tls/scheduler.crt",
            "keyFile": "/tls/scheduler.key",
        }
        assert extender["tlsConfig"] == files
    asking = "ssl crt /tls/proxy.pem ca-file /tls/scheduler-ca.crt verify required\n"
    assert f"bind 127.0.0.1:8089 {asking}" in proxy.read_text()


@pytest.mark.parametrize("name", ["BERTH_AUTH_TOKEN", "BERTH_AUTH_ACCOUNTS"])
def test_what_the_functions_want_kube_scheduler_gets_a_proxy_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    monkeypatch.setenv(name, "s3cret/x")
    assert main(["scheduler-config", *EACH]) == 1
    said = capsys.readouterr()
    assert said.out == ""
    assert "kube-scheduler can't send one: let a proxy beside it add the token (--proxy FILE" in said.err
    assert main(["scheduler-config", *EACH, "--proxy", str(tmp_path / "haproxy.cfg")]) == 0
    assert "s3cret" not in capsys.readouterr().out + (tmp_path / "haproxy.cfg").read_text()


def test_a_policy_is_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["scheduler-config", *ALL, *RESOURCE, "--policy"]) == 0
    assert json.loads(capsys.readouterr().out)["kind"] == "Policy"


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        ([], "--filter and --prioritize and --preempt and --bind should name the functions' URLs"),
        (EACH[:6], "--bind should name the functions' URLs"),
        ([*EACH, *ALL], "refuses two entries that bind"),
        ([*EACH, *RESOURCE], "refuses one that two entries manage"),
        (ALL, "no Pool is known"),
        ([*ALL, *RESOURCE, "--group", "x.y"], "leave it out"),
        ([*EACH, "--group", "native.berth.dev"], "must count the group native.berth.dev"),
        ([*EACH, "--policy"], "a Policy knows no ignored resource groups"),
        ([*ALL, *RESOURCE, "--policy", "--scheduler", "x"], "a Policy holds no --scheduler: leave it out"),
        ([*EACH, "--timeout", "4"], "--timeout 4 should be 5 to 300 seconds"),
        (
            [*ALL, "--resource", "cpu"],
            "the resource 'cpu' should be an extended resource, such as berth.dev/",
        ),
        ([*EACH, "--group", "example.com/x"], "the group 'example.com/x' should be the domain of a resource"),
        ([*EACH, "--ca", ""], "--ca is empty: name a path, or leave it out"),
        ([*EACH, "--lease", "berth"], "--lease 'berth' should be NAMESPACE/NAME"),
        (
            ["--from", "own.yaml"],
            "--from and --token-file put the token into the scheduler's URLs, and it",
        ),
        ([*EACH, "--token-file", "/x"], "let a proxy beside it add the token (--proxy FILE"),
        ([*EACH, "--proxy-port", "81"], "without --proxy there is no --proxy-port: leave it out"),
        ([*EACH, "--proxy-token", "/x"], "without --proxy there is no --proxy-token: leave it out"),
        ([*EACH, "--proxy", "x", "--proxy-port", "65536"], "--proxy-port 65536 should be a port"),
        ([*EACH, "--proxy", "x", "--proxy-token", "x y"], "'x y' should be an absolute path"),
        ([*EACH, "--proxy-tls", "/x"], "without --proxy there is no --proxy-tls: leave it out"),
        ([*EACH, "--proxy", "x", "--proxy-tls", "x"], "'x' should be an absolute path"),
        ([*EACH, "--proxy", "x", "--proxy-tls", ""], "--proxy-tls is empty: name a path, or leave it out"),
        ([*EACH, "--proxy", ""], "--proxy is empty: name a path, or leave it out"),
        ([*EACH[:-1], "http://a/'b", "--proxy", "x"], "bind's URL http://a/'b has characters in its path"),
    ],
)
def test_what_cannot_be_meant_is_refused_in_one_line(
    capsys: pytest.CaptureFixture[str], arguments: list[str], why: str
) -> None:
    assert main(["scheduler-config", *arguments]) == 1
    said = capsys.readouterr()
    assert (said.out, len(said.err.splitlines())) == ("", 1)
    assert why in said.err
