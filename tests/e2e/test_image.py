"""Berth's image, made and run without a container engine (what that can't show: support/builders/image.py).

All in one test, for the tree is made only once; tests/release makes it twice, and compares.
It needs the package index that pip is configured for.
"""

import base64
import json
import shutil
import tempfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
import urllib3
import yaml

import berth
from berth.testing.api_server import StandIn
from tests.e2e.harness import pool
from tests.project.test_containerfile import name_of, pins
from tests.support.builders.image import Image, Process, functions
from tests.support.cluster import Cluster, Object, wait
from tests.support.servers.motoserver import ENVIRONMENT, MotoServer

MB = 1_000_000
LIMIT = 150 * MB
# The packages of distroless/python3-debian12 as Debian installs them; the next one's size is not known here
# (docs/install.md#image).
BASE = 62 * MB
SECONDS = 120
TOKEN = "a-token"
_AWS = "dynamodb", "sts", "sso", "sso-oidc", "signin"


@pytest.fixture
def image() -> Iterator[Image]:
    """In a folder that other users can enter, unlike pytest's own."""
    folder = Path(tempfile.mkdtemp(prefix="berth-image-"))
    folder.chmod(0o755)
    yield Image(folder)
    shutil.rmtree(folder)


@pytest.fixture
def stand_in() -> Iterator[StandIn]:
    with StandIn() as served:
        yield served


@pytest.mark.nightly
def test_the_image_is_small_and_runs_all_that_infra_runs_without_writing_to_its_root(
    image: Image, stand_in: StandIn, moto_server: MotoServer
) -> None:
    made = image.build()
    sees_that_it_is_small(image)
    sees_what_is_in_it(image)
    sees_that_commands_work(image)
    settings = settings_of(image, stand_in, moto_server)
    cluster = Cluster(stand_in.url, "")
    processes = [image.start(name, values | settings) for name, values in functions().items()]
    try:
        sees_that_all_answer(processes)
        sees_that_a_pod_is_bound(cluster, {each.name: each for each in processes})
    finally:
        for each in processes:
            each.stop()
        cluster.close()
    assert image.fingerprints() == made, "a process wrote to the tree"


def sees_that_it_is_small(image: Image) -> None:
    site = [f"venv/lib/{each.name}" for each in image.app.glob("venv/lib/python*")]
    parts = {part: image.bytes_in(part) for part in ("functions", *site)}
    print({part: f"{size / MB:.1f} MB" for part, size in parts.items()})
    assert image.bytes_in() + BASE < LIMIT


def sees_what_is_in_it(image: Image) -> None:
    """Its bill of materials names what is locked and berth, each with a version and a licence."""
    bill = json.loads((image.app / "sbom.cdx.json").read_text())
    assert bill["bomFormat"] == "CycloneDX"
    found = {name_of(each["name"]): each["version"] for each in bill["components"]}
    assert found.pop("berth-scheduler") == berth.__version__
    locked = {name: pin.partition("==")[2] for name, (pin, _) in pins("requirements-image.lock").items()}
    assert found == locked
    assert all(each["licenses"] for each in bill["components"])


def sees_that_commands_work(image: Image) -> None:
    """Those that docs/install.md runs in the cluster, and what is imported only for some stores."""
    for words in (["--version"], ["token", "--help"], ["scheduler-config", "--help"]):
        done = image.run("berth", *words)
        assert done.returncode == 0, f"berth {words}: {done.stderr}"
    clients = f"for name in {_AWS}: session.create_client(name, region_name='eu-central-1')"
    done = image.run("python", "-c", f"from botocore.session import Session\nsession = Session()\n{clients}")
    assert done.returncode == 0, done.stderr
    traced = "from berth.telemetry.otel import OtelTracer\nOtelTracer('berth', {}).flush(1)"
    done = image.run("python", "-c", traced)
    assert done.returncode == 0, done.stderr
    refused = image.run("berth", "claims", "--store", "redis://127.0.0.1:1").stderr
    assert "unreachable (redis://127.0.0.1:1" in refused
    done = image.run("python", "-c", "import tempfile; print(tempfile.gettempdir())")
    assert done.stdout.strip() == image.environment({})["TMPDIR"]


def settings_of(image: Image, stand_in: StandIn, server: MotoServer) -> dict[str, str]:
    """What every function gets beside its Service's own values; the ledger is DynamoDB's."""
    files = {name: image.folder / name for name in ("kubeconfig", "pools.yaml", "token")}
    stand_in.kubeconfig(files["kubeconfig"])
    files["pools.yaml"].write_text(yaml.safe_dump(pool(units=1)))
    files["token"].write_text(TOKEN)
    table = server.new_table()
    server.make(table)
    return ENVIRONMENT | {
        "BERTH_STORE": server.url(table, seconds=3),
        "BERTH_POOLS": str(files["pools.yaml"]),
        "BERTH_AUTH_TOKEN_FILE": str(files["token"]),
        "BERTH_EXTERNAL_TOKEN_FILE": str(files["token"]),
        "KUBECONFIG": str(files["kubeconfig"]),
    }


def sees_that_all_answer(processes: list[Process]) -> None:
    assert len(processes) > 1
    for each in processes:
        wait(partial(answers, each), SECONDS, f"/healthz of {each.name}", every=0.2)
        assert "Traceback" not in each.said(), each.said()


def answers(function: Process) -> bool:
    assert function.process.poll() is None, function.said()
    try:
        answer = urllib3.request("GET", f"{function.url}/healthz", retries=False, timeout=30)
    except urllib3.exceptions.HTTPError:
        return False
    return answer.status == 200


def sees_that_a_pod_is_bound(cluster: Cluster, processes: dict[str, Process]) -> None:
    """A call is repeated as its caller would do it: the store's few seconds are short on a busy machine."""
    cluster.call("POST", "/api/v1/nodes", {"metadata": {"name": "node-1"}})
    pod = cluster.create_pod("a")
    call = {"PodName": "a", "PodNamespace": "default", "PodUID": pod["metadata"]["uid"], "Node": "node-1"}
    answers_with(processes["reconcile"], {}, {"problems": []})
    answers_with(processes["filter"], {"Pod": pod, "NodeNames": ["node-1"]}, {"NodeNames": ["node-1"]})
    answers_with(processes["bind"], call, {"Error": ""})
    assert cluster.bound() == {"a": "node-1"}


def answers_with(function: Process, body: Object, expected: Object) -> None:
    said: list[Object] = []

    def asked() -> bool:
        said.append(post(function, body))
        return said[-1] | expected == said[-1]

    try:
        wait(asked, SECONDS, f"{expected} from {function.name}", every=0.5)
    except AssertionError as error:
        raise AssertionError(f"{error}: {said[-1]}\n{function.said()}") from error


def post(function: Process, body: Object) -> Object:
    """Its answer, or what stands for it where that is none."""
    user = base64.b64encode(f"berth:{TOKEN}".encode()).decode()
    headers = {"Content-Type": "application/json", "Authorization": f"Basic {user}"}
    try:
        answer = urllib3.request(
            "POST", function.url, body=json.dumps(body), headers=headers, retries=False, timeout=60
        )
        found: Object = answer.json()
    except (urllib3.exceptions.HTTPError, ValueError) as error:
        return {"error": repr(error)}
    return found
