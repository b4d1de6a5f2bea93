"""A census of a cluster: every pod in one short row, and the objects its memory depends on.

Which node has how much memory is known only once all is read, so nothing is judged here. Pods that
are alike share a number; what they are like is kept once, as an abridged text.
"""

from collections import Counter
from typing import Final, NamedTuple

import msgspec

from memqos.api.dumps.objects import (
    NO_NAMESPACE,
    Dumped,
    abridged,
    container_names,
    likeness,
    object_decoder,
    objects_decoder,
)
from memqos.api.dumps.text import Form, Found
from memqos.api.manifests.documents import read
from memqos.api.manifests.refusals import refusal
from memqos.api.node import Node
from memqos.api.quantity import milli_of, whole
from memqos.api.resources import MEMORY
from memqos.cluster.limitrange import LimitRange
from memqos.cluster.quota import ResourceQuota
from memqos.errors import InputError

CRITICAL: Final = 1
ENDED: Final = 2

Place = tuple[int, int]
"""The number of a block, and that of an object in it."""


class Row(NamedTuple):
    """A pod. `family` is its workload's prefix, `like` the number of the pods it is like."""

    namespace: str
    name: str
    family: str
    node: str
    like: int
    containers: tuple[str, ...]
    priority: int
    flags: int


class Used(msgspec.Struct, frozen=True):
    """What a pod uses, in bytes: the most of all samples, for each container and for all."""

    total: int
    containers: dict[str, int]
    samples: int = 1


class Taken(NamedTuple):
    """What came of a block: how many objects, and the UIDs of its pods."""

    objects: int
    uids: list[str | None]
    """An entry an object."""


Other = Node | LimitRange | ResourceQuota


class Kept(NamedTuple):
    """An object that is no pod, by its kind and the number of its block."""

    number: int
    kind: str
    each: Other | None
    """None where it is of no use."""


class Others(NamedTuple):
    """What was read besides pods."""

    nodes: dict[str, Node]
    limit_ranges: list[LimitRange]
    quotas: list[ResourceQuota]
    usage: dict[str, Used]
    passed_over: Counter[str]


def others_in(kept: list[Kept], usage: dict[str, Used]) -> Others:
    """What was kept, by whomever, in the order of the dump: of nodes with one name the first."""
    nodes: dict[str, Node] = {}
    found = Others(nodes, [], [], usage, Counter())
    for _, kind, each in sorted(kept, key=lambda one: one.number):
        if isinstance(each, Node):
            nodes.setdefault(each.metadata.name or "?", each)
        elif isinstance(each, LimitRange):
            found.limit_ranges.append(each)
        elif isinstance(each, ResourceQuota):
            found.quotas.append(each)
        else:
            found.passed_over[kind] += 1
    return found


class Census:
    """All that was read, so far or by one of several readers."""

    def __init__(self) -> None:
        self.rows: dict[Place, Row] = {}
        self.texts: list[bytes] = []
        """By `Row.like`: an abridged pod."""
        self.usage: dict[str, Used] = {}
        self.kept: list[Kept] = []
        self._likes: dict[tuple[object, ...], int] = {}
        self._shared: dict[object, object] = {}

    def forget(self, number: int) -> None:
        """Take back what came of this block and all after it, usage excepted."""
        self.rows = {place: row for place, row in self.rows.items() if place[0] < number}
        self.kept = [each for each in self.kept if each.number < number]

    def take(self, number: int, text: memoryview, form: Form) -> Taken | None:
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
            decoded = _decoded_others(objects, others, text, form)
            if decoded is None:
                return None
            for other in decoded:
                self._keep(number, *other)
        uids: list[str | None] = []
        for index, (each, is_pod) in enumerate(zip(objects, are_pods, strict=True)):
            if is_pod:
                self._pod(number, index, each)
            uids.append(each.metadata.uid if is_pod else None)
        return Taken(len(objects), uids)

    def take_found(self, place: Place, found: Found, file: str) -> list[tuple[Place, str]]:
        """Read one object; raise InputError, with its place, where that cannot be done."""
        try:
            each = object_decoder.decode(found.text)
            if each.is_list:
                return self._list(place, each)
            if each.is_pod:
                self._pod(*place, each)
                uid = each.metadata.uid
                return [] if uid is None else [(place, uid)]
            self._keep(place[0], *_other(each, found.text, found.kind))
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise _located(error, found, file) from None
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

    def _list(self, place: Place, each: Dumped) -> list[tuple[Place, str]]:
        """A list within a list, or one whose head is unlike others: read whole."""
        assert each.kind is not None
        uids: list[tuple[Place, str]] = []
        for index, raw in enumerate(_items.decode(each.items or b"null") or ()):
            item = object_decoder.decode(raw)
            # Numbers below 0 do not meet those of the block.
            below = (place[0], -1 - index - (place[1] << 32))
            if item.is_pod:
                self._pod(*below, item)
                uids += [] if item.metadata.uid is None else [(below, item.metadata.uid)]
            else:
                self._keep(place[0], *_other(item, raw, each.kind.removesuffix("List")))
        return uids

    def _pod(self, number: int, index: int, pod: Dumped) -> None:
        metadata, spec, shared = pod.metadata, pod.spec, self._shared
        names = container_names(pod)
        key = likeness(pod, names)
        like = self._likes.get(key)
        if like is None:
            like = self._likes[key] = len(self.texts)
            self.texts.append(abridged(pod, names))
        flags = CRITICAL if pod.is_critical else 0
        if pod.has_ended:
            flags |= ENDED
        namespace = metadata.namespace or NO_NAMESPACE
        name = metadata.name or "?"
        family = metadata.generate_name or name
        node = (spec.node_name if spec is not None else None) or ""
        self.rows[number, index] = Row(
            shared.setdefault(namespace, namespace),  # type: ignore[arg-type]
            name,
            shared.setdefault(family, family) if family is not name else name,  # type: ignore[arg-type]
            shared.setdefault(node, node),  # type: ignore[arg-type]
            like,
            shared.setdefault(names, names),  # type: ignore[arg-type]
            (spec.priority if spec is not None else None) or 0,
            flags,
        )

    def _keep(self, number: int, kind: str, each: "Other | _Metrics | None") -> None:
        if isinstance(each, _Metrics):
            self.add_usage(each.key, each.containers)
        else:
            self.kept.append(Kept(number, kind, each))

    def add_usage(self, key: str, containers: dict[str, int], total: int | None = None) -> None:
        """One sample of what a pod uses."""
        summed = sum(containers.values()) if total is None else total
        self.merge_usage(key, Used(summed, containers))

    def merge_usage(self, key: str, used: Used) -> None:
        """What somebody else knows of what a pod uses."""
        known = self.usage.get(key)
        if known is None:
            self.usage[key] = used
            return
        containers = dict(known.containers)
        for name, amount in used.containers.items():
            containers[name] = max(amount, containers.get(name, 0))
        total = max(known.total, used.total)
        self.usage[key] = Used(total, containers, known.samples + used.samples)


_raws: Final = msgspec.json.Decoder(list[msgspec.Raw])
_items: Final = msgspec.json.Decoder(list[msgspec.Raw] | None)
_raw: Final = msgspec.json.Decoder(msgspec.Raw)


class _Metrics(NamedTuple):
    key: str
    containers: dict[str, int]


def _other(
    each: Dumped, raw: bytes | msgspec.Raw, unless_given: str = ""
) -> tuple[str, "Other | _Metrics | None"]:
    """An object that is no pod, by its kind; None for one that is of no use here."""
    kind = each.kind or unless_given or _kind_of(each)
    if kind in _TYPES:
        found = msgspec.json.decode(raw, type=_TYPES[kind])
        if kind == "Node" and not found.metadata.name:
            raise InputError("required, but missing", field="metadata.name")
        return kind, found
    if kind == "PodMetrics":
        return kind, _Metrics(each.key, _usage_of(each))
    if not kind:
        raise InputError("required, but missing", field="kind")
    return kind, None


_TYPES: Final[dict[str, type[Other]]] = {
    "Node": Node,
    "LimitRange": LimitRange,
    "ResourceQuota": ResourceQuota,
}


def _decoded_others(
    objects: list[Dumped], others: list[int], text: memoryview, form: Form
) -> list[tuple[str, "Other | _Metrics | None"]] | None:
    """What is no pod; None where that takes a closer look."""
    if any([objects[index].is_list for index in others]):
        return None
    raws = _raw.decode_lines(text) if form == "lines" else _raws.decode(text)
    try:
        return [_other(objects[index], raws[index]) for index in others]
    except (InputError, msgspec.DecodeError):
        return None


def _kind_of(each: Dumped) -> str:
    """The kind of an item that does not say it, as those of lists from the API itself."""
    if each.is_metrics:
        return "PodMetrics"
    if each.status is not None and each.status.node_info:
        return "Node"
    return ""


def _usage_of(metrics: Dumped) -> dict[str, int]:
    used: dict[str, int] = {}
    for index, container in enumerate(metrics.containers or ()):
        amount = (container.usage or {}).get(MEMORY)
        if amount is not None:
            try:
                used[container.name] = whole(milli_of(amount))
            except InputError as error:
                field = f"containers[{index}].usage.memory"
                raise InputError(error.what, field=field, hint=error.hint) from None
    return used


def _located(error: Exception, found: Found, file: str) -> InputError:
    """What is wrong with an object, at the very field of the file."""
    what: InputError | None = None
    try:
        document = next(iter(read(found.text, file)))
        if isinstance(document, InputError):
            what = document
        elif isinstance(error, msgspec.ValidationError):
            what = refusal(error, document.data, document)
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
