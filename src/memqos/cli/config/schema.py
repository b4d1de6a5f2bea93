"""`memqos config schema`: the JSON Schema of an agent's configuration."""

import click

from memqos.agent.configuration.schema import configuration_schema
from memqos.cli.output import emit


@click.command("schema")
def print_schema() -> None:
    """Print the JSON Schema of an agent's configuration."""
    emit(configuration_schema(), "json")
