"""Knative Eventing and Serving's webhook on a test's control plane, from the manifests in their Go modules.

Of Serving there is no controller, for it needs pods: whoever installs an overlay says where its Services are.
Knative's accounts may do everything: its roles are completed by a controller that is not here.
"""

import json
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache, partial
from pathlib import Path
from typing import Any

import yaml

from tests.controlplane.plane import ControlPlane
from tests.knative.programs import Names, Pods, wait_port
from tests.knative.tunnel import Tunnel
from tests.support.cluster import Cluster, Object, wait
from tests.support.kubectl import Kubectl
from tests.support.kubernetes import CONTROLPLANE

MODULE = CONTROLPLANE / "knative"
EVENTING, SERVING = "knative-eventing", "knative-serving"
_WEBHOOKS = {
    "eventing-webhook": (EVENTING, "eventing-webhook"),
    "imc-controller": (EVENTING, "inmemorychannel-webhook"),
    "webhook": (SERVING, "webhook"),
}
_CONTROLLERS = ("eventing-controller", "mt-broker-controller")
_DATA = {
    # The Services by the Deployment and the variable of the port that they lead to.
    "broker-ingress": ("mt-broker-ingress", "INGRESS_PORT"),
    "broker-filter": ("mt-broker-filter", "FILTER_PORT"),
    "imc-dispatcher": ("imc-dispatcher", "HTTP_PORT"),
}
_SECONDS = 120.0
_IMAGE = {"containers": [{"image": "example.com/none"}]}
# An object for each server of webhooks, by where it is asked for.
_ASKED = {
    f"{group}/namespaces/default/{kind.lower()}s": {
        "apiVersion": group,
        "kind": kind,
        "metadata": {"name": "asked", "namespace": "default"},
        "spec": spec,
    }
    for group, kind, spec in (
        ("eventing.knative.dev/v1", "Broker", {}),
        ("messaging.knative.dev/v1", "InMemoryChannel", {}),
        ("serving.knative.dev/v1", "Service", {"template": {"spec": _IMAGE}}),
    )
}


@cache
def module_folder(name: str) -> Path:
    """Where Go keeps the module's files."""
    command = ["go", "mod", "download", "-json", name]
    environment = {**os.environ, "GOWORK": "off"}
    done = subprocess.run(command, cwd=MODULE, env=environment, capture_output=True, text=True, check=True)
    return Path(json.loads(done.stdout)["Dir"])


def manifests(module: str, *folders: str) -> list[Object]:
    """All objects in these folders and files of the module."""
    found = []
    for folder in folders:
        place = module_folder(module) / "config" / folder
        files = sorted(place.rglob("*.yaml")) if place.is_dir() else [place]
        assert files, f"{module} has no {folder}"
        found += [each for file in files for each in yaml.safe_load_all(file.read_text()) if each]
    return found


def eventing() -> list[Object]:
    parts = ("100-namespace.yaml", "configmaps", "deployments", "resources", "webhooks")
    core = manifests("knative.dev/eventing", *(f"core/{each}" for each in parts))
    channel = manifests(
        "knative.dev/eventing",
        *(
            f"channels/in-memory-channel/{each}"
            for each in ("configmaps", "deployments", "resources", "webhooks")
        ),
    )
    return core + channel + manifests("knative.dev/eventing", "brokers/mt-channel-broker/deployments")


def serving() -> list[Object]:
    parts = ("100-namespace.yaml", "configmaps", "deployments/webhook.yaml", "300-resources", "webhooks")
    return manifests("knative.dev/serving", *(f"core/{each}" for each in parts)) + manifests(
        "knative.dev/networking", "config-network.yaml"
    )


class Knative:
    """Knative on one control plane, once `start` returns; `pods` has its programs, `names` their calls."""

    def __init__(self, plane: ControlPlane, cluster: Cluster, binaries: Path, folder: Path) -> None:
        folder.mkdir()
        self.plane, self.cluster, self.folder = plane, cluster, folder
        self.kubectl = Kubectl(plane, folder)
        self.names = Names(binaries, folder)
        self.pods = Pods(plane, cluster, binaries, folder, self.names)
        self._tunnel: Tunnel | None = None

    def start(self, *, events: bool = True, oidc: bool = False) -> None:
        """Without `events` the webhooks alone; with `oidc` its senders show tokens, and its receivers ask for
        them."""
        self.names.start()
        objects = eventing() + serving()
        if oidc:
            self._switch_on(objects, "authentication-oidc")
            objects += manifests(
                "knative.dev/eventing", "brokers/mt-channel-broker/roles/ingress-serviceaccount-oidc.yaml"
            )
            self._tunnel = Tunnel("kubernetes.default.svc:443", self.plane.url)
            self._tunnel.start()
            self.pods.https_proxy = self._tunnel.url
        self._apply([each for each in objects if each["kind"] == "Namespace"])
        plain = ("CustomResourceDefinition", "ConfigMap", "Secret", "Deployment", "ServiceAccount")
        self._apply([each for each in objects if each["kind"] in plain])
        deployments = {each["metadata"]["name"]: each for each in objects if each["kind"] == "Deployment"}
        self._make_accounts(list(deployments.values()))
        wanted = {*_WEBHOOKS, *(_CONTROLLERS if events else ())}
        for name in sorted(wanted):
            self.pods.run(deployments[name])
        self._serve_webhooks(objects)
        if events:
            self._start_data_plane(objects, deployments)
        wait(self._webhooks_stand, _SECONDS, "all webhooks have written their authority", every=0.2)
        for path, document in _ASKED.items():
            wait(partial(self._is_taken, path, document), _SECONDS, f"Knative takes {path}", every=0.2)
        for name in _CONTROLLERS if events else ():
            wait_port(self.pods.programs[name], "HEALTH_PORT", "/readiness")

    def stop(self) -> None:
        self.pods.stop()
        self.names.stop()
        if self._tunnel is not None:
            self._tunnel.stop()

    def _switch_on(self, objects: list[Object], feature: str) -> None:
        (features,) = (
            each
            for each in objects
            if each["kind"] == "ConfigMap"
            and each["metadata"]["name"] == "config-features"
            and each["metadata"]["namespace"] == EVENTING
        )
        assert features["data"][feature] == "disabled"
        features["data"][feature] = "enabled"

    def _apply(self, objects: list[Object]) -> None:
        file = self.folder / "objects.json"
        file.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": objects}))
        self.kubectl("create", "-f", file)

    def _make_accounts(self, deployments: list[Object]) -> None:
        named = {
            (each["spec"]["template"]["spec"]["serviceAccountName"], each["metadata"]["namespace"])
            for each in deployments
        }
        accounts = [
            {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": name, "namespace": namespace}}
            for name, namespace in sorted(named)
        ]
        group = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Group"}
        binding = {
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "ClusterRoleBinding",
            "metadata": {"name": "knative"},
            "roleRef": {**group, "kind": "ClusterRole", "name": "cluster-admin"},
            "subjects": [{**group, "name": f"system:serviceaccounts:{each}"} for each in (EVENTING, SERVING)],
        }
        self._apply([*accounts, binding])

    def _serve_webhooks(self, objects: list[Object]) -> None:
        """The webhooks' Services lead to this machine, and the configurations name the programs' ports, as do
        CRDs with other versions. Their rules and authorities are written by the programs."""
        ports = {}
        for program, (namespace, service) in _WEBHOOKS.items():
            spec = {"type": "ExternalName", "externalName": "localhost"}
            meta = {"name": service, "namespace": namespace}
            self._apply([{"apiVersion": "v1", "kind": "Service", "metadata": meta, "spec": spec}])
            ports[namespace, service] = self.pods.programs[program].port["WEBHOOK_PORT"]
        configurations = [each for each in objects if each["kind"].endswith("WebhookConfiguration")]
        for each in configurations:
            for webhook in each["webhooks"]:
                at = webhook["clientConfig"]["service"]
                at["port"] = ports[at["namespace"], at["name"]]
        self._apply(configurations)
        for each in objects:
            if (webhook := each.get("spec", {}).get("conversion", {}).get("webhook")) is not None:
                at = webhook["clientConfig"]["service"]
                at["port"] = ports[at["namespace"], at["name"]]
                change = {"spec": {"conversion": {"webhook": {"clientConfig": {"service": at}}}}}
                path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
                self.cluster.patch(f"{path}/{each['metadata']['name']}", change)

    def _start_data_plane(self, objects: list[Object], deployments: dict[str, Object]) -> None:
        for service, (name, variable) in _DATA.items():
            document = next(
                each for each in objects if each["kind"] == "Service" and each["metadata"]["name"] == service
            )
            self._apply([document])
            program = self.pods.run(deployments[name])
            self.pods.give_endpoint(service, EVENTING, program.port[variable])
            self.pods.mark_available(deployments[name])
        for name, variable in _DATA.values():
            wait_port(self.pods.programs[name], variable, "/healthz")

    def _is_taken(self, path: str, document: Object) -> bool:
        """Whether the webhooks let it in, in a dry run: the API server learns of their authorities later than
        who reads them, and until then it refuses what they should judge."""
        reply = self.cluster.request("POST", f"/apis/{path}?dryRun=All", document)
        refused = str(reply.body.get("message", ""))
        assert reply.status == 201 or "failed calling webhook" in refused, refused
        return reply.status == 201

    def _webhooks_stand(self) -> bool:
        found: list[Any] = []
        for kind in ("mutating", "validating"):
            path = f"/apis/admissionregistration.k8s.io/v1/{kind}webhookconfigurations"
            found += [one for each in self.cluster.get(path)["items"] for one in each["webhooks"]]
        return all(each["clientConfig"].get("caBundle") for each in found)


@contextmanager
def knative_on(plane: ControlPlane, binaries: Path, folder: Path, **how: bool) -> Iterator[Knative]:
    cluster = Cluster(plane.url, plane.admin_token, plane.ca_file)
    started = Knative(plane, cluster, binaries, folder)
    try:
        started.start(**how)
        yield started
    finally:
        started.stop()
        cluster.close()
