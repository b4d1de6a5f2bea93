"""The command `memqos`: finds the subcommand, imports it alone, and turns errors into exit codes.

Exit codes: 0 fine, 1 error, 2 changes pending or findings, 64 wrong usage, 130 interrupted.
"""

import errno
import os
import sys
from typing import Final, NoReturn

import click

from memqos.cli.lazy_group import LazyGroup
from memqos.cli.output import guard_streams
from memqos.draw.text.terminal import message_lines
from memqos.errors import MemqosError

WRONG_USAGE: Final = 64
INTERRUPTED: Final = 130
_HINTS: Final = {
    errno.ENOSPC: "is the disk full?",
    errno.EACCES: "run as root",
    errno.EPERM: "run as root",
}

_COMMANDS: Final = {
    "explain": "What Kubernetes makes of a Pod, with the reason for every number.",
    "plan": "What would change on a node, and why.",
    "apply": "Write what plan shows, and keep what was there before.",
    "rollback": "Put back what was there before memqos wrote.",
    "agent": "Keep a node as planned while pods come and go.",
    "doctor": "What is wrong with a node, what tells so, and what helps.",
    "why": "Why a container was throttled, killed or evicted, and what prevents it.",
    "size": "What containers should request, out of their history, and at which risk.",
    "backtest": "What would have happened in the past under other settings.",
    "audit": "What Memory QoS would do to a whole cluster, and what is wrong today.",
    "rules": "What audit and doctor look for, and why.",
    "admit": "What limit ranges and quotas make of new pods.",
    "fit": "Which nodes have room for a pod, and what the others lack.",
    "rank": "Who is evicted, and who is killed, first.",
    "resize": "Whether a running pod can be resized in place, and what changes.",
    "numa": "NUMA memory: who holds it, who would be refused, and what would fit.",
    "config": "Check the configuration of an agent, and print its schema.",
    "webhook": "Complete and judge new pods as an admission server.",
    "snapshot": "Write all that is known of this node into one file, without secrets.",
    "conformance": "Replay recorded cases and show every difference.",
    "completion": "Print the shell code that completes memqos's commands.",
}


@click.group(
    cls=LazyGroup,
    prefix="memqos.cli.",
    about=_COMMANDS,
    context_settings={"help_option_names": ["-h", "--help"]},
)
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
    if sys.stdout is None:  # memqos … >&-
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115 - for as long as this process lives
    guard_streams()
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
        _complain(error)
        sys.exit(1)
    except (click.Abort, KeyboardInterrupt):
        _complain("interrupted")
        sys.exit(INTERRUPTED)
    except BrokenPipeError:
        # The reader has exited (memqos … | head). Python would report it again at shutdown.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)
    except OSError as error:
        _complain(_describe_os_error(error))
        sys.exit(1)


def _complain(what: object) -> None:
    print("\n".join(message_lines(what, "memqos: ")), file=sys.stderr)


def _describe_os_error(error: OSError) -> str:
    place = f"{error.filename}: " if error.filename else ""
    hint = _HINTS.get(error.errno or 0)
    return f"{place}{error.strerror or error}" + (f" – {hint}" if hint else "")


if __name__ == "__main__":
    main()
