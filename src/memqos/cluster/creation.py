"""Creating a pod in a namespace, from the manifest to the last admission check.

The API server reads the pod and defaults it, limit ranges fill in what is missing, what is then to
be stored is validated, and limit ranges and quotas are checked last, in this order.
"""

from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Final, Literal

import msgspec

from memqos.cluster.limit_range import (
    LimitRangeAmounts,
    LimitRangeDenial,
    apply_limit_ranges,
    limit_range_denial,
)
from memqos.cluster.quota import Quota, quota_usage
from memqos.cluster.quota_admission import QuotaVerdict, check_quotas
from memqos.kube.defaulting import decoding_defaults, prepare_for_storage
from memqos.kube.pod import Pod, QosClass
from memqos.kube.qos import qos_class
from memqos.kube.resources import Amounts, Resources
from memqos.kube.shape import Part, Shape, containers_of, shape_of, with_shape
from memqos.kube.validation import FieldError, validate
from memqos.release import Release

ResourceSide = Literal["requests", "limits"]
RESOURCE_SIDES: Final[tuple[ResourceSide, ...]] = ("requests", "limits")

LIMIT_RANGE: Final = "limit range"
OWN_LIMIT: Final = "its limit"
POD_LEVEL_COMPLETED: Final = "pod level completed"


class FilledValue(msgspec.Struct, frozen=True):
    """One value the manifest does not have: where it went and what it comes from."""

    container: str | None
    """None for the pod level."""
    side: ResourceSide
    resource: str
    amount: int
    source: str
    """`limit range NAME`, or how the API server itself came to it."""


class Creation(msgspec.Struct, frozen=True, kw_only=True):
    """The outcome for a new pod. Later steps are None where an earlier one stopped it."""

    written: Shape
    stored: Shape
    qos: QosClass
    filled: tuple[FilledValue, ...]
    errors: tuple[FieldError, ...] = ()
    denial: LimitRangeDenial | None = None
    charged: Amounts = {}
    """What it counts as, by the names quotas use."""
    quotas: QuotaVerdict | None = None

    @property
    def admitted(self) -> bool:
        return self.quotas is not None and self.quotas.allowed


def create_pod(
    pod: Pod,
    ranges: Sequence[LimitRangeAmounts],
    quotas: Sequence[Quota],
    release: Release,
    now: datetime,
    *,
    pod_defaults: bool = False,
) -> Creation:
    """Create a pod in a namespace with these limit ranges and quotas.

    `pod_defaults` lets ranges of type Pod have defaults, as KEP-2837 proposes.
    """
    # The API server drops a status that comes with a manifest (podStrategy.PrepareForCreate).
    pod = msgspec.structs.replace(pod, status=None)
    as_written, stored, filled = _shapes_to_store(pod, ranges, release, pod_defaults=pod_defaults)
    outcome = Creation(
        written=as_written, stored=stored, qos=qos_class(stored, release), filled=filled
    )
    errors = tuple(validate(pod, stored, release))
    if errors:
        return msgspec.structs.replace(outcome, errors=errors)
    denied = limit_range_denial(stored, ranges, release)
    if denied is not None:
        return msgspec.structs.replace(outcome, denial=denied)
    to_store = with_shape(pod, stored)
    return msgspec.structs.replace(
        outcome,
        charged=quota_usage(to_store, release, now),
        quotas=check_quotas(to_store, quotas, release, now),
    )


def _shapes_to_store(
    pod: Pod, ranges: Sequence[LimitRangeAmounts], release: Release, *, pod_defaults: bool
) -> tuple[Shape, Shape, tuple[FilledValue, ...]]:
    """The pod as written, as it would be stored, and how the one became the other."""
    names = [container.name for container in containers_of(pod)]
    before = shape_of(pod, release)
    steps = [(OWN_LIMIT, decoding_defaults(pod, release))]
    for limits in ranges:
        changed = apply_limit_ranges(steps[-1][1], [limits], release, pod_defaults=pod_defaults)
        steps.append((f"{LIMIT_RANGE} {limits.name}", changed))
    steps.append((POD_LEVEL_COMPLETED, prepare_for_storage(steps[-1][1], release)))
    filled: list[FilledValue] = []
    shape = before
    for source, after in steps:
        filled += _find_filled(source, names, shape, after)
        shape = after
    return before, shape, tuple(filled)


def _find_filled(
    source: str, names: list[str], before: Shape, after: Shape
) -> Iterator[FilledValue]:
    for name, old, new in zip(names, before.parts, after.parts, strict=True):
        yield from _missing_values(source, name, old, new)
    if after.pod is not None:
        of_pod = POD_LEVEL_COMPLETED if source == OWN_LIMIT else source
        yield from _missing_values(of_pod, None, before.pod or Resources({}, {}), after.pod)


def _missing_values(
    source: str, name: str | None, old: Part | Resources, new: Part | Resources
) -> Iterator[FilledValue]:
    for side in RESOURCE_SIDES:
        had, has = getattr(old, side), getattr(new, side)
        for resource, amount in has.items():
            if resource not in had:
                yield FilledValue(name, side, resource, amount, source)
