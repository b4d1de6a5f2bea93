"""The fields of an agent's configuration: where each is written, and what it takes."""

import re
from collections.abc import Callable, Iterator
from functools import cache
from types import NoneType
from typing import Annotated, Any, Final, Literal, NamedTuple, get_args, get_origin, get_type_hints

import msgspec

from memqos.agent.configuration import AgentConfiguration
from memqos.errors import InputError, quote_excerpt
from memqos.kube.duration import SECOND, parse_duration

ConfigPath = tuple[str, ...]

GATES_PATH: Final[ConfigPath] = ("gates",)
"""The one field whose own fields have free names."""

_PREFIX: Final = "MEMQOS_"
_HUMP: Final = re.compile(r"(?<=[a-z])(?=[A-Z])")
_WORDS: Final[dict[object, str]] = {bool: "true or false", str: "a string"}
# What every command calls so already.
_FLAGS: Final[dict[ConfigPath, str]] = {
    GATES_PATH: "--gate",
    ("pods", "files"): "--pods",
    ("pods", "kubelet"): "--pods",
    ("pods", "tokenFile"): "--token-file",
    ("pods", "caFile"): "--ca-file",
    ("pods", "clientCert"): "--client-cert",
    ("pods", "clientKey"): "--client-key",
    ("pods", "serverName"): "--server-name",
    ("kubeletConfig",): "--kubelet",
    ("memoryManagerState",): "--state",
}


class ConfigField(NamedTuple):
    """One value: its path in a file, its type, and words about it."""

    path: ConfigPath
    type: Any
    """As msgspec takes it, bounds included; a section's own type for a section."""
    bare_type: Any
    """Without bounds: bool, int, float, str, tuple, dict or Literal[…]."""
    expected: str
    """What a value would have to be."""
    description: str
    is_duration: bool

    @property
    def is_section(self) -> bool:
        return isinstance(self.bare_type, type) and issubclass(self.bare_type, msgspec.Struct)

    @property
    def variable(self) -> str:
        """What it is called in the environment."""
        return _PREFIX + "_".join(_HUMP.sub("_", step) for step in self.path).upper()

    @property
    def flag(self) -> str:
        """What it is called on the command line."""
        return (
            _FLAGS.get(self.path)
            or "--" + "-".join(_HUMP.sub("-", step) for step in self.path).lower()
        )


@cache
def fields_of(section: type[msgspec.Struct], above: ConfigPath = ()) -> dict[str, ConfigField]:
    """The fields of a section, by their names in a file."""
    hints = get_type_hints(section, include_extras=True)
    return {
        each.encode_name: _field((*above, each.encode_name), hints[each.name])
        for each in msgspec.structs.fields(section)
    }


def _all_fields(section: type[msgspec.Struct], above: ConfigPath = ()) -> Iterator[ConfigField]:
    for field in fields_of(section, above).values():
        if field.is_section:
            yield from _all_fields(field.bare_type, field.path)
        else:
            yield field


def _field(path: ConfigPath, hint: Any) -> ConfigField:
    plain, metas = _unwrap_type(hint)
    return ConfigField(
        path,
        hint,
        plain,
        describe_type(hint),
        next(meta.description for meta in metas if meta.description),
        any((meta.extra or {}).get("duration") for meta in metas),
    )


def describe_type(hint: Any) -> str:
    """What a value of a type would have to be."""
    plain, metas = _unwrap_type(hint)
    for meta in metas:
        if meta.extra and "words" in meta.extra:
            return str(meta.extra["words"])
    if get_origin(plain) is Literal:
        return " or ".join(get_args(plain))
    return _WORDS.get(plain, "a list" if get_origin(plain) is tuple else "an object")


def _unwrap_type(hint: Any) -> tuple[Any, list[msgspec.Meta]]:
    """A type without its bounds and without None, and what was said beside it."""
    metas: list[msgspec.Meta] = []
    while True:
        if get_origin(hint) is Annotated:
            hint, *found = get_args(hint)
            metas += found
        elif NoneType in get_args(hint):
            (hint,) = [option for option in get_args(hint) if option is not NoneType]
        else:
            return hint, metas


CONFIG_FIELDS: Final[dict[ConfigPath, ConfigField]] = {
    field.path: field for field in _all_fields(AgentConfiguration)
}
"""Every value that can be set, by its path in a file."""


_BOOLEANS: Final = {"true": True, "false": False}
_NUMBER: Final = re.compile(r"[+-]?[0-9]*\.?[0-9]+(?:[eE][+-]?[0-9]+)?", re.ASCII)
_SWITCH: Final = {False: "off", True: "on"}
"""Words that YAML 1.1 reads as booleans."""
_DURATION_HINT: Final = "write a number with a unit, such as 90s or 1m30s"


def decode_file_value(field: ConfigField, value: Any) -> Any:
    """What a field holds; a refusal names the item of a list that it is about."""
    if field.path == GATES_PATH:
        return _convert(value, bool, "true or false")
    if field.is_duration:
        return _convert(_seconds(value, field.expected), field.type, field.expected, as_given=value)
    if isinstance(value, bool) and _SWITCH[value] in get_args(field.bare_type):
        return _SWITCH[value]
    if get_origin(field.bare_type) is not tuple:
        return _convert(value, field.type, field.expected)
    if not isinstance(value, list | tuple):
        hint = f"write [{value}]" if isinstance(value, str) else None
        raise InputError(f"{_describe_value(value)} is not a list", hint=hint)
    item = get_args(field.bare_type)[0]
    return tuple(
        _convert(each, item, describe_type(item), index=index) for index, each in enumerate(value)
    )


def decode_text_value(field: ConfigField, text: object) -> Any:
    """What a field holds by the environment or a flag; what a flag made of it already is taken."""
    if field.path == GATES_PATH:
        return dict(map(_gate, _items(text)))
    if get_origin(field.bare_type) is tuple:
        return decode_file_value(field, _items(text))
    if isinstance(text, str) and not field.is_duration:
        reader = _READERS.get(field.bare_type)
        return decode_file_value(field, text if reader is None else reader(text, field.expected))
    return decode_file_value(field, text)


def _items(text: object) -> list[Any]:
    """The items of a list: a text is cut at its commas, what is a list already is not."""
    if isinstance(text, list | tuple):
        return list(text)
    return [item.strip() for item in str(text).split(",") if item.strip()]


def _gate(text: str) -> tuple[str, bool]:
    name, _, on = text.partition("=")
    if on.lower() not in _BOOLEANS:
        raise InputError(f"{quote_excerpt(text)} is not NAME=true or NAME=false")
    return name.strip(), _BOOLEANS[on.lower()]


def _bool(text: str, words: str) -> bool:
    if text.lower() not in _BOOLEANS:
        raise InputError(f"{quote_excerpt(text)} is not {words}")
    return _BOOLEANS[text.lower()]


def _number(kind: Callable[[str], float]) -> Callable[[str, str], float]:
    def read(text: str, words: str) -> float:
        try:
            if _NUMBER.fullmatch(text):
                return kind(text)
        except ValueError:
            pass  # more digits than Python converts, or no whole number
        raise InputError(f"{quote_excerpt(text)} is not {words}")

    return read


_READERS: Final[dict[Any, Callable[[str, str], Any]]] = {
    bool: _bool,
    int: _number(int),
    float: _number(float),
}


def _seconds(value: object, words: str) -> float:
    found = parse_duration(value) if isinstance(value, str) else None
    if found is None:
        raise InputError(f"{_describe_value(value)} is not {words}", hint=_DURATION_HINT)
    return found / SECOND


def _convert(
    value: Any, kind: Any, words: str, *, as_given: Any = None, index: int | None = None
) -> Any:
    field = None if index is None else str(index)
    hint = None
    # In Python's re "$" also matches before a final line break.
    if not (isinstance(value, str) and value.endswith("\n")):
        try:
            return msgspec.convert(value, kind)
        except msgspec.ValidationError as error:
            if isinstance(value, int | float) and str(error).startswith("Expected `str"):
                hint = "put it in quotes"
    shown = _describe_value(value if as_given is None else as_given)
    raise InputError(f"{shown} is not {words}", field=field, hint=hint)


def _describe_value(value: object) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        return quote_excerpt(value)
    return repr(value) if isinstance(value, int | float) else _KINDS.get(type(value), "this")


_KINDS: Final[dict[type, str]] = {dict: "a mapping", list: "a list", tuple: "a list"}
