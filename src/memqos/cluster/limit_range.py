"""Limit ranges, and what they fill into a new pod.

Ranges apply in the order given. The first range that has a default for a resource wins; inside one
range the later item does. Ranges of type PersistentVolumeClaim do not concern pods.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final, Literal

import msgspec

from memqos.kube.aggregate import aggregate_limits, aggregate_requests
from memqos.kube.pod import ObjectMeta, ResourceList
from memqos.kube.quantity import MAX_INT64, Raw, milli_of
from memqos.kube.resources import CPU, MEMORY, POD_LEVEL, Amounts, Resources, whole
from memqos.kube.shape import Part, Shape, amounts_of
from memqos.release import Release

CONTAINER_TYPE: Final = "Container"
POD_TYPE: Final = "Pod"


class LimitRangeItem(msgspec.Struct, frozen=True, rename="camel"):
    """One entry of `spec.limits`."""

    type: str = ""
    min: ResourceList | None = None
    max: ResourceList | None = None
    default: ResourceList | None = None
    default_request: ResourceList | None = None
    max_limit_request_ratio: ResourceList | None = None


class LimitRangeSpec(msgspec.Struct, frozen=True):
    """`spec` of a limit range."""

    limits: tuple[LimitRangeItem, ...] | None = None


class LimitRange(msgspec.Struct, frozen=True):
    """A LimitRange."""

    metadata: ObjectMeta = ObjectMeta()
    spec: LimitRangeSpec = LimitRangeSpec()


class LimitRangeBounds(msgspec.Struct, frozen=True):
    """One entry of a limit range as numbers."""

    type: str
    min: Amounts
    max: Amounts
    ratio: Amounts
    default: Amounts
    default_request: Amounts


class LimitRangeAmounts(msgspec.Struct, frozen=True):
    """A limit range as numbers."""

    name: str
    bounds: tuple[LimitRangeBounds, ...]


def limit_range_amounts(
    limit_range: LimitRange, amount: Callable[[Raw], int] = milli_of
) -> LimitRangeAmounts:
    """A limit range as numbers, as it is written; `amount` converts quantities."""
    return LimitRangeAmounts(
        limit_range.metadata.name or "",
        tuple(
            _bounds(item, f"spec.limits[{index}]", amount)
            for index, item in enumerate(limit_range.spec.limits or ())
        ),
    )


def complete_limit_range(limits: LimitRangeAmounts) -> LimitRangeAmounts:
    """What the API server makes of a new limit range.

    A container's default limit is its max; its default request is the default limit, else min.
    """
    return LimitRangeAmounts(
        limits.name, tuple(_complete_bounds(bounds) for bounds in limits.bounds)
    )


def apply_limit_ranges(
    shape: Shape,
    ranges: Iterable[LimitRangeAmounts],
    release: Release,
    *,
    pod_defaults: bool = False,
) -> Shape:
    """A pod with the defaults of limit ranges filled in, into init containers too.

    `pod_defaults` turns on what KEP-2837 proposes and no release does: default and defaultRequest
    of type Pod, for the pod level.
    """
    for limits in ranges:
        shape = _with_container_defaults(shape, _defaults(limits, CONTAINER_TYPE))
        if pod_defaults and release.is_enabled("PodLevelResources"):
            shape = _with_pod_defaults(shape, _defaults(limits, POD_TYPE), release)
    return shape


def _bounds(item: LimitRangeItem, field: str, amount: Callable[[Raw], int]) -> LimitRangeBounds:
    return LimitRangeBounds(
        item.type,
        min=amounts_of(item.min, f"{field}.min", amount),
        max=amounts_of(item.max, f"{field}.max", amount),
        ratio=amounts_of(item.max_limit_request_ratio, f"{field}.maxLimitRequestRatio", amount),
        default=amounts_of(item.default, f"{field}.default", amount),
        default_request=amounts_of(item.default_request, f"{field}.defaultRequest", amount),
    )


def _complete_bounds(bounds: LimitRangeBounds) -> LimitRangeBounds:
    if bounds.type != CONTAINER_TYPE:
        return bounds
    default = {**bounds.max, **bounds.default}
    return msgspec.structs.replace(
        bounds,
        default=default,
        default_request={**bounds.min, **default, **bounds.default_request},
    )


def _defaults(limits: LimitRangeAmounts, type: str) -> Resources:
    requests: Amounts = {}
    default_limits: Amounts = {}
    for bounds in limits.bounds:
        if bounds.type == type:
            requests |= bounds.default_request
            default_limits |= bounds.default
    return Resources(requests, default_limits)


def _with_container_defaults(shape: Shape, defaults: Resources) -> Shape:
    def fill(part: Part) -> Part:
        return Part(
            part.role, {**defaults.requests, **part.requests}, {**defaults.limits, **part.limits}
        )

    return msgspec.structs.replace(
        shape,
        containers=tuple(map(fill, shape.containers)),
        init_containers=tuple(map(fill, shape.init_containers)),
    )


def _with_pod_defaults(shape: Shape, defaults: Resources, release: Release) -> Shape:
    supported = POD_LEVEL.at(release.minor)
    requests = {name: value for name, value in defaults.requests.items() if supported(name)}
    limits = {name: value for name, value in defaults.limits.items() if supported(name)}
    if not requests and not limits:
        return shape
    if shape.pod is not None:
        requests |= shape.pod.requests
        limits |= shape.pod.limits
    return msgspec.structs.replace(shape, pod=Resources(requests, limits))


LimitRangeConstraint = Literal["min", "max", "ratio"]
ConstrainedValue = Literal["request", "limit", "ratio"]

_CHECKED_AT_POD_LEVEL: Final = frozenset({CPU, MEMORY})
"""The LimitRanger plugin has its own list of pod-level resources, without the hugepages that
component-helpers has (limitranger/admission.go, supportedPodLevelResources)."""
_LARGEST_IN_THOUSANDTHS: Final = MAX_INT64 // 1000


class LimitRangeViolation(msgspec.Struct, frozen=True, kw_only=True):
    """One violated constraint: by what, and by how much.

    `value` and `allowed` are in the unit of the shape, or thousandths of a ratio; `value` is None
    where the value is missing, or is a zero that no ratio can be taken of.
    """

    range: str
    where: str
    type: str
    resource: str
    constraint: LimitRangeConstraint
    which: ConstrainedValue
    value: float | None
    allowed: int


class LimitRangeDenial(msgspec.Struct, frozen=True):
    """The first limit range that refuses a pod, by its place in the order, and all it refuses."""

    index: int
    violations: tuple[LimitRangeViolation, ...]


def limit_range_denial(
    shape: Shape, ranges: Sequence[LimitRangeAmounts], release: Release, *, unit: int = 1
) -> LimitRangeDenial | None:
    """Which limit range refuses a pod, and why; None where all admit it.

    Amounts of shape and ranges are parts of a thousandth, of which `unit` make one.
    """
    for index, limits in enumerate(ranges):
        found = tuple(limit_range_violations(shape, limits, release, unit=unit))
        if found:
            return LimitRangeDenial(index, found)
    return None


def limit_range_violations(
    shape: Shape, limits: LimitRangeAmounts, release: Release, *, unit: int = 1
) -> Iterator[LimitRangeViolation]:
    """Everything one limit range refuses about a pod."""
    for bounds in limits.bounds:
        if bounds.type == CONTAINER_TYPE:
            for where, part in _container_fields(shape):
                yield from _check_bounds(limits.name, where, bounds, part, unit)
        elif bounds.type == POD_TYPE:
            yield from _check_bounds(limits.name, "spec", bounds, pod_totals(shape, release), unit)


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
    name: str, where: str, bounds: LimitRangeBounds, resources: Part | Resources, unit: int
) -> Iterator[LimitRangeViolation]:
    # requestLimitEnforcedValues(), limitranger/admission.go, compares Quantity.MilliValue(): what
    # is finer than a thousandth is rounded up after sums are taken.
    amounts = {"request": resources.requests, "limit": resources.limits}
    requests, limits = (
        {name: whole(amount, unit) for name, amount in side.items()} for side in amounts.values()
    )
    checks: tuple[tuple[LimitRangeConstraint, Amounts], ...] = (
        ("min", bounds.min),
        ("max", bounds.max),
        ("ratio", bounds.ratio),
    )
    for constraint, enforced in checks:
        for resource, allowed in enforced.items():
            fault = _BOUND_CHECKS[constraint](
                requests.get(resource), limits.get(resource), whole(allowed, unit)
            )
            if fault is not None:
                which, value = fault
                if value is not None and which != "ratio":
                    value = amounts[which][resource]
                yield LimitRangeViolation(
                    range=name,
                    where=where,
                    type=bounds.type,
                    resource=resource,
                    constraint=constraint,
                    which=which,
                    value=value,
                    allowed=allowed,
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
        # Quantity.Value() clamps at 2^63−1, so Kubernetes compares clamped numbers; this is exact.
        times = limit * 1000 // request
        return ("ratio", times) if limit * 1000 > allowed * request else None
    # In double precision, as limitRequestRatioConstraint() compares (limitranger/admission.go).
    ratio = float(comparable_limit) / float(comparable_request)
    if whole(allowed) > _LARGEST_IN_THOUSANDTHS:
        exceeded = ratio > float(whole(allowed))
    else:
        exceeded = ratio * 1000 > float(allowed)
    return ("ratio", ratio * 1000) if exceeded else None


_BOUND_CHECKS: Final = {"min": _min_fault, "max": _max_fault, "ratio": _ratio_fault}


def _comparable(request: int, limit: int, enforced: int) -> tuple[int, int, int]:
    """Thousandths, unless one of them is too large for that: then all in whole units."""
    # requestLimitEnforcedValues(), limitranger/admission.go: MilliValue() only up to MaxMilliValue.
    wholes = whole(request), whole(limit), whole(enforced)
    return wholes if max(wholes) > _LARGEST_IN_THOUSANDTHS else (request, limit, enforced)
