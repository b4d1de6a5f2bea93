"""Find the objects in the text of a dump, which arrives in blocks.

A block that was cut between two objects is decoded as a whole: the quick way. What does not decode
so is scanned object by object: the end of a list, broken objects, blocks that were cut in the wrong
place.
"""

import re
from collections.abc import Iterator
from typing import Final, Literal, NamedTuple, Protocol

import msgspec

from memqos.errors import InputError

DumpForm = Literal["items", "lines"]
"""The items of one list, or an object a line."""

MOST_OF_ONE: Final = 8 << 20
"""An object that does not end within so many bytes is taken for broken, if others follow."""

_HEAD: Final = re.compile(
    rb"\s*(?:\[|\{\s*(?:"
    rb'"(?:apiVersion|kind)"\s*:\s*"(?:[^"\\]*)"\s*,\s*'
    rb'|"metadata"\s*:\s*\{[^{}]*\}\s*,\s*)*"items"\s*:\s*\[)'
)
_OPENING: Final = re.compile(rb'\s*(\{\s*"[^"\\]*"\s*:\s*(?:"[^"\\]*"\s*,\s*"[^"\\]*"\s*:|\{))')
_KIND: Final = re.compile(rb'"kind"\s*:\s*"([^"\\]*)List"')
_SPACE: Final = re.compile(rb"\s*")
_BETWEEN: Final = re.compile(rb"\s*,?\s*")
_TRAILING: Final = re.compile(r"trailing characters \(byte (\d+)\)")
_TRUNCATED: Final = "truncated"
_MARK: Final = b"\xef\xbb\xbf"
_raw: Final = msgspec.json.Decoder(msgspec.Raw)


class DumpLayout(msgspec.Struct, frozen=True, kw_only=True):
    """How the objects of a text follow each other."""

    form: DumpForm
    start: int
    """Where the first object, or the first item of the list, is looked for."""
    opening: bytes | None
    """What every item starts with; None where that is unknown."""
    lines: int = 0
    """Before the start."""
    before: int = 0
    """Bytes before the start on its line."""
    is_bare: bool = False
    """Whether the items are those of an array that is no part of an object."""
    kind: str = ""
    """Of items without one of their own, as in a list from an API server."""


class Size(NamedTuple):
    """How far a text moves on: lines, and bytes after the last of them."""

    lines: int
    after: int


class DumpedText(NamedTuple):
    """An object's text and where it starts in the file, line and column from 1."""

    text: bytes
    line: int
    column: int
    kind: str = ""
    """Its kind, unless the object has one."""


def is_json(head: bytes) -> bool:
    """Whether a text that starts like this is JSON; it is YAML otherwise."""
    return head.removeprefix(_MARK).lstrip()[:1] in (b"{", b"[", b"")


def dump_layout(head: bytes) -> DumpLayout:
    """The layout of a JSON text, by its first bytes."""
    mark = len(_MARK) if head.startswith(_MARK) else 0
    found = _HEAD.match(head, mark)
    if found is None:
        return DumpLayout(form="lines", start=mark, opening=None)
    start = found.end()
    opening = _OPENING.match(head, start)
    lines, before = head.count(b"\n", 0, start), start - head.rfind(b"\n", 0, start) - 1
    return DumpLayout(
        form="items",
        start=start,
        opening=None if opening is None else opening[1],
        lines=lines,
        before=before,
        is_bare=_is_bare(found),
        kind=_kind_of(found),
    )


class Searchable(Protocol):
    """Bytes, or a file that looks like bytes."""

    def rfind(self, sub: bytes, start: int, end: int, /) -> int:
        """The last place where `sub` starts; -1 where there is none."""


def cut_before(text: Searchable, layout: DumpLayout, start: int, end: int) -> int | None:
    """The last place between `start` and `end` where an object seems to start."""
    if layout.form == "lines":
        found = text.rfind(b"\n", start, end)
        return None if found <= start else found + 1
    if layout.opening is None:
        return None
    found = text.rfind(layout.opening, start + 1, end)
    return None if found < 0 else found


class Scanner:
    """Finds objects one by one, across blocks, and reports broken ones."""

    def __init__(self, file: str, layout: DumpLayout) -> None:
        self._file = file
        self._opening = layout.opening
        self._in_list = layout.form == "items"
        self._is_bare = layout.is_bare
        self._kind = layout.kind
        self._is_unsure = False
        """Whether what seems to be an object may be a part of the broken one before it."""
        self._rest = b""
        self._line = 1 + layout.lines
        self._before = layout.before
        """Bytes on the first line of the current text that came before it."""
        self._counted = 0
        """Up to where in the current text lines are counted."""

    def skip_block(self, size: Size) -> None:
        """Count a block that was read the quick way."""
        self._line += size.lines
        self._before = size.after + (0 if size.lines else self._before)

    @property
    def position(self) -> tuple[int, int]:
        """Line, from 1, and bytes before it on that line, of the block to come."""
        return self._line, self._before

    def abandon(self) -> Iterator[DumpedText | InputError]:
        """Give up the unfinished object: the next block starts with a new one."""
        rest, self._rest = self._rest, b""
        if rest.strip():
            yield from self._ending(rest)
            self._rest = b""

    def feed(self, text: bytes, *, is_last: bool) -> Iterator[DumpedText | InputError]:
        """The objects that end in this block, and what is wrong with others."""
        text = self._rest + text
        at = self._counted = 0
        while True:
            step = self._list(text, at) if self._in_list else self._top(text, at)
            if isinstance(step, int):
                at = step
                continue
            if step is None:
                break
            found, at = step
            yield found
        if not text[at:].strip():
            at = len(text)
        self._pass(text, at)
        self._rest = text[at:]
        if is_last:
            yield from self.abandon()
            if self._in_list:
                yield self._fault("the file ends before this list does", b"", 0, _CUT_SHORT)

    def _top(self, text: bytes, at: int) -> "int | tuple[DumpedText | InputError, int] | None":
        at = _after(_SPACE, text, at)
        if at == len(text):
            return None
        head = _HEAD.match(text, at)
        if head is not None:
            self._is_bare = _is_bare(head)
            self._kind = _kind_of(head)
            self._in_list = True
            opening = _OPENING.match(text, head.end())
            self._opening = self._opening if opening is None else opening[1]
            return head.end()
        return self._object(text, at)

    def _list(self, text: bytes, at: int) -> "int | tuple[DumpedText | InputError, int] | None":
        at = _after(_BETWEEN, text, at)
        if at == len(text):
            return None
        if text[at : at + 1] != b"]":
            return self._object(text, at)
        if self._is_unsure and not self._ends_here(text, at):
            following = self._next(text, at)
            return len(text) if following is None else following
        if self._is_bare:
            self._in_list = False
            return at + 1
        # What follows the items belongs to the object around them: close it to find its end.
        end = _end(b'{"":0' + text[at + 1 :])
        if isinstance(end, int):
            self._in_list = False
            return at + 1 + end - 5
        if end == _TRUNCATED:
            return None
        self._in_list = False
        fault = self._fault("after the items of this list it is no JSON", text, at)
        return fault, self._next(text, at) or len(text)

    def _object(self, text: bytes, at: int) -> "int | tuple[DumpedText | InputError, int] | None":
        end = _end(memoryview(text)[at:])
        if isinstance(end, int):
            found = text[at : at + end].rstrip()
            if self._is_unsure and not _has_name(found):
                return at + end
            self._is_unsure = False
            line, column = self._place(text, at)
            kind = self._kind if self._in_list else ""
            return DumpedText(found, line, column, kind), at + end
        following = self._next(text, at)
        if end == _TRUNCATED and (following is None or len(text) - at < MOST_OF_ONE):
            return None
        if self._is_unsure:
            return len(text) if following is None else following
        fault = self._fault(f"this object is broken: {end}", text, at)
        self._is_unsure = True
        return fault, len(text) if following is None else following

    def _ends_here(self, text: bytes, at: int) -> bool:
        """Whether a bracket is that of the list, and not one within an object."""
        end = at + 1
        if not self._is_bare:
            closed = _end(b'{"":0' + text[end:])
            if not isinstance(closed, int):
                return closed == _TRUNCATED
            end += closed - 5
        end = _after(_SPACE, text, end)
        return end == len(text) or text[end : end + 1] in (b"{", b"[")

    def _next(self, text: bytes, at: int) -> int | None:
        """Where the next object seems to start."""
        if self._opening is not None and self._in_list:
            found = text.find(self._opening, at + 1)
            return None if found < 0 else found
        found = text.find(b"\n{", at + 1)
        return None if found < 0 else found + 1

    def _ending(self, text: bytes) -> Iterator[DumpedText | InputError]:
        """What is left when nothing more comes: objects that never end."""
        while True:
            self._counted = 0
            at = _after(_BETWEEN if self._in_list else _SPACE, text, 0)
            if at == len(text) or text[at : at + 1] == b"]":
                return
            following = self._next(text, at)
            if following is None:
                self._in_list = False
                yield self._fault("the file ends within this object", text, at, _CUT_SHORT)
                return
            yield self._fault("this object is broken: it does not end", text, at)
            self._is_unsure = True
            self._pass(text, following)
            yield from self.feed(text[following:], is_last=False)
            text, self._rest = self._rest, b""

    def _fault(self, what: str, text: bytes, at: int, hint: str | None = None) -> InputError:
        line, column = self._place(text, at)
        return InputError(what, file=self._file, line=line, column=column, hint=hint)

    def _place(self, text: bytes, at: int) -> tuple[int, int]:
        """Line and column of a place that is not before the last one looked up."""
        self._line += text.count(b"\n", self._counted, at)
        self._counted = at
        last = text.rfind(b"\n", 0, at)
        return self._line, at - last + (self._before if last < 0 else 0)

    def _pass(self, text: bytes, at: int) -> None:
        """Drop the text before a place."""
        self._before = self._place(text, at)[1] - 1
        self._counted = 0


_CUT_SHORT: Final = "the dump may be truncated"


class _Name(msgspec.Struct):
    name: str


class _Named(msgspec.Struct):
    metadata: _Name


_named: Final = msgspec.json.Decoder(_Named)


def _has_name(text: bytes) -> bool:
    try:
        _named.decode(text)
    except msgspec.DecodeError:
        return False
    return True


def _is_bare(head: re.Match[bytes]) -> bool:
    return head[0].lstrip().startswith(b"[")


def _kind_of(head: re.Match[bytes]) -> str:
    """Of the items of a list of one kind; empty where they have their own."""
    found = _KIND.search(head[0])
    return "" if found is None else found[1].decode("utf-8", "replace")


def _end(text: bytes | memoryview) -> int | str:
    """Where the value at the start of a text ends, space after it included; else what is wrong."""
    try:
        _raw.decode(text)
    except msgspec.DecodeError as error:
        message = str(error)
        trailing = _TRAILING.search(message)
        if trailing is not None:
            return int(trailing[1]) - 1
        if _TRUNCATED in message:
            return _TRUNCATED
        return message.removeprefix("JSON is malformed: ")
    except RecursionError:
        return "it is nested too deeply"
    return len(text)


def _after(pattern: re.Pattern[bytes], text: bytes, at: int) -> int:
    found = pattern.match(text, at)
    assert found is not None
    return found.end()
