"""What the commands that write have in common: their options, and how they tell what came of it."""

import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Final, TypeVar

import click

from memqos.cli.options import SecondsType
from memqos.cli.output import complain, output_option
from memqos.cli.streams import show_status
from memqos.converge.apply import WriteProgress, ignore_progress
from memqos.converge.direct_driver import WRITE_TIMEOUT
from memqos.converge.journal import JOURNAL_FOLDER, JournalContents
from memqos.converge.steps import FAILED, PENDING, WriteOutcome, WriteResult
from memqos.plan.changes import Change

_F = TypeVar("_F", bound=Callable[..., Any])

EXIT_FINE: Final = 0
EXIT_ERROR: Final = 1
EXIT_LEFT: Final = 2
"""Something is still to be done."""

_END_WORDS: Final[dict[WriteOutcome, str]] = {
    "written": "written",
    "gone": "removed with their cgroups",
    "refused": "refused",
    "unreachable": "not written, as systemd or the runtime does not answer",
    "overtaken": "changed by others meanwhile",
    "withheld": "withheld",
    "stopped": "stopped",
    "differs": "not read back as written",
}


def writer_options(command: _F) -> _F:
    """The options of every command that writes to cgroups."""
    for option in (
        output_option(),
        click.option(
            "--timeout",
            type=SecondsType(0, 3600, min_open=True),
            default=WRITE_TIMEOUT,
            metavar="SECONDS",
            help=f"How long a write may take.  [default: {WRITE_TIMEOUT:g}]",
        ),
        click.option(
            "--journal",
            default=JOURNAL_FOLDER,
            metavar="DIR",
            help=f"The folder of the journal, with the previous values.  [default: "
            f"{JOURNAL_FOLDER}]",
        ),
    ):
        command = option(command)
    return command


def exit_code(results: Iterable[WriteResult]) -> int:
    """1 where something failed, 2 where something is left to do."""
    ends = {result.outcome for result in results}
    return EXIT_ERROR if ends & FAILED else EXIT_LEFT if ends & PENDING else EXIT_FINE


def print_results(results: Sequence[WriteResult], done: str) -> None:
    """A line for each result that a person should know of, and a summary."""
    for result in results:
        if result.detail is not None:
            complain(_result_line(result))
    counts = Counter(result.outcome for result in results)
    words: dict[WriteOutcome, str] = {**_END_WORDS, "written": done}
    print(", ".join(f"{counts[end]} {word}" for end, word in words.items() if counts[end]))


def results_data(results: Iterable[WriteResult]) -> list[dict[str, Any]]:
    """Results as plain data."""
    return [
        {
            "path": result.change.path,
            "file": result.change.file,
            "old": result.change.old,
            "new": result.change.new,
            "pod": result.change.pod,
            "container": result.change.container,
            "end": result.outcome,
            "detail": result.detail,
        }
        for result in results
    ]


def journal_notes(reading: JournalContents) -> Iterator[str]:
    """What a person should know of the journal that was found."""
    if reading.is_of_another_boot:
        yield "the journal is from an earlier boot, and so are its values: ignored"
    damage = reading.damage
    if damage is not None and damage.torn:
        yield (
            f"the journal ends within its record {damage.record}, as when its writer is killed: "
            f"only the entries before that can be restored. A killed writer had not written the "
            f"values of the rest; if the file was truncated otherwise, values remain: memqos "
            f"plan shows the differences"
        )
    elif damage is not None:
        yield (
            f"the journal is damaged from its record {damage.record} on: only the entries before "
            f"that can be restored, and values written after that remain: memqos plan shows the "
            f"differences"
        )


def progress_printer() -> WriteProgress:
    """A progress line, on a terminal."""
    return _show_change if sys.stderr.isatty() else ignore_progress


def end_progress() -> None:
    """Take the moving line away."""
    if sys.stderr.isatty():
        show_status("")


def _show_change(done: int, of: int, change: Change) -> None:
    show_status(f"{done + 1}/{of} {change.path}/{change.file}")


def _result_line(result: WriteResult) -> str:
    if result.outcome in ("refused", "unreachable"):
        return f"{result.outcome}: {result.detail}"
    change = result.change
    hint = " – --force writes it anyway" if result.outcome == "withheld" else ""
    place = f"{change.path}/{change.file}: {change.old or 'empty'} → {change.new or 'empty'}"
    return f"{result.outcome}: {place}: {result.detail}{hint}"
