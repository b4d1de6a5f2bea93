"""The resources a pod uses on its node: a pending resize does not count yet.

A kubelet reports a resize in the status once it has had the runtime update the container.
"""

from collections.abc import Iterable
from typing import Final

import msgspec

from memqos.kube.pod import Container, ContainerStatus, Pod, ResourceRequirements
from memqos.kube.quantity import milli_of
from memqos.kube.shape import containers_of

_TERMINAL = frozenset({"Succeeded", "Failed"})
_MEMORY: Final = "memory"


def is_terminal(pod: Pod) -> bool:
    """Whether the pod has ended: its containers use nothing any more."""
    return pod.status is not None and pod.status.phase in _TERMINAL


def with_resources_in_use(pod: Pod) -> Pod:
    """The pod with the resources of its status in place of those of its spec."""
    spec, status = pod.spec, pod.status
    if status is None:
        return pod
    resources = spec.resources
    # status.resources has the pod's totals whether or not the spec has pod-level resources; only
    # with them do they replace spec.resources.
    if resources is not None:
        resources = _status_resources(resources, status.resources, status.allocated_resources)
    return msgspec.structs.replace(
        pod,
        spec=msgspec.structs.replace(
            spec,
            containers=_each(spec.containers, status.container_statuses),
            init_containers=_each(spec.init_containers, status.init_container_statuses),
            resources=resources,
        ),
    )


def unreported_limits(pod: Pod) -> dict[str, int]:
    """Container → the memory limit that its spec has, and its status does not have yet."""
    pairs = zip(containers_of(pod), containers_of(with_resources_in_use(pod)), strict=True)
    limits = [
        (specified.name, _memory_limit(specified.resources), _memory_limit(in_use.resources))
        for specified, in_use in pairs
    ]
    return {name: limit for name, limit, reported in limits if limit and limit != reported}


def with_limit_in_use(pod: Pod, name: str, limit: int) -> Pod:
    """A pod whose container has another memory limit already, and the requests that go with it."""
    [specified] = [each for each in containers_of(pod) if each.name == name]
    [in_use] = [each for each in containers_of(with_resources_in_use(pod)) if each.name == name]
    resources = (
        specified.resources
        if _memory_limit(specified.resources) == limit
        else _with_limit(in_use.resources, limit)
    )
    replace = msgspec.structs.replace
    spec, status = pod.spec, pod.status

    def resized(containers: tuple[Container, ...] | None) -> tuple[Container, ...] | None:
        return containers and tuple(
            replace(each, resources=resources) if each.name == name else each for each in containers
        )

    def reported(
        statuses: tuple[ContainerStatus, ...] | None,
    ) -> tuple[ContainerStatus, ...] | None:
        return statuses and tuple(
            replace(each, resources=resources) if each.name == name else each for each in statuses
        )

    return replace(
        pod,
        spec=replace(
            spec,
            containers=resized(spec.containers),
            init_containers=resized(spec.init_containers),
        ),
        status=status
        and replace(
            status,
            container_statuses=reported(status.container_statuses),
            init_container_statuses=reported(status.init_container_statuses),
        ),
    )


def is_resized(before: Pod, after: Pod) -> bool:
    """Whether a pod has other resources than before: in its spec, or as its kubelet reports."""
    return any(_resources(a) != _resources(b) for a, b in _views(before, after))


def _views(before: Pod, after: Pod) -> Iterable[tuple[Pod, Pod]]:
    yield before, after
    yield with_resources_in_use(before), with_resources_in_use(after)


def _resources(pod: Pod) -> list[object]:
    spec = pod.spec
    containers = (*(spec.containers or ()), *(spec.init_containers or ()))
    return [spec.resources, *[(each.name, each.resources) for each in containers]]


def _each(
    containers: tuple[Container, ...] | None, statuses: Iterable[ContainerStatus] | None
) -> tuple[Container, ...] | None:
    if not containers or not statuses:
        return containers
    by_name = {status.name: status for status in statuses}
    return tuple(
        msgspec.structs.replace(
            container,
            resources=_status_resources(
                container.resources,
                by_name[container.name].resources,
                by_name[container.name].allocated_resources,
            ),
        )
        if container.name in by_name
        else container
        for container in containers
    )


def _status_resources(
    specified: ResourceRequirements | None,
    actual: ResourceRequirements | None,
    allocated: dict[str, str | int | float | None] | None,
) -> ResourceRequirements | None:
    if actual is not None:
        return actual
    if allocated is not None:
        return ResourceRequirements(allocated, specified.limits if specified is not None else None)
    return specified


def _with_limit(resources: ResourceRequirements | None, limit: int) -> ResourceRequirements:
    resources = resources or ResourceRequirements()
    limits = {**(resources.limits or {}), _MEMORY: limit}
    return msgspec.structs.replace(resources, limits=limits)


def _memory_limit(resources: ResourceRequirements | None) -> int | None:
    found = None if resources is None else (resources.limits or {}).get(_MEMORY)
    return None if found is None else milli_of(found) // 1000
