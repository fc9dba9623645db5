"""`berth diff` and `berth apply --dry-run` against a real API server, which says what it would make of them.
On files they are in tests/cli/test_manifests.py."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from berth.cli import main
from berth.kube.cluster import Cluster, connect
from tests.support.builders.manifests import serve_pools
from tests.support.servers.configmaps import ConfigMapServer

pytestmark = pytest.mark.long


@pytest.fixture
def cluster(configmap_server: ConfigMapServer, monkeypatch: pytest.MonkeyPatch) -> Cluster:
    serve_pools(configmap_server.admin)
    monkeypatch.setenv("KUBECONFIG", str(configmap_server.kubeconfig))
    monkeypatch.delenv("BERTH_POOLS", raising=False)
    return connect()


def document(kind: str, spec: dict[str, Any], **meta: str) -> dict[str, Any]:
    return {"apiVersion": "berth.dev/v1alpha1", "kind": kind, "metadata": meta, "spec": spec}


def test_diff_and_a_dry_run_say_what_the_api_server_would_make_of_documents_and_write_nothing(
    configmap_server: ConfigMapServer,
    cluster: Cluster,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    namespace = configmap_server.new_name()
    configmap_server.admin.create_namespace(namespace)
    cluster.apply_pool(document("Pool", {"capacity": {"perDomain": 2}}, name=namespace))
    before = cluster.pools()
    new = tmp_path / "new.yaml"

    def run(command: str, *documents: dict[str, Any], more: tuple[str, ...] = ()) -> tuple[int, list[str]]:
        new.write_text(yaml.safe_dump_all(documents))
        code = main([command, "-f", str(new), *more])
        return code, capsys.readouterr().out.splitlines()

    same = document("Pool", {"capacity": {"perDomain": 2}}, name=namespace)
    assert run("diff", same) == (0, [])

    other = document("Pool", {"capacity": {"perDomain": 3}}, name=namespace)
    code, lines = run("diff", other)
    assert code == 1
    assert lines[0] == f"--- Pool {namespace} in the cluster"
    assert [line for line in lines[2:] if line[0] in "+-"] == ["-    perDomain: 2", "+    perDomain: 3"]

    claim = document("PoolClaim", {"pool": "k80"}, name="erc", namespace=namespace)
    code, lines = run("apply", other, claim, more=("--dry-run",))
    assert (code, lines) == (
        0,
        [
            f"Pool {namespace} would be changed",
            "  spec.capacity.perDomain: 2 -> 3",
            f"PoolClaim {namespace}/erc would be created",
            "dry run: nothing was written",
        ],
    )
    assert cluster.pools() == before
    assert cluster.pool_claim(namespace, "erc") is None
    cluster.delete(f"/apis/berth.dev/v1alpha1/pools/{namespace}")
