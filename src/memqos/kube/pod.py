"""Pods as Kubernetes sends them: frozen structs of the fields that decide about memory.

Fields memqos does not use are skipped while decoding. `null` is accepted wherever Kubernetes takes
it for "not set", because chart templates produce it all the time.
"""

from typing import Literal

import msgspec

from memqos.kube.quantity import Raw

ResourceList = dict[str, Raw]
"""Resource name → quantity as written."""

QosClass = Literal["Guaranteed", "Burstable", "BestEffort"]


class _Object(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """What all API objects here share."""


class ResourceClaim(_Object, frozen=True):
    """One entry of `resources.claims`: devices that a container uses."""

    name: str = ""
    request: str | None = None


class ResourceRequirements(_Object, frozen=True):
    """The `resources` stanza of a container or, from 1.32 on, of a pod."""

    requests: ResourceList | None = None
    limits: ResourceList | None = None
    claims: tuple[ResourceClaim, ...] | None = None


class ResizePolicy(_Object, frozen=True):
    """What resizing one resource of a running container does to it."""

    resource_name: str = ""
    restart_policy: str | None = None


class ContainerPort(_Object, frozen=True):
    """One entry of a container's `ports`, as far as it takes a port of the node."""

    host_port: int | None = None
    host_ip: str | None = msgspec.field(default=None, name="hostIP")
    protocol: str | None = None


class Container(_Object, frozen=True):
    """A regular, init or ephemeral container."""

    name: str = ""
    image: str | None = None
    resources: ResourceRequirements | None = None
    restart_policy: str | None = None
    resize_policy: tuple[ResizePolicy, ...] | None = None
    ports: tuple[ContainerPort, ...] | None = None


class PodOS(_Object, frozen=True):
    """`spec.os`."""

    name: str = ""


class Toleration(_Object, frozen=True):
    """One entry of `spec.tolerations`."""

    key: str | None = None
    operator: str | None = None
    value: str | None = None
    effect: str | None = None
    toleration_seconds: int | None = None


class PodAffinityTerm(_Object, frozen=True):
    """One term of a pod (anti-)affinity, as far as it reaches into other namespaces."""

    namespaces: tuple[str, ...] | None = None
    namespace_selector: dict[str, object] | None = None


class WeightedPodAffinityTerm(_Object, frozen=True):
    """A preferred term."""

    pod_affinity_term: PodAffinityTerm = PodAffinityTerm()


class PodAffinity(_Object, frozen=True):
    """`spec.affinity.podAffinity` or `podAntiAffinity`."""

    required_during_scheduling_ignored_during_execution: tuple[PodAffinityTerm, ...] | None = None
    preferred_during_scheduling_ignored_during_execution: (
        tuple[WeightedPodAffinityTerm, ...] | None
    ) = None


class NodeSelectorRequirement(_Object, frozen=True):
    """One condition on a node's labels or fields."""

    key: str = ""
    operator: str = ""
    values: tuple[str, ...] | None = None


class NodeSelectorTerm(_Object, frozen=True):
    """Conditions of which all must hold; a term without any matches no node."""

    match_expressions: tuple[NodeSelectorRequirement, ...] | None = None
    match_fields: tuple[NodeSelectorRequirement, ...] | None = None


class NodeSelector(_Object, frozen=True):
    """Terms of which one must match."""

    node_selector_terms: tuple[NodeSelectorTerm, ...] | None = None


class NodeAffinity(_Object, frozen=True):
    """`spec.affinity.nodeAffinity`, as far as it rules nodes out."""

    required_during_scheduling_ignored_during_execution: NodeSelector | None = None


class Affinity(_Object, frozen=True):
    """`spec.affinity`, as far as it rules nodes out or reaches into other namespaces."""

    node_affinity: NodeAffinity | None = None
    pod_affinity: PodAffinity | None = None
    pod_anti_affinity: PodAffinity | None = None


class PodSecurityContext(_Object, frozen=True):
    """`spec.securityContext`, as far as a kubelet may refuse it."""

    supplemental_groups_policy: str | None = None


class EmptyDir(_Object, frozen=True):
    """An `emptyDir` volume: of the node's disk, or of its memory."""

    medium: str | None = None
    size_limit: Raw | None = None


class Volume(_Object, frozen=True):
    """One entry of `spec.volumes`, as far as it may hold memory."""

    name: str = ""
    empty_dir: EmptyDir | None = None


def is_memory_backed(volume: Volume) -> bool:
    """Whether a volume is a tmpfs, whose pages count as the memory of who wrote them."""
    return volume.empty_dir is not None and volume.empty_dir.medium == "Memory"


class PodResourceClaim(_Object, frozen=True):
    """One entry of `spec.resourceClaims`."""

    name: str = ""


class PodSpec(_Object, frozen=True, kw_only=True):
    """`spec`, as far as it decides about resources."""

    containers: tuple[Container, ...] | None = None
    init_containers: tuple[Container, ...] | None = None
    ephemeral_containers: tuple[Container, ...] | None = None
    resources: ResourceRequirements | None = None
    resource_claims: tuple[PodResourceClaim, ...] | None = None
    overhead: ResourceList | None = None
    os: PodOS | None = None
    priority_class_name: str | None = None
    priority: int | None = None
    node_name: str | None = None
    tolerations: tuple[Toleration, ...] | None = None
    termination_grace_period_seconds: int | None = None
    active_deadline_seconds: int | None = None
    affinity: Affinity | None = None
    node_selector: dict[str, str] | None = None
    security_context: PodSecurityContext | None = None
    volumes: tuple[Volume, ...] | None = None


class Running(_Object, frozen=True):
    """`state.running` of a container."""


class Terminated(_Object, frozen=True):
    """`state.terminated` of a container."""

    reason: str | None = None
    exit_code: int | None = None
    started_at: str | None = None
    finished_at: str | None = None


class ContainerState(_Object, frozen=True):
    """`state` of a container, or `lastState`."""

    running: Running | None = None
    terminated: Terminated | None = None


class ContainerStatus(_Object, frozen=True, kw_only=True):
    """What the kubelet reported of one container."""

    name: str = ""
    container_id: str | None = msgspec.field(default=None, name="containerID")
    resources: ResourceRequirements | None = None
    allocated_resources: ResourceList | None = None
    state: ContainerState | None = None
    last_state: ContainerState | None = None
    restart_count: int | None = None


class PodCondition(_Object, frozen=True):
    """One entry of `status.conditions`."""

    type: str = ""
    status: str | None = None
    reason: str | None = None
    last_transition_time: str | None = None


class ClaimMapping(_Object, frozen=True):
    """A resource of the node that the devices of a claim are made of."""

    name: str = ""
    quantity: Raw | None = None


class ClaimOverhead(_Object, frozen=True):
    """What using a claim costs on top, once a pod and once a container."""

    name: str = ""
    per_pod: Raw | None = None
    per_container: Raw | None = None


class NodeAllocatableClaimStatus(_Object, frozen=True, kw_only=True):
    """Resources of the node that a pod has through one of its claims (KEP-5517, since 1.37)."""

    resource_claim_name: str = ""
    containers: tuple[str, ...] | None = None
    mapping: tuple[ClaimMapping, ...] | None = None
    overhead: tuple[ClaimOverhead, ...] | None = None


class PodStatus(_Object, frozen=True, kw_only=True):
    """`status`, as far as it decides about resources in use."""

    phase: str | None = None
    reason: str | None = None
    message: str | None = None
    start_time: str | None = None
    qos_class: str | None = None
    container_statuses: tuple[ContainerStatus, ...] | None = None
    init_container_statuses: tuple[ContainerStatus, ...] | None = None
    ephemeral_container_statuses: tuple[ContainerStatus, ...] | None = None
    conditions: tuple[PodCondition, ...] | None = None
    resources: ResourceRequirements | None = None
    allocated_resources: ResourceList | None = None
    node_allocatable_resource_claim_statuses: tuple[NodeAllocatableClaimStatus, ...] | None = None


class ObjectMeta(_Object, frozen=True, kw_only=True):
    """`metadata`, as far as it identifies a pod."""

    name: str | None = None
    generate_name: str | None = None
    namespace: str | None = None
    uid: str | None = None
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None
    deletion_timestamp: str | None = None
    deletion_grace_period_seconds: int | None = None
    creation_timestamp: str | None = None


class Pod(_Object, frozen=True):
    """A Pod."""

    metadata: ObjectMeta = ObjectMeta()
    spec: PodSpec = PodSpec()
    status: PodStatus | None = None
