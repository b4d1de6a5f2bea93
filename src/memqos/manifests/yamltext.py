"""Read one YAML document into plain data, and find the positions of its fields."""

from collections.abc import Callable
from functools import cached_property
from typing import Any, NamedTuple

import msgspec
import yaml
from yaml.events import (
    AliasEvent,
    DocumentStartEvent,
    MappingStartEvent,
    ScalarEvent,
    SequenceStartEvent,
)

from memqos.errors import quote_excerpt
from memqos.manifests.positions import DEPTH_LIMIT, DocumentText, FieldStep, Position
from memqos.manifests.yamlfaults import at_mark, in_plain_words, position_of
from memqos.manifests.yamlscalars import Meaningless, resolve_scalar, resolve_tagged, short_tag

# Kubernetes, too, stops near this many values that come out of aliases.
ALIASED_LIMIT = 400_000

_Loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)

_COLLECTION_TAGS = {
    MappingStartEvent: (None, "!", "tag:yaml.org,2002:map"),
    SequenceStartEvent: (None, "!", "tag:yaml.org,2002:seq"),
}
_MERGE_KEY = "<<"


class YamlSpot(NamedTuple):
    """A YAML value; an alias has the children of its anchor."""

    place: Position
    children: "dict[FieldStep, YamlSpot]"


def read_yaml(text: DocumentText) -> "tuple[Any, YamlRoot]":
    """Give the data of the one document in a text, None if there is none; raise InputError."""
    reading = _Reading(text, with_places=False)
    return reading.value, YamlRoot(text, reading.mark)


class YamlRoot:
    """A whole document, read again for positions when the first one is looked up."""

    def __init__(self, text: DocumentText, mark: Any) -> None:
        self._text = text
        self._mark = mark

    @property
    def place(self) -> Position:
        """Where the content begins."""
        return position_of(self._mark, self._text)

    @cached_property
    def children(self) -> dict[FieldStep, YamlSpot]:
        """The values inside, by key or index."""
        return _Reading(self._text, with_places=True).children


_NO_CHILDREN: dict[FieldStep, YamlSpot] = {}


class _Anchored(NamedTuple):
    """The value of an anchor; how many values that is, and how many levels of them."""

    value: Any
    children: dict[FieldStep, YamlSpot]
    size: int
    height: int


class _Open:
    """A mapping or list whose end is still to come."""

    __slots__ = (
        "anchor", "before", "children", "height", "is_merge", "key", "keys", "mark", "value"
    )  # fmt: skip

    def __init__(self, event: Any, before: int) -> None:
        self.value: Any = {} if event.__class__ is MappingStartEvent else []
        self.mark = event.start_mark
        self.anchor = event.anchor
        self.before = before
        self.height = 1
        self.key: str | None = None
        self.is_merge = False
        self.keys: dict[str, Any] = {}
        self.children: dict[FieldStep, YamlSpot] = {}


class _Reading:
    """One pass over the events of a text, without recursion: no input exhausts the stack."""

    def __init__(self, text: DocumentText, *, with_places: bool) -> None:
        self.text = text
        self.with_places = with_places
        self.value: Any = None
        self.mark: Any = None
        self.children = _NO_CHILDREN
        self.anchors: dict[str, _Anchored | None] = {}
        self.values = 0
        self.aliased = 0
        try:
            self._stream(_Loader(text.data).get_event)
        except yaml.YAMLError as error:
            raise in_plain_words(error, text) from None

    def _stream(self, next_event: Callable[[], Any]) -> None:
        next_event()
        if isinstance(next_event(), DocumentStartEvent):
            self._document(next_event)
            next_event()
            # Only a further event makes the parser look for text behind the document.
            next_event()

    def _document(self, next_event: Callable[[], Any]) -> None:
        stack: list[_Open] = []
        anchors = self.anchors
        while True:
            event = next_event()
            kind = event.__class__
            mark, children = event.start_mark, _NO_CHILDREN
            if kind is ScalarEvent:
                value = self._scalar(event)
            elif kind is AliasEvent:
                value, children = self._alias(event, stack)
            elif kind in _COLLECTION_TAGS:
                if event.tag or event.anchor or len(stack) == DEPTH_LIMIT:
                    self._check_start(event, len(stack))
                stack.append(_Open(event, self.values))
                continue
            else:
                done = stack.pop()
                value, mark, children = done.value, done.mark, done.children
                if anchors:
                    self._close(done, stack)
            self.values += 1
            if not stack:
                break
            self._put(stack[-1], event, value, mark, children)
        self.value, self.mark, self.children = value, mark, children

    def _scalar(self, event: Any) -> Any:
        value: Any = event.value
        try:
            if event.tag is not None:
                value = resolve_tagged(event.tag, value)
            elif event.implicit[0]:
                value = resolve_scalar(value)
        except Meaningless as error:
            hint = "put it in quotes" if event.tag is None else "remove the tag"
            raise at_mark(str(error), event.start_mark, self.text, hint) from None
        if event.anchor is not None:
            self.anchors[event.anchor] = _Anchored(value, _NO_CHILDREN, 1, 0)
        return value

    def _alias(self, event: Any, stack: list[_Open]) -> tuple[Any, dict[FieldStep, YamlSpot]]:
        anchored = self.anchors.get(event.anchor)
        if anchored is None:
            name = quote_excerpt(event.anchor)
            what = f"the alias {name} has no anchor before it in this document"
            if event.anchor in self.anchors:
                what = f"the alias {name} refers to itself"
            raise at_mark(what, event.start_mark, self.text)
        self.values += anchored.size - 1
        self.aliased += anchored.size
        if self.aliased > ALIASED_LIMIT:
            what = f"aliases expand to more than {ALIASED_LIMIT:,} values"
            raise at_mark(what, event.start_mark, self.text)
        if len(stack) + anchored.height > DEPTH_LIMIT:
            raise self.text.too_deep(position_of(event.start_mark, self.text))
        _raise_height(stack, anchored.height)
        return anchored.value, anchored.children

    def _close(self, done: _Open, stack: list[_Open]) -> None:
        if done.anchor is not None:
            size = self.values - done.before + 1
            self.anchors[done.anchor] = _Anchored(done.value, done.children, size, done.height)
        _raise_height(stack, done.height)

    def _check_start(self, event: Any, depth: int) -> None:
        if event.tag not in _COLLECTION_TAGS[event.__class__]:
            what = f"the tag {quote_excerpt(short_tag(event.tag))} is not allowed"
            raise at_mark(what, event.start_mark, self.text, "remove the tag")
        if depth == DEPTH_LIMIT:
            raise self.text.too_deep(position_of(event.start_mark, self.text))
        if event.anchor is not None:
            self.anchors[event.anchor] = None

    def _put(
        self, parent: _Open, event: Any, value: Any, mark: Any, children: dict[FieldStep, YamlSpot]
    ) -> None:
        container = parent.value
        step: FieldStep | None = parent.key
        if container.__class__ is list:
            step = len(container)
            container.append(value)
        elif step is None:
            self._begin(parent, event, value, mark)
            return
        elif parent.is_merge:
            self._merge(parent, value, mark, children)
            return
        else:
            container[step] = value
            parent.key = None
        if self.with_places:
            shown = mark if _has_text(event) else parent.keys.get(str(step), mark)
            parent.children[step] = YamlSpot(position_of(shown, self.text), children)

    def _begin(self, parent: _Open, event: Any, value: Any, mark: Any) -> None:
        """Take a value for the key of the value to come."""
        if value.__class__ is not str:
            if value is None or isinstance(value, dict | list):
                what = "a key is missing" if value is None else "a key must be text"
                raise at_mark(what, mark, self.text)
            value = msgspec.json.encode(value).decode()
        elif value == _MERGE_KEY and event.__class__ is ScalarEvent and event.implicit[0]:
            parent.key, parent.is_merge = value, True
            return
        if value in parent.keys:
            first = position_of(parent.keys[value], self.text)
            raise self.text.duplicate(value, first, position_of(mark, self.text))
        parent.keys[value] = mark
        parent.key = value

    def _merge(
        self, parent: _Open, value: Any, mark: Any, children: dict[FieldStep, YamlSpot]
    ) -> None:
        # go-yaml 2, and so Kubernetes, lets << win over the keys written before it.
        sources = [(value, children)]
        if isinstance(value, list):
            # The first of several wins.
            spots = [children[at].children if children else children for at in range(len(value))]
            sources = list(zip(value, spots, strict=True))[::-1]
        for mapping, inner in sources:
            if not isinstance(mapping, dict):
                raise at_mark("<< takes a mapping, or a list of mappings", mark, self.text)
            parent.value.update(mapping)
            parent.children.update(inner)
        parent.key, parent.is_merge = None, False


def _has_text(event: Any) -> bool:
    """Whether a value has a text of its own; any other is best shown by its key."""
    if event.__class__ is ScalarEvent:
        return bool(event.value or event.style)
    return event.__class__ is AliasEvent


def _raise_height(stack: list[_Open], inner: int) -> None:
    if stack and stack[-1].height <= inner:
        stack[-1].height = inner + 1
