"""Cut a file into documents, and read each into plain data, independently of the others."""

import re
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

import msgspec

from memqos.errors import InputError
from memqos.manifests import jsontext
from memqos.manifests.positions import (
    DocumentText,
    FieldPath,
    FieldStep,
    Lines,
    Position,
    Spot,
    format_path,
    nearest_position,
    steps,
)

# A file that is broken more often is no manifest, and reading on would only cost time.
FAULT_LIMIT = 1000

_UTF8_MARK = b"\xef\xbb\xbf"
_UTF16_MARKS = (b"\xff\xfe", b"\xfe\xff")
_SEPARATOR = re.compile(rb"\n(?:---|\.\.\.)(?=\s|\Z)")
# JSON values need no separator: an object that starts a line starts a document.
_SEPARATOR_OR_JSON = re.compile(rb"\n(?:(?:---|\.\.\.)(?=\s|\Z)|\{)")
_IDLE_LINES = re.compile(
    rb"(?:(?:(?:---|\.\.\.)(?=\s|\Z))?(?:\s*\n|[^\S\n]*+(?:#[^\n]*+)?(?:\n|\Z)))*+"
)
_JSON_AHEAD = re.compile(rb"\s*+(?=[{[])")
_MEANT_AS_JSON = re.compile(rb'\{\s*+["}]|\[\s*+[]["{]')


class Document(msgspec.Struct, frozen=True):
    """One object of a file: plain data with the positions of its fields."""

    file: str
    index: int
    data: dict[str, Any]
    root: Spot

    @property
    def kind(self) -> str:
        """The object's kind; empty if it has none."""
        return _text_or_empty(self.data.get("kind"))

    @property
    def name(self) -> str:
        """The object's name; empty if it has none."""
        metadata = self.data.get("metadata")
        return _text_or_empty(metadata.get("name")) if isinstance(metadata, dict) else ""

    def position(self, field: FieldPath | str) -> Position:
        """Find a field, or the nearest one around it that exists."""
        return nearest_position(self.root, steps(field) if isinstance(field, str) else field)

    def error(self, what: str, field: FieldPath | str = (), hint: str | None = None) -> InputError:
        """An error about a field, with its position."""
        path = steps(field) if isinstance(field, str) else field
        line, column = self.position(path)
        return InputError(
            what,
            file=self.file,
            line=line,
            column=column,
            field=format_path(path) or None,
            hint=hint,
        )


def read_documents(data: bytes, file: str) -> Iterator[Document | InputError]:
    """Read the documents of a file in order; in place of a broken one comes its error."""
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
        hint = "the file is empty, or has only comments"
        yield InputError("no document", file=file, hint=hint)


def find_document(data: bytes, file: str, *kinds: str) -> Document:
    """The first document of one of these kinds, the first being the one that errors name."""
    first: Document | None = None
    for found in read_documents(data, file):
        if isinstance(found, InputError):
            raise found
        if found.kind in kinds:
            return found
        first = first or found
    assert first is not None
    raise first.error(
        f"the file has a {first.kind or 'nameless kind'}, not a {kinds[0]}",
        ("kind",),
        f"give a file with a {kinds[0]}",
    )


class _Found(NamedTuple):
    value: Any
    root: Spot


def _document(found: _Found, file: str, index: int) -> Document | InputError:
    if isinstance(found.value, dict):
        return Document(file, index, found.value, found.root)
    line, column = found.root.place
    is_list = isinstance(found.value, list)
    what = f"the document is {'a list' if is_list else 'a single value'}, not an object"
    hint = "make it the items of a List" if is_list else "it needs apiVersion, kind and metadata"
    return InputError(what, file=file, line=line, column=column, hint=hint)


def _found(data: bytes, file: str) -> Iterator[_Found | InputError]:
    if data.startswith(_UTF16_MARKS):
        yield InputError("the file is UTF-16", file=file, hint="save it as UTF-8")
        return
    lines = Lines(data.removeprefix(_UTF8_MARK))
    rest = DocumentText(file, lines, _after_idle_lines(lines.data, 0), len(lines.data))
    json_met = False
    while rest.start < rest.end:
        if ahead := _JSON_AHEAD.match(lines.data, rest.start):
            rest = rest._replace(start=ahead.end())
            item, start = _read_json(rest, json_met)
            json_met = True
        else:
            text = _cut(rest, json_met)
            item, start = _read_yaml(text), text.end
        if isinstance(item, InputError) or item.value is not None:
            yield item
        rest = rest._replace(start=_after_idle_lines(lines.data, start))


def _cut(rest: DocumentText, json_met: bool) -> DocumentText:
    """Cut off the text up to where the next document may start."""
    data = rest.lines.data
    boundary = _SEPARATOR_OR_JSON if json_met else _SEPARATOR
    found = boundary.search(data, rest.start)
    if found and data.startswith(b"%", rest.start):
        # Directives belong to the document behind the separator that ends them.
        found = boundary.search(data, found.end())
    return rest._replace(end=found.start() + 1) if found else rest


def _after_idle_lines(data: bytes, start: int) -> int:
    """Skip lines with nothing but space, a comment or a separator."""
    idle = _IDLE_LINES.match(data, start)
    return idle.end() if idle else start


def _read_json(rest: DocumentText, json_met: bool) -> tuple[_Found | InputError, int]:
    """Read the JSON value at the start of a text, and where the rest starts."""
    try:
        value, text = jsontext.read_json(rest)
    except InputError as error:
        return error, _cut(rest, json_met=True).end
    except jsontext.MalformedJson as error:
        is_json = _MEANT_AS_JSON.match(rest.lines.data, rest.start) is not None
        broken_line = rest.lines.data.rfind(b"\n", rest.start, error.offset)
        broken = rest._replace(start=max(rest.start, broken_line))
        text = rest._replace(end=_cut(broken, is_json or json_met).end)
        return _read_malformed(text, error if is_json else None), text.end
    try:
        jsontext.check(value, text)
    except InputError as error:
        return error, text.end
    return _Found(value, jsontext.JsonSpot(text)), text.end


def _read_malformed(
    text: DocumentText, as_json: jsontext.MalformedJson | None
) -> _Found | InputError:
    """Read as YAML what could not be read as JSON; if that fails too, yield the error."""
    fault = _not_text(text)
    if fault is not None:
        return fault
    if not isinstance(as_json, jsontext.Truncated):
        item = _read_yaml(text)
        if isinstance(item, _Found) or as_json is None:
            return item
    return text.error(as_json.what, text.place(as_json.offset), as_json.hint)


def _read_yaml(text: DocumentText) -> _Found | InputError:
    # Imported here because it costs as much as all of memqos, and JSON can do without.
    from memqos.manifests import yamltext

    fault = _not_text(text)
    if fault is not None:
        return fault
    try:
        return _Found(*yamltext.read_yaml(text))
    except InputError as error:
        return error


def _not_text(text: DocumentText) -> InputError | None:
    data = text.data
    nul = data.find(0)
    if nul >= 0:
        place = text.place(text.start + nul)
        return text.error("binary data: a NUL byte", place, "give a YAML or JSON file in UTF-8")
    try:
        data.decode()
    except UnicodeDecodeError as error:
        place = text.place(text.start + error.start)
        return text.error("not UTF-8", place, "save the file as UTF-8")
    return None


def _text_or_empty(value: object) -> str:
    return value if isinstance(value, str) else ""


_COMPLAINT = re.compile(r"(?P<what>.*?)(?: - at (?:`key` in )?`(?P<path>\$[^`]*)`)?", re.DOTALL)
_WRONG_TYPE = re.compile(r"Expected `(?P<expected>[^`]*)`, got `(?P<got>[^`]*)`")
_MISSING = re.compile(r"Object missing required field `(?P<name>[^`]*)`")

_ANY_KEY = "..."
_NAMES = {
    "str": "a string",
    "int": "an integer",
    "float": "a number",
    "bool": "a boolean",
    "object": "a mapping",
    "array": "a list",
    "null": "null",
}
_TYPES = {
    str: "str",
    int: "int",
    float: "float",
    bool: "bool",
    dict: "object",
    list: "array",
    type(None): "null",
}
_UNQUOTED = frozenset({"int", "float", "bool"})


def decoding_error(
    error: msgspec.ValidationError, data: Any, document: Document, prefix: FieldPath = ()
) -> InputError:
    """Turn what decoding `data`, found at `prefix` in a document, has raised into an error."""
    complaint = _COMPLAINT.fullmatch(str(error))
    assert complaint is not None
    path, what = steps(complaint["path"] or ""), complaint["what"]
    if wrong := _WRONG_TYPE.match(what):
        got = wrong["got"]
        what, hint = _wrong_type(wrong["expected"].split(" | "), got)
        found = _with_keys(path, data, lambda value: _TYPES.get(type(value)) == got)
        return document.error(what, prefix + found, hint)
    if missing := _MISSING.match(what):
        name = missing["name"]
        found = _with_keys(path, data, lambda value: isinstance(value, dict) and name not in value)
        return document.error("required, but missing", (*prefix, *found, name))
    return document.error(what[:1].lower() + what[1:].replace("`", ""), prefix + path)


def unlike(value: object, expected: type) -> tuple[str, str | None]:
    """What is wrong with a value of another type than the field's, and a hint."""
    return _wrong_type([_TYPES[expected]], _TYPES[type(value)])


def _wrong_type(expected: list[str], got: str) -> tuple[str, str | None]:
    hint = "put it in quotes" if "str" in expected and got in _UNQUOTED else None
    return f"expected {_any_of(expected)}, got {_NAMES.get(got, got)}", hint


def _any_of(expected: Iterable[str]) -> str:
    types = [name for name in expected if name != "null"]
    if "float" in types and "int" in types:
        types.remove("int")
    return " or ".join(_NAMES.get(name, name) for name in types)


def _with_keys(path: FieldPath, data: Any, is_guilty: Callable[[Any], bool]) -> FieldPath:
    """Find the keys that msgspec omits from the path of a value inside a dict."""
    if _ANY_KEY not in path:
        return path
    found = _first_guilty(path, data, is_guilty)
    return path[: path.index(_ANY_KEY)] if found is None else found


def _first_guilty(path: FieldPath, data: Any, is_guilty: Callable[[Any], bool]) -> FieldPath | None:
    if not path:
        return () if is_guilty(data) else None
    for step, value in _members(data):
        if path[0] in (_ANY_KEY, step):
            rest = _first_guilty(path[1:], value, is_guilty)
            if rest is not None:
                return (step, *rest)
    return None


def _members(data: Any) -> Iterable[tuple[FieldStep, Any]]:
    if isinstance(data, dict):
        return data.items()
    return enumerate(data) if isinstance(data, list) else ()
