"""`memqos rollback`: puts back what was there before memqos wrote."""

import os
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any, Final, NamedTuple

import click

from memqos.cli.help_sections import SectionedCommand, help_section
from memqos.cli.options import cgroup_root_option, owner_options
from memqos.cli.output import OutputFormat, complain, emit, print_lines
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
    unconfirmed_conflict,
)
from memqos.converge.values import path_fault
from memqos.draw.text.lines import Table
from memqos.errors import InputError
from memqos.host.cgroups import CgroupFs
from memqos.host.machine import Roots
from memqos.plan.levels import CgroupFilePath
from memqos.settings.facts import RawKubeletConfig
from memqos.units import pluralize

_STATES: Final[dict[UndoState, str]] = {
    "ours": "to restore",
    "conflict": "changed by others since",
    "unconfirmed": "managed by the kubelet, not decided",
    "refused": "refused",
    "kubelet": "set by the kubelet",
    "unreadable": "unreadable",
    "restored": "already restored",
    "gone": "removed with their cgroups",
}
_IN_PLACE: Final[tuple[UndoState, ...]] = ("ours", "conflict", "unconfirmed", "refused")


class _KubeletAnswers(NamedTuple):
    """What the journal does not decide, but the kubelet's configuration or a person."""

    reserved: frozenset[str] = frozenset()
    """The reserved cgroups that may be restored."""
    why_no_others: str = ""
    files: frozenset[CgroupFilePath] | None = None
    """The files above pods that the kubelet keeps."""
    why_unknown: str = ""


def _check_paths(
    _context: click.Context, _option: click.Parameter, paths: tuple[str, ...]
) -> tuple[str, ...]:
    for fault in filter(None, map(path_fault, paths)):
        raise click.BadParameter(f"{fault}: give its path below the cgroup root")
    return paths


@click.command(cls=SectionedCommand)
@click.option("--list", "only_list", is_flag=True, help="Show what would be restored.")
@click.option(
    "--force",
    is_flag=True,
    help="Restore values even if they were changed since, or lie below memory that cannot be "
    "reclaimed.",
)
@help_section("Settings")(
    click.option(
        "--kubelet",
        metavar="FILE",
        help="A KubeletConfiguration, for reserved cgroups and the files it manages.  "
        "[default: the running kubelet's]",
    )
)
@help_section("Settings")(
    click.option(
        "--release",
        metavar="VERSION",
        help="The kubelet's version, for the files it manages.  [default: the running kubelet's]",
    )
)
@click.option(
    "--reserved-cgroup",
    multiple=True,
    metavar="CGROUP",
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
    release: str | None,
    reserved_cgroup: tuple[str, ...],
    cgroup_root: str,
    output: OutputFormat,
    timeout: float,
    journal: str,
    direct: bool,
    cri_socket: str | None,
) -> int:
    """Restore the values from before memqos wrote them.

    The settings in systemd and the container runtime are restored too. A value that something
    else has changed since is shown and not restored; so is one that memqos wrote for the kubelet,
    unless the kubelet does not manage that file. Removed cgroups are no error. It is safe to run
    it twice.

    Exit code 0: all values are restored, 2: some are not, 1: something failed.
    """
    writer = open_writer(cgroup_root, timeout, force=force, direct=direct, cri_socket=cri_socket)
    stated = load_kubelet_config(kubelet)
    if only_list:
        reading = read_journal(journal, writer.hierarchy())
        answers = _ask_kubelet(reading, writer.fs, stated, release, reserved_cgroup)
        return _list(reading, writer, answers, output)
    if not os.path.lexists(journal):
        return _report(JournalContents({}), RollbackResult((), ()), _KubeletAnswers(), output)
    with open_journal(journal, writer.hierarchy()) as opened:
        answers = _ask_kubelet(opened.contents, writer.fs, stated, release, reserved_cgroup)
        try:
            done = rollback(
                writer.fs,
                writer.router,
                opened,
                writer.options(),
                progress_printer(),
                reserved=answers.reserved,
                kubelet_files=answers.files,
            )
        except KeyboardInterrupt:
            complain("stopped midway: memqos rollback continues from here")
            raise
        finally:
            end_progress()
            writer.router.close()
        return _report(opened.contents, done, answers, output)


def _ask_kubelet(
    reading: JournalContents,
    fs: CgroupFs,
    stated: RawKubeletConfig | None,
    release: str | None,
    named: Sequence[str],
) -> _KubeletAnswers:
    """What a person or the kubelet states; the kubelet only where the journal needs it."""
    paths = {entry.path for entry in reading.undo_entries.values()} | {
        path for path, _ in reading.owner_states
    }
    is_unconfirmed = any(entry.is_unconfirmed for entry in reading.undo_entries.values())
    if all(is_restorable(path, named) for path in paths) and not is_unconfirmed:
        return _KubeletAnswers(frozenset(named))
    # Imported here: most journals need neither.
    from memqos.converge.running_kubelet import (
        KubeletFacts,
        KubeletSources,
        files_kept_with,
        reserved_by,
    )

    facts = KubeletFacts()
    if stated is None or (is_unconfirmed and release is None):
        sources = KubeletSources(Roots(cgroup=fs.root))
        facts = sources.read_facts(configuration=stated is None)
    config, version = stated or facts.configuration, release or facts.version
    complaints = [*facts.complaints]
    reserved = files = None
    if config is not None:
        try:
            reserved = reserved_by(config, fs)
            files = None if version is None else files_kept_with(config, version, fs)
        except InputError as error:
            complaints.append(str(error))
    if config is None or reserved is None:
        unknown = "no kubelet configuration is known"
        why = "; ".join([f"{unknown}, --kubelet FILE gives one", *complaints])
        return _KubeletAnswers(frozenset(named), why, why_unknown="; ".join([unknown, *complaints]))
    return _KubeletAnswers(
        frozenset(named) | reserved,
        f"{config.name} does not name it as a reserved cgroup",
        files,
        f"the version of the running kubelet is unknown ({facts.why_unknown})"
        if version is None
        else f"a kubelet {version} does not run with {config.name}",
    )


def _list(
    reading: JournalContents, writer: CgroupWriter, answers: _KubeletAnswers, output: OutputFormat
) -> int:
    entries = reading.undo_entries.values()
    found = list(check_undo_entries(entries, writer.fs, answers.reserved, answers.files))
    refused = refused_places(found, reading.owner_states, answers.reserved)
    notes = _notes(reading, sorted({path for path, _ in refused}), answers)
    notes += _report_unconfirmed(found, answers)
    owners = [
        {"path": path, "owner": state.owner, "name": state.name, "files": list(state.values)}
        for (path, _), state in reading.owner_states.items()
    ]
    if output != "table":
        emit({"values": _found_data(found), "owners": owners, "notes": notes}, output)
    else:
        rows = [
            [each.state, *_row(each)] for each in found if each.state in (*_IN_PLACE, "kubelet")
        ]
        if rows:
            print_lines([Table([["", "file", "before", "ours", "now"], *rows], left=2), ""])
        print(_summary(found) or _nothing_text(reading))
        if owners:
            print(
                f"and the settings in systemd and the runtime of {pluralize(len(owners), 'cgroup')}"
            )
    left = bool(refused) or any(each.state in (*_IN_PLACE, "unreadable") for each in found)
    return _final_exit_code(reading, EXIT_LEFT if left else EXIT_FINE)


def _report(
    reading: JournalContents, done: RollbackResult, answers: _KubeletAnswers, output: OutputFormat
) -> int:
    notes = _notes(reading, done.refused, answers)
    notes += _report_unconfirmed(done.not_written, answers)
    if done.journal_error is not None:
        notes.append(f"the journal still lists the restored values: {done.journal_error}")
        complain(f"note: {notes[-1]}")
    for why in done.owner_failures:
        notes.append(f"an owner (systemd or the runtime) still has the values of memqos: {why}")
        complain(f"note: {notes[-1]}")
    if output != "table":
        data = {"results": results_data(done.results), "values": _found_data(done.not_written)}
        emit({**data, "released": list(done.owners_restored), "notes": notes}, output)
    else:
        _print(reading, done)
    left = bool(done.owner_failures or done.refused) or any(
        each.state in ("conflict", "unconfirmed", "unreadable") for each in done.not_written
    )
    return _final_exit_code(reading, exit_code(done.results) or (EXIT_LEFT if left else EXIT_FINE))


def _print(reading: JournalContents, done: RollbackResult) -> None:
    for each in done.not_written:
        entry = each.entry
        if each.state == "conflict":
            complain(
                f"conflict: {entry.path}/{entry.file}: {' or '.join(entry.ours)} was written, "
                f"now it is {each.value or 'empty'} – --force restores {entry.original}"
            )
        elif each.state == "unreadable":
            complain(f"unreadable: {entry.path}/{entry.file} – run as root")
    if done.results:
        print_results(done.results, "restored")
    if done.owners_restored:
        print(f"{len(done.owners_restored)} restored in systemd and the runtime")
    rest = _summary(done.not_written)
    if rest or not (done.results or done.owners_restored):
        print(rest or _nothing_text(reading))


def _nothing_text(reading: JournalContents) -> str:
    where = "" if reading.damage is None else " in the part of the journal that can be read"
    return f"nothing to restore{where}"


def _report_unconfirmed(found: Iterable[UndoCheck], answers: _KubeletAnswers) -> list[str]:
    """What only a person can decide, said and returned."""
    conflicts = [
        unconfirmed_conflict(each, answers.why_unknown)
        for each in found
        if each.state == "unconfirmed"
    ]
    for conflict in conflicts:
        complain(f"conflict: {conflict}")
    return conflicts


def _notes(reading: JournalContents, refused: Iterable[str], answers: _KubeletAnswers) -> list[str]:
    notes = list(journal_notes(reading))
    notes += [refusal(path, answers.why_no_others) for path in refused]
    for note in notes:
        complain(f"note: {note}")
    return notes


def _final_exit_code(reading: JournalContents, code: int) -> int:
    """What stood in the damaged part of a journal may not have been restored."""
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
