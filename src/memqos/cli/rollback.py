"""`memqos rollback`: puts back what was there before memqos wrote."""

import os
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any, Final, NamedTuple

import click

from memqos.cli.options import cgroup_root_option, owner_options
from memqos.cli.output import OutputFormat, complain, emit
from memqos.cli.writes import (
    EXIT_ERROR,
    EXIT_FINE,
    EXIT_LEFT,
    end_progress,
    exit_code,
    journal_notes,
    print_results,
    progress_printer,
    results_data,
    writer_options,
)
from memqos.converge.cgroup_writer import CgroupWriter, open_writer
from memqos.converge.journal import JournalContents, open_journal, read_journal
from memqos.converge.observation import load_kubelet_config
from memqos.converge.rollback import (
    RollbackResult,
    UndoCheck,
    UndoState,
    check_undo_entries,
    is_restorable,
    refusal,
    refused_places,
    rollback,
)
from memqos.converge.values import path_fault
from memqos.draw.text.table import table
from memqos.errors import InputError
from memqos.host.cgroups import CgroupFs
from memqos.host.machine import Roots
from memqos.settings.facts import RawKubeletConfig
from memqos.units import pluralize

_STATES: Final[dict[UndoState, str]] = {
    "ours": "to put back",
    "conflict": "changed by others since",
    "refused": "refused",
    "unreadable": "not to be read",
    "restored": "as before already",
    "gone": "gone with their cgroups",
}
_IN_PLACE: Final[tuple[UndoState, ...]] = ("ours", "conflict", "refused")


class _Reserved(NamedTuple):
    """The reserved cgroups that may be restored."""

    paths: frozenset[str] = frozenset()
    why_no_others: str = ""


def _check_paths(
    _context: click.Context, _option: click.Parameter, paths: tuple[str, ...]
) -> tuple[str, ...]:
    for fault in filter(None, map(path_fault, paths)):
        raise click.BadParameter(f"{fault}: give it as it is below the root of the cgroups")
    return paths


@click.command()
@click.option("--list", "only_list", is_flag=True, help="Show what would be put back.")
@click.option(
    "--force",
    is_flag=True,
    help="Put back what others have changed since, and below memory that cannot be reclaimed.",
)
@click.option(
    "--kubelet",
    metavar="FILE",
    help="A KubeletConfiguration, for the names of reserved cgroups.  "
    "[default: the running kubelet's]",
)
@click.option(
    "--reserved-cgroup",
    multiple=True,
    metavar="PATH",
    callback=_check_paths,
    help="Restore this reserved cgroup, though the kubelet's configuration does not name it.",
)
@cgroup_root_option
@owner_options
@writer_options
def command(
    only_list: bool,
    force: bool,
    kubelet: str | None,
    reserved_cgroup: tuple[str, ...],
    cgroup_root: str,
    output: OutputFormat,
    timeout: float,
    journal: str,
    direct: bool,
    cri_socket: str | None,
) -> int:
    """Put back every value that memqos has written, as it was before.

    systemd and the container runtime are left with what they knew before, too. A value that
    somebody else has changed since is left alone, and shown. Vanished cgroups are no fault. To do
    it twice does no harm.

    Exit code 0: all is as before, 2: something is left, 1: something failed.
    """
    writer = open_writer(cgroup_root, timeout, force=force, direct=direct, cri_socket=cri_socket)
    stated = load_kubelet_config(kubelet)
    if only_list:
        reading = read_journal(journal, writer.hierarchy())
        reserved = _reserved(reading, writer.fs, stated, reserved_cgroup)
        return _list(reading, writer, reserved, output)
    if not os.path.lexists(journal):
        return _report(JournalContents({}), RollbackResult((), ()), _Reserved(), output)
    with open_journal(journal, writer.hierarchy()) as opened:
        reserved = _reserved(opened.contents, writer.fs, stated, reserved_cgroup)
        try:
            done = rollback(
                writer.fs,
                writer.router,
                opened,
                writer.options(),
                progress_printer(),
                reserved=reserved.paths,
            )
        except KeyboardInterrupt:
            complain("stopped midway: memqos rollback goes on from here")
            raise
        finally:
            end_progress()
            writer.router.close()
        return _report(opened.contents, done, reserved, output)


def _reserved(
    reading: JournalContents, fs: CgroupFs, stated: RawKubeletConfig | None, named: Sequence[str]
) -> _Reserved:
    """Those that a person or the kubelet names; the kubelet only where the journal has others."""
    paths = {entry.path for entry in reading.undo_entries.values()} | {
        path for path, _ in reading.owner_states
    }
    if all(is_restorable(path, named) for path in paths):
        return _Reserved(frozenset(named))
    # Imported here: most journals need neither.
    from memqos.converge.running_kubelet import KubeletSources, reserved_by

    given, complaints = frozenset(named), []
    if stated is None:
        facts = KubeletSources(Roots(cgroup=fs.root)).read_facts()
        stated, complaints = facts.configuration, [*facts.complaints]
    if stated is not None:
        try:
            found = reserved_by(stated, fs)
        except InputError as error:
            complaints.append(str(error))
        else:
            return _Reserved(given | found, f"{stated.name} does not name it as a reserved cgroup")
    why = "; ".join(["no kubelet configuration is known, --kubelet FILE gives one", *complaints])
    return _Reserved(given, why)


def _list(
    reading: JournalContents, writer: CgroupWriter, reserved: _Reserved, output: OutputFormat
) -> int:
    found = list(check_undo_entries(reading.undo_entries.values(), writer.fs, reserved.paths))
    refused = refused_places(found, reading.owner_states, reserved.paths)
    notes = _notes(reading, sorted({path for path, _ in refused}), reserved)
    owners = [
        {"path": path, "owner": state.owner, "name": state.name, "files": list(state.values)}
        for (path, _), state in reading.owner_states.items()
    ]
    if output != "table":
        emit({"values": _found_data(found), "owners": owners, "notes": notes}, output)
    else:
        rows = [[each.state, *_row(each)] for each in found if each.state in _IN_PLACE]
        if rows:
            print("\n".join(table([["", "file", "before", "ours", "now"], *rows], left=2)) + "\n")
        print(_summary(found) or _nothing_text(reading))
        if owners:
            print(f"and what systemd and the runtime kept of {pluralize(len(owners), 'cgroup')}")
    left = bool(refused) or any(each.state in (*_IN_PLACE, "unreadable") for each in found)
    return _final_exit_code(reading, EXIT_LEFT if left else EXIT_FINE)


def _report(
    reading: JournalContents, done: RollbackResult, reserved: _Reserved, output: OutputFormat
) -> int:
    notes = _notes(reading, done.refused, reserved)
    if done.journal_error is not None:
        notes.append(f"the journal still lists what was put back: {done.journal_error}")
        complain(f"note: {notes[-1]}")
    for why in done.owner_failures:
        notes.append(f"an owner still keeps what memqos told it: {why}")
        complain(f"note: {notes[-1]}")
    if output != "table":
        data = {"results": results_data(done.results), "values": _found_data(done.not_written)}
        emit({**data, "released": list(done.owners_restored), "notes": notes}, output)
    else:
        _print(reading, done)
    left = bool(done.owner_failures or done.refused) or any(
        each.state in ("conflict", "unreadable") for each in done.not_written
    )
    return _final_exit_code(reading, exit_code(done.results) or (EXIT_LEFT if left else EXIT_FINE))


def _print(reading: JournalContents, done: RollbackResult) -> None:
    for each in done.not_written:
        entry = each.entry
        if each.state == "conflict":
            complain(
                f"conflict: {entry.path}/{entry.file}: {' or '.join(entry.ours)} was written, "
                f"{each.value or 'empty'} is there now – --force puts back {entry.original}"
            )
        elif each.state == "unreadable":
            complain(f"unreadable: {entry.path}/{entry.file} – run as root")
    if done.results:
        print_results(done.results, "put back")
    if done.owners_restored:
        print(f"{len(done.owners_restored)} put back in what systemd and the runtime keep")
    rest = _summary(done.not_written)
    if rest or not (done.results or done.owners_restored):
        print(rest or _nothing_text(reading))


def _nothing_text(reading: JournalContents) -> str:
    where = "" if reading.damage is None else " in the part of the journal that can be read"
    return f"nothing to put back{where}"


def _notes(reading: JournalContents, refused: Iterable[str], reserved: _Reserved) -> list[str]:
    notes = list(journal_notes(reading))
    notes += [refusal(path, reserved.why_no_others) for path in refused]
    for note in notes:
        complain(f"note: {note}")
    return notes


def _final_exit_code(reading: JournalContents, code: int) -> int:
    """What stood in the damaged part of a journal may not have been put back."""
    lost = reading.damage is not None and not reading.damage.torn
    return EXIT_ERROR if lost else code


def _row(found: UndoCheck) -> list[str]:
    entry = found.entry
    values = (entry.original, " or ".join(entry.ours), found.value)
    return [f"{entry.path}/{entry.file}", *(value or "empty" for value in values)]


def _summary(found: Sequence[UndoCheck]) -> str:
    counts = Counter(each.state for each in found)
    return ", ".join(f"{counts[state]} {word}" for state, word in _STATES.items() if counts[state])


def _found_data(found: Sequence[UndoCheck]) -> list[dict[str, Any]]:
    return [
        {
            "path": each.entry.path,
            "file": each.entry.file,
            "before": each.entry.original,
            "ours": list(each.entry.ours),
            "now": each.value,
            "pod": each.entry.pod,
            "container": each.entry.container,
            "state": each.state,
        }
        for each in found
    ]
