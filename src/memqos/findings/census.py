"""A census of a cluster: every pod in one short row, and the objects its memory depends on.

Which node has how much memory is known only once all is read, so nothing is judged here. Pods that
are alike share a number; what they are like is kept once, as an abridged text.
"""

from collections import Counter
from typing import Final, NamedTuple

import msgspec

from memqos.api.documents import read
from memqos.api.dumped import (
    NO_NAMESPACE,
    Dumped,
    abridged,
    container_names,
    likeness,
    object_decoder,
    objects_decoder,
)
from memqos.api.dumptext import Form, Found
from memqos.api.node import Node
from memqos.api.quantity import milli_of, whole
from memqos.api.refusals import refusal
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


class Used(msgspec.Struct):
    """What a pod uses, in bytes: the most of all samples, for each container and for all."""

    total: int
    containers: dict[str, int]
    samples: int = 1


class Taken(NamedTuple):
    """What came of a block: how many objects, and the UIDs of its pods."""

    objects: int
    uids: list[tuple[int, str]]
    """The number of an object, and its UID."""


class Census:
    """All that was read, so far or by one of several readers."""

    def __init__(self) -> None:
        self.rows: dict[Place, Row] = {}
        self.texts: list[bytes] = []
        """By `Row.like`: an abridged pod."""
        self.nodes: dict[str, Node] = {}
        self.limit_ranges: list[LimitRange] = []
        self.quotas: list[ResourceQuota] = []
        self.usage: dict[str, Used] = {}
        self.passed_over: Counter[str] = Counter()
        self._likes: dict[tuple[object, ...], int] = {}
        self._shared: dict[object, object] = {}

    def take(self, number: int, text: memoryview, form: Form) -> Taken | None:
        """Read a block the quick way, items as an array; None where it does not decode."""
        try:
            objects, others = _decoded(text, form)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return None
        uids: list[tuple[int, str]] = []
        for index, each in enumerate(objects):
            if each.is_pod:
                self._pod(number, index, each)
                uid = each.metadata.uid
                if uid is not None:
                    uids.append((index, uid))
        try:
            for index, raw in others:
                self._other(objects[index], raw)
        except InputError:
            return None
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
            self._other(each, found.text)
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
        for index, raw in enumerate(_raws.decode(each.items) if each.items else ()):
            item = object_decoder.decode(raw)
            # Numbers below 0 do not meet those of the block.
            below = (place[0], -1 - index - (place[1] << 32))
            if item.is_pod:
                self._pod(*below, item)
                uids += [] if item.metadata.uid is None else [(below, item.metadata.uid)]
            else:
                self._other(item, raw, each.kind.removesuffix("List"))
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

    def _other(self, each: Dumped, raw: bytes | msgspec.Raw, unless_given: str = "") -> None:
        kind = each.kind or unless_given or _kind_of(each)
        if kind == "Node":
            node = msgspec.json.decode(raw, type=Node)
            if not node.metadata.name:
                raise InputError("a Node without a name", field="metadata.name")
            self.nodes.setdefault(node.metadata.name, node)
        elif kind == "LimitRange":
            self.limit_ranges.append(msgspec.json.decode(raw, type=LimitRange))
        elif kind == "ResourceQuota":
            self.quotas.append(msgspec.json.decode(raw, type=ResourceQuota))
        elif kind == "PodMetrics":
            self.add_usage(each.key, _usage_of(each))
        elif not kind:
            raise InputError("required, but missing", field="kind")
        else:
            self.passed_over[kind] += 1

    def add_usage(self, key: str, containers: dict[str, int], total: int | None = None) -> None:
        """One sample of what a pod uses."""
        summed = sum(containers.values()) if total is None else total
        known = self.usage.get(key)
        if known is None:
            self.usage[key] = Used(summed, containers)
            return
        known.total = max(known.total, summed)
        known.samples += 1
        for name, used in containers.items():
            known.containers[name] = max(used, known.containers.get(name, 0))


_raws: Final = msgspec.json.Decoder(list[msgspec.Raw])
_raw: Final = msgspec.json.Decoder(msgspec.Raw)


def _decoded(text: memoryview, form: Form) -> tuple[list[Dumped], list[tuple[int, msgspec.Raw]]]:
    """All objects of a block, and the texts of those that are not pods."""
    decode = object_decoder.decode_lines if form == "lines" else objects_decoder.decode
    objects = decode(text)
    others = [index for index, each in enumerate(objects) if not each.is_pod]
    if not others:
        return objects, []
    if any([objects[index].is_list for index in others]):
        raise msgspec.DecodeError("a list within")
    raws = _raw.decode_lines(text) if form == "lines" else _raws.decode(text)
    return objects, [(index, raws[index]) for index in others]


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
