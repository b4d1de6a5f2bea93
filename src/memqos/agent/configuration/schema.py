"""The JSON Schema of an agent's configuration, for editors and pipelines."""

from typing import Any, Final

import msgspec

from memqos.agent.configuration import AGENT_API_VERSION, AGENT_KIND, AgentConfiguration
from memqos.agent.configuration.fields import CONFIG_FIELDS, ConfigField, ConfigPath, fields_of
from memqos.kube.duration import SECOND, duration_text

_DIALECT: Final = "https://json-schema.org/draft/2020-12/schema"
_DURATION: Final = r"^[+-]?(([0-9]+(\.[0-9]*)?|\.[0-9]+)(ns|us|µs|μs|ms|s|m|h))+$|^[+-]?0$"


def configuration_schema() -> dict[str, Any]:
    """What a file may say; made of the structs, so that it cannot say anything else."""
    (reference,), components = msgspec.json.schema_components(
        [AgentConfiguration], ref_template="{name}"
    )
    parts: dict[str, Any] = {**components}
    whole = _inline(parts[reference["$ref"]], parts, ())
    whole["properties"] = {
        "apiVersion": {"const": AGENT_API_VERSION},
        "kind": {"const": AGENT_KIND},
        **whole["properties"],
    }
    whole["required"] = ["apiVersion", "kind"]
    return {"$schema": _DIALECT, **whole, "title": AGENT_KIND}


def _inline(part: dict[str, Any], parts: dict[str, Any], path: ConfigPath) -> dict[str, Any]:
    """A section with its own sections in the place of references to them."""
    properties = {
        name: _property(schema, parts, (*path, name)) for name, schema in part["properties"].items()
    }
    return {
        "description": part["description"],
        "type": "object",
        "properties": properties,
        "additionalProperties": False,
    }


def _property(schema: dict[str, Any], parts: dict[str, Any], path: ConfigPath) -> dict[str, Any]:
    if path in CONFIG_FIELDS:
        return (
            _duration(schema, CONFIG_FIELDS[path])
            if CONFIG_FIELDS[path].is_duration
            else _value(schema)
        )
    # A section, or one that may be null.
    options = schema.get("anyOf", [schema])
    name = next(option["$ref"] for option in options if "$ref" in option)
    return {**_inline(parts[name], parts, path), "description": schema["description"]}


def _value(schema: dict[str, Any]) -> dict[str, Any]:
    default = schema["default"]
    return {**schema, "default": list(default) if isinstance(default, tuple) else default}


def _duration(schema: dict[str, Any], field: ConfigField) -> dict[str, Any]:
    return {
        "description": f"{field.description} {field.expected.capitalize()}, such as 90s or 1m30s.",
        "type": "string",
        "pattern": _DURATION,
        "default": duration_text(round(schema["default"] * SECOND)),
    }


def configuration_data(configuration: AgentConfiguration) -> dict[str, Any]:
    """All that is configured, without what follows from the node."""
    return {"apiVersion": AGENT_API_VERSION, "kind": AGENT_KIND, **_section(configuration)}


def _section(section: msgspec.Struct, above: tuple[str, ...] = ()) -> dict[str, Any]:
    data: dict[str, Any] = {}
    fields = fields_of(type(section), above).values()
    for field, attribute in zip(fields, section.__struct_fields__, strict=True):
        value = getattr(section, attribute)
        if isinstance(value, msgspec.Struct):
            value = _section(value, field.path)
        elif isinstance(value, tuple):
            value = list(value)
        elif field.is_duration:
            value = duration_text(round(value * SECOND))
        if value is not None:
            data[field.path[-1]] = value
    return data
