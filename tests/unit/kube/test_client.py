"""How the API server is found in a pod, without the kubernetes client, and who we are there."""

from pathlib import Path

import pytest

from berth.errors import ClusterUnavailableError
from berth.kube.client import ApiServer, InCluster
from berth.kube.cluster import Cluster
from tests.support.builders.ledgers import Time
from tests.support.fakes.podsown import ACCOUNT, TOKEN, Pod


def own(pod: Pod, time: Time, **environment: str) -> InCluster:
    return InCluster({**pod.environment, **environment}, pod.account, time)


def test_a_pod_asks_as_its_account_and_checks_the_cluster_s_authority(tmp_path: Path) -> None:
    with Pod(tmp_path) as pod:
        cluster = Cluster(own(pod, Time()))
        assert cluster.account_of(TOKEN, "berth", 5) == ACCOUNT
        assert cluster.account_of("another", "berth", 5) == ""
        assert pod.bearer == ["Bearer own"] * 2
        with Pod(tmp_path / "another") as other:
            (pod.account / "ca.crt").write_bytes((other.account / "ca.crt").read_bytes())
            with pytest.raises(ClusterUnavailableError, match="certificate"):
                Cluster(own(pod, Time())).account_of(TOKEN, "berth", 5)


def test_the_account_s_token_is_read_anew_each_minute_and_kept_where_it_can_t_be(tmp_path: Path) -> None:
    time = Time()
    with Pod(tmp_path) as pod:
        found = own(pod, time)
        (pod.account / "token").write_text("replaced\n")
        time.advance(59.999)
        assert found.headers({"A": "b"}) == {"A": "b", "User-Agent": "berth", "Authorization": "Bearer own"}
        time.advance(0.001)
        assert found.headers({})["Authorization"] == "Bearer replaced"
        (pod.account / "token").unlink()
        time.advance(60)
        assert found.headers({})["Authorization"] == "Bearer replaced"


def test_an_address_of_ip_version_6_is_put_into_brackets(tmp_path: Path) -> None:
    with Pod(tmp_path) as pod:
        found = own(pod, Time(), KUBERNETES_SERVICE_HOST="fd00::1", KUBERNETES_SERVICE_PORT="443")
    assert ApiServer(found).host == "https://[fd00::1]:443"


def test_outside_a_pod_it_says_so(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="Service host/port is not set"):
        InCluster({}, tmp_path)


def test_an_account_without_a_token_is_told_at_once(tmp_path: Path) -> None:
    with Pod(tmp_path) as pod:
        (pod.account / "token").write_text("\n")
        with pytest.raises(ValueError, match=r"token is empty$"):
            own(pod, Time())
