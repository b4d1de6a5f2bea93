"""The order in which the kubelet evicts pods when memory runs short.

Pods without statistics come first, then pods that use more than they request, then those of lower
priority, then those that use the most above their request. The QoS class is no key.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Final, Literal, NamedTuple

import msgspec

from memqos.kube.aggregate import aggregate_requests, has_pod_level
from memqos.kube.pod import Container, Pod, QosClass
from memqos.kube.quantity import milli_of, whole
from memqos.kube.resources import MEMORY
from memqos.kube.shape import Shape, is_critical, shape_of
from memqos.release import Release, Since

EvictionKey = Literal["no stats", "over request", "priority", "excess", "input order"]
EVICTION_KEYS: Final[tuple[EvictionKey, ...]] = ("no stats", "over request", "priority", "excess")


class PodMemoryUsage(msgspec.Struct, frozen=True):
    """Working sets in bytes, as the kubelet's summary has them; None where it has no number."""

    working_set: int | None = None
    containers: Mapping[str, int | None] = {}


class RankedPod(msgspec.Struct, frozen=True):
    """One pod in the order of eviction; `usage` is None where there are no statistics of it."""

    pod: Pod
    priority: int
    critical: bool
    """Ranked, but never evicted."""
    request: int
    """Thousandths of a byte."""
    usage: int | None
    ahead_by: EvictionKey | None = None
    """What puts it ahead of the next pod; None for the last."""

    @property
    def excess(self) -> int | None:
        """Bytes used above the request; negative below the request."""
        return None if self.usage is None else whole(self.usage * 1000 - self.request)

    @property
    def over_request(self) -> bool | None:
        return None if self.usage is None else self.usage * 1000 > self.request


def eviction_order(
    pods: Iterable[tuple[Pod, PodMemoryUsage | None]], release: Release
) -> list[RankedPod]:
    """All pods, the first to be evicted first; pods with equal keys keep their order."""
    order = sorted([_rank(pod, usage, release) for pod, usage in pods], key=_sort_key)
    return [
        msgspec.structs.replace(this, ahead_by=_first_difference(this, following))
        for this, following in pairwise(order)
    ] + order[-1:]


def first_evictable(order: Iterable[RankedPod]) -> RankedPod | None:
    """The first pod that may be evicted at all."""
    return next((ranked for ranked in order if not ranked.critical), None)


def resource_request(shape: Shape, name: str, release: Release) -> int:
    """What ranking and preemption take for the pod's request of a resource, in thousandths.

    Overhead counts only on top of a request.
    """
    request = _REQUEST.at(release.minor)(shape, name, release)
    return request + shape.overhead.get(name, 0) if request else 0


def memory_request(shape: Shape, release: Release) -> int:
    """The same for memory, in thousandths of a byte."""
    return resource_request(shape, MEMORY, release)


def _container_request(shape: Shape, name: str, release: Release) -> int:
    """Sidecars count as init containers did: by the largest, not by their sum."""
    regular = sum([part.requests.get(name, 0) for part in shape.containers])
    return max([regular, *[part.requests.get(name, 0) for part in shape.init_containers]])


def _pod_level_request(shape: Shape, name: str, release: Release) -> int:
    """A pod-level request counts even with the gate off; the gate only discards the containers'."""
    if shape.pod is not None:
        if name in shape.pod.requests:
            return shape.pod.requests[name]
        if release.is_enabled("PodLevelResources") and has_pod_level(shape, release):
            return 0
    return aggregate_requests(shape).get(name, 0)


# GetResourceRequestQuantity(), pkg/api/v1/resource/helpers.go: since 1.34 with pod-level requests.
_REQUEST: Final[Since[Callable[[Shape, str, Release], int]]] = Since(
    {22: _container_request, 34: _pod_level_request}
)


def _rank(pod: Pod, usage: PodMemoryUsage | None, release: Release) -> RankedPod:
    return RankedPod(
        pod=pod,
        priority=pod.spec.priority or 0,
        critical=is_critical(pod),
        request=memory_request(shape_of(pod, release), release),
        usage=None if usage is None else usage.working_set or 0,
    )


def _sort_key(ranked: RankedPod) -> tuple[bool, bool, int, int]:
    """One number for each of EVICTION_KEYS, smaller goes first."""
    if ranked.usage is None:
        return False, False, ranked.priority, 0
    above = ranked.usage * 1000 - ranked.request
    return True, above <= 0, ranked.priority, -above


def _first_difference(this: RankedPod, following: RankedPod) -> EvictionKey:
    pairs = zip(EVICTION_KEYS, _sort_key(this), _sort_key(following), strict=True)
    return next((key for key, one, other in pairs if one != other), "input order")


DOCUMENTED_CLASS_ORDER: Final[Mapping[QosClass, int]] = {
    "BestEffort": 0,
    "Burstable": 1,
    "Guaranteed": 2,
}
"""The order of eviction by class, as documented."""


class FreedMemory(NamedTuple):
    """One place in the order: what evicting up to it frees, in bytes."""

    ranked: RankedPod
    frees: int
    """Its usage; 0 where the pod is never evicted or its usage is unknown."""
    freed: int
    """With all before it."""


class QosInversion(NamedTuple):
    """A pod evicted before one of a class that is documented to go first, and the deciding key."""

    first: RankedPod
    then: RankedPod
    because: EvictionKey


def memory_freed(order: Sequence[RankedPod]) -> Iterator[FreedMemory]:
    """Every place of the order."""
    freed = 0
    for ranked in order:
        frees = 0 if ranked.critical else ranked.usage or 0
        freed += frees
        yield FreedMemory(ranked, frees, freed)


def evictions_needed(order: Sequence[RankedPod], need: int) -> int | None:
    """How many pods are evicted until so much is free; None where all of them are not enough."""
    evicted = 0
    for relief in memory_freed(order):
        evicted += not relief.ranked.critical
        if relief.freed >= need and not relief.ranked.critical:
            return evicted
    return None


def qos_inversions(
    order: Sequence[RankedPod], classes: Sequence[QosClass]
) -> Iterator[QosInversion]:
    """Each pod with the next one after it whose class is documented to go first."""
    for index, first in enumerate(order):
        if first.critical:
            continue
        because: EvictionKey = "input order"
        for behind in range(index + 1, len(order)):
            because = _stronger_key(because, order[behind - 1].ahead_by)
            then = order[behind]
            is_lower = (
                DOCUMENTED_CLASS_ORDER[classes[behind]] < DOCUMENTED_CLASS_ORDER[classes[index]]
            )
            if is_lower and not then.critical:
                yield QosInversion(first, then, because)
                break


def _stronger_key(one: EvictionKey, other: EvictionKey | None) -> EvictionKey:
    """Of the keys in which neighbours differ, the first in rank decides between the outermost."""
    ranks = (*EVICTION_KEYS, "input order")
    return min(one, other or "input order", key=ranks.index)


class OffendingUsage(NamedTuple):
    """What the event about an evicted pod names: usage above requests, in bytes."""

    containers: list[tuple[str, int]]
    pod: int | None
    """The pod's usage, where it has a pod-level request."""


def offending_usage(
    pod: Pod, usage: PodMemoryUsage | None, release: Release
) -> OffendingUsage | None:
    """None where there are no statistics."""
    if usage is None:
        return None
    requests = {
        container.name: _memory_request(container)
        for container in _OFFENDING_CONTAINERS.at(release.minor)(pod)
    }
    over = [
        (name, used)
        for name, used in usage.containers.items()
        if used is not None and name in requests and used * 1000 > requests[name]
    ]
    return OffendingUsage(over, _OFFENDING_POD.at(release.minor)(pod, usage, release))


def _memory_request(container: Container) -> int:
    resources = container.resources
    return milli_of(((resources and resources.requests) or {}).get(MEMORY))


def _regular(pod: Pod) -> Iterable[Container]:
    return pod.spec.containers or ()


def _regular_and_init(pod: Pod) -> Iterable[Container]:
    return (pod.spec.containers or ()) + (pod.spec.init_containers or ())


# evictionMessage(), kubelet eviction/helpers.go: never ephemeral containers, which have no
# requests and would always be over them.
_OFFENDING_CONTAINERS: Final[Since[Callable[[Pod], Iterable[Container]]]] = Since(
    {22: _regular, 32: _regular_and_init}
)


def _no_pod_usage(pod: Pod, usage: PodMemoryUsage, release: Release) -> int | None:
    return None


def _with_pod_level_request(pod: Pod, usage: PodMemoryUsage, release: Release) -> int | None:
    resources = pod.spec.resources
    if resources is None or not release.is_enabled("PodLevelResources"):
        return None
    # Without memory statistics of the pod itself its containers alone are named.
    return usage.working_set if MEMORY in (resources.requests or {}) else None


# evictionMessage(), kubelet eviction/helpers.go: pod-level requests since 1.34.
_OFFENDING_POD: Final[Since[Callable[[Pod, PodMemoryUsage, Release], int | None]]] = Since(
    {22: _no_pod_usage, 34: _with_pod_level_request}
)
