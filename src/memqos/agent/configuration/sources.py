"""Read an agent's configuration: a file, then the environment, then flags; the later wins."""

import re
from collections.abc import Iterator, Mapping
from math import inf
from typing import Any, Final, NamedTuple

import msgspec

from memqos.agent.configuration import AGENT_API_VERSION, AGENT_KIND, AgentConfiguration
from memqos.agent.configuration.checks import (
    BY_FILE,
    BY_FLAG,
    BY_VARIABLE,
    EVERY_POD,
    GivenValue,
    GivenValues,
    Refuse,
    contradictions,
    invalid_values,
    resolve_pod_source,
)
from memqos.agent.configuration.fields import (
    CONFIG_FIELDS,
    GATES_PATH,
    ConfigField,
    ConfigPath,
    decode_file_value,
    decode_text_value,
    fields_of,
)
from memqos.errors import InputError, nearest_name
from memqos.host.manifest_files import load_files
from memqos.manifests.documents import Document, read_documents

CONFIG_VARIABLE: Final = "MEMQOS_CONFIG"
"""Names the file; the code that starts the agent reads it."""

_PREFIX: Final = "MEMQOS_"
# The kubelet puts these into the environment of every pod for a Service called memqos or memqos-x
# (kubelet envvars/envvars.go).
_OF_SERVICE: Final = re.compile(r".*_SERVICE_(HOST|PORT(_.+)?)|.*_PORT(_\d+_(TCP|UDP|SCTP).*)?")
_VARIABLES: Final = {field.variable: field for field in CONFIG_FIELDS.values()}


class ConfigurationResult(NamedTuple):
    """What reading came to: a configuration where there are no faults."""

    configuration: AgentConfiguration | None
    faults: tuple[InputError, ...] = ()


def load_configuration(
    file: str | None, environ: Mapping[str, str], flags: Mapping[str, object]
) -> AgentConfiguration:
    """The configuration; the first fault is raised, and says how many more there are.

    Flags go by the path of their field in a file ("pods.tokenFile"), with the text that was given;
    None is a flag that was not.
    """
    reading = read_agent_configuration(file, environ, flags)
    if reading.configuration is not None:
        return reading.configuration
    first, *others = reading.faults
    if others:
        first.what += f" (and {len(others)} more: memqos config check)"
    raise first


def read_agent_configuration(
    file: str | None, environ: Mapping[str, str], flags: Mapping[str, object]
) -> ConfigurationResult:
    """The same, with all faults."""
    faults: list[InputError] = []
    settings: GivenValues = {}
    if file is not None:
        settings |= _values_in_file(file, faults)
    settings |= _values_in_environment(environ, faults)
    settings |= _values_in_flags(flags, faults)
    settings = resolve_pod_source(settings)
    faults += invalid_values(settings)
    faults += [] if faults else contradictions(settings)
    if faults:
        return ConfigurationResult(None, tuple(sorted(faults, key=_position)))
    return ConfigurationResult(_build_configuration(settings))


def _position(fault: InputError) -> tuple[float, int]:
    """Faults of a file come in its order, then the others."""
    return inf if fault.line is None else fault.line, fault.column or 0


def _values_in_file(file: str, faults: list[InputError]) -> GivenValues:
    documents: list[Document] = []
    for name, data in load_files([file]):
        found = [data] if isinstance(data, InputError) else read_documents(data, name)
        for item in found:
            if isinstance(item, InputError):
                faults.append(item)
            else:
                documents.append(item)
    hint = "one file is one configuration"
    faults += [extra.error("a second document", hint=hint) for extra in documents[1:]]
    return {} if not documents else _values_in_document(documents[0], faults)


def _values_in_document(document: Document, faults: list[InputError]) -> GivenValues:
    settings: GivenValues = {}
    data = dict(document.data)
    for name, expected in (("apiVersion", AGENT_API_VERSION), ("kind", AGENT_KIND)):
        found = data.pop(name, None)
        if found != expected:
            what = "required, but missing" if found is None else f"expected {expected}"
            hint = f"write {name}: {expected}"
            faults.append(document.error(what, (name,), hint))
            if name == "kind" and found is not None:
                return {}  # of another kind: its fields are not configuration
    for path, value in _leaves(AgentConfiguration, data, (), document, faults):
        given = GivenValue(value, BY_FILE, _refuse_in_document(document, path))
        try:
            settings[path] = given._replace(value=decode_file_value(_field_at(path), value))
        except InputError as error:
            faults.append(document.error(error.what, (*path, *_list_index(error)), error.hint))
    return settings


def _leaves(
    section: type[msgspec.Struct],
    data: Mapping[str, Any],
    above: ConfigPath,
    document: Document,
    faults: list[InputError],
) -> Iterator[tuple[ConfigPath, Any]]:
    """The values that are set; what is null counts as not set."""
    fields = fields_of(section, above)
    for name, value in data.items():
        path = (*above, str(name))
        if name not in fields:
            faults.append(_unknown_field(document, path, list(fields)))
        elif value is None:
            continue
        elif not (fields[name].is_section or path == GATES_PATH):
            yield path, value
        elif not isinstance(value, Mapping):
            faults.append(document.error("expected a mapping", path))
        elif path == GATES_PATH:
            yield from [((*GATES_PATH, str(gate)), on) for gate, on in value.items()]
        elif not value and name == "canary":
            faults.append(document.error(EVERY_POD[0], path, EVERY_POD[1]))
        else:
            yield from _leaves(fields[name].bare_type, value, path, document, faults)


def _unknown_field(document: Document, path: ConfigPath, known: list[str]) -> InputError:
    where = f"in {'.'.join(path[:-1])}" if len(path) > 1 else "here"
    return document.error(f"there is no such field {where}", path, _suggestion(path[-1], known))


def _values_in_environment(environ: Mapping[str, str], faults: list[InputError]) -> GivenValues:
    settings: GivenValues = {}
    for name in sorted(environ):
        if not name.startswith(_PREFIX) or name == CONFIG_VARIABLE or _OF_SERVICE.fullmatch(name):
            continue
        refuse = _refuse_by_name(name, "environment")
        if name in _VARIABLES:
            settings |= _values_in_text(
                _VARIABLES[name], environ[name], BY_VARIABLE, refuse, faults
            )
        else:
            hint = _suggestion(name, list(_VARIABLES))
            faults.append(refuse("there is no such setting", hint))
    return settings


def _values_in_flags(flags: Mapping[str, object], faults: list[InputError]) -> GivenValues:
    settings: GivenValues = {}
    for name, value in flags.items():
        field = CONFIG_FIELDS[tuple(name.split("."))]
        if value is not None:
            settings |= _values_in_text(field, value, BY_FLAG, _refuse_by_name(field.flag), faults)
    return settings


def _values_in_text(
    field: ConfigField,
    value: object,
    rank: int,
    refuse: Refuse,
    faults: list[InputError],
) -> GivenValues:
    try:
        if field.path == GATES_PATH:
            gates: Mapping[str, bool] = decode_text_value(field, value)
            return {(*GATES_PATH, gate): GivenValue(on, rank, refuse) for gate, on in gates.items()}
        return {field.path: GivenValue(decode_text_value(field, value), rank, refuse)}
    except InputError as error:
        faults.append(refuse(error.what, error.hint))
        return {}


def _refuse_in_document(document: Document, path: ConfigPath) -> Refuse:
    return lambda what, hint: document.error(what, path, hint)


def _refuse_by_name(field: str, file: str | None = None) -> Refuse:
    return lambda what, hint: InputError(what, file=file, field=field, hint=hint)


def _field_at(path: ConfigPath) -> ConfigField:
    return CONFIG_FIELDS[GATES_PATH if path[:1] == GATES_PATH else path]


def _list_index(error: InputError) -> tuple[int, ...]:
    """The item of a list that an error is about."""
    return () if error.field is None else (int(error.field),)


def _suggestion(name: str, known: list[str]) -> str:
    near = nearest_name(name, known)
    if near is not None:
        return f"did you mean {near}?"
    return f"there are {', '.join(known)}" if len(known) < 10 else "see memqos config schema"


def _build_configuration(settings: GivenValues) -> AgentConfiguration:
    data: dict[str, Any] = {}
    for (*sections, name), given in settings.items():
        part = data
        for section in sections:
            part = part.setdefault(section, {})
        part[name] = given.value
    return msgspec.convert(data, AgentConfiguration)
