"""`memqos config schema`: the JSON Schema of an agent's configuration."""

import click

from memqos.agent.configuration.schema import schema
from memqos.cli.output import emit


@click.command("schema")
def command() -> None:
    """Print the JSON Schema of an agent's configuration."""
    emit(schema(), "json")
