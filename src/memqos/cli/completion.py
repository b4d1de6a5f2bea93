"""`memqos completion`: shell code that completes commands and options."""

import click
from click.shell_completion import get_completion_class


@click.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def command(shell: str) -> None:
    """Print the code that completes memqos in SHELL.

    \b
    bash:  memqos completion bash > /etc/bash_completion.d/memqos
    zsh:   memqos completion zsh > "${fpath[1]}/_memqos"
    fish:  memqos completion fish > ~/.config/fish/completions/memqos.fish
    """
    from memqos.cli.main import cli

    completion = get_completion_class(shell)
    assert completion is not None
    click.echo(completion(cli, {}, "memqos", "_MEMQOS_COMPLETE").source())
