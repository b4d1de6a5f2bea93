"""Say in plain words, and in the right place, why a value is not what its field takes."""

import re
from collections.abc import Callable, Iterable
from typing import Any

import msgspec

from memqos.errors import InputError
from memqos.manifests.documents import Document
from memqos.manifests.positions import FieldPath, FieldStep, steps

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
    """Say that a value is not of the type a field takes, and what to do."""
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
    """Find the keys that msgspec leaves out of the path of a value inside a dict."""
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
