"""What pods use, out of any of three documents.

- PodMetrics or a PodMetricsList, as the metrics API has them, or a List of them, as `kubectl get
  podmetrics` prints them: the containers' working sets, summed.
- The kubelet's /stats/summary: the very numbers the kubelet ranks by, and the node's.
- A mapping of pods, `namespace/name`, to a quantity or to a mapping of containers to quantities.
"""

from typing import Any, Final

import msgspec

from memqos.cluster.eviction_order import PodMemoryUsage
from memqos.cluster.eviction_signals import SignalObservation
from memqos.errors import InputError
from memqos.kube.kubelet.thresholds import ALLOCATABLE_MEMORY, MEMORY_AVAILABLE
from memqos.kube.quantity import Quantity, Raw
from memqos.manifests.documents import Document, decoding_error, unlike
from memqos.manifests.objects import objects
from memqos.manifests.positions import FieldPath

METRICS_KIND: Final = "PodMetrics"
METRICS_KINDS: Final = frozenset({METRICS_KIND, "PodMetricsList", "List"})
_ALL_PODS: Final = "pods"


class UsageReport(msgspec.Struct, frozen=True):
    """Usage by `namespace/name`, and what was observed of the node, by signal."""

    pods: dict[str, PodMemoryUsage]
    observations: dict[str, SignalObservation] = {}
    summed: bool = False
    """Whether pods are sums over containers: the kubelet counts their sandboxes too."""


def read_usage_report(document: Document) -> UsageReport:
    """Read a document of any of the three forms."""
    data = document.data
    if document.kind in METRICS_KINDS:
        return _metrics(document)
    if document.kind:
        raise document.error(*_no_usage(document.kind))
    if isinstance(data.get("node"), dict) and isinstance(data.get("pods"), list):
        return _summary(document)
    return _mapping(document)


class _Ref(msgspec.Struct, frozen=True):
    name: str = ""
    namespace: str | None = None

    @property
    def key(self) -> str:
        return f"{self.namespace or 'default'}/{self.name}"


class _Usage(msgspec.Struct, frozen=True):
    memory: Raw = None


class _ContainerMetrics(msgspec.Struct, frozen=True):
    name: str = ""
    usage: _Usage = _Usage()


class _PodMetrics(msgspec.Struct, frozen=True):
    metadata: _Ref
    containers: tuple[_ContainerMetrics, ...] | None = None


def _no_usage(kind: str) -> tuple[str, str, str]:
    """What is wrong with an object of a kind, in which field, and what to give instead."""
    hint = "give a PodMetricsList, a kubelet's /stats/summary, or a mapping of pods to quantities"
    return f"a {kind or 'nameless kind'} has no usage of pods", "kind", hint


def _metrics(document: Document) -> UsageReport:
    pods: dict[str, PodMemoryUsage] = {}
    for item in objects(document):
        if isinstance(item, InputError):
            raise item
        if item.kind != METRICS_KIND:
            raise item.error(*_no_usage(item.kind))
        metrics = item.decode(_PodMetrics)
        containers: dict[str, int | None] = {}
        for index, container in enumerate(metrics.containers or ()):
            field = (*item.path, "containers", index, "usage", "memory")
            containers[container.name] = _bytes(container.usage.memory, document, field)
        pods[metrics.metadata.key] = _sum_containers(containers)
    return UsageReport(pods, summed=True)


class _Memory(msgspec.Struct, frozen=True, rename="camel"):
    available_bytes: int | None = None
    working_set_bytes: int | None = None


class _ContainerStats(msgspec.Struct, frozen=True):
    name: str = ""
    memory: _Memory | None = None


class _NodeStats(msgspec.Struct, frozen=True, rename="camel"):
    memory: _Memory | None = None
    system_containers: tuple[_ContainerStats, ...] | None = None


class _PodStats(msgspec.Struct, frozen=True, rename="camel"):
    pod_ref: _Ref
    memory: _Memory | None = None
    containers: tuple[_ContainerStats, ...] | None = None


class _Summary(msgspec.Struct, frozen=True):
    node: _NodeStats
    pods: tuple[_PodStats, ...]


def _summary(document: Document) -> UsageReport:
    try:
        summary = msgspec.convert(document.data, _Summary)
    except msgspec.ValidationError as error:
        raise decoding_error(error, document.data, document) from None
    pods = {
        stats.pod_ref.key: PodMemoryUsage(
            _working_set(stats.memory),
            {each.name: _working_set(each.memory) for each in stats.containers or ()},
        )
        for stats in summary.pods
    }
    observations = {MEMORY_AVAILABLE: _observation(summary.node.memory)}
    for container in summary.node.system_containers or ():
        if container.name == _ALL_PODS:
            observations[ALLOCATABLE_MEMORY] = _observation(container.memory)
    return UsageReport(
        pods, {signal: each for signal, each in observations.items() if each is not None}
    )


def _observation(memory: _Memory | None) -> SignalObservation | None:
    if memory is None or memory.available_bytes is None or memory.working_set_bytes is None:
        return None
    return SignalObservation(
        memory.available_bytes, memory.available_bytes + memory.working_set_bytes
    )


def _working_set(memory: _Memory | None) -> int | None:
    return None if memory is None else memory.working_set_bytes


def _mapping(document: Document) -> UsageReport:
    pods: dict[str, PodMemoryUsage] = {}
    summed = False
    for name, value in document.data.items():
        key = name if "/" in name else f"default/{name}"
        if isinstance(value, dict):
            summed = True
            pods[key] = _sum_containers(
                {part: _bytes(raw, document, (name, part)) for part, raw in value.items()}
            )
        elif value is not None:
            pods[key] = PodMemoryUsage(_bytes(value, document, (name,)))
    return UsageReport(pods, summed=summed)


def _sum_containers(containers: dict[str, int | None]) -> PodMemoryUsage:
    return PodMemoryUsage(sum([used or 0 for used in containers.values()]), containers)


def _bytes(raw: Any, document: Document, field: FieldPath) -> int | None:
    if raw is None:
        return None
    if not isinstance(raw, str | int | float) or isinstance(raw, bool):
        raise document.error(unlike(raw, str)[0], field, "write a quantity, such as 512Mi")
    try:
        return Quantity.parse(raw).value
    except InputError as error:
        raise document.error(error.what, field, error.hint) from None
