"""infra's overlays, as kubectl renders them: Knative's CRDs take a typo in silence, so here each field must
be one that Knative has, and what they name must be there. Nothing is applied: tests/e2e/test_install.py."""

import base64
import copy
import re
import shutil
import textwrap
from pathlib import Path
from typing import Any

import pytest
import yaml

from berth.cli import main
from berth.controller.fencing import FENCE_SECONDS
from berth.handlers.reconcile import REBUILD_SECONDS
from berth.local.processes import ANSWER_SECONDS
from tests.support.builders.manifests import INFRA, OVERLAYS, component, kustomized, passes, rendered
from tests.support.cluster import Object
from tests.support.schemas import crds_of, schema_of, wrong

GROUPS = ("eventing.knative.dev/v1", "sources.knative.dev/v1", "serving.knative.dev/v1")
MOST = {
    "release": "3",
    "inventory": "2",
    "reconcile": "1",
    "status": "2",
}  # instances of what anybody may call
VERBS = ("filter", "prioritize", "preempt", "bind")
EACH = [f"--{name}=http://{name}.berth.svc.cluster.local" for name in VERBS]
SHIPPED = {
    "per-verb": EACH,
    "https": [each.replace("http:", "https:") for each in EACH] + ["--ca", "/etc/berth-ca/ca.crt"],
    "single": [
        "--extender=http://extender.berth.svc.cluster.local",
        "--resource=berth.dev/underlay-ip",
    ],
}
WITHOUT = "without-knative"
KNATIVES = [overlay for overlay in OVERLAYS if overlay != WITHOUT]
pytestmark = pytest.mark.usefixtures("binaries")


@pytest.fixture(scope="module")
def crds(knative: Path) -> list[Object]:
    return crds_of(knative)


def berths(overlay: str) -> list[Object]:
    """What Knative's controllers would act on."""
    return [each for each in rendered(overlay) if each["apiVersion"] in GROUPS]


def services(overlay: str) -> dict[str, Object]:
    """The template of each function: of its Knative Service, or of its Deployment."""
    found = [each for each in berths(overlay) if each["kind"] == "Service"]
    found += [each for each in rendered(overlay, "Deployment") if _is_function(each)]
    return {each["metadata"]["name"]: each["spec"]["template"] for each in found}


def _is_function(deployment: Object) -> bool:
    labels = deployment["metadata"].get("labels", {})
    return bool(labels.get("app.kubernetes.io/component") == "function")


def scheduler_of(overlay: str) -> Object:
    """The scheduler's pod."""
    found = rendered(overlay, "Deployment")
    (deployment,) = (each for each in found if each["metadata"]["name"] == "berth-scheduler")
    pod: Object = deployment["spec"]["template"]["spec"]
    return pod


@pytest.mark.parametrize("overlay", KNATIVES)
@pytest.mark.long
def test_every_knative_manifest_names_only_fields_that_knative_has(crds: list[Object], overlay: str) -> None:
    said = {}
    for each in berths(overlay):
        schema = schema_of(crds, each)
        assert schema is not None, f"no CRD has {each['apiVersion']} {each['kind']}"
        if found := wrong(schema, each):
            said[f"{each['kind']} {each['metadata']['name']}"] = found
    assert said == {}
    through = {"Broker", "Trigger"} if overlay != "direct" else set()
    assert {each["kind"] for each in berths(overlay)} == {
        "ApiServerSource",
        "PingSource",
        "Service",
    } | through


@pytest.mark.parametrize(
    ("kind", "path", "value", "why"),
    [
        ("ApiServerSource", ("spec", "mod"), "Resource", "spec: 'mod' is no field of it"),
        (
            "ApiServerSource",
            ("spec", "resources", 0, "labelSelector"),
            {},
            "spec.resources[0]: 'labelSelector' is no field",
        ),
        ("Trigger", ("spec", "filter"), {"atributes": {}}, "spec.filter: 'atributes' is no field of it"),
        ("Trigger", ("spec", "filters", 0, "exakt"), {}, "spec.filters[0]: 'exakt' is no field of it"),
        ("Trigger", ("spec", "subscriber", "ref", "names"), "x", "spec.subscriber.ref: 'names' is no field"),
        ("Broker", ("spec", "delivery", "retries"), 3, "spec.delivery: 'retries' is no field of it"),
        ("Broker", ("spec", "delivery", "retry"), "3", "spec.delivery.retry: '3' is no integer"),
        ("PingSource", ("spec", "jsonData"), "{}", "spec: 'jsonData' is no field of it"),
        (
            "Service",
            ("spec", "template", "spec", "concurrency"),
            1,
            "spec.template.spec: 'concurrency' is no field",
        ),
    ],
)
def test_a_misspelt_field_fails(
    crds: list[Object], kind: str, path: tuple[str | int, ...], value: Any, why: str
) -> None:
    document = copy.deepcopy(next(each for each in berths("per-verb") if each["kind"] == kind))
    schema = schema_of(crds, document)
    assert schema is not None
    at: Any = document
    for key in path[:-1]:
        at = at[key]
    at[path[-1]] = value
    assert any(each.startswith(why) for each in wrong(schema, document)), wrong(schema, document)


@pytest.mark.parametrize("overlay", KNATIVES)
def test_every_service_runs_a_function_that_is_there_as_its_own_account_without_any_privilege(
    overlay: str,
) -> None:
    accounts = {each["metadata"]["name"] for each in rendered(overlay, "ServiceAccount")}
    verbs = {"extender"} if overlay == "single" else set(VERBS)
    assert set(services(overlay)) == {*verbs, "release", "inventory", "reconcile", "status"}
    for name, template in services(overlay).items():
        spec, (container,) = template["spec"], template["spec"]["containers"]
        variables = {one["name"]: one.get("value", "") for one in container["env"]}
        assert variables["FUNCTION_TARGET"] == name
        assert (INFRA.parent / variables["FUNCTION_SOURCE"]).is_file()
        assert int(variables["THREADS"]) == spec["containerConcurrency"]
        doors = {one: value for one, value in variables.items() if "AUTH" in one or "EXTERNAL" in one}
        assert doors == ({"BERTH_AUTH_ACCOUNTS": "berth/berth-scheduler"} if name in verbs else {})
        assert "volumes" not in spec  # nor does any hold a secret
        assert spec["serviceAccountName"] == f"berth-{name}" in accounts
        scale = template["metadata"]["annotations"]
        assert scale["autoscaling.knative.dev/min-scale"] == str(int(name in {*verbs, "release", "status"}))
        assert scale.get("autoscaling.knative.dev/max-scale") == MOST.get(name)
        security = container["securityContext"]
        assert (security["runAsNonRoot"], security["readOnlyRootFilesystem"]) == (True, True)
        assert (security["allowPrivilegeEscalation"], security["capabilities"]) == (False, {"drop": ["ALL"]})


def test_each_event_that_matters_goes_to_one_function_and_the_others_to_none() -> None:
    """By the Triggers, each of which costs a look at every event of the Broker."""
    triggers = [each for each in berths("per-verb") if each["kind"] == "Trigger"]
    assert len(triggers) == 2
    found: dict[str, list[tuple[str, str]]] = {}
    for kind in ("Pod", "Node", "Pool", "PoolClaim", "Service"):
        for change in ("resource.add", "resource.update", "resource.delete", "ref.delete"):
            event = {"type": f"dev.knative.apiserver.{change}", "kind": kind}
            for trigger in triggers:
                if passes(trigger["spec"]["filters"], event):
                    found.setdefault(trigger["spec"]["subscriber"]["ref"]["name"], []).append((kind, change))
    changes = ("resource.add", "resource.update", "resource.delete")
    assert found == {
        "release": [("Pod", change) for change in changes[1:]],
        "inventory": [(kind, change) for kind in ("Node", "Pool", "PoolClaim") for change in changes],
    }


@pytest.mark.parametrize("overlay", OVERLAYS)
@pytest.mark.long
def test_the_policies_name_the_schedulers_of_the_settings(overlay: str, tmp_path: Path) -> None:
    copy_of_infra = tmp_path / "infra"
    shutil.copytree(INFRA, copy_of_infra)
    settings = copy_of_infra / "base" / "settings.yaml"
    before = settings.read_text()
    assert "  BERTH_SCHEDULER_NAMES: berth\n" in before
    settings.write_text(
        before.replace("BERTH_SCHEDULER_NAMES: berth\n", "BERTH_SCHEDULER_NAMES: berth, gpu\n")
    )
    for folder, names in ((INFRA, "berth"), (copy_of_infra, "berth, gpu")):
        objects = kustomized(folder / "overlays" / overlay)
        variables = [one for each in objects for one in each.get("spec", {}).get("variables", ())]
        said = [one["expression"] for one in variables if one["name"] == "schedulers"]
        assert said == [f"'{names}'.replace(',', ' ').split(' ').filter(name, name != '')"] * (
            2 if overlay in ("below-1.36", WITHOUT) else 3  # with the label's policy
        )
        (ours,) = (each for each in objects if each["metadata"]["name"] == "berth-settings")
        assert ours["data"]["BERTH_SCHEDULER_NAMES"] == names


@pytest.mark.parametrize("overlay", KNATIVES)
def test_every_sink_and_subscriber_is_a_service_or_broker_that_is_there(overlay: str) -> None:
    names = {(each["kind"], each["metadata"]["name"]) for each in berths(overlay)}

    def refs(value: Any) -> list[tuple[str, str]]:
        if isinstance(value, dict):
            own = [(value["ref"]["kind"], value["ref"]["name"])] if "ref" in value else []
            return own + [found for each in value.values() for found in refs(each)]
        return [found for each in value for found in refs(each)] if isinstance(value, list) else []

    found = {each for manifest in berths(overlay) for each in refs(manifest["spec"])}
    assert found <= names
    assert found


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_no_account_may_do_everything_and_no_role_is_without_an_account(overlay: str) -> None:
    for role in rendered(overlay, "ClusterRole", "Role"):
        assert not [rule for rule in role["rules"] if "*" in str(rule)], role["metadata"]["name"]
    accounts = {each["metadata"]["name"] for each in rendered(overlay, "ServiceAccount")}
    bound = set()
    for binding in rendered(overlay, "ClusterRoleBinding", "RoleBinding"):
        bound |= {subject["name"] for subject in binding["subjects"]}
        assert binding["roleRef"]["name"] != "cluster-admin"
    assert accounts <= bound


def test_the_extender_may_do_what_bind_may_and_nothing_else() -> None:
    """test_rights.py sees what bind uses; the extender does that, and reads the ledger as filter does."""

    def roles(overlay: str, account: str) -> set[tuple[str, str]]:
        return {
            (each["roleRef"]["kind"], each["roleRef"]["name"])
            for each in rendered(overlay, "ClusterRoleBinding", "RoleBinding")
            if account in {subject["name"] for subject in each["subjects"]}
        }

    assert roles("single", "berth-extender") == roles("per-verb", "berth-bind") != set()


@pytest.mark.parametrize("overlay", KNATIVES)
def test_a_rebuild_ends_before_knative_and_berth_up_give_up_on_it(overlay: str) -> None:
    """Knative ends a call that has not begun to answer after responseStartTimeoutSeconds, 300 by default,
    whatever timeoutSeconds says."""
    spec = services(overlay)["reconcile"]["spec"]
    assert spec["responseStartTimeoutSeconds"] == spec["timeoutSeconds"] == ANSWER_SECONDS["reconcile"]
    assert spec["timeoutSeconds"] > REBUILD_SECONDS + 2 * FENCE_SECONDS


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_no_role_reads_secrets_sources_write_nothing_and_users_make_no_pools(overlay: str) -> None:
    allowed = {
        (role["metadata"]["name"], resource, verb)
        for role in rendered(overlay, "ClusterRole", "Role")
        for rule in role["rules"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }
    assert {(resource, verb) for _, resource, verb in allowed if resource == "secrets"} == set()
    assert {verb for role, _, verb in allowed if role == "berth-events"} == {"get", "list", "watch"}
    pools = {(role, verb) for role, resource, verb in allowed if resource == "pools" and "user" in role}
    assert pools == {("berth-user-view", verb) for verb in ("get", "list", "watch")}


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_the_scheduler_s_account_is_held_by_kube_scheduler_alone(overlay: str) -> None:
    """What starts before it, or stands beside it, has no use for the right to bind any pod."""
    spec = scheduler_of(overlay)
    assert spec["automountServiceAccountToken"] is False
    tokens = {
        each["name"]: source["serviceAccountToken"]
        for each in spec["volumes"]
        for source in each.get("projected", {}).get("sources", ())
        if "serviceAccountToken" in source
    }
    (volume,) = (name for name, token in tokens.items() if "audience" not in token)  # for the API server
    holds = {
        each["name"]
        for each in [*spec["containers"], *spec.get("initContainers", [])]
        if volume in {mount["name"] for mount in each["volumeMounts"]}
    }
    assert holds == {"kube-scheduler"}


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_functions_reach_names_the_api_server_and_their_store_and_nothing_else(overlay: str) -> None:
    """As the manifests say it: no network plug-in is there to do it."""
    functions = {"matchLabels": {"app.kubernetes.io/component": "function"}}
    assert all(
        functions["matchLabels"].items() <= each["metadata"]["labels"].items()
        for each in services(overlay).values()
    )
    ports, asked = set[int](), set[int]()
    for policy in rendered(overlay, "NetworkPolicy"):
        if policy["metadata"]["name"] == "berth-relay":
            continue
        assert policy["spec"]["podSelector"] == functions
        for rule in policy["spec"].get("egress", ()):
            (ports if "to" not in rule else asked).update(each["port"] for each in rule["ports"])
    assert asked == {53}
    assert ports == {443, 6443} | ({6379, 26379} if overlay == "redis" else set())


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_the_store_is_named_in_one_place(overlay: str) -> None:
    (settings,) = (each for each in rendered(overlay, "ConfigMap") if "haproxy.cfg" not in each["data"])
    own = {
        name: [one for one in template["spec"]["containers"][0]["env"] if one["name"] == "BERTH_STORE"]
        for name, template in services(overlay).items()
    }
    assert {len(found) for found in own.values()} == {int(overlay == "redis")}
    assert ("BERTH_STORE" in settings["data"]) == (overlay != "redis")


def test_readers_may_have_a_url_of_their_own() -> None:
    found = {}
    for each in component("store-readers", "Service", overlay="redis"):
        (container,) = each["spec"]["template"]["spec"]["containers"]
        (store,) = (one for one in container["env"] if one["name"] == "BERTH_STORE")
        found[each["metadata"]["name"]] = store["valueFrom"]["secretKeyRef"]["key"]
    readers = dict.fromkeys(("filter", "prioritize", "preempt", "status"), "readers-url")
    assert found == {**dict.fromkeys(("bind", "release", "inventory", "reconcile"), "url"), **readers}
    assert component("store-readers") == []  # it adds nothing that is applied


def test_the_label_is_selected_by_where_the_api_server_puts_it() -> None:
    for overlay in KNATIVES:
        pods = next(each for each in berths(overlay) if each["metadata"]["name"] == "berth-pods")
        selects = "selector" in pods["spec"]["resources"][0]
        assert selects == bool(rendered(overlay, "MutatingAdmissionPolicy")) == (overlay != "below-1.36")


@pytest.mark.parametrize("overlay", SHIPPED)
def test_the_shipped_configurations_are_what_the_command_writes(
    overlay: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    proxy = ["--proxy", str(tmp_path / "haproxy.cfg"), "--proxy-health", "8090"]
    assert main(["scheduler-config", *SHIPPED[overlay], *proxy, "--lease", "berth/berth-scheduler"]) == 0
    assert yaml.safe_load(capsys.readouterr().out) == yaml.safe_load(shipped(overlay))
    (files,) = (each["data"] for each in rendered(overlay, "ConfigMap") if "haproxy.cfg" in each["data"])
    assert files == {name: (tmp_path / name).read_text() for name in ("haproxy.cfg", "proxy.lua")}


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_the_scheduler_s_pod_has_a_proxy_with_a_token_of_the_account_that_the_functions_take(
    overlay: str,
) -> None:
    spec = scheduler_of(overlay)
    (proxy,), (scheduler,) = spec["initContainers"], spec["containers"]
    assert (proxy["restartPolicy"], proxy["command"][-1]) == ("Always", "/etc/proxy/haproxy.cfg")
    volumes = {each["name"]: each for each in spec["volumes"]}
    mounts = {
        volumes[each["name"]]["name"]: each["mountPath"]
        for container in (proxy, scheduler)
        for each in container["volumeMounts"]
    }
    assert mounts.pop("ca", "/etc/berth-ca") == "/etc/berth-ca"
    assert mounts == {
        "proxy": "/etc/proxy",
        "token": "/var/run/secrets/berth",
        "configuration": "/etc/scheduler",
        "account": "/var/run/secrets/kubernetes.io/serviceaccount",
    }
    (token,) = (each["serviceAccountToken"] for each in volumes["token"]["projected"]["sources"])
    assert token == {"audience": "berth", "expirationSeconds": 600, "path": "token"}
    assert "token" not in {each["name"] for each in scheduler["volumeMounts"]}
    assert spec["serviceAccountName"] == "berth-scheduler"


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_no_manifest_holds_a_credential_or_a_secret_for_one(overlay: str) -> None:
    text = str([each for each in rendered(overlay) if each["kind"] != "CustomResourceDefinition"])
    for secret in rendered(overlay, "Secret"):
        text += str([base64.b64decode(value) for value in secret["data"].values()])
    assert re.findall(r"://[^/@' ]*@", text) == []
    assert "berth-token" not in text
    assert rendered(overlay, "Job") == []


def test_with_the_shared_token_s_component_each_verb_takes_that_too(tmp_path: Path) -> None:
    """For an upgrade, and for a scheduler outside the cluster."""
    (tmp_path / "infra").symlink_to(INFRA)
    (tmp_path / "site").mkdir()
    for overlay, verbs in (("per-verb", set(VERBS)), ("single", {"extender"})):
        sample = {
            "apiVersion": "kustomize.config.k8s.io/v1beta1",
            "kind": "Kustomization",
            "resources": [f"../infra/overlays/{overlay}"],
            "components": ["../infra/components/shared-token"],
        }
        (tmp_path / "site" / "kustomization.yaml").write_text(yaml.safe_dump(sample))
        services = [each for each in kustomized(tmp_path / "site") if each["kind"] == "Service"]
        found = {}
        for service in services:
            spec = service["spec"]["template"]["spec"]
            (container,) = spec["containers"]
            doors = {one["name"]: one.get("value") for one in container["env"] if "AUTH" in one["name"]}
            found[service["metadata"]["name"]] = (doors, spec.get("volumes"), container.get("volumeMounts"))
        doors = {
            "BERTH_AUTH_ACCOUNTS": "berth/berth-scheduler",
            "BERTH_AUTH_TOKEN_FILE": "/etc/berth/token",
        }
        volumes = [{"name": "token", "secret": {"secretName": "berth-token"}}]
        mounts = [{"name": "token", "mountPath": "/etc/berth", "readOnly": True}]
        page = {"BERTH_AUTH_TOKEN_FILE": "/etc/berth/token"}
        for name, each in found.items():
            takes = page if name == "status" else doors
            assert each == ((takes, volumes, mounts) if name in {*verbs, "status"} else ({}, None, None)), (
                name
            )


@pytest.mark.parametrize("overlay", KNATIVES)
@pytest.mark.long
def test_with_the_component_for_it_events_come_with_tokens_of_knative_s_accounts(
    crds: list[Object], overlay: str
) -> None:
    """How Knative names these accounts, its own controllers say in tests/knative/test_oidc.py."""
    before = {(each["kind"], each["metadata"]["name"]): each for each in rendered(overlay)}
    changed = {
        key: each
        for each in component("events-oidc", overlay=overlay)
        if before.get(key := (each["kind"], each["metadata"]["name"])) != each
    }
    audiences, accounts = {}, {}
    for (kind, name), each in changed.items():
        if each["apiVersion"] in GROUPS:
            schema = schema_of(crds, each)
            assert schema is not None
            assert wrong(schema, each) == []
        spec = each.get("spec", {})
        places = (spec.get("sink"), spec.get("subscriber"), spec.get("delivery", {}).get("deadLetterSink"))
        for place in filter(None, places):
            audiences[kind, name] = (place["ref"]["name"], place["audience"])
        if kind == "Service":
            variables = {
                one["name"]: one.get("value")
                for one in each["spec"]["template"]["spec"]["containers"][0]["env"]
            }
            accounts[name] = variables["BERTH_EVENTS_ACCOUNTS"].split()
    direct = overlay == "direct"
    source, trigger = "ApiServerSource", "Trigger"
    senders = {
        "release": (source, "berth-pods") if direct else (trigger, "release"),
        "inventory": (source, "berth-inventory") if direct else (trigger, "inventory"),
    }
    assert audiences == {
        **{sender: (function, "berth") for function, sender in senders.items()},
        ("PingSource", "berth-reconcile"): ("reconcile", "berth"),
        **({} if direct else {("Broker", "berth"): ("reconcile", "berth")}),
    }
    assert set(accounts) == {"release", "inventory", "reconcile"}
    for function, sender in senders.items():
        assert knative_s_account(*sender) in accounts[function]
    ticks_and_dead_letters = [("PingSource", "berth-reconcile"), *([] if direct else senders.values())]
    assert {knative_s_account(*sender) for sender in ticks_and_dead_letters} <= set(accounts["reconcile"])
    rights = {key for key in changed if key not in before}
    assert rights == {("ClusterRoleBinding", "berth-events-callers")}


def knative_s_account(kind: str, name: str) -> str:
    """The account that Knative Eventing makes for a sender in the namespace berth."""
    group = "eventing.knative.dev" if kind == "Trigger" else "sources.knative.dev"
    return f"berth/{name}-oidc-{group}-{kind.lower()}"


def shipped(overlay: str) -> str:
    (secret,) = (each for each in rendered(overlay, "Secret") if "scheduler.yaml" in each["data"])
    return base64.b64decode(secret["data"]["scheduler.yaml"]).decode()


def test_a_site_of_its_own_names_its_images_as_the_documentation_says(tmp_path: Path) -> None:
    text = (INFRA.parent / "docs" / "install.md").read_text()
    block = next(each for each in text.split("```yaml\n")[1:] if "kind: Kustomization" in each)
    sample = textwrap.dedent(block.partition("```")[0].replace("\n   ", "\n").lstrip())
    (tmp_path / "infra").symlink_to(INFRA)
    (tmp_path / "site").mkdir()
    digest = f"sha256:{'0' * 64}"
    (tmp_path / "site" / "kustomization.yaml").write_text(sample.replace("sha256:…", digest))
    images = set(re.findall(r"'image': '([^']+)'", str(kustomized(tmp_path / "site"))))
    assert images == {
        f"registry.example/berth@{digest}",
        "docker.io/library/haproxy:2.6",
        "registry.k8s.io/kube-scheduler:v1.37.2",
    }


def test_without_knative_each_function_is_what_it_is_on_knative() -> None:
    """Its pod too ends only after its calls, and by then nobody sends it any."""
    there = services("per-verb")
    found = services(WITHOUT)
    assert found.keys() == there.keys()
    for name, template in found.items():
        (ours,), (theirs,) = template["spec"]["containers"], there[name]["spec"]["containers"]
        differs = {key for key in ours.keys() | theirs.keys() if ours.get(key) != theirs.get(key)}
        assert differs == {"ports", "readinessProbe", "lifecycle"}
        assert ours["readinessProbe"] == {
            **theirs["readinessProbe"],
            "httpGet": {"path": "/healthz", "port": "user-port"},
        }
        pause = ours["lifecycle"]["preStop"]["sleep"]["seconds"]
        seconds = there[name]["spec"]["timeoutSeconds"]
        assert template["spec"]["terminationGracePeriodSeconds"] == seconds + pause > seconds
    assert berths(WITHOUT) == []


def test_without_knative_as_many_instances_may_be_as_on_it_and_one_is_always_there() -> None:
    scalers = {
        each["metadata"]["name"]: each["spec"] for each in rendered(WITHOUT, "HorizontalPodAutoscaler")
    }
    for each in rendered(WITHOUT, "Deployment"):
        if not _is_function(each):
            continue
        name, spec = each["metadata"]["name"], each["spec"]
        assert spec["strategy"]["rollingUpdate"] == {"maxUnavailable": 0, "maxSurge": 1}
        if name not in scalers:
            assert spec["replicas"] == 1 == int(MOST[name])
            continue
        assert "replicas" not in spec
        assert (scalers[name]["minReplicas"], scalers[name]["maxReplicas"]) == (1, int(MOST.get(name, "4")))


def test_without_knative_the_scheduler_and_the_relay_alone_call_a_function() -> None:
    policies = {each["metadata"]["name"]: each["spec"] for each in rendered(WITHOUT, "NetworkPolicy")}
    (rule,) = policies["berth-functions"]["ingress"]
    (peer,) = rule["from"]
    assert peer == {
        "podSelector": {
            "matchExpressions": [
                {
                    "key": "app.kubernetes.io/name",
                    "operator": "In",
                    "values": ["berth-scheduler", "berth-relay"],
                }
            ]
        }
    }
    assert policies["berth-relay"]["ingress"] == []
    addresses = {each["metadata"]["name"]: each["spec"]["ports"] for each in rendered(WITHOUT, "Service")}
    assert addresses.keys() == services(WITHOUT).keys()
    assert all(
        ports == [{"name": "http", "port": 80, "targetPort": "user-port"}] for ports in addresses.values()
    )
