"""The fields of an agent's configuration: where each is written, and what it takes."""

import re
from collections.abc import Iterator
from functools import cache
from types import NoneType
from typing import Annotated, Any, Final, Literal, NamedTuple, get_args, get_origin, get_type_hints

import msgspec

from memqos.agent.configuration import AgentConfiguration

ConfigPath = tuple[str, ...]

GATES_PATH: Final[ConfigPath] = ("gates",)
"""The one field whose own fields have free names."""

_PREFIX: Final = "MEMQOS_"
_HUMP: Final = re.compile(r"(?<=[a-z])(?=[A-Z])")
_WORDS: Final[dict[object, str]] = {bool: "true or false", str: "a text"}
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
