"""The objects beside pods that an audit needs: nodes, limit ranges, quotas, and what pods use."""

from collections import Counter
from typing import Final, NamedTuple

import msgspec

from memqos.cluster.limitrange import LimitRange
from memqos.cluster.quota import ResourceQuota
from memqos.errors import InputError
from memqos.kube.node import Node
from memqos.kube.quantity import milli_of, whole
from memqos.kube.resources import MEMORY, storable
from memqos.manifests.dumps.objects import Dumped


class MeasuredUsage(msgspec.Struct, frozen=True):
    """What a pod uses, in bytes: the most of all samples, for each container and for all."""

    total: int
    containers: dict[str, int]
    samples: int = 1


ClusterObject = Node | LimitRange | ResourceQuota


class NumberedObject(NamedTuple):
    """An object that is no pod, by its kind and the number of its block."""

    number: int
    kind: str
    value: ClusterObject | None
    """None where it is of no use."""


class ClusterObjects(NamedTuple):
    """What was read besides pods."""

    nodes: dict[str, Node]
    limit_ranges: list[LimitRange]
    quotas: list[ResourceQuota]
    usage: dict[str, MeasuredUsage]
    skipped_kinds: Counter[str]


def collect_objects(
    numbered: list[NumberedObject], usage: dict[str, MeasuredUsage]
) -> ClusterObjects:
    """What was kept, by whomever, in the order of the dump: of nodes with one name the first."""
    nodes: dict[str, Node] = {}
    found = ClusterObjects(nodes, [], [], usage, Counter())
    for _, kind, each in sorted(numbered, key=lambda one: one.number):
        if isinstance(each, Node):
            nodes.setdefault(each.metadata.name or "?", each)
        elif isinstance(each, LimitRange):
            found.limit_ranges.append(each)
        elif isinstance(each, ResourceQuota):
            found.quotas.append(each)
        else:
            found.skipped_kinds[kind] += 1
    return found


class UsageSample(NamedTuple):
    """What one sample of a pod says: namespace/name, and bytes by container."""

    key: str
    containers: dict[str, int]


def decode_object(
    each: Dumped, raw: bytes | msgspec.Raw, list_kind: str = ""
) -> tuple[str, ClusterObject | UsageSample | None]:
    """An object that is no pod, by its kind; None for one that is of no use here."""
    kind = each.kind or list_kind or _guess_kind(each)
    if kind in _TYPES:
        found = msgspec.json.decode(raw, type=_TYPES[kind])
        if kind == "Node" and not found.metadata.name:
            raise InputError("required, but missing", field="metadata.name")
        return kind, found
    if kind == "PodMetrics":
        return kind, UsageSample(each.key, _container_usage(each))
    if not kind:
        raise InputError("required, but missing", field="kind")
    return kind, None


_TYPES: Final[dict[str, type[ClusterObject]]] = {
    "Node": Node,
    "LimitRange": LimitRange,
    "ResourceQuota": ResourceQuota,
}


def _guess_kind(each: Dumped) -> str:
    """The kind of an item that does not say it, as those of lists from the API itself."""
    if each.is_metrics:
        return "PodMetrics"
    if each.status is not None and each.status.node_info:
        return "Node"
    return ""


def _container_usage(metrics: Dumped) -> dict[str, int]:
    used: dict[str, int] = {}
    for index, container in enumerate(metrics.containers or ()):
        amount = (container.usage or {}).get(MEMORY)
        if amount is not None:
            try:
                used[container.name] = storable(whole(milli_of(amount)))
            except InputError as error:
                field = f"containers[{index}].usage.memory"
                raise InputError(error.what, field=field, hint=error.hint) from None
    return used
