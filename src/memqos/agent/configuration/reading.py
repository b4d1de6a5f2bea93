"""Read an agent's configuration: a file, then the environment, then flags; the later wins."""

import re
from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from math import inf
from typing import Any, Final, NamedTuple

import msgspec

from memqos.agent.configuration import API_VERSION, KIND, Configuration
from memqos.agent.configuration.checks import (
    EVERY_POD,
    FILE,
    FLAG,
    VARIABLE,
    Given,
    Refuse,
    Settings,
    contradictions,
    misfits,
    settled,
)
from memqos.agent.configuration.fields import FIELDS, GATES, Field, Path, fields_of
from memqos.agent.configuration.values import value_in_file, value_of_text
from memqos.errors import InputError
from memqos.host.manifests import load
from memqos.manifests.documents import Document, read

CONFIG_VARIABLE: Final = "MEMQOS_CONFIG"
"""Names the file; whoever starts the agent reads it."""

_PREFIX: Final = "MEMQOS_"
# A Service called memqos, or memqos-anything, puts these into the environment of every pod.
_OF_SERVICE: Final = re.compile(r".*_SERVICE_(HOST|PORT(_.+)?)|.*_PORT(_\d+_(TCP|UDP|SCTP).*)?")
_VARIABLES: Final = {field.variable: field for field in FIELDS.values()}


class Reading(NamedTuple):
    """What reading came to: a configuration where there are no faults."""

    configuration: Configuration | None
    faults: tuple[InputError, ...] = ()


def configuration_from(
    file: str | None, environ: Mapping[str, str], flags: Mapping[str, object]
) -> Configuration:
    """The configuration in force; the first fault is raised, and says how many more there are.

    Flags go by the path of their field in a file ("pods.tokenFile"), with the text that was given;
    None is a flag that was not.
    """
    reading = read_configuration(file, environ, flags)
    if reading.configuration is not None:
        return reading.configuration
    first, *others = reading.faults
    if others:
        first.what += f" (and {len(others)} more: memqos config check)"
    raise first


def read_configuration(
    file: str | None, environ: Mapping[str, str], flags: Mapping[str, object]
) -> Reading:
    """The same, with all faults."""
    faults: list[InputError] = []
    settings: Settings = {}
    if file is not None:
        settings |= _in_file(file, faults)
    settings |= _in_environment(environ, faults)
    settings |= _in_flags(flags, faults)
    settings = settled(settings)
    faults += misfits(settings)
    faults += [] if faults else contradictions(settings)
    if faults:
        return Reading(None, tuple(sorted(faults, key=_place)))
    return Reading(_built(settings))


def _place(fault: InputError) -> tuple[float, int]:
    """Faults of a file come in its order, then the others."""
    return inf if fault.line is None else fault.line, fault.column or 0


def _in_file(file: str, faults: list[InputError]) -> Settings:
    documents: list[Document] = []
    for name, data in load([file]):
        found = [data] if isinstance(data, InputError) else read(data, name)
        for item in found:
            if isinstance(item, InputError):
                faults.append(item)
            else:
                documents.append(item)
    hint = "one file is one configuration"
    faults += [extra.refused("a second document", hint=hint) for extra in documents[1:]]
    return {} if not documents else _in_document(documents[0], faults)


def _in_document(document: Document, faults: list[InputError]) -> Settings:
    settings: Settings = {}
    data = dict(document.data)
    for name, expected in (("apiVersion", API_VERSION), ("kind", KIND)):
        found = data.pop(name, None)
        if found != expected:
            what = "required, but missing" if found is None else f"expected {expected}"
            hint = f"write {name}: {expected}"
            faults.append(document.refused(what, (name,), hint))
            if name == "kind" and found is not None:
                return {}  # whatever it is, its fields are not ours
    for path, value in _leaves(Configuration, data, (), document, faults):
        given = Given(value, FILE, _written(document, path))
        try:
            settings[path] = given._replace(value=value_in_file(_field_at(path), value))
        except InputError as error:
            faults.append(document.refused(error.what, (*path, *_steps(error)), error.hint))
    return settings


def _leaves(
    section: type[msgspec.Struct],
    data: Mapping[str, Any],
    above: Path,
    document: Document,
    faults: list[InputError],
) -> Iterator[tuple[Path, Any]]:
    """The values that are set; what is null counts as not set."""
    fields = fields_of(section, above)
    for name, value in data.items():
        path = (*above, str(name))
        if name not in fields:
            faults.append(_unknown(document, path, list(fields)))
        elif value is None:
            continue
        elif not (fields[name].is_section or path == GATES):
            yield path, value
        elif not isinstance(value, Mapping):
            faults.append(document.refused("expected a mapping", path))
        elif path == GATES:
            yield from [((*GATES, str(gate)), on) for gate, on in value.items()]
        elif not value and name == "canary":
            faults.append(document.refused(EVERY_POD[0], path, EVERY_POD[1]))
        else:
            yield from _leaves(fields[name].plain, value, path, document, faults)


def _unknown(document: Document, path: Path, known: list[str]) -> InputError:
    where = f"in {'.'.join(path[:-1])}" if len(path) > 1 else "here"
    return document.refused(f"there is no such field {where}", path, _suggestion(path[-1], known))


def _in_environment(environ: Mapping[str, str], faults: list[InputError]) -> Settings:
    settings: Settings = {}
    for name in sorted(environ):
        if not name.startswith(_PREFIX) or name == CONFIG_VARIABLE or _OF_SERVICE.fullmatch(name):
            continue
        refuse = _named(name, "environment")
        if name in _VARIABLES:
            settings |= _texts(_VARIABLES[name], environ[name], VARIABLE, refuse, faults)
        else:
            hint = _suggestion(name, list(_VARIABLES))
            faults.append(refuse("there is no such setting", hint))
    return settings


def _in_flags(flags: Mapping[str, object], faults: list[InputError]) -> Settings:
    settings: Settings = {}
    for name, value in flags.items():
        field = FIELDS[tuple(name.split("."))]
        if value is not None:
            settings |= _texts(field, value, FLAG, _named(field.flag), faults)
    return settings


def _texts(
    field: Field,
    value: object,
    rank: int,
    refuse: Refuse,
    faults: list[InputError],
) -> Settings:
    try:
        if field.path == GATES:
            gates: Mapping[str, bool] = value_of_text(field, value)
            return {(*GATES, gate): Given(on, rank, refuse) for gate, on in gates.items()}
        return {field.path: Given(value_of_text(field, value), rank, refuse)}
    except InputError as error:
        faults.append(refuse(error.what, error.hint))
        return {}


def _written(document: Document, path: Path) -> Refuse:
    return lambda what, hint: document.refused(what, path, hint)


def _named(field: str, file: str | None = None) -> Refuse:
    return lambda what, hint: InputError(what, file=file, field=field, hint=hint)


def _field_at(path: Path) -> Field:
    return FIELDS[GATES if path[:1] == GATES else path]


def _steps(error: InputError) -> tuple[int, ...]:
    """The item of a list that an error is about."""
    return () if error.field is None else (int(error.field),)


def _suggestion(name: str, known: list[str]) -> str:
    spelled = {each.casefold(): each for each in known}
    close = get_close_matches(name.casefold(), spelled, n=1)
    if close:
        return f"did you mean {spelled[close[0]]}?"
    return f"there are {', '.join(known)}" if len(known) < 10 else "see memqos config schema"


def _built(settings: Settings) -> Configuration:
    data: dict[str, Any] = {}
    for (*sections, name), given in settings.items():
        held = data
        for section in sections:
            held = held.setdefault(section, {})
        held[name] = given.value
    return msgspec.convert(data, Configuration)
