"""Whom the kubelet names in the event about a pod it evicted for memory."""

from collections.abc import Callable, Iterable
from typing import Final, NamedTuple

from memqos.cluster.eviction_rank import PodMemoryUsage
from memqos.kube.pod import Container, Pod
from memqos.kube.quantity import milli_of
from memqos.kube.resources import MEMORY
from memqos.release import Release, Since


class OffendingUsage(NamedTuple):
    """What the event about an evicted pod names: who used more than requested, in bytes."""

    containers: list[tuple[str, int]]
    pod: int | None
    """The pod's usage, where it has a pod-level request."""


def offending_usage(
    pod: Pod, usage: PodMemoryUsage | None, release: Release
) -> OffendingUsage | None:
    """None where there are no statistics to blame anyone by."""
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


_OFFENDING_CONTAINERS: Final[Since[Callable[[Pod], Iterable[Container]]]] = Since(
    {22: _regular, 32: _regular_and_init}
)


def _no_pod_usage(pod: Pod, usage: PodMemoryUsage, release: Release) -> int | None:
    return None


def _with_pod_level_request(pod: Pod, usage: PodMemoryUsage, release: Release) -> int | None:
    resources = pod.spec.resources
    if resources is None or not release.is_enabled("PodLevelResources"):
        return None
    return usage.working_set or 0 if MEMORY in (resources.requests or {}) else None


_OFFENDING_POD: Final[Since[Callable[[Pod, PodMemoryUsage, Release], int | None]]] = Since(
    {22: _no_pod_usage, 34: _with_pod_level_request}
)
