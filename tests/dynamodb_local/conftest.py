"""Amazon's own stand-in for DynamoDB, stricter in transactions than moto; a suite of its own.

It is collected when it is named (`make test-long`): it needs Java, and Maven brings it the first time.
"""

import http.client
import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import boto3
import pytest

from berth.local.ports import free_port
from berth.local.prctl import when_parent_dies
from berth.stores.dynamodb.table import make
from berth.stores.dynamodb.url import parse
from tests.support.builders.places import Place
from tests.support.cluster import wait
from tests.support.patience import be_patient
from tests.support.servers.motoserver import ENVIRONMENT, PATIENT, REGION

HERE = Path(__file__).resolve().parent
NO_JAVA = 3
_MAIN = "com.amazonaws.services.dynamodbv2.local.main.ServerRunner"


@pytest.fixture(scope="session")
def endpoint(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The URL of the session's DynamoDB Local, which keeps all in memory."""
    done = subprocess.run([HERE / "build"], stderr=subprocess.PIPE, text=True)
    if done.returncode == NO_JAVA and os.environ.get("CI") != "true":
        pytest.skip(done.stderr.strip())
    assert done.returncode == 0, done.stderr
    port, log = free_port(), tmp_path_factory.mktemp("dynamodb") / "log"
    command = ["java", f"-Djava.library.path={HERE / '.lib'}", "-cp", f"{HERE / '.lib'}/*", _MAIN]
    with log.open("wb") as said:
        server = subprocess.Popen(
            [*command, "-inMemory", "-disableTelemetry", "-port", str(port)],
            cwd=log.parent,  # it writes a file where it is
            stdin=subprocess.DEVNULL,
            stdout=said,
            stderr=said,
            start_new_session=True,
            preexec_fn=when_parent_dies(signal.SIGKILL),
        )
    try:
        wait(lambda: _answers(port), 120, f"DynamoDB Local on port {port} (see {log})")
        yield f"http://127.0.0.1:{port}"
    finally:
        server.kill()
        server.wait()


def _answers(port: int) -> bool:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
    try:
        connection.request("GET", "/")
        return connection.getresponse().status < 500
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()


@pytest.fixture
def url(endpoint: str, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> str:
    """BERTH_STORE of a table that is not there yet."""
    for name, value in ENVIRONMENT.items():
        monkeypatch.setenv(name, value)
    be_patient(monkeypatch)
    table = f"t{abs(hash(request.node.nodeid))}"
    return f"dynamodb://{table}?region={REGION}&endpoint={endpoint}&timeout={PATIENT}"


@pytest.fixture
def place(url: str, endpoint: str) -> Iterator[Place]:
    """In place of all stores' places: a table here, as `berth store init` makes it."""
    location = parse(url)
    client = boto3.client("dynamodb", region_name=REGION, endpoint_url=endpoint)

    def lose() -> None:
        client.delete_table(TableName=location.table)
        list(make(location))

    list(make(location))
    yield Place("dynamodb", url, lose)
    client.delete_table(TableName=location.table)
    client.close()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Run each test once: those that name several stores would run on this folder's place for each."""
    twice = [item for item in items if item.path.is_relative_to(HERE) and _is_again(item)]
    config.hook.pytest_deselected(items=twice)
    items[:] = [item for item in items if item not in twice]


def _is_again(item: pytest.Item) -> bool:
    named = item.callspec.indices.get("place", 0) if hasattr(item, "callspec") else 0
    return named > 0
