"""`memqos rank`: who goes first when memory runs out, by the kubelet's hand or the kernel's."""

from importlib import import_module
from typing import Final

import click

_RANKS: Final = ("eviction", "oom")


class _Ranks(click.Group):
    """Imports a ranking only to run it."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(_RANKS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in _RANKS:
            return None
        command = import_module(f"memqos.cli.rank_{cmd_name}").command
        assert isinstance(command, click.Command)
        return command


@click.group(cls=_Ranks)
def command() -> None:
    """Who goes first when memory runs out.

    \b
    memqos rank eviction    the kubelet: before memory is gone, a pod at a time
    memqos rank oom         the kernel: when it is gone, a process at a time
    """
