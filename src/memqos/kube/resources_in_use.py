"""The resources a pod uses on its node: a pending resize does not count yet."""

from collections.abc import Iterable

import msgspec

from memqos.kube.pod import Container, ContainerStatus, Pod, ResourceRequirements

_TERMINAL = frozenset({"Succeeded", "Failed"})


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
