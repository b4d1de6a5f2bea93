"""Positions in a file, and paths of fields."""

import re
from collections.abc import Mapping
from typing import NamedTuple, Protocol

from memqos.errors import InputError, quote_excerpt

FieldStep = str | int
FieldPath = tuple[FieldStep, ...]

# Far above any Kubernetes object, far below what would exhaust a stack.
DEPTH_LIMIT = 100

# A step of `spec.containers[0].resources.limits[memory]`: the text in brackets, or a bare name.
_STEP = re.compile(r"\[([^\]]*)\]|([^.\[\]]+)")
_BARE_NAME = re.compile(r"[\w-]+")
_INDEX = re.compile(r"[0-9]{1,9}")


class Position(NamedTuple):
    """Line and column, both counted from 1, the column in characters."""

    line: int
    column: int


class Spot(Protocol):
    """One value of a document: its position, and the values inside it."""

    @property
    def place(self) -> Position: ...

    @property
    def children(self) -> Mapping[FieldStep, "Spot"]: ...


def nearest_position(root: Spot, path: FieldPath) -> Position:
    """Find the value at a path, or the last value on the way to it that exists."""
    spot = root
    for step in path:
        children = spot.children
        child = children.get(step, children.get(str(step)))
        if child is None:
            break
        spot = child
    return spot.place


def steps(field: str) -> FieldPath:
    """Read a path as Kubernetes (`spec.containers[0]`) or msgspec (`$.spec`) writes it."""
    found = _STEP.findall(field.removeprefix("$"))
    return tuple(
        int(bracketed) if _INDEX.fullmatch(bracketed) else bracketed or name
        for bracketed, name in found
    )


def format_path(path: FieldPath) -> str:
    """Write a path as Kubernetes does; indexes and keys with special characters are in brackets."""
    parts = [
        f".{step}" if isinstance(step, str) and _BARE_NAME.fullmatch(step) else f"[{step}]"
        for step in path
    ]
    return "".join(parts).removeprefix(".")


class Lines:
    """The lines of a file; positions looked up in rising order cost one pass in all."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self._offset = 0
        self._place = Position(1, 1)

    def place(self, offset: int) -> Position:
        """Turn a byte offset into a place."""
        if offset < self._offset:
            self._offset, self._place = 0, Position(1, 1)
        line, column = self._place
        start = self.data.rfind(b"\n", self._offset, offset) + 1
        if start > 0:
            line, column = line + self.data.count(b"\n", self._offset, offset), 1
        passed = self.data[max(start, self._offset) : offset]
        self._place = Position(line, column + len(passed.decode("utf-8", "replace")))
        self._offset = offset
        return self._place


class DocumentText(NamedTuple):
    """The part of a file with one document, and the errors about it."""

    file: str
    lines: Lines
    start: int
    end: int

    @property
    def data(self) -> bytes:
        """Copy the bytes of the stretch alone."""
        return self.lines.data[self.start : self.end]

    def place(self, offset: int) -> Position:
        """Turn a byte offset in the file into a place."""
        return self.lines.place(offset)

    def error(self, what: str, place: Position, hint: str | None = None) -> InputError:
        """An error at a position."""
        return InputError(what, file=self.file, line=place.line, column=place.column, hint=hint)

    def too_deep(self, place: Position) -> InputError:
        """Refuse what would exhaust the stack of the code that walks it."""
        return self.error(f"nested more than {DEPTH_LIMIT} levels deep", place)

    def duplicate(self, key: str, first: Position, second: Position) -> InputError:
        """Refuse a key of which Kubernetes would silently drop one value."""
        return self.error(
            f"the key {quote_excerpt(key)} is already given in line {first.line}",
            second,
            "keep one of the two",
        )
