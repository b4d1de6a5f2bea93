"""What limits a pod holds while it may be resized: the most of those asked for and the actual ones.

Only what containers report counts, not what is reported for the pod as a whole.
"""

from collections.abc import Callable, Iterator
from typing import Final

import msgspec

from memqos.cluster.held import is_resize_infeasible
from memqos.kube.aggregate import aggregate_limits, pod_limits
from memqos.kube.pod import ContainerStatus, Pod
from memqos.kube.resources import Amounts
from memqos.kube.shape import Part, Shape, amounts_of
from memqos.release import Release, Since


def limit_charge(pod: Pod, shape: Shape, release: Release) -> Amounts:
    """Limits a pod is charged with, pod-level values and overhead included."""
    if pod.status is None or not release.is_enabled("InPlacePodVerticalScaling"):
        return pod_limits(shape, release)
    of_containers: Amounts = {}
    for view in _LIMIT_VIEWS.at(release.minor)(pod, shape):
        of_containers = _max_limits(of_containers, aggregate_limits(view))
    return pod_limits(shape, release, of_containers=of_containers)


def _spec_limits(pod: Pod, shape: Shape) -> Iterator[Shape]:
    """Before 1.33 resizing in place was alpha: the spec counts."""
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
        if status is not None and status.resources and status.resources.limits is not None:
            return amounts_of(status.resources.limits, f"status of {status.name}: limits")
        return {} if infeasible else part.limits

    yield _with_limits(pod, shape, actual_limits)
    if not infeasible:
        yield shape


_LIMIT_VIEWS: Final[Since[Callable[[Pod, Shape], Iterator[Shape]]]] = Since(
    {22: _spec_limits, 33: _limits_by_container, 37: _limits_by_sum}
)
"""The shapes whose sums compete: the most of them is in force."""


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
