"""Cut a file into documents, and read each into plain data whatever the others hold."""

import re
from collections.abc import Callable, Iterator
from functools import cache, partial
from typing import Any, NamedTuple

import msgspec

from memqos.api import jsontext
from memqos.api.positions import Lines, Path, Place, Spot, Text, nearest, shown, steps
from memqos.errors import InputError

# A file that is broken more often is no manifest, and reading on would only cost time.
FAULT_LIMIT = 1000

_UTF8_MARK = b"\xef\xbb\xbf"
_UTF16_MARKS = (b"\xff\xfe", b"\xfe\xff")
_JSON_AHEAD = re.compile(rb"(?:---(?=\s))?\s*+(?=[{[])")
_NOTHING = re.compile(rb"(?:---(?=\s|\Z))?(?:\s++|#[^\n]*+)*+\Z")
_DIRECTIVE_AHEAD = re.compile(rb"(?:\s++|#[^\n]*+)*+%")
_SEPARATOR = re.compile(rb"\n(?:---(?=\s|\Z)|\.\.\.(?=\s|\Z))")
_MEANT_AS_JSON = re.compile(rb'\{\s*+["}]|\[\s*+[]["{]')


class Document(msgspec.Struct, frozen=True):
    """One object of a file: plain data that knows where its fields stand."""

    file: str
    index: int
    data: dict[str, Any]
    spots: Callable[[], Spot]

    @property
    def kind(self) -> str:
        """The object's kind; empty if it has none."""
        return _text_or_empty(self.data.get("kind"))

    @property
    def name(self) -> str:
        """The object's name; empty if it has none."""
        metadata = self.data.get("metadata")
        return _text_or_empty(metadata.get("name")) if isinstance(metadata, dict) else ""

    def position(self, field: Path | str) -> Place:
        """Find a field, or the nearest one around it that exists."""
        return nearest(self.spots(), steps(field) if isinstance(field, str) else field)

    def refused(self, what: str, field: Path | str = (), hint: str | None = None) -> InputError:
        """Say what is wrong with a field, and where it stands."""
        path = steps(field) if isinstance(field, str) else field
        line, column = self.position(path)
        return InputError(
            what, file=self.file, line=line, column=column, field=shown(path) or None, hint=hint
        )


def read(data: bytes, file: str) -> Iterator[Document | InputError]:
    """Read the documents of a file in order; in the place of a broken one comes its fault."""
    index = -1
    faults = 0
    for index, found in enumerate(_found(data, file)):
        item = _document(found, file, index) if isinstance(found, _Found) else found
        yield item
        faults += isinstance(item, InputError)
        if faults == FAULT_LIMIT:
            yield InputError(f"{faults} faults: the rest of the file is not read", file=file)
            return
    if index < 0:
        hint = "the file is empty, or holds only comments"
        yield InputError("no document", file=file, hint=hint)


class _Found(NamedTuple):
    value: Any
    spots: Callable[[], Spot]


def _document(found: _Found, file: str, index: int) -> Document | InputError:
    if isinstance(found.value, dict):
        return Document(file, index, found.value, found.spots)
    line, column = found.spots().place
    is_list = isinstance(found.value, list)
    what = f"the document is {'a list' if is_list else 'a single value'}, not an object"
    hint = "make it the items of a List" if is_list else "it needs apiVersion, kind and metadata"
    return InputError(what, file=file, line=line, column=column, hint=hint)


def _found(data: bytes, file: str) -> Iterator[_Found | InputError]:
    if data.startswith(_UTF16_MARKS):
        yield InputError("the file is UTF-16", file=file, hint="save it as UTF-8")
        return
    lines = Lines(data.removeprefix(_UTF8_MARK))
    rest = Text(file, lines, 0, len(lines.data))
    after_json = False
    while rest.start < rest.end:
        if json := _JSON_AHEAD.match(lines.data, rest.start):
            item, start = _read_json(rest._replace(start=json.end()))
            after_json = True
        else:
            text, start, after_json = _cut(rest, after_json)
            item = None if _NOTHING.match(lines.data, text.start, text.end) else _read_yaml(text)
        if isinstance(item, InputError) or (item is not None and item.value is not None):
            yield item
        rest = rest._replace(start=start)


def _cut(rest: Text, after_json: bool) -> tuple[Text, int, bool]:
    """Cut off a text up to the next document; tell where that starts, and if it may be JSON."""
    data = rest.lines.data
    separator = _SEPARATOR.search(data, rest.start)
    if separator and _DIRECTIVE_AHEAD.match(data, rest.start, separator.start()):
        separator = _SEPARATOR.search(data, separator.end())
    end, start = rest.end, rest.end
    if separator:
        end = separator.start() + 1
        start = end if separator[0] == b"\n---" else separator.end()
    if after_json:
        # JSON values need no separator: an object that starts a line starts a document.
        brace = data.find(b"\n{", rest.start, end)
        if brace >= 0:
            return rest._replace(end=brace + 1), brace + 1, True
    return rest._replace(end=end), start, False


def _read_json(rest: Text) -> tuple[_Found | InputError, int]:
    """Read the JSON value at the start of a text; tell where to read on."""
    try:
        value, text = jsontext.read(rest)
    except InputError as error:
        return error, _cut(rest, after_json=True)[1]
    except jsontext.Malformed as error:
        broken_at = rest._replace(start=max(rest.start, error.offset - 1))
        cut, start, _ = _cut(broken_at, after_json=True)
        return _read_malformed_json(rest._replace(end=cut.end), error), start
    try:
        jsontext.check(value, text)
    except InputError as error:
        return error, text.end
    return _Found(value, cache(partial(jsontext.JsonSpot, text))), text.end


def _read_malformed_json(text: Text, malformed: jsontext.Malformed) -> _Found | InputError:
    fault = _not_text(text)
    if fault is None and not isinstance(malformed, jsontext.Truncated):
        item = _read_yaml(text)
        if isinstance(item, _Found) or not _MEANT_AS_JSON.match(text.lines.data, text.start):
            return item
    return fault or text.refused(malformed.what, text.place(malformed.offset), malformed.hint)


def _read_yaml(text: Text) -> _Found | InputError:
    # Imported here because it costs as much as all of memqos, and JSON can do without.
    from memqos.api import yamltext

    fault = _not_text(text)
    if fault is not None:
        return fault
    try:
        return _Found(yamltext.read(text), cache(partial(yamltext.spots, text)))
    except InputError as error:
        return error


def _not_text(text: Text) -> InputError | None:
    data = text.data
    nul = data.find(0)
    if nul >= 0:
        place = text.place(text.start + nul)
        return text.refused("binary data: a NUL byte", place, "give a YAML or JSON file in UTF-8")
    try:
        data.decode()
    except UnicodeDecodeError as error:
        place = text.place(text.start + error.start)
        return text.refused("not UTF-8", place, "save the file as UTF-8")
    return None


def _text_or_empty(value: object) -> str:
    return value if isinstance(value, str) else ""
