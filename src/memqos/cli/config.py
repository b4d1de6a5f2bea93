"""`memqos config`: an agent's configuration, checked before an agent gets it."""

from typing import Any, Final

import click

from memqos.agent.configuration import PodOrigin
from memqos.agent.configuration.schema import configuration_data, configuration_schema
from memqos.agent.configuration.sources import ConfigurationResult, read_agent_configuration
from memqos.cli.output import OutputFormat, complain, emit, output_option, print_lines
from memqos.errors import InputError

_REFUSED = 2


@click.group("config")
def command() -> None:
    """Look after the configuration of memqos agent.

    \b
    memqos config check memqos.yaml               all that is wrong, with line and hint
    memqos config schema > memqos.schema.json     what an editor completes and checks by
    """


@command.command("check", short_help="Say all that is wrong with a configuration, and where.")
@click.argument("files", nargs=-1, required=True, metavar="FILE…")
@output_option(table="table; json and yaml show what is in force")
def check_files(files: tuple[str, ...], output: OutputFormat) -> int:
    """Check configurations of memqos agent, each on its own; - is standard input.

    The environment and flags of an agent are not looked at.

    Exit code 0: an agent would take them all, 2: something is wrong.
    """
    readings = {file: read_agent_configuration(file, {}, {}) for file in files}
    if output == "table":
        for file, reading in readings.items():
            _print_reading(file, reading)
    else:
        emit([_reading_data(file, reading) for file, reading in readings.items()], output)
    return _REFUSED if any(reading.faults for reading in readings.values()) else 0


_SOURCES: Final[dict[PodOrigin, str]] = {
    "auto": "the kubelet's PodsAPI, else the kubelet's endpoint or the cluster",
    "podsapi": "the kubelet's PodsAPI",
    "cluster": "the cluster",
}


def _print_reading(file: str, reading: ConfigurationResult) -> None:
    for fault in reading.faults:
        complain(fault)
    configuration = reading.configuration
    if configuration is not None:
        pods = configuration.pods
        source = _SOURCES.get(pods.origin) or pods.kubelet or ", ".join(pods.files)
        print_lines([f"{file}: fine: mode {configuration.mode}, pods from {source}"])


def _reading_data(file: str, reading: ConfigurationResult) -> dict[str, Any]:
    configuration = reading.configuration
    return {
        "file": file,
        "valid": configuration is not None,
        "faults": [_fault_data(fault) for fault in reading.faults],
        "configuration": None if configuration is None else configuration_data(configuration),
    }


def _fault_data(fault: InputError) -> dict[str, Any]:
    return {
        "what": fault.what,
        "line": fault.line,
        "column": fault.column,
        "field": fault.field,
        "hint": fault.hint,
    }


@command.command("schema", short_help="Print the JSON Schema of a configuration, for editors.")
def print_schema() -> None:
    """Print the JSON Schema of an agent's configuration."""
    emit(configuration_schema(), "json")
