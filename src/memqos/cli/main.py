"""The command `memqos`: finds the subcommand, imports it alone, and turns errors into exit codes.

Exit codes: 0 fine, 1 error, 2 changes pending or findings, 64 wrong usage, 130 interrupted.
"""

import os
import sys
from importlib import import_module
from typing import Final, NoReturn

import click

from memqos.errors import MemqosError

WRONG_USAGE: Final = 64
INTERRUPTED: Final = 130

_COMMANDS: Final = {
    "explain": "What Kubernetes makes of a Pod, with the reason for every number.",
    "plan": "What would change on a node, and why.",
    "apply": "Write what plan shows, and keep what was there before.",
    "rollback": "Put back what was there before memqos wrote.",
    "doctor": "What is wrong with a node, what tells so, and what helps.",
    "audit": "What Memory QoS would do to a whole cluster, and what is wrong today.",
    "rules": "What audit and doctor look for, and why.",
    "admit": "What limit ranges and quotas make of new pods.",
    "fit": "Which nodes have room for a pod, and what the others lack.",
    "rank": "Who is evicted, and who is killed, first.",
    "resize": "Whether a running pod can be resized in place, and what changes.",
    "numa": "NUMA memory: who holds it, who would be refused, and what would fit.",
    "snapshot": "Write all that is known of this node into one file, without secrets.",
    "conformance": "Replay recorded cases and show every difference.",
    "completion": "Print the shell code that completes memqos's commands.",
}


class _Lazy(click.Group):
    """Knows its commands' names and one line about each; imports a command only to run it."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in _COMMANDS:
            return None
        command = import_module(f"memqos.cli.{cmd_name}").command
        assert isinstance(command, click.Command)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(_COMMANDS.items()))


@click.group(cls=_Lazy, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="memqos")
def cli() -> None:
    """Memory quality of service for Kubernetes nodes.

    \b
    memqos explain pod.yaml                       what a node will do with this Pod
    memqos explain pod.yaml --node node.yaml --why
    memqos explain pod.yaml --compare 1.22,1.27,1.36,1.37
    """


def main() -> NoReturn:
    """The entry point."""
    try:
        code = cli.main(prog_name="memqos", standalone_mode=False)
        sys.stdout.flush()
        sys.exit(code if isinstance(code, int) else 0)
    except click.UsageError as error:
        error.show()
        sys.exit(WRONG_USAGE)
    except click.ClickException as error:
        error.show()
        sys.exit(1)
    except MemqosError as error:
        print(f"memqos: {error}", file=sys.stderr)
        sys.exit(1)
    except (click.Abort, KeyboardInterrupt):
        print("memqos: interrupted", file=sys.stderr)
        sys.exit(INTERRUPTED)
    except BrokenPipeError:
        # The reader has gone (memqos … | head). Python would complain again while shutting down.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)
    except OSError as error:
        print(f"memqos: {error.strerror or error} – is the disk full?", file=sys.stderr)
        sys.exit(1)


if __name__ == "__main__":
    main()
