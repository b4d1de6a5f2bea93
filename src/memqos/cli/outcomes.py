"""What the commands that write have in common: their options, and how they tell what came of it."""

import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Final, NamedTuple, TypeVar

import click

from memqos.cli.amounts import Seconds
from memqos.cli.output import complain, output_option
from memqos.cli.streams import show_status
from memqos.converge.apply import Progress, quiet
from memqos.converge.direct import TIMEOUT
from memqos.converge.journal import FOLDER, Reading, hierarchy_of
from memqos.converge.records import Hierarchy
from memqos.converge.routing import Router
from memqos.converge.writing import FAILED, PENDING, Cautions, End, Result, cautions_of
from memqos.errors import Unreachable
from memqos.host.cgroups import CgroupFs
from memqos.host.machine import Roots, read_machine
from memqos.host.owner_discovery import reach
from memqos.plan.changes import Change

F = TypeVar("F", bound=Callable[..., Any])

FINE: Final = 0
ERROR: Final = 1
LEFT: Final = 2
"""Something is still to be done."""

_WORDS: Final[dict[End, str]] = {
    "written": "written",
    "gone": "gone with their cgroups",
    "refused": "refused",
    "unreachable": "not written, as their owner does not answer",
    "overtaken": "changed by others meanwhile",
    "withheld": "withheld",
    "stopped": "stopped",
    "differs": "not read back as written",
}


class Hand(NamedTuple):
    """All that it takes to write to this machine's cgroups."""

    fs: CgroupFs
    driver: Router
    cautions: Cautions
    hierarchy: Hierarchy


def writer_options(command: F) -> F:
    """The options of every command that writes to cgroups."""
    for option in (
        output_option(),
        click.option(
            "--timeout",
            type=Seconds(0, 3600, min_open=True),
            default=TIMEOUT,
            metavar="SECONDS",
            help=f"How long a write may take.  [default: {TIMEOUT:g}]",
        ),
        click.option(
            "--journal",
            default=FOLDER,
            metavar="DIR",
            help=f"Where prior values are kept.  [default: {FOLDER}]",
        ),
    ):
        command = option(command)
    return command


def hand(
    root: str,
    timeout: float,
    *,
    force: bool,
    direct: bool = False,
    cri_socket: str | None = None,
) -> Hand:
    """The machine's cgroups below a root, their owners, and what a writer has to mind there."""
    fs = CgroupFs(root)
    machine = read_machine(Roots(cgroup=fs.root))
    if machine.boot_id is None:
        raise Unreachable("the kernel does not say which boot this is", hint="is /proc mounted?")
    cautions = cautions_of(machine, force=force)
    owners = reach(fs.root, cri_socket, direct=direct)
    return Hand(
        fs,
        Router(fs, owners, cautions.page_size, timeout),
        cautions,
        hierarchy_of(fs, machine.boot_id),
    )


def exit_code(results: Iterable[Result]) -> int:
    """1 where something failed, 2 where something is left to do."""
    ends = {result.end for result in results}
    return ERROR if ends & FAILED else LEFT if ends & PENDING else FINE


def print_results(results: Sequence[Result], done: str) -> None:
    """A line for each result that a person should know of, and a summary."""
    for result in results:
        if result.detail is not None:
            complain(_line(result))
    counts = Counter(result.end for result in results)
    words: dict[End, str] = {**_WORDS, "written": done}
    print(", ".join(f"{counts[end]} {word}" for end, word in words.items() if counts[end]))


def results_data(results: Iterable[Result]) -> list[dict[str, Any]]:
    """Results as plain data."""
    return [
        {
            "path": result.change.path,
            "file": result.change.file,
            "old": result.change.old,
            "new": result.change.new,
            "pod": result.change.pod,
            "container": result.change.container,
            "end": result.end,
            "detail": result.detail,
        }
        for result in results
    ]


def journal_notes(reading: Reading) -> Iterator[str]:
    """What a person should know of the journal that was found."""
    if reading.is_of_another_boot:
        yield "the journal is of an earlier boot, whose values are gone with it: ignored"
    damage = reading.damage
    if damage is not None and damage.torn:
        yield (
            f"the journal ends within its record {damage.record}, as when its writer is killed: "
            "only what stands before that can be put back. A writer that was killed had not acted "
            "on the rest; if the file was cut short in another way, values are left: memqos plan "
            "shows what differs"
        )
    elif damage is not None:
        yield (
            f"the journal is damaged from its record {damage.record} on: only what stands before "
            "that can be put back, and values written after that are left: memqos plan shows what "
            "differs"
        )


def progress() -> Progress:
    """A line that moves, where somebody watches."""
    return _show if sys.stderr.isatty() else quiet


def end_progress() -> None:
    """Take the moving line away."""
    if sys.stderr.isatty():
        show_status("")


def _show(done: int, of: int, change: Change) -> None:
    show_status(f"{done + 1}/{of} {change.path}/{change.file}")


def _line(result: Result) -> str:
    if result.end in ("refused", "unreachable"):
        return f"{result.end}: {result.detail}"
    change = result.change
    hint = " – --force writes it all the same" if result.end == "withheld" else ""
    place = f"{change.path}/{change.file}: {change.old or 'empty'} → {change.new or 'empty'}"
    return f"{result.end}: {place}: {result.detail}{hint}"
