"""What a pod is charged while it may be resized: the maximum of specified, allocated and actual.

A container's status has what the kubelet allocated (`allocatedResources`) and what it runs with
(`resources`); an infeasible resize does not count as specified. An empty list in a status is the
same as a missing one: the API server stores neither.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import Final

import msgspec

from memqos.kube.aggregate import (
    aggregate_limits,
    aggregate_requests,
    has_pod_level_requests,
    pod_limits,
)
from memqos.kube.pod import ContainerStatus, Pod
from memqos.kube.resources import POD_LEVEL, Amounts
from memqos.kube.shape import Part, Shape, amounts_of, containers_of
from memqos.release import Release, Since

NO_DEFAULTS: Final[Amounts] = {}


def request_charge(
    pod: Pod, shape: Shape, release: Release, defaults: Amounts = NO_DEFAULTS
) -> Amounts:
    """Requests a pod is charged with; a container without a value counts its default."""
    if pod.status is None or not release.is_enabled("InPlacePodVerticalScaling"):
        result = _with_claims(requests_with_defaults(shape, defaults), shape)
    else:
        result = _CONTAINER_REQUESTS.at(release.minor)(pod, shape, release, defaults)
    if release.is_enabled("PodLevelResources") and has_pod_level_requests(shape, release):
        result |= _pod_level_requests(pod, shape, release)
    for name, amount in shape.overhead.items():
        result[name] = result.get(name, 0) + amount
    return result


def requests_with_defaults(shape: Shape, defaults: Amounts) -> Amounts:
    """What the containers request together, each counting the default where it has none."""
    return _aggregate(shape, [part.requests for part in _parts(shape)], defaults)


def _with_claims(requests: Amounts, shape: Shape) -> Amounts:
    for name, amount in shape.claimed.items():
        requests[name] = requests.get(name, 0) + amount
    return requests


def is_resize_infeasible(pod: Pod) -> bool:
    """Whether the kubelet has reported the requested resize as infeasible."""
    for condition in (pod.status and pod.status.conditions) or ():
        if condition.type == "PodResizePending":
            return condition.reason == "Infeasible"
    return False


def _spec_requests(pod: Pod, shape: Shape, release: Release, defaults: Amounts) -> Amounts:
    """Before 1.33 in-place resize was alpha: the spec counts."""
    return requests_with_defaults(shape, defaults)


def _requests_by_container(pod: Pod, shape: Shape, release: Release, defaults: Amounts) -> Amounts:
    infeasible = is_resize_infeasible(pod)
    requests = []
    for part, status in _with_status(pod, shape):
        if status is None or status.resources is None or part.role == "init":
            requests.append(part.requests)
        else:
            specified = {} if infeasible else part.requests
            requests.append(_max_amounts(specified, _actual_requests(status), _allocation(status)))
    return _aggregate(shape, requests, defaults)


def _requests_by_sum(pod: Pod, shape: Shape, release: Release, defaults: Amounts) -> Amounts:
    infeasible = is_resize_infeasible(pod)
    specified = {} if infeasible else _with_claims(requests_with_defaults(shape, defaults), shape)
    if release.is_enabled("InPlacePodLevelResourcesVerticalScaling"):
        actual_of_pod, granted_of_pod = _pod_status_requests(pod)
        if actual_of_pod and granted_of_pod:
            return _max_amounts(specified, actual_of_pod, granted_of_pod)
    granted, actual = [], []
    for part, status in _with_status(pod, shape):
        fallback = {} if infeasible else part.requests
        granted.append((status and _allocation(status)) or fallback)
        actual.append((status and _actual_requests(status)) or granted[-1])
    # What is actual is read from cgroups, and what the pod as a whole reports is the kubelet's sum:
    # both have the claims already. `allocatedResources` of a container has not.
    return _max_amounts(
        specified,
        _aggregate(shape, actual, defaults),
        _with_claims(_aggregate(shape, granted, defaults), shape),
    )


# component-helpers resource/helpers.go, AggregateContainerRequests(): since 1.33 the maximum of
# spec, allocated and actual is taken container by container, since 1.37 of the three sums.
_CONTAINER_REQUESTS: Final[Since[Callable[[Pod, Shape, Release, Amounts], Amounts]]] = Since(
    {22: _spec_requests, 33: _requests_by_container, 37: _requests_by_sum}
)


def _pod_level_requests(pod: Pod, shape: Shape, release: Release) -> Amounts:
    """The pod-level values that replace the containers' sum."""
    assert shape.pod is not None
    requests = shape.pod.requests
    if (
        release.is_enabled("InPlacePodLevelResourcesVerticalScaling")
        and pod.status is not None
        and pod.status.resources is not None
    ):
        specified = {} if is_resize_infeasible(pod) else requests
        requests = _POD_STATUS_REQUESTS.at(release.minor)(
            requests, _max_amounts(specified, *_pod_status_requests(pod))
        )
    supported = POD_LEVEL.at(release.minor)
    return {name: amount for name, amount in requests.items() if supported(name)}


def _of_spec_resources(specified: Amounts, most: Amounts) -> Amounts:
    return {name: most.get(name, 0) for name in specified}


def _of_status_resources(specified: Amounts, most: Amounts) -> Amounts:
    return most


# PodRequests(): until 1.36 only resources that the spec names are taken from the pod-level status,
# since 1.37 all that the status names (effectivePodLevelResources).
_POD_STATUS_REQUESTS: Final[Since[Callable[[Amounts, Amounts], Amounts]]] = Since(
    {35: _of_spec_resources, 37: _of_status_resources}
)


def _parts(shape: Shape) -> tuple[Part, ...]:
    return shape.init_containers + shape.containers


def _with_status(pod: Pod, shape: Shape) -> Iterable[tuple[Part, ContainerStatus | None]]:
    assert pod.status is not None
    reported = (pod.status.init_container_statuses or ()) + (pod.status.container_statuses or ())
    by_name = {status.name: status for status in reported}
    # Ephemeral containers come last in both and cannot request anything.
    pairs = zip(_parts(shape), containers_of(pod), strict=False)
    return [(part, by_name.get(container.name)) for part, container in pairs]


def _actual_requests(status: ContainerStatus) -> Amounts:
    requests = status.resources and status.resources.requests
    return amounts_of(requests, f"status of {status.name}: requests") if requests else {}


def _allocation(status: ContainerStatus) -> Amounts:
    granted = status.allocated_resources
    return amounts_of(granted, f"status of {status.name}: allocatedResources") if granted else {}


def _pod_status_requests(pod: Pod) -> tuple[Amounts, Amounts]:
    """What is reported for the pod as a whole: actual requests, and granted ones."""
    status = pod.status
    if status is None or status.resources is None:
        return {}, {}
    return (
        amounts_of(status.resources.requests, "status.resources.requests"),
        amounts_of(status.allocated_resources, "status.allocatedResources"),
    )


def _aggregate(shape: Shape, requests: list[Amounts], defaults: Amounts) -> Amounts:
    parts = [
        Part(part.role, {**defaults, **amounts}, part.limits)
        for part, amounts in zip(_parts(shape), requests, strict=True)
    ]
    init = len(shape.init_containers)
    return aggregate_requests(
        Shape(containers=tuple(parts[init:]), init_containers=tuple(parts[:init]))
    )


def _max_amounts(*lists: Amounts) -> Amounts:
    result: Amounts = {}
    for amounts in lists:
        for name, amount in amounts.items():
            if name not in result or result[name] < amount:
                result[name] = amount
    return result


def limit_charge(pod: Pod, shape: Shape, release: Release) -> Amounts:
    """Limits a pod is charged with, pod-level values and overhead included."""
    if pod.status is None or not release.is_enabled("InPlacePodVerticalScaling"):
        return pod_limits(shape, release)
    of_containers: Amounts = {}
    for view in _LIMIT_VIEWS.at(release.minor)(pod, shape):
        of_containers = _max_limits(of_containers, aggregate_limits(view))
    return pod_limits(shape, release, of_containers=of_containers)


def _spec_limits(pod: Pod, shape: Shape) -> Iterator[Shape]:
    """Before 1.33 in-place resize was alpha: the spec counts."""
    yield shape


def _limits_by_container(pod: Pod, shape: Shape) -> Iterator[Shape]:
    infeasible = is_resize_infeasible(pod)

    def limits_in_use(part: Part, status: ContainerStatus | None) -> Amounts:
        if status is None or status.resources is None or part.role == "init":
            return part.limits
        actual = amounts_of(status.resources.limits, f"status of {status.name}: limits")
        return actual if infeasible else _max_limits(part.limits, actual)

    yield _with_limits(pod, shape, limits_in_use)


def _limits_by_sum(pod: Pod, shape: Shape) -> Iterator[Shape]:
    infeasible = is_resize_infeasible(pod)

    def actual_limits(part: Part, status: ContainerStatus | None) -> Amounts:
        if status is not None and status.resources and status.resources.limits:
            return amounts_of(status.resources.limits, f"status of {status.name}: limits")
        return {} if infeasible else part.limits

    yield _with_limits(pod, shape, actual_limits)
    if not infeasible:
        yield shape


# component-helpers resource/helpers.go, AggregateContainerLimits(): since 1.33 the maximum of spec
# and actual limits is taken container by container, since 1.37 of the two sums.
_LIMIT_VIEWS: Final[Since[Callable[[Pod, Shape], Iterator[Shape]]]] = Since(
    {22: _spec_limits, 33: _limits_by_container, 37: _limits_by_sum}
)
"""The shapes whose sums compete: the largest is charged."""


def _with_limits(
    pod: Pod, shape: Shape, limits: Callable[[Part, ContainerStatus | None], Amounts]
) -> Shape:
    status = pod.status
    assert status is not None
    reported = (status.init_container_statuses or ()) + (status.container_statuses or ())
    statuses = {container.name: container for container in reported}

    def replace_limits(names: list[str], parts: tuple[Part, ...]) -> tuple[Part, ...]:
        return tuple(
            [
                Part(part.role, part.requests, limits(part, statuses.get(name)))
                for name, part in zip(names, parts, strict=True)
            ]
        )

    spec = pod.spec
    return msgspec.structs.replace(
        shape,
        containers=replace_limits([c.name for c in spec.containers or ()], shape.containers),
        init_containers=replace_limits(
            [c.name for c in spec.init_containers or ()], shape.init_containers
        ),
    )


def _max_limits(first: Amounts, second: Amounts) -> Amounts:
    result = dict(first)
    for name, amount in second.items():
        result[name] = max(amount, result.get(name, amount))
    return result
