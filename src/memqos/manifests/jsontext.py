"""Read JSON text, one value at a time, and find the positions of its fields."""

import re
from collections.abc import Iterator
from functools import cached_property
from typing import Any

import msgspec

from memqos.manifests.positions import DEPTH_LIMIT, DocumentText, FieldStep, Position

_STRING = rb'"(?:[^"\\]|\\.)*"'
_TOKEN = re.compile(_STRING + rb"|[][{}:]", re.DOTALL)
_BEFORE_KEY = re.compile(rb"[\s,]*")
_BEFORE_MEMBER = re.compile(_STRING + rb"\s*:\s*", re.DOTALL)

_COMPLAINT = re.compile(r"(?:JSON is malformed: )?(.*?)(?: \(byte ([0-9]+)\))?", re.DOTALL)
_TRAILING = "trailing characters"
_TRUNCATED = "Input data was truncated"


class MalformedJson(Exception):
    """Text that is not JSON, and the offset in the file from which on it is not."""

    def __init__(self, what: str, offset: int, hint: str | None = None) -> None:
        super().__init__(what)
        self.what = what
        self.offset = offset
        self.hint = hint


class Truncated(MalformedJson):
    """Text that could still become JSON if it went on."""


def read_json(text: DocumentText) -> tuple[Any, DocumentText]:
    """Read the first value of a text; give it with the stretch it takes.

    Raise MalformedJson where the text is not JSON, InputError where it is nested too deep to read.
    """
    view = memoryview(text.lines.data)
    try:
        return msgspec.json.decode(view[text.start : text.end]), text
    except RecursionError:
        raise text.too_deep(text.place(text.start)) from None
    except UnicodeDecodeError:
        raise MalformedJson("invalid UTF-8", text.start) from None
    except msgspec.DecodeError as error:
        complaint = _COMPLAINT.fullmatch(str(error))
    assert complaint is not None
    what, byte = complaint.groups()
    if what == _TRAILING:
        # msgspec names the byte after the first one that is too much.
        text = _without_trailing_space(text._replace(end=text.start + int(byte) - 1))
        return msgspec.json.decode(view[text.start : text.end]), text
    if what == _TRUNCATED:
        end = _without_trailing_space(text).end
        raise Truncated("the JSON text ends too early", end, "close every bracket and quote")
    raise MalformedJson(f"malformed JSON: {what}", text.start + int(byte or 0))


def check(value: Any, text: DocumentText) -> None:
    """Raise InputError if a value is nested too deep, or has lost one of two equal keys."""
    compact = msgspec.json.encode(value)
    # Laid out with one space a level: no string contains a raw line break.
    if b"\n" + b" " * (DEPTH_LIMIT + 1) in msgspec.json.format(compact, indent=1):
        raise text.too_deep(text.place(text.start))
    # The decoder keeps the last of two equal keys; the lost one takes its quotes with it.
    data = text.lines.data
    quotes_lost = data.count(b'"', text.start, text.end) != compact.count(b'"')
    if quotes_lost or data.find(b"\\u0022", text.start, text.end) >= 0:
        _refuse_duplicates(text)


def _without_trailing_space(text: DocumentText) -> DocumentText:
    return text._replace(end=text.start + len(text.data.rstrip()))


def _refuse_duplicates(text: DocumentText) -> None:
    open_objects: list[dict[str, int]] = []
    string, offset = b"", 0
    for token in _TOKEN.finditer(text.lines.data, text.start, text.end):
        match token[0]:
            case b"{" | b"[":
                open_objects.append({})
            case b"}" | b"]":
                open_objects.pop()
            case b":":
                key, keys = msgspec.json.decode(string, type=str), open_objects[-1]
                if key in keys:
                    first = text.place(keys[key])
                    raise text.duplicate(key, first, text.place(offset))
                keys[key] = offset
            case _:
                string, offset = token[0], token.start()


class JsonSpot:
    """A JSON value; the values inside it are located on first use, and cached."""

    def __init__(self, text: DocumentText, key: int | None = None) -> None:
        self._text = text
        self._key = key

    @property
    def place(self) -> Position:
        """Where the value is; for an object or array with a key, where its key is."""
        is_scalar = self._text.lines.data[self._text.start] not in b"{["
        return self._text.place(self._text.start if is_scalar or self._key is None else self._key)

    @cached_property
    def children(self) -> dict[FieldStep, "JsonSpot"]:
        """The values inside, by key or index."""
        inside = memoryview(self._text.lines.data)[self._text.start : self._text.end]
        match inside[:1]:
            case b"{":
                members = msgspec.json.decode(inside, type=dict[str, msgspec.Raw])
                return dict(self._members(members))
            case b"[":
                items = msgspec.json.decode(inside, type=list[msgspec.Raw])
                return dict(self._items(items))
        return {}

    def _members(self, members: dict[str, msgspec.Raw]) -> Iterator[tuple[str, "JsonSpot"]]:
        end = self._text.start + 1
        for key, value in members.items():
            at_key = _end_of(_BEFORE_KEY, self._text, end)
            start = _end_of(_BEFORE_MEMBER, self._text, at_key)
            end = start + len(bytes(value))
            yield key, JsonSpot(self._text._replace(start=start, end=end), at_key)

    def _items(self, items: list[msgspec.Raw]) -> Iterator[tuple[int, "JsonSpot"]]:
        end = self._text.start + 1
        for index, value in enumerate(items):
            start = _end_of(_BEFORE_KEY, self._text, end)
            end = start + len(bytes(value))
            yield index, JsonSpot(self._text._replace(start=start, end=end))


def _end_of(pattern: re.Pattern[bytes], text: DocumentText, offset: int) -> int:
    found = pattern.match(text.lines.data, offset)
    return found.end() if found else offset
