"""`memqos config`: an agent's configuration, checked before an agent gets it.

One file a subcommand, imported only to run it.
"""

from importlib import import_module
from typing import Final

import click

_COMMANDS: Final = {
    "check": "Say all that is wrong with a configuration, and where.",
    "schema": "Print the JSON Schema of a configuration, for editors.",
}


class _Lazy(click.Group):
    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in _COMMANDS:
            return None
        command = import_module(f"memqos.cli.config.{cmd_name}").command
        assert isinstance(command, click.Command)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(_COMMANDS.items()))


@click.group("config", cls=_Lazy)
def command() -> None:
    """Look after the configuration of memqos agent.

    \b
    memqos config check memqos.yaml               all that is wrong, with line and hint
    memqos config schema > memqos.schema.json     what an editor completes and checks by
    """
