"""`memqos config`: an agent's configuration, checked before an agent gets it."""

from typing import Any, Final

import click

from memqos.agent.configuration import PodOrigin
from memqos.agent.configuration.schema import configuration_data, configuration_schema
from memqos.agent.configuration.sources import ConfigurationResult, read_agent_configuration
from memqos.cli.check_output import CHECK_FORMATS, CheckFormat, is_check_format, print_check
from memqos.cli.output import OutputFormat, complain, emit, output_option, print_data, print_lines
from memqos.errors import InputError

_REFUSED = 2


@click.group("config")
def command() -> None:
    """Check the configuration of memqos agent, or print its JSON Schema.

    \b
    memqos config check memqos.yaml               every error, with line and hint
    memqos config schema > memqos.schema.json     for completion in an editor
    """


@command.command("check", short_help="Check a configuration: report every error and its line.")
@click.argument("files", nargs=-1, required=True, metavar="FILE…")
@output_option(*CHECK_FORMATS, table="table; json and yaml show the effective configuration")
def check_files(files: tuple[str, ...], output: OutputFormat | CheckFormat) -> int:
    """Check configurations of memqos agent, each on its own; - is standard input.

    The environment and flags of an agent are ignored.

    Exit code 0: all are valid, 2: there are errors.
    """
    readings = {file: read_agent_configuration(file, {}, {}) for file in files}
    if output == "table":
        for file, reading in readings.items():
            _print_reading(file, reading)
    elif is_check_format(output):
        from memqos.draw.text.check_report import input_result

        faults = [fault for reading in readings.values() for fault in reading.faults]
        print_check("config check", map(input_result, faults), files, output)
    elif output in ("json", "yaml"):
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


@command.command("schema", short_help="Print the JSON Schema of the configuration, for editors.")
def print_schema() -> None:
    """Print the JSON Schema of an agent's configuration."""
    print_data(configuration_schema(), "json")
