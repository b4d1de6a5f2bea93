"""Everything read of a cluster: a row a pod, the specs they share, nodes, quotas, usage."""

from collections import Counter
from typing import Final, NamedTuple

import msgspec

from memqos.audit.deaths import PodDeaths, deaths_of
from memqos.cluster.autoscaling import HorizontalPodAutoscaler
from memqos.cluster.limit_range import LimitRange
from memqos.cluster.quota import ResourceQuota
from memqos.errors import InputError
from memqos.kube.node import Node
from memqos.kube.quantity import milli_of, whole
from memqos.kube.resources import MEMORY, storable
from memqos.manifests.documents import decoding_error, read_documents
from memqos.manifests.dumps.objects import (
    NO_NAMESPACE,
    Dumped,
    container_names,
    encode_abridged,
    likeness,
    object_decoder,
    objects_decoder,
)
from memqos.manifests.dumps.text import DumpedText, DumpForm


class MeasuredUsage(msgspec.Struct, frozen=True):
    """What a pod uses, in bytes: the most of all samples, for each container and for all."""

    total: int
    containers: dict[str, int]
    samples: int = 1


ClusterObject = Node | LimitRange | ResourceQuota | HorizontalPodAutoscaler


class NumberedObject(NamedTuple):
    """An object that is no pod, by its kind and the number of its block."""

    number: int
    kind: str
    value: ClusterObject | None
    """None where an audit does not need it."""


class ClusterObjects(NamedTuple):
    """What was read in addition to pods."""

    nodes: dict[str, Node]
    limit_ranges: list[LimitRange]
    quotas: list[ResourceQuota]
    usage: dict[str, MeasuredUsage]
    skipped_kinds: Counter[str]
    autoscalers: list[HorizontalPodAutoscaler]


def collect_objects(
    numbered: list[NumberedObject], usage: dict[str, MeasuredUsage]
) -> ClusterObjects:
    """All objects but pods, of any process, in the order of the dump: the first node of a name."""
    nodes: dict[str, Node] = {}
    found = ClusterObjects(nodes, [], [], usage, Counter(), [])
    for _, kind, each in sorted(numbered, key=lambda item: item.number):
        if isinstance(each, Node):
            nodes.setdefault(each.metadata.name or "?", each)
        elif isinstance(each, LimitRange):
            found.limit_ranges.append(each)
        elif isinstance(each, ResourceQuota):
            found.quotas.append(each)
        elif isinstance(each, HorizontalPodAutoscaler):
            found.autoscalers.append(each)
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
    """An object that is no pod, by its kind; None for one that an audit does not need."""
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
    "HorizontalPodAutoscaler": HorizontalPodAutoscaler,
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


CRITICAL_FLAG: Final = 1
ENDED_FLAG: Final = 2

BlockPosition = tuple[int, int]
"""The number of a block, and that of an object in it."""


class PodRow(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A pod."""

    namespace: str
    name: str
    workload: str
    """The prefix that the names of its replicas share."""
    node: str
    spec_number: int
    """Pods with equal resources share one; see `Census.spec_texts`."""
    containers: tuple[str, ...]
    priority: int
    flags: int
    deaths: PodDeaths | None = None


class BlockResult(NamedTuple):
    """What a block contained: how many objects, and the UIDs of its pods."""

    objects: int
    uids: list[str | None]
    """An entry an object."""


class Census:
    """All that was read, so far or by one of several processes."""

    def __init__(self) -> None:
        self.rows: dict[BlockPosition, PodRow] = {}
        self.spec_texts: list[bytes] = []
        """By `PodRow.spec_number`: an abridged pod."""
        self.usage: dict[str, MeasuredUsage] = {}
        self.other_objects: list[NumberedObject] = []
        self._spec_numbers: dict[tuple[object, ...], int] = {}
        self._interned: dict[object, object] = {}
        """Each value to itself, so that equal texts are kept once."""

    def discard_from(self, number: int) -> None:
        """Remove what this block and all after it contained, usage excepted."""
        self.rows = {place: row for place, row in self.rows.items() if place[0] < number}
        self.other_objects = [each for each in self.other_objects if each.number < number]

    def read_block(self, number: int, text: memoryview, form: DumpForm) -> BlockResult | None:
        """Read a block the quick way, items as an array; None where it does not decode."""
        decode = object_decoder.decode_lines if form == "lines" else objects_decoder.decode
        try:
            objects = decode(text)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return None
        are_pods = [each.is_pod for each in objects]
        if not all(are_pods):
            others = [index for index, is_pod in enumerate(are_pods) if not is_pod]
            # Nothing may be kept of a block that is read again, object by object.
            decoded = _decode_others(objects, others, text, form)
            if decoded is None:
                return None
            for other in decoded:
                self._add_other(number, *other)
        uids: list[str | None] = []
        for index, (each, is_pod) in enumerate(zip(objects, are_pods, strict=True)):
            if is_pod:
                self._add_pod(number, index, each)
            uids.append(each.metadata.uid if is_pod else None)
        return BlockResult(len(objects), uids)

    def read_object(
        self, place: BlockPosition, found: DumpedText, file: str
    ) -> list[tuple[BlockPosition, str]]:
        """Read one object; raise InputError, with its place, where that cannot be done."""
        try:
            each = object_decoder.decode(found.text)
            if each.is_list:
                return self._read_list(place, each)
            if each.is_pod:
                self._add_pod(*place, each)
                uid = each.metadata.uid
                return [] if uid is None else [(place, uid)]
            self._add_other(place[0], *decode_object(each, found.text, found.kind))
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise _locate_error(error, found, file) from None
        except InputError as error:
            raise InputError(
                error.what,
                file=file,
                line=found.line,
                column=found.column,
                field=error.field,
                hint=error.hint,
            ) from None
        return []

    def _read_list(self, place: BlockPosition, each: Dumped) -> list[tuple[BlockPosition, str]]:
        """A list within a list, or one whose head is unlike others: read whole."""
        assert each.kind is not None
        uids: list[tuple[BlockPosition, str]] = []
        for index, raw in enumerate(_items.decode(each.items or b"null") or ()):
            item = object_decoder.decode(raw)
            # Numbers below 0 do not meet those of the block.
            below = (place[0], -1 - index - (place[1] << 32))
            if item.is_pod:
                self._add_pod(*below, item)
                uids += [] if item.metadata.uid is None else [(below, item.metadata.uid)]
            else:
                self._add_other(place[0], *decode_object(item, raw, each.kind.removesuffix("List")))
        return uids

    def _add_pod(self, number: int, index: int, pod: Dumped) -> None:
        metadata, spec, shared = pod.metadata, pod.spec, self._interned
        names = container_names(pod)
        key = likeness(pod, names)
        spec_number = self._spec_numbers.get(key)
        if spec_number is None:
            spec_number = self._spec_numbers[key] = len(self.spec_texts)
            self.spec_texts.append(encode_abridged(pod, names))
        flags = CRITICAL_FLAG if pod.is_critical else 0
        if pod.has_ended:
            flags |= ENDED_FLAG
        namespace = metadata.namespace or NO_NAMESPACE
        name = metadata.name or "?"
        workload = pod.workload
        if workload is not metadata.name:
            workload = shared.setdefault(workload, workload)  # type: ignore[assignment] # see _interned
        node = (spec.node_name if spec is not None else None) or ""
        self.rows[number, index] = PodRow(
            namespace=shared.setdefault(namespace, namespace),  # type: ignore[arg-type]
            name=name,
            workload=workload,
            node=shared.setdefault(node, node),  # type: ignore[arg-type]
            spec_number=spec_number,
            containers=shared.setdefault(names, names),  # type: ignore[arg-type]
            priority=(spec.priority if spec is not None else None) or 0,
            flags=flags,
            deaths=deaths_of(pod),
        )

    def _add_other(self, number: int, kind: str, each: ClusterObject | UsageSample | None) -> None:
        if isinstance(each, UsageSample):
            self.add_usage(each.key, each.containers)
        else:
            self.other_objects.append(NumberedObject(number, kind, each))

    def add_usage(self, key: str, containers: dict[str, int], total: int | None = None) -> None:
        """One sample of what a pod uses."""
        summed = sum(containers.values()) if total is None else total
        self.merge_usage(key, MeasuredUsage(summed, containers))

    def merge_usage(self, key: str, used: MeasuredUsage) -> None:
        """Add another measurement of a pod: of each container the most counts."""
        known = self.usage.get(key)
        if known is None:
            self.usage[key] = used
            return
        containers = dict(known.containers)
        for name, amount in used.containers.items():
            containers[name] = max(amount, containers.get(name, 0))
        total = max(known.total, used.total)
        self.usage[key] = MeasuredUsage(total, containers, known.samples + used.samples)


_raws: Final = msgspec.json.Decoder(list[msgspec.Raw])
_items: Final = msgspec.json.Decoder(list[msgspec.Raw] | None)
_raw: Final = msgspec.json.Decoder(msgspec.Raw)


def _decode_others(
    objects: list[Dumped], others: list[int], text: memoryview, form: DumpForm
) -> list[tuple[str, ClusterObject | UsageSample | None]] | None:
    """The objects that are no pods; None where they must be read one by one."""
    if any([objects[index].is_list for index in others]):
        return None
    raws = _raw.decode_lines(text) if form == "lines" else _raws.decode(text)
    try:
        return [decode_object(objects[index], raws[index]) for index in others]
    except (InputError, msgspec.DecodeError):
        return None


def _locate_error(error: Exception, found: DumpedText, file: str) -> InputError:
    """What is wrong with an object, at the very field of the file."""
    what: InputError | None = None
    try:
        document = next(iter(read_documents(found.text, file)))
        if isinstance(document, InputError):
            what = document
        elif isinstance(error, msgspec.ValidationError):
            what = decoding_error(error, document.data, document)
    except RecursionError:
        pass
    if what is None or what.line is None or what.column is None:
        return InputError(str(error), file=file, line=found.line, column=found.column)
    column = what.column + (found.column - 1 if what.line == 1 else 0)
    return InputError(
        what.what,
        file=file,
        line=found.line + what.line - 1,
        column=column,
        field=what.field,
        hint=what.hint,
    )
