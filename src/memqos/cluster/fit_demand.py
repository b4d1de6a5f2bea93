"""What a pod requests of a node, as each part of the scheduler counts it."""

from collections.abc import Callable, Iterable, Iterator
from typing import Final

import msgspec

from memqos.cluster.charged import (
    is_resize_infeasible,
    request_charge,
    requests_with_defaults,
)
from memqos.kube.aggregate import has_pod_level_requests, pod_requests, requests_with_claims
from memqos.kube.pod import Pod
from memqos.kube.resources import CPU, MEMORY, Amounts, is_extended, is_hugepages, storable, whole
from memqos.kube.shape import Shape, containers_of, shape_key, shape_of
from memqos.release import Release

EPHEMERAL_STORAGE: Final = "ephemeral-storage"
PODS_RESOURCE: Final = "pods"
_BASIC: Final = (CPU, MEMORY, EPHEMERAL_STORAGE)

DEFAULT_REQUESTS: Final[Amounts] = {CPU: 100, MEMORY: 200 * (1 << 20) * 1000}
"""What scoring assumes of a container that requests nothing, in thousandths: DefaultMilliCPURequest
and DefaultMemoryRequest of the scheduler (util/pod_resources.go), so that such pods spread too."""

_TERMINAL: Final = frozenset({"Succeeded", "Failed"})


class SchedulingDemand(msgspec.Struct, frozen=True):
    """Requests of one pod: cpu in thousandths, everything else in whole units."""

    filtered: Amounts
    """What must be free on a node: the spec alone."""
    charged: Amounts
    """What the node is charged with once the pod is on it; BalancedAllocation sees it as well."""
    charged_non_zero: Amounts
    """The same of cpu and memory, with defaults for containers without requests."""
    spread: Amounts
    """What LeastAllocated and MostAllocated add to the node: defaults, and no pod-level values."""


class NodeInfo(msgspec.Struct, frozen=True):
    """A node as the scheduler counts it, in the units of SchedulingDemand."""

    name: str
    allocatable: Amounts
    requested: Amounts
    non_zero_requested: Amounts
    pods: int

    def free(self, resource: str) -> int:
        """What is left; below 0 where the node is overcommitted."""
        if resource == PODS_RESOURCE:
            return self.allocatable.get(PODS_RESOURCE, 0) - self.pods
        return self.allocatable.get(resource, 0) - self.requested.get(resource, 0)

    def free_non_zero(self, resource: str) -> int:
        """The same, with defaults for containers without requests."""
        used = self.non_zero_requested.get(resource, self.requested.get(resource, 0))
        return self.allocatable.get(resource, 0) - used


def scheduling_demand(pod: Pod, shape: Shape, release: Release) -> SchedulingDemand:
    """The demand of a pod; `shape` is that of the pod, as written or after defaulting."""
    charged = request_charge(pod, shape, release)
    missing = DEFAULT_REQUESTS
    if release.is_enabled("PodLevelResources") and has_pod_level_requests(shape, release):
        missing = {name: amount for name, amount in missing.items() if name not in charged}
    non_zero = request_charge(pod, shape, release, missing) if missing else charged
    spread = requests_with_defaults(shape, DEFAULT_REQUESTS)
    for name, amount in shape.overhead.items():
        spread[name] = spread.get(name, 0) + amount
    return SchedulingDemand(
        filtered=_scheduler_amounts(
            pod_requests(shape, release, of_containers=requests_with_claims(shape))
        ),
        charged=_storable_amounts(charged),
        charged_non_zero=_storable_amounts(
            {CPU: non_zero.get(CPU, 0), MEMORY: non_zero.get(MEMORY, 0)}
        ),
        spread=_scheduler_amounts(spread),
    )


def scheduling_demands(
    pods: Iterable[Pod],
    release: Release,
    shape: Callable[[Pod, Release], Shape] = shape_of,
) -> Iterator[SchedulingDemand]:
    """The demand of each pod; `shape` derives that of a pod. Equal pods share theirs."""
    demands: dict[bytes, SchedulingDemand] = {}
    for pod in pods:
        key = shape_key(pod) + _status_key(pod)
        if key not in demands:
            demands[key] = scheduling_demand(pod, shape(pod, release), release)
        yield demands[key]


def node_info(name: str, allocatable: Amounts, assigned: Iterable[SchedulingDemand]) -> NodeInfo:
    """A node with what it has, in thousandths, and the demands of the pods it runs."""
    counted = _scheduler_amounts(allocatable)
    if PODS_RESOURCE in allocatable:
        counted[PODS_RESOURCE] = whole(allocatable[PODS_RESOURCE])
    requested: Amounts = dict.fromkeys(_BASIC, 0)
    cpu = memory = pods = 0
    for demand in assigned:
        pods += 1
        for resource, amount in demand.charged.items():
            requested[resource] = requested.get(resource, 0) + amount
        cpu += demand.charged_non_zero[CPU]
        memory += demand.charged_non_zero[MEMORY]
    return NodeInfo(name, counted, requested, {CPU: cpu, MEMORY: memory}, pods)


def occupies_node(pod: Pod) -> bool:
    """Whether the scheduler counts a pod that is bound to a node: until it has ended."""
    return pod.status is None or pod.status.phase not in _TERMINAL


def is_scalar_resource(resource: str) -> bool:
    """Resources the scheduler counts by name: extended ones, hugepages, attachable volumes."""
    return (
        is_hugepages(resource)
        or "kubernetes.io/" in resource
        or resource.startswith("attachable-volumes-")
        or is_extended(resource)
    )


_encoder: Final = msgspec.msgpack.Encoder()


def encode_key(parts: object) -> bytes:
    """A key that only equal values share."""
    try:
        return _encoder.encode(parts)
    except OverflowError:  # a number of more than 64 bits
        return repr(parts).encode()


def _status_key(pod: Pod) -> bytes:
    """All of a pod, beside its shape, that decides what it is charged."""
    status = pod.status
    if status is None:
        return b""
    reported = (status.init_container_statuses or ()) + (status.container_statuses or ())
    return encode_key(
        (
            [container.name for container in containers_of(pod)],
            [(each.name, each.resources, each.allocated_resources) for each in reported],
            status.resources,
            status.allocated_resources,
            is_resize_infeasible(pod),
        )
    )


def _storable_amounts(amounts: Amounts) -> Amounts:
    """The same, as far as the scheduler's int64 can add it up: larger amounts count as 0."""
    return {name: storable(amount) for name, amount in _scheduler_amounts(amounts).items()}


def _scheduler_amounts(amounts: Amounts) -> Amounts:
    return {
        name: max(0, amount if name == CPU else whole(amount))
        for name, amount in amounts.items()
        if name in _BASIC or is_scalar_resource(name)
    }
