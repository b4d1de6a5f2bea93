"""Groups of commands that are imported only to run them."""

from collections.abc import Mapping
from importlib import import_module
from typing import Any

import click


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
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(self._about.items()))
