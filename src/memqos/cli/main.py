"""The command `memqos`: finds the subcommand, imports it alone, and turns errors into exit codes.

Exit codes: 0 fine, 1 error, 2 changes pending or findings, 64 wrong usage, 130 interrupted.
"""

import errno
import os
import sys
from typing import Final, NoReturn

import click

from memqos.cli.lazy_group import LazyGroup
from memqos.cli.output import complain
from memqos.cli.streams import color_option, guard_streams
from memqos.errors import MemqosError

WRONG_USAGE: Final = 64
INTERRUPTED: Final = 130
_HINTS: Final = {
    errno.ENOSPC: "is the disk full?",
    errno.EACCES: "run as root",
    errno.EPERM: "run as root",
}

_COMMANDS: Final = {
    "explain": "Show the cgroup values of a Pod, and the rule behind every number.",
    "plan": "Show what would change on a node, and why.",
    "apply": "Write the planned values, and save the previous ones for rollback.",
    "rollback": "Restore the values from before memqos wrote them.",
    "agent": "Run the agent: keep the cgroup values of a node as planned.",
    "status": "Show whether Memory QoS works on a node, and what is throttled.",
    "top": "Watch the memory of a node's containers, live or recorded.",
    "web": "Serve a page for the node and the cluster on this machine.",
    "doctor": "Diagnose a node: problems, evidence, fixes.",
    "why": "Show why a container was throttled, OOM-killed or evicted, and how to prevent it.",
    "size": "Recommend memory requests and limits from usage history, with their risk.",
    "backtest": "Replay usage history under other settings.",
    "audit": "Audit a cluster: effects of Memory QoS, and problems it has today.",
    "rules": "List the rules of audit and doctor, and explain them.",
    "admit": "Check new pods against LimitRanges, quotas and policies.",
    "fit": "Show which nodes can run a pod, and what the others lack.",
    "rank": "Show the order of eviction and OOM kills.",
    "resize": "Check an in-place resize of a running pod, and show what changes.",
    "numa": "Inspect NUMA memory: assignments, admission of pods, reservedMemory.",
    "config": "Check an agent configuration, or print its JSON Schema.",
    "webhook": "Run an admission webhook that sets defaults and validates new pods.",
    "snapshot": "Save the state of this node to one file, without secrets.",
    "lab": "Run experiments with Memory QoS on a real kernel, with verdicts.",
    "conformance": "Replay recorded cases, and show every difference.",
    "completion": "Print the code for shell completion.",
}


@click.group(
    cls=LazyGroup,
    prefix="memqos.cli.",
    about=_COMMANDS,
    context_settings={"help_option_names": ["-h", "--help"]},
)
@click.version_option(package_name="memqos")
@color_option
def cli() -> None:
    """Memory quality of service for Kubernetes nodes.

    \b
    memqos explain pod.yaml                       cgroup values of this Pod
    memqos explain pod.yaml --node node.yaml --why
    memqos explain pod.yaml --compare 1.22,1.27,1.36,1.37
    """


def main() -> NoReturn:
    """The entry point."""
    _open_closed_streams()
    guard_streams()
    try:
        if instruction := os.environ.get("_MEMQOS_COMPLETE"):
            from memqos.cli.completion import answer_shell

            sys.exit(answer_shell(cli, instruction))
        code = cli.main(prog_name=_program_name(), standalone_mode=False)
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
        # The reader has exited (memqos … | head).
        _discard_output()
        sys.exit(1)
    except OSError as error:
        try:
            sys.stdout.flush()
        except OSError:
            _discard_output()
        _complain(_describe_os_error(error))
        sys.exit(1)


def _open_closed_streams() -> None:
    """Replace what is closed (memqos … <&- >&-) for as long as this process lives."""
    if sys.stdin is None:
        sys.stdin = open(os.devnull)  # noqa: SIM115
    if sys.stdout is None:
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115


def _discard_output() -> None:
    """Drop what cannot be written: Python would try again at shutdown, and exit with 120."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _program_name() -> str:
    """What the user typed: kubectl runs plugins by their file's name."""
    started_as = os.path.basename(sys.argv[0])
    return "kubectl memqos" if started_as == "kubectl-memqos" else "memqos"


def _complain(what: object) -> None:
    complain(what, "memqos: ")


def _describe_os_error(error: OSError) -> str:
    place = f"{error.filename}: " if error.filename else ""
    hint = _HINTS.get(error.errno or 0)
    return f"{place}{error.strerror or error}" + (f" – {hint}" if hint else "")


if __name__ == "__main__":
    main()
