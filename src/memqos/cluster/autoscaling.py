"""The requests autoscalers use: what utilization is divided by, what nodes are added for."""

from collections.abc import Callable, Iterator
from typing import Final, Literal, NamedTuple

import msgspec

from memqos.kube.aggregate import has_pod_level_requests, pod_requests
from memqos.kube.pod import ObjectMeta, Pod
from memqos.kube.resources import CPU, MEMORY, Amounts
from memqos.kube.shape import Part, Shape, shape_of
from memqos.release import Release, Since

HpaFailure = Literal[
    "missing_container_request", "missing_pod_level_request", "container_not_found"
]


class ScaleTarget(msgspec.Struct, frozen=True):
    """`spec.scaleTargetRef`."""

    kind: str = ""
    name: str = ""


class MetricTarget(msgspec.Struct, frozen=True):
    """What a metric is held at; Utilization is a share of the request."""

    type: str = ""


class ResourceMetric(msgspec.Struct, frozen=True):
    """A metric of a resource of pods, or of one container."""

    name: str = ""
    target: MetricTarget = MetricTarget()


class Metric(msgspec.Struct, frozen=True):
    """One entry of `spec.metrics`."""

    resource: ResourceMetric | None = None


class AutoscalerSpec(msgspec.Struct, frozen=True, rename="camel"):
    """`spec` of a HorizontalPodAutoscaler of autoscaling/v2."""

    scale_target_ref: ScaleTarget = ScaleTarget()
    metrics: tuple[Metric, ...] | None = None


class HorizontalPodAutoscaler(msgspec.Struct, frozen=True):
    """A HorizontalPodAutoscaler, as far as it scales by shares of requests."""

    metadata: ObjectMeta = ObjectMeta()
    spec: AutoscalerSpec = AutoscalerSpec()

    def divides_by(self, resource: str) -> bool:
        """Whether it divides the usage of pods by their request of a resource."""
        metrics = [metric.resource for metric in self.spec.metrics or ()]
        return any(
            each is not None and each.name == resource and each.target.type == "Utilization"
            for each in metrics
        )


class UnknownRequest(msgspec.Struct, frozen=True):
    """Why the horizontal autoscaler has no request of a pod."""

    failure: HpaFailure
    pod: str
    resource: str
    container: str | None = None


class _HpaRules(NamedTuple):
    """What the horizontal autoscaler takes into account."""

    sidecars: bool
    pod_level: bool
    missing_containers: bool


# podautoscaler/replica_calculator.go: 1.29 adds sidecars, 1.34 pod-level requests (KEP-2837), 1.35
# fails for a named container that does not exist, which summed up to 0 before.
_HPA_RULES: Final = Since(
    {
        22: _HpaRules(sidecars=False, pod_level=False, missing_containers=False),
        29: _HpaRules(sidecars=True, pod_level=False, missing_containers=False),
        34: _HpaRules(sidecars=True, pod_level=True, missing_containers=False),
        35: _HpaRules(sidecars=True, pod_level=True, missing_containers=True),
    }
)


def hpa_request(
    pod: Pod, resource: str, release: Release, container: str = ""
) -> int | UnknownRequest:
    """What the horizontal autoscaler divides the usage of a pod by, in thousandths.

    Pod-level requests count for the whole pod, with init containers and overhead. Otherwise, and
    for a container that is named, the containers that keep running are summed, without overhead.
    """
    sees = _HPA_RULES.at(release.minor)
    shape = shape_of(pod, release)
    name = pod.metadata.name or ""
    if not container and _counts_whole_pod(shape, release):
        request = pod_requests(shape, release).get(resource)
        return (
            UnknownRequest("missing_pod_level_request", name, resource)
            if request is None
            else request
        )
    measured = [
        (part_name, part)
        for part_name, part in _running_containers(pod, shape, sees)
        if container in ("", part_name)
    ]
    if container and not measured and sees.missing_containers:
        return UnknownRequest("container_not_found", name, resource, container)
    for part_name, part in measured:
        if resource not in part.requests:
            return UnknownRequest("missing_container_request", name, resource, part_name)
    return sum(part.requests[resource] for _, part in measured)


def _counts_whole_pod(shape: Shape, release: Release) -> bool:
    """Whether the horizontal autoscaler takes the pod as a whole, not its containers."""
    return (
        _HPA_RULES.at(release.minor).pod_level
        and release.is_enabled("PodLevelResources")
        and has_pod_level_requests(shape, release)
    )


class AutoscalerRequests(msgspec.Struct, frozen=True, kw_only=True):
    """What both autoscalers take for the requests of one pod; amounts in thousandths."""

    utilization: dict[str, int | UnknownRequest]
    """By resource, what the horizontal autoscaler divides usage by."""
    whole_pod: bool
    """Whether that is the pod-level request, with overhead, rather than a sum of containers."""
    node: Amounts
    """What the cluster autoscaler looks for on a node."""


def autoscaler_requests(pod: Pod, release: Release) -> AutoscalerRequests:
    """The requests of a pod as stored, for cpu and memory."""
    return AutoscalerRequests(
        utilization={name: hpa_request(pod, name, release) for name in (CPU, MEMORY)},
        whole_pod=_counts_whole_pod(shape_of(pod, release), release),
        node=cluster_autoscaler_requests(pod, release),
    )


def cluster_autoscaler_requests(pod: Pod, release: Release) -> Amounts:
    """What the cluster autoscaler looks for a node for: the spec alone, overhead included."""
    return _CLUSTER_AUTOSCALER.at(release.minor)(shape_of(pod, release), release)


def _container_requests(shape: Shape, release: Release) -> Amounts:
    return pod_requests(msgspec.structs.replace(shape, pod=None), release)


_CLUSTER_AUTOSCALER: Final[Since[Callable[[Shape, Release], Amounts]]] = Since(
    {22: _container_requests, 33: pod_requests}
)


def _running_containers(pod: Pod, shape: Shape, sees: _HpaRules) -> Iterator[tuple[str, Part]]:
    """The containers that keep running, by name."""
    for spec, part in zip(pod.spec.containers or (), shape.containers, strict=True):
        yield spec.name, part
    if sees.sidecars:
        for spec, part in zip(pod.spec.init_containers or (), shape.init_containers, strict=True):
            if part.role == "sidecar":
                yield spec.name, part
