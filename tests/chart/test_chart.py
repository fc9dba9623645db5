"""The chart: what it makes is what kustomize makes, its values are checked, and it says what to do.

Installed on a real API server: tests/e2e/test_without_knative.py.
"""

import re
import shutil
from pathlib import Path

import pytest
import yaml

from tests.chart.rendering import CHART, CHOICES, KNATIVE, commands, compared, refused, run, templated
from tests.support.builders.manifests import OVERLAYS, component, rendered
from tests.support.cluster import Object
from tests.support.references import ROOT

pytestmark = [pytest.mark.long, pytest.mark.usefixtures("binaries")]


PAGE = ROOT / "docs" / "capacity-planning.md"
LIMITED = ("filter", "reconcile")
FILES = (
    *("Chart.yaml", "README.md", ".helmignore", "values.yaml", "values.schema.json"),
    *("templates/_choices.tpl", "templates/_objects.tpl", "templates/_scheduler.tpl", "templates/NOTES.txt"),
    *("templates/objects.yaml", "templates/generated.yaml", "templates/tests/place-a-pod.yaml"),
)
"""The chart's own: objects.yaml makes infra's, generated.yaml what kustomize generates; `helm test` runs
place-a-pod.yaml (tests/e2e/test_without_knative.py)."""


def only(objects: list[Object], kind: str, name: str) -> Object:
    (found,) = (each for each in objects if (each["kind"], each["metadata"]["name"]) == (kind, name))
    return found


def container(objects: list[Object], kind: str, name: str) -> Object:
    found: Object = only(objects, kind, name)["spec"]["template"]["spec"]["containers"][0]
    return found


def test_each_overlay_of_kustomize_has_its_values() -> None:
    assert sorted(CHOICES) == OVERLAYS


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_the_chart_makes_what_kustomize_makes(helm: Path, overlay: str) -> None:
    charts, kustomizes = compared(templated(helm, *CHOICES[overlay])), compared(rendered(overlay))
    assert charts.keys() == kustomizes.keys()
    for key, found in charts.items():
        assert found == kustomizes[key], key


_SECRET = "store.kind: Secret"
NOT_BOTH = {
    **{("store.readers=true", each): _SECRET for each in ("direct", "single", "without-knative")},
    **{("size=Large", each): _SECRET for each in ("direct", "single", "without-knative")},
    ("events.oidc=true", "without-knative"): "events.oidc is for runtime: Knative",
}
ADDED = {
    "nativePreemption=true": "native",
    "monitoring=true": "monitoring",
    "sharedToken=true": "shared-token",
    "events.oidc=true": "events-oidc",
    "store.readers=true": "store-readers",
    "size=Small": "size-small",
    "size=Large": "size-large",
}
"""Values that name a component of kustomize which no overlay has."""


@pytest.mark.parametrize("overlay", ["direct", "redis", "single", "without-knative"])
@pytest.mark.parametrize("value", ADDED)
def test_what_a_component_adds_the_chart_adds(helm: Path, value: str, overlay: str) -> None:
    chosen = (*CHOICES[overlay], "--set", value)
    if (why := NOT_BOTH.get((value, overlay))) is not None:
        assert why in refused(helm, *chosen)
        return
    kustomizes = compared(component(ADDED[value], overlay=overlay))
    charts = compared(templated(helm, *chosen))
    assert charts.keys() == kustomizes.keys()
    for key, found in charts.items():
        assert found == kustomizes[key], key


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_helm_finds_nothing_to_say_of_it(helm: Path, overlay: str) -> None:
    done = run(helm, "lint", "--strict", "--namespace", "berth", CHART, *CHOICES[overlay])
    assert done.returncode == 0, done.stdout + done.stderr
    assert "0 chart(s) failed" in done.stdout


def test_how_functions_run_and_what_is_labelled_is_found_out_of_what_the_cluster_serves(helm: Path) -> None:
    kinds = {each["kind"] for each in templated(helm)}
    assert "HorizontalPodAutoscaler" in kinds
    assert "ApiServerSource" not in kinds
    serving = ("--api-versions", "serving.knative.dev/v1")
    assert "HorizontalPodAutoscaler" in {each["kind"] for each in templated(helm, *serving)}  # no Eventing
    both = (*serving, "--api-versions", "eventing.knative.dev/v1")
    kinds = {each["kind"] for each in templated(helm, *both)}
    assert {"ApiServerSource", "Trigger"} <= kinds
    assert not {"MutatingAdmissionPolicy", "HorizontalPodAutoscaler"} & kinds
    policy = "admissionregistration.k8s.io/v1/MutatingAdmissionPolicy"
    found = templated(helm, *both, "--api-versions", policy)
    assert "MutatingAdmissionPolicy" in {each["kind"] for each in found}
    (pods,) = only(found, "ApiServerSource", "berth-pods")["spec"]["resources"]
    assert pods["selector"] == {"matchLabels": {"berth.dev/scheduled": "true"}}


def test_the_image_is_named_by_its_digest_where_there_is_one(helm: Path) -> None:
    digest = f"sha256:{'1a' * 32}"
    named = ("--set", "image.repository=registry.example/berth", "--set", f"image.digest={digest}")
    for runtime, kind in (("Knative", "Service"), ("Deployments", "Deployment")):
        found = templated(helm, "--set", f"runtime={runtime}", *named)
        assert container(found, kind, "bind")["image"] == f"registry.example/berth@{digest}"
    assert container(found, "Deployment", "berth-relay")["image"] == f"registry.example/berth@{digest}"
    tagged = templated(helm, "--set", "image.repository=registry.example/berth", "--set", "image.tag=1.2.3")
    assert container(tagged, "Deployment", "filter")["image"] == "registry.example/berth:1.2.3"


@pytest.mark.parametrize(
    ("cluster", "values", "image"),
    [
        ("v1.32.5", (), ":v1.32.5"),
        ("v1.33.1-gke.1584000", (), ":v1.33.1"),
        ("v1.34.2-eks-1a2b3c4", (), ":v1.34.2"),
        ("v1.35.0+k3s1", (), ":v1.35.0"),
        ("v1.35.0", ("scheduler.version=v1.34.7",), ":v1.34.7"),
        (
            "v1.35.0",
            (f"scheduler.image=registry.example:5000/kube@sha256:{'1a' * 32}",),
            f"@sha256:{'1a' * 32}",
        ),
    ],
)
def test_the_scheduler_is_of_the_clusters_version_unless_another_is_named(
    helm: Path, cluster: str, values: tuple[str, ...], image: str
) -> None:
    words = (word for value in values for word in ("--set", value))
    found = templated(helm, "--kube-version", cluster, *words)
    assert container(found, "Deployment", "berth-scheduler")["image"].endswith(image)


SIZES = ("Small", "Medium", "Large")


def test_the_presets_ask_for_what_the_page_says(helm: Path) -> None:
    """docs/capacity-planning.md: what all of it asks for, and a function's limit."""
    rows = dict(re.findall(r"^\| (requests[^|]*|a function's limit[^|]*) \|(.*)\|$", PAGE.read_text(), re.M))
    told = {name: [one.strip().replace(",", "") for one in row.split("|")] for name, row in rows.items()}
    asked = [
        requests(templated(helm, "--set", f"size={size}", "--set", "store.kind=Secret")) for size in SIZES
    ]
    assert told == {
        "requests: cores": [f"{cores:.2f}" for cores, _, _ in asked],
        "requests: memory, MiB": [str(memory) for _, memory, _ in asked],
        "a function's limit, MiB (reconcile's)": [limits for _, _, limits in asked],
    }


def requests(objects: list[Object]) -> tuple[float, int, str]:
    """Cores and MiB that all pods ask for at least, and the limits of filter and of reconcile."""
    least = {
        each["metadata"]["name"]: each["spec"]["minReplicas"]
        for each in objects
        if each["kind"] == "HorizontalPodAutoscaler"
    }
    milli, memory = 0, 0
    for each in (one for one in objects if one["kind"] == "Deployment"):
        pod = each["spec"]["template"]["spec"]
        replicas = each["spec"].get("replicas") or least[each["metadata"]["name"]]
        for one in (*pod["containers"], *pod.get("initContainers", ())):
            asked = one["resources"]["requests"]
            milli += replicas * int(asked["cpu"].removesuffix("m"))
            memory += replicas * int(asked["memory"].removesuffix("Mi"))
    limits = [
        mib(container(objects, "Deployment", name)["resources"]["limits"]["memory"]) for name in LIMITED
    ]
    return milli / 1000, memory, "{} ({})".format(*limits)


def mib(quantity: str) -> int:
    number, unit = int(quantity[:-2]), quantity[-2:]
    return number * {"Mi": 1, "Gi": 1024}[unit]


def test_the_schedulers_names_reach_its_profiles_the_functions_and_the_policies(helm: Path) -> None:
    found = templated(helm, *KNATIVE, "--set", "scheduler.names={berth,night}")
    assert only(found, "ConfigMap", "berth-settings")["data"]["BERTH_SCHEDULER_NAMES"] == "berth,night"
    config = compared(found)["v1 Secret", "berth", "berth-scheduler-config"]["data"]["scheduler.yaml"]
    assert [each["schedulerName"] for each in config["profiles"]] == ["berth", "night"]
    for kind, name in (
        ("ValidatingAdmissionPolicy", "pods.berth.dev"),
        ("MutatingAdmissionPolicy", "scheduled.berth.dev"),
    ):
        variables = only(found, kind, name)["spec"]["variables"]
        (schedulers,) = (each["expression"] for each in variables if each["name"] == "schedulers")
        assert schedulers.startswith("'berth,night'.replace(")


def test_a_changed_configuration_replaces_the_schedulers_pods(helm: Path) -> None:
    def stamp(*values: str) -> str:
        found = only(templated(helm, *values), "Deployment", "berth-scheduler")
        told: str = found["spec"]["template"]["metadata"]["annotations"]["berth.dev/configuration"]
        return told

    assert stamp() == stamp("--set", "status=false") != stamp("--set", "scheduler.names={night}")


def test_a_function_has_what_is_said_of_it_and_no_other_has(helm: Path) -> None:
    asked = ("--set", "functions.bind.least=2", "--set", "functions.bind.most=6")
    more = ("--set", "functions.bind.resources.requests.cpu=500m")
    found = templated(helm, *asked, *more)
    requests = container(found, "Deployment", "bind")["resources"]["requests"]
    assert requests == {"cpu": "500m", "memory": "160Mi"}
    scaler = only(found, "HorizontalPodAutoscaler", "bind")["spec"]
    assert (scaler["minReplicas"], scaler["maxReplicas"]) == (2, 6)
    assert only(found, "HorizontalPodAutoscaler", "filter")["spec"]["minReplicas"] == 1
    annotations = only(templated(helm, *KNATIVE, *asked), "Service", "bind")["spec"]["template"]["metadata"]
    assert annotations["annotations"]["autoscaling.knative.dev/min-scale"] == "2"
    assert annotations["annotations"]["autoscaling.knative.dev/max-scale"] == "6"


def test_the_store_of_a_secret_reaches_those_that_use_it_and_readers_have_a_url_of_their_own(
    helm: Path,
) -> None:
    found = templated(helm, "--set", "store.kind=Secret", "--set", "store.readers=true")
    for name, key in (("filter", "readers-url"), ("status", "readers-url"), ("bind", "url")):
        (store,) = (e for e in container(found, "Deployment", name)["env"] if e["name"] == "BERTH_STORE")
        assert store["valueFrom"] == {"secretKeyRef": {"name": "berth-store", "key": key}}
    assert not container(found, "Deployment", "berth-relay").get("env")
    assert "BERTH_STORE" not in only(found, "ConfigMap", "berth-settings")["data"]


def test_what_is_left_out_is_not_there(helm: Path) -> None:
    found = templated(
        helm, "--set", "status=false", "--set", "networkPolicies=false", "--set", "crds.install=false"
    )
    names = {(each["kind"], each["metadata"]["name"]) for each in found}
    assert not {each for each in names if each[1] in ("status", "berth-status")} - {("RoleBinding", "")}
    assert not {"NetworkPolicy", "CustomResourceDefinition"} & {kind for kind, _ in names}


def test_settings_are_the_functions_environment(helm: Path) -> None:
    found = templated(helm, "--set", "settings.BERTH_EVENTS=off", "--set", "settings.BERTH_USAGE_MONTHS=6")
    data = only(found, "ConfigMap", "berth-settings")["data"]
    assert (data["BERTH_EVENTS"], data["BERTH_USAGE_MONTHS"]) == ("off", "6")


@pytest.mark.parametrize(
    ("values", "why"),
    [
        (("calls=Single",), "calls: Single needs scheduler.resources"),
        (("scheduler.resources={berth.dev/ip}",), "scheduler.resources is for calls: Single"),
        (("scheduler.https=true",), "scheduler.https is for runtime: Knative with calls: PerVerb"),
        (("store.readers=true",), "store.readers is for store.kind: Secret"),
        (("size=Large",), "ConfigMaps hold no ledger of that size"),
        (("size=Huge",), "size"),
        (("events.oidc=true", "runtime=Deployments"), "events.oidc is for runtime: Knative"),
        (("runtime=Lambda",), "runtime"),
        (("store.kind=Redis",), "store"),
        (("image.digest=latest",), "digest"),
        (("replicas=3",), "replicas"),
        (("settings.BERTH_STORE=redis://a",), "BERTH_STORE"),
        (("functions.binder.least=2",), "binder"),
        (("functions.bind.least=0",), "least"),
        (("functions.bind.least=3", "functions.bind.most=2"), "least is 3, and should be 2 (most) or less"),
        (("functions.reconcile.least=2",), "least"),
        (("functions.extender.least=2",), "with calls: PerVerb there is no such function"),
    ],
)
def test_what_can_not_be_is_refused_and_the_refusal_says_why(
    helm: Path, values: tuple[str, ...], why: str
) -> None:
    assert why in refused(helm, *(word for value in values for word in ("--set", value)))


def test_all_pages_install_by_the_commands_of_the_charts_readme() -> None:
    """tests/e2e/test_rolling_upgrade.py runs the first of them, test_without_knative.py what helm tests."""
    install, test, _ = commands()
    for page in ("README.md", "docs/install.md"):
        assert f"```\n{install}\n{test}\nkubectl apply -f pools.yaml\n```" in (ROOT / page).read_text(), page


def test_another_namespace_is_refused(helm: Path) -> None:
    assert "add --namespace berth --create-namespace" in refused(helm, namespace="default")


def test_a_package_has_all_that_it_needs_and_none_of_the_links(helm: Path, tmp_path: Path) -> None:
    done = run(helm, "package", CHART, "--destination", tmp_path)
    assert done.returncode == 0, done.stderr
    (package,) = tmp_path.glob("berth-*.tgz")
    shutil.unpack_archive(package, tmp_path / "unpacked", filter="data")
    there = sorted((tmp_path / "unpacked" / "berth").rglob("*"))
    assert not [each for each in there if each.is_symlink()]
    own = {str(each.relative_to(tmp_path / "unpacked" / "berth")) for each in there if each.is_file()}
    assert {each for each in own if not each.startswith(("base/", "components/"))} == set(FILES)
    text = run(helm, "template", "berth", tmp_path / "unpacked" / "berth", "--namespace", "berth")
    assert list(yaml.safe_load_all(text.stdout)) == list(
        yaml.safe_load_all(run(helm, "template", "berth", CHART, "--namespace", "berth").stdout)
    )
