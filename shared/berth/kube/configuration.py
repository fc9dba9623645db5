"""The parts of objects by which a cluster is configured, as `berth check` reads them.
A field that is absent or null in JSON is None or empty here; unknown fields are skipped unread."""

from typing import Any, NamedTuple

import msgspec

from berth.kube.types import Meta, Pod, PodSpec


class Right(NamedTuple):
    """What somebody may do: a verb on a resource, which may have a subresource (pods/status). An empty
    namespace stands for all of them."""

    verb: str
    group: str
    resource: str
    namespace: str = ""
    name: str = ""

    def attributes(self) -> dict[str, str]:
        """Return it as an access review asks for it."""
        resource, _, subresource = self.resource.partition("/")
        attributes = {
            "verb": self.verb,
            "group": self.group,
            "resource": resource,
            "subresource": subresource,
            "namespace": self.namespace,
            "name": self.name,
        }
        return {key: value for key, value in attributes.items() if value}

    def __str__(self) -> str:
        named = ".".join(part for part in (self.resource, self.group) if part)
        name = f" {self.name}" if self.name else ""
        return f"{self.verb} {named}{name}" + (f" in {self.namespace}" if self.namespace else "")


class _Object(msgspec.Struct, frozen=True, rename="camel"):
    pass


def minor_of(text: str) -> tuple[int, int]:
    """Return (1, 36) of v1.36.3; (0, 0) where it is no such version."""
    parts = text.removeprefix("v").split(".")
    if len(parts) < 2 or not (parts[0].isdecimal() and parts[1].isdecimal()):
        return (0, 0)
    return int(parts[0]), int(parts[1])


def tag_of(image: str) -> str:
    """Return an image's tag; empty where it has none but a digest, or none at all."""
    return image.partition("@")[0].rpartition("/")[2].partition(":")[2]


class Named(_Object, frozen=True):
    """Any object, of which only the metadata is read."""

    metadata: Meta


class ConfigMap(_Object, frozen=True):
    metadata: Meta
    data: dict[str, str] | None = None


class Secret(_Object, frozen=True):
    metadata: Meta
    data: dict[str, bytes] | None = None


class DefinitionVersion(_Object, frozen=True):
    name: str
    served: bool = False
    schema: dict[str, Any] | None = None


class DefinitionSpec(_Object, frozen=True):
    group: str = ""
    versions: list[DefinitionVersion] | None = None


class Definition(_Object, frozen=True):
    """A CustomResourceDefinition."""

    metadata: Meta
    spec: DefinitionSpec = DefinitionSpec()

    def served(self, name: str) -> DefinitionVersion | None:
        """Return that version, if it is served."""
        versions = self.spec.versions or ()
        return next((version for version in versions if version.name == name and version.served), None)


class Container(_Object, frozen=True):
    name: str = ""
    image: str = ""
    command: list[str] | None = None
    args: list[str] | None = None


class VolumeSource(_Object, frozen=True):
    secret_name: str = ""
    name: str = ""
    claim_name: str = ""


class Volume(_Object, frozen=True):
    name: str = ""
    secret: VolumeSource | None = None
    config_map: VolumeSource | None = None
    persistent_volume_claim: VolumeSource | None = None


class TemplateSpec(_Object, frozen=True):
    containers: list[Container] | None = None
    volumes: list[Volume] | None = None
    scheduler_name: str = ""


class Template(_Object, frozen=True):
    spec: TemplateSpec = TemplateSpec()


class WorkloadSpec(_Object, frozen=True):
    replicas: int | None = None
    template: Template = Template()


class Workload(_Object, frozen=True):
    """A Deployment, or a Service of Knative's."""

    metadata: Meta
    spec: WorkloadSpec = WorkloadSpec()

    @property
    def label(self) -> str:
        return f"{self.metadata.namespace}/{self.metadata.name}"

    @property
    def images(self) -> list[str]:
        return [container.image for container in self.spec.template.spec.containers or ()]


class SpecWithVolumes(PodSpec, frozen=True, kw_only=True):
    volumes: list[Volume] | None = None


class PodWithVolumes(Pod, frozen=True):
    spec: SpecWithVolumes = SpecWithVolumes()


class VolumeClaimSpec(_Object, frozen=True):
    storage_class_name: str | None = None
    volume_name: str = ""


class VolumeClaim(_Object, frozen=True):
    """A PersistentVolumeClaim."""

    metadata: Meta
    spec: VolumeClaimSpec = VolumeClaimSpec()


class StorageClass(_Object, frozen=True):
    metadata: Meta
    volume_binding_mode: str | None = None


class Variable(_Object, frozen=True):
    name: str = ""
    expression: str = ""


class MatchResources(_Object, frozen=True):
    namespace_selector: dict[str, Any] | None = None
    object_selector: dict[str, Any] | None = None
    exclude_resource_rules: list[dict[str, Any]] | None = None
    resource_rules: list[dict[str, Any]] | None = None

    @property
    def narrows(self) -> bool:
        """Whether it leaves some objects out of those that its rules name."""
        return bool(self.namespace_selector or self.object_selector or self.exclude_resource_rules)


class PolicySpec(_Object, frozen=True):
    failure_policy: str = "Fail"
    match_constraints: MatchResources = MatchResources()
    validations: list[dict[str, Any]] | None = None
    mutations: list[dict[str, Any]] | None = None
    variables: list[Variable] | None = None


class Policy(_Object, frozen=True):
    """A ValidatingAdmissionPolicy or MutatingAdmissionPolicy."""

    metadata: Meta
    spec: PolicySpec = PolicySpec()


class PolicyBindingSpec(_Object, frozen=True):
    policy_name: str = ""
    validation_actions: list[str] | None = None
    match_resources: MatchResources | None = None


class PolicyBinding(_Object, frozen=True):
    metadata: Meta
    spec: PolicyBindingSpec = PolicyBindingSpec()


class SourceResource(_Object, frozen=True):
    kind: str = ""
    selector: dict[str, Any] | None = None


class SourceSpec(_Object, frozen=True):
    resources: list[SourceResource] | None = None


class Source(_Object, frozen=True):
    """An ApiServerSource of Knative's."""

    metadata: Meta
    spec: SourceSpec = SourceSpec()


class ManagedResource(_Object, frozen=True):
    name: str = ""
    ignored_by_scheduler: bool = False


class Tls(_Object, frozen=True):
    insecure: bool = False
    ca_file: str = ""
    ca_data: str = ""


class Extender(_Object, frozen=True):
    """One entry under `extenders`. `http_timeout` is a Go duration, as text or in nanoseconds."""

    url_prefix: str = ""
    filter_verb: str = ""
    prioritize_verb: str = ""
    preempt_verb: str = ""
    bind_verb: str = ""
    weight: int | None = None
    enable_https: bool = msgspec.field(default=False, name="enableHTTPS")
    tls_config: Tls | None = None
    http_timeout: str | int | None = msgspec.field(default=None, name="httpTimeout")
    node_cache_capable: bool = False
    managed_resources: list[ManagedResource] | None = None


class PluginArgs(_Object, frozen=True):
    """What NodeResourcesFit takes; no other plugin has these fields."""

    ignored_resource_groups: tuple[str, ...] = ()
    ignored_resources: tuple[str, ...] = ()


class PluginConfig(_Object, frozen=True):
    name: str = ""
    args: PluginArgs = PluginArgs()


class Profile(_Object, frozen=True):
    scheduler_name: str = "default-scheduler"
    percentage_of_nodes_to_score: int | None = None
    plugin_config: list[PluginConfig] | None = None


class LeaderElection(_Object, frozen=True):
    leader_elect: bool = True
    resource_namespace: str = "kube-system"
    resource_name: str = "kube-scheduler"


class SchedulerConfiguration(_Object, frozen=True):
    """A KubeSchedulerConfiguration; what it leaves out is what kube-scheduler takes then."""

    kind: str = ""
    percentage_of_nodes_to_score: int | None = None
    leader_election: LeaderElection = LeaderElection()
    profiles: tuple[Profile, ...] = (Profile(),)
    extenders: list[Extender] | None = None
