"""What limit ranges refuse about a pod: a min, a max or a limit-to-request ratio not kept."""

from collections.abc import Iterator, Sequence
from typing import Final, Literal

import msgspec

from memqos.cluster.limitrange import CONTAINER_TYPE, POD_TYPE, LimitRangeAmounts, LimitRangeBounds
from memqos.kube.aggregate import aggregate_limits, aggregate_requests
from memqos.kube.quantity import MAX_INT64
from memqos.kube.resources import CPU, MEMORY, Amounts, Resources, whole
from memqos.kube.shape import Part, Shape
from memqos.release import Release

LimitRangeConstraint = Literal["min", "max", "ratio"]
ConstrainedValue = Literal["request", "limit", "ratio"]

_CHECKED_AT_POD_LEVEL: Final = frozenset({CPU, MEMORY})
"""Unlike everywhere else, hugepages of the pod level do not count here."""
_LARGEST_IN_THOUSANDTHS: Final = MAX_INT64 // 1000


class LimitRangeViolation(msgspec.Struct, frozen=True):
    """One constraint that is not kept: by what, and by how much.

    `asked` and `allowed` are thousandths, of the resource or of the ratio; `asked` is None where
    the value is missing, or is a zero that no ratio can be taken of.
    """

    range: str
    where: str
    type: str
    resource: str
    constraint: LimitRangeConstraint
    which: ConstrainedValue
    asked: float | None
    allowed: int


class LimitRangeDenial(msgspec.Struct, frozen=True):
    """The first limit range that refuses a pod, by its place in the order, and all it refuses."""

    index: int
    violations: tuple[LimitRangeViolation, ...]


def limit_range_denial(
    shape: Shape, ranges: Sequence[LimitRangeAmounts], release: Release
) -> LimitRangeDenial | None:
    """Which limit range refuses a pod, and why; None where all admit it."""
    for index, limits in enumerate(ranges):
        found = tuple(limit_range_violations(shape, limits, release))
        if found:
            return LimitRangeDenial(index, found)
    return None


def limit_range_violations(
    shape: Shape, limits: LimitRangeAmounts, release: Release
) -> Iterator[LimitRangeViolation]:
    """Everything one limit range refuses about a pod."""
    for bounds in limits.bounds:
        if bounds.type == CONTAINER_TYPE:
            for where, part in _container_fields(shape):
                yield from _check_bounds(limits.name, where, bounds, part.requests, part.limits)
        elif bounds.type == POD_TYPE:
            whole_pod = pod_totals(shape, release)
            yield from _check_bounds(
                limits.name, "spec", bounds, whole_pod.requests, whole_pod.limits
            )


def pod_totals(shape: Shape, release: Release) -> Resources:
    """What type Pod compares: the containers' sums, or pod-level cpu and memory; no overhead."""
    requests, limits = aggregate_requests(shape), aggregate_limits(shape)
    if shape.pod is not None and release.is_enabled("PodLevelResources"):
        for name in _CHECKED_AT_POD_LEVEL & shape.pod.requests.keys():
            requests[name] = shape.pod.requests[name]
        for name in _CHECKED_AT_POD_LEVEL & shape.pod.limits.keys():
            limits[name] = shape.pod.limits[name]
    return Resources(requests, limits)


def _container_fields(shape: Shape) -> Iterator[tuple[str, Part]]:
    for index, part in enumerate(shape.containers):
        yield f"spec.containers[{index}]", part
    for index, part in enumerate(shape.init_containers):
        yield f"spec.initContainers[{index}]", part


def _check_bounds(
    name: str, where: str, bounds: LimitRangeBounds, requests: Amounts, limits: Amounts
) -> Iterator[LimitRangeViolation]:
    checks: tuple[tuple[LimitRangeConstraint, Amounts], ...] = (
        ("min", bounds.min),
        ("max", bounds.max),
        ("ratio", bounds.ratio),
    )
    for constraint, enforced in checks:
        for resource, allowed in enforced.items():
            fault = _BOUND_CHECKS[constraint](requests.get(resource), limits.get(resource), allowed)
            if fault is not None:
                which, asked = fault
                yield LimitRangeViolation(
                    name, where, bounds.type, resource, constraint, which, asked, allowed
                )


_BoundFault = tuple[ConstrainedValue, float | None]
"""Which value breaks a constraint, and what it is."""


def _min_fault(request: int | None, limit: int | None, allowed: int) -> _BoundFault | None:
    if request is None:
        return "request", None
    comparable_request, comparable_limit, least = _comparable(request, limit or 0, allowed)
    if comparable_request < least:
        return "request", request
    if limit is not None and comparable_limit < least:
        return "limit", limit
    return None


def _max_fault(request: int | None, limit: int | None, allowed: int) -> _BoundFault | None:
    if limit is None:
        return "limit", None
    comparable_request, comparable_limit, most = _comparable(request or 0, limit, allowed)
    if comparable_limit > most:
        return "limit", limit
    if request is not None and comparable_request > most:
        return "request", request
    return None


def _ratio_fault(request: int | None, limit: int | None, allowed: int) -> _BoundFault | None:
    if not request:
        return "request", None
    if not limit:
        return "limit", None
    comparable_request, comparable_limit, _ = _comparable(request, limit, allowed)
    if max(comparable_request, comparable_limit, abs(allowed)) > MAX_INT64:
        # More than Kubernetes can hold, which compares something else then.
        times = limit * 1000 // request
        return ("ratio", times) if limit * 1000 > allowed * request else None
    # Kubernetes compares ratios as floating point numbers, so this does too.
    ratio = float(comparable_limit) / float(comparable_request)
    if whole(allowed) > _LARGEST_IN_THOUSANDTHS:
        exceeded = ratio > float(whole(allowed))
    else:
        exceeded = ratio * 1000 > float(allowed)
    return ("ratio", ratio * 1000) if exceeded else None


_BOUND_CHECKS: Final = {"min": _min_fault, "max": _max_fault, "ratio": _ratio_fault}


def _comparable(request: int, limit: int, enforced: int) -> tuple[int, int, int]:
    """Thousandths, unless one of them is too large for that: then all in whole units."""
    wholes = whole(request), whole(limit), whole(enforced)
    return wholes if max(wholes) > _LARGEST_IN_THOUSANDTHS else (request, limit, enforced)
