"""`memqos config`: an agent's configuration, checked before an agent gets it.

One file a subcommand, imported only to run it.
"""

from typing import Final

import click

from memqos.cli.lazy_group import LazyGroup

_COMMANDS: Final = {
    "check": "Say all that is wrong with a configuration, and where.",
    "schema": "Print the JSON Schema of a configuration, for editors.",
}


@click.group("config", cls=LazyGroup, prefix="memqos.cli.config.", about=_COMMANDS)
def command() -> None:
    """Look after the configuration of memqos agent.

    \b
    memqos config check memqos.yaml               all that is wrong, with line and hint
    memqos config schema > memqos.schema.json     what an editor completes and checks by
    """
