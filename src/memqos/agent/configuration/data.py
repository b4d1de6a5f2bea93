"""An agent's configuration as plain data that could stand in a file, defaults included."""

from typing import Any

import msgspec

from memqos.agent.configuration import AGENT_API_VERSION, AGENT_KIND, AgentConfiguration
from memqos.agent.configuration.fields import fields_of
from memqos.kube.duration import SECOND, duration_text


def configuration_data(configuration: AgentConfiguration) -> dict[str, Any]:
    """All that is in force; what follows from the node is left out."""
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
