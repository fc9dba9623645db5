"""What the overlays ship for kube-scheduler, run by the real one and a real HAProxy: both configurations,
a token of the scheduler's account for the shipped audience, functions that have it reviewed, its rights.

The functions' URLs are replaced by local ones, since there is no cluster DNS here.
"""

import base64
import re
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path

import pytest
import yaml

from tests.e2e.conftest import Systems
from tests.e2e.harness import System, pool
from tests.support.builders.certificates import self_signed
from tests.support.builders.manifests import rendered, token_of
from tests.support.cluster import Object
from tests.support.fakes.terminator import Terminator
from tests.support.servers.haproxy import HAProxy

pytestmark = pytest.mark.long

LEASE = "/apis/coordination.k8s.io/v1/namespaces/berth/leases/berth-scheduler"


@pytest.mark.parametrize("overlay", ["per-verb", "single"])
def test_what_is_shipped_places_pods_by_a_reviewed_token_and_the_lease_of_its_account(
    system_of: Systems, haproxy_program: Path, overlay: str
) -> None:
    system = system_of(2, pools=[pool(units=2)], single=overlay == "single", start_berth=False)
    system.berth.environment = doors(overlay)
    system.berth.launch_alone()
    with proxy_of(system, haproxy_program, overlay, system.berth.urls) as proxy:
        system.plane.start_scheduler(config_of(system, overlay, proxy), flags=["--v=1"])  # as the Deployment
        for number in range(4):
            system.cluster.create_pod(f"pod-{number}")
        system.cluster.wait_bound()
        system.cluster.create_pod("waiter")
        assert "underlay-ip: 0 of 2 free, 1 asked" in system.refusal_of("waiter")
        assert system.cluster.get(LEASE)["spec"]["holderIdentity"]
        others = token_of(system.cluster, "berth-bind", audience="berth")
        for wrong in (token_of(system.cluster, "berth-scheduler"), others):
            reply = system.berth.post("bind", {}, {"Authorization": f"Bearer {wrong}"})
            assert reply.status == 401

        system.berth.stop()
        system.cluster.create_pod("late")
        function = "filter" if overlay == "per-verb" else "extender"
        said = system.refusal_of("late")
        assert f"berth's function filter can't be reached at {system.berth.urls[function]}; the pod" in said


def test_over_https_the_functions_certificates_are_checked_by_the_shipped_authority(
    system_of: Systems, haproxy_program: Path, tmp_path: Path
) -> None:
    system = system_of(1, pools=[pool(units=2)], start_berth=False)
    system.berth.environment = doors("https")
    system.berth.launch_alone()
    ours, others = (self_signed(tmp_path / name, host="localhost") for name in ("ours", "others"))
    with ExitStack() as stack:
        urls = {}
        for name, url in system.berth.urls.items():
            terminator = stack.enter_context(Terminator(int(url.rpartition(":")[2]), *ours))
            urls[name] = terminator.url.replace("127.0.0.1", "localhost")
        for name, (authority, _) in (("untrusting", others), ("trusting", ours)):
            with proxy_of(system, haproxy_program, "https", urls, authority) as proxy:
                system.plane.start_scheduler(config_of(system, "https", proxy), name)
                system.cluster.create_pod(name)
                if name == "untrusting":
                    assert "berth's function filter can't be reached" in system.refusal_of(name)
                else:
                    system.cluster.wait_bound("trusting", "untrusting")
                system.plane.stop_scheduler(name)


def doors(overlay: str) -> dict[str, str]:
    """Who may call, as the functions' Services say, the same for all; and by which names the proxy does."""
    found, names = set(), ["127.0.0.1"]
    for service in rendered(overlay, "Service"):
        names.append(f"{service['metadata']['name']}.berth.svc.cluster.local")
        (container,) = service["spec"]["template"]["spec"]["containers"]
        variables = {each["name"]: each["value"] for each in container["env"] if "value" in each}
        if service["metadata"]["name"] in ("filter", "prioritize", "preempt", "bind", "extender"):
            found.add(variables["BERTH_AUTH_ACCOUNTS"])
        assert not [name for name in variables if "TOKEN" in name]
    (accounts,) = found
    return {"BERTH_AUTH_ACCOUNTS": accounts, "BERTH_HOSTS": ",".join(names)}


def pod_of(overlay: str) -> Object:
    """The scheduler's pod."""
    (deployment,) = rendered(overlay, "Deployment")
    found: Object = deployment["spec"]["template"]["spec"]
    return found


def proxy_of(
    system: System, binary: Path, overlay: str, urls: Mapping[str, str], authority: Path | None = None
) -> HAProxy:
    """HAProxy on the shipped configuration, with the functions where they are here, and the token that
    kubelet would put into its volume."""
    (volume,) = (each for each in pod_of(overlay)["volumes"] if each["name"] == "token")
    (source,) = (each["serviceAccountToken"] for each in volume["projected"]["sources"])
    account, seconds = pod_of(overlay)["serviceAccountName"], source["expirationSeconds"]
    token = token_of(system.cluster, account, audience=source["audience"], seconds=seconds)
    (shipped,) = (each["data"] for each in rendered(overlay, "ConfigMap") if "haproxy.cfg" in each["data"])
    folder = system.berth.folder / f"proxy-{authority and authority.parent.name}"
    folder.mkdir()
    made = HAProxy.shipped(binary, folder, shipped, lambda text: local(text, urls, authority))
    made.token.write_text(token)
    return made


def local(text: str, urls: Mapping[str, str], authority: Path | None) -> str:
    """The configuration with each function where it is here."""

    def server(found: re.Match[str]) -> str:
        url = urls[found["function"]]
        return f"server {found['verb']} {url.partition('://')[2]} {'' if authority is None else found['tls']}"

    function = r"(?P<function>\w+)\.berth\.svc\.cluster\.local"
    pattern = rf"server (?P<verb>\w+) {function}:\d+ resolvers cluster init-addr none ?(?P<tls>.*)"
    changed = re.sub(pattern, server, text)
    changed = re.sub(r"(https?)://(\w+)\.berth\.svc\.cluster\.local", lambda url: urls[url[2]], changed)
    changed = re.sub(r"(verifyhost |sni str\()[\w.]+", r"\1localhost", changed)
    return changed.replace("/etc/berth-ca/ca.crt", str(authority))


def config_of(system: System, overlay: str, proxy: HAProxy) -> Path:
    """The shipped configuration, with the proxy's port and the account's kubeconfig, which a pod has by
    itself."""
    (secret,) = (each for each in rendered(overlay, "Secret") if "scheduler.yaml" in each["data"])
    document = yaml.safe_load(base64.b64decode(secret["data"]["scheduler.yaml"]))
    for extender in document["extenders"]:
        assert extender["urlPrefix"] == "http://127.0.0.1:8089"
        extender["urlPrefix"] = proxy.url
    document["clientConnection"] = {"kubeconfig": str(system.accounts.kubeconfig("scheduler"))}
    config = proxy.config.with_name("scheduler.yaml")
    config.write_text(yaml.safe_dump(document))
    return config
