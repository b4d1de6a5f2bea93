"""Limit ranges, and what they fill into a new pod.

Ranges apply in the order given. The first range that has a default for a resource wins; inside one
range the later item does. Ranges of type PersistentVolumeClaim say nothing about pods.
"""

from collections.abc import Iterable
from typing import Final

import msgspec

from memqos.kube.defaulting import decoding_defaults, prepare_for_storage
from memqos.kube.pod import ObjectMeta, Pod, ResourceList
from memqos.kube.resources import POD_LEVEL, Amounts, Resources
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


def limit_range_amounts(limit_range: LimitRange) -> LimitRangeAmounts:
    """A limit range as numbers, as it is written."""
    return LimitRangeAmounts(
        limit_range.metadata.name or "",
        tuple(
            _bounds(item, f"spec.limits[{index}]")
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


def default_new_pod(
    pod: Pod, ranges: Iterable[LimitRangeAmounts], release: Release, *, pod_defaults: bool = False
) -> Shape:
    """The shape of a newly created pod after all defaulting, that of limit ranges included."""
    changed = apply_limit_ranges(
        decoding_defaults(pod, release), ranges, release, pod_defaults=pod_defaults
    )
    return prepare_for_storage(changed, release)


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


def _bounds(item: LimitRangeItem, field: str) -> LimitRangeBounds:
    return LimitRangeBounds(
        item.type,
        min=amounts_of(item.min, f"{field}.min"),
        max=amounts_of(item.max, f"{field}.max"),
        ratio=amounts_of(item.max_limit_request_ratio, f"{field}.maxLimitRequestRatio"),
        default=amounts_of(item.default, f"{field}.default"),
        default_request=amounts_of(item.default_request, f"{field}.defaultRequest"),
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
