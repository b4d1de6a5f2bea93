"""Groups of commands that are imported only to run them."""

from collections.abc import Mapping
from importlib import import_module
from typing import Any

import click

from memqos.cli.streams import color_option


class LazyGroup(click.Group):
    """Knows its commands' names and one line about each; `prefix` and a name make a module."""

    def __init__(self, *args: Any, prefix: str, about: Mapping[str, str], **options: Any) -> None:
        super().__init__(*args, **options)
        self._prefix = prefix
        self._about = about

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self._about)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in self._about:
            return None
        command = import_module(f"{self._prefix}{cmd_name}").command
        assert isinstance(command, click.Command)
        _add_color_option(command)
        if ctx.resilient_parsing:  # A shell asks what a line completes to.
            from memqos.cli.completion_values import complete_values

            complete_values(command)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0]
        if name not in self._about and not name.startswith("-") and not ctx.resilient_parsing:
            raise click.NoSuchCommand(name, possibilities=self._about, ctx=ctx)
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(self._about.items()))


def _add_color_option(command: click.Command) -> None:
    """Every command takes --color, once."""
    if not any("--color" in parameter.opts for parameter in command.params):
        color_option(command)
    for each in command.commands.values() if isinstance(command, click.Group) else ():
        _add_color_option(each)
