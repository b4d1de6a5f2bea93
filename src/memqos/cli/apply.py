"""`memqos apply`: writes a plan, and keeps what was there before."""

import sys
from collections.abc import Sequence
from typing import Final, NamedTuple

import click

from memqos.cli.help_sections import SectionedCommand
from memqos.cli.node_plan import (
    NodeOptions,
    make_plan,
    node_options,
    observe_node,
    plan_caveats,
    require_pods,
    require_writable,
)
from memqos.cli.options import collect_options, owner_options, route_lines
from memqos.cli.output import OutputFormat, complain, emit, print_lines
from memqos.cli.writes import (
    EXIT_ERROR,
    EXIT_LEFT,
    end_progress,
    exit_code,
    journal_notes,
    print_results,
    progress_printer,
    results_data,
    writer_options,
)
from memqos.converge.apply import ApplyResult, apply, order_steps
from memqos.converge.cgroup_writer import CgroupWriter, open_writer
from memqos.converge.journal import JournalContents, open_journal
from memqos.converge.saved_plan import check_same_tree, decode_saved_plan
from memqos.converge.steps import StaleStep, WriteStep, step_state, steps_of
from memqos.draw.text.changes import changes_summary, changes_text
from memqos.host.manifest_files import load_file
from memqos.plan.changes import Comparison
from memqos.plan.effective import Protection

_NOTHING_APPLIED: Final = JournalContents({}), ApplyResult()


class _PendingWrites(NamedTuple):
    """What is to be written, and what there is to say about it first."""

    steps: tuple[WriteStep, ...]
    protections: dict[str, Protection]
    caveats: Sequence[str]


@click.command(cls=SectionedCommand)
@click.argument("plan", required=False, metavar="[PLAN]")
@click.option("-y", "--yes", is_flag=True, help="Write without asking.")
@click.option(
    "--force", is_flag=True, help="Set memory.high even below memory that cannot be reclaimed."
)
@owner_options
@writer_options
@node_options
@collect_options(NodeOptions)
def command(
    options: NodeOptions,
    *,
    plan: str | None,
    yes: bool,
    force: bool,
    output: OutputFormat,
    timeout: float,
    journal: str,
    direct: bool,
    cri_socket: str | None,
) -> int:
    """Write the values of memqos plan, or of a PLAN saved with its --out, to this node's cgroups.

    The previous values are saved in a journal first: memqos rollback restores them. Every value is
    read back. Values go through systemd and the container runtime where those own the cgroups, as
    they would otherwise restore their own values. A cgroup that is removed meanwhile is no error.
    If a value is refused, the others are still written.

    Exit code 0: all values are as planned, 2: some are not, 1: something failed.
    """
    if output != "table" and not yes:
        raise click.UsageError(f"-o {output} cannot ask for confirmation: add --yes")
    writer = open_writer(
        options.cgroup_root, timeout, force=force, direct=direct, cri_socket=cri_socket
    )
    pending = _pending_of_plan(options) if plan is None else _pending_of_file(plan, writer, options)
    now = [step_state(step, writer.fs, writer.router.page_size) for step in pending.steps]
    differing = [found for found in now if isinstance(found, StaleStep)]
    if differing:
        return _refuse(differing, output)
    ready = [step for step, found in zip(pending.steps, now, strict=True) if found == "ready"]
    for line in pending.caveats:
        complain(line)
    if output == "table":
        _show(ready, pending.protections, writer)
    if ready and not yes and not _confirm(len(ready)):
        return EXIT_LEFT
    reading, applied = _write(pending.steps, writer, journal) if ready else _NOTHING_APPLIED
    if applied.stale:
        return _refuse(applied.stale, output)
    return _report(applied, reading, pending.caveats, output)


def _show(
    steps: Sequence[WriteStep], protections: dict[str, Protection], writer: CgroupWriter
) -> None:
    comparison = Comparison(tuple(step.change for step in order_steps(steps)), (), ())
    lines = changes_text(comparison, protections, why=False)
    lines += [""] if lines else []
    print_lines(
        [*lines, changes_summary(comparison), *route_lines(comparison.changes, writer.router)]
    )


def _pending_of_plan(options: NodeOptions) -> _PendingWrites:
    require_pods(options)
    plan_options = options.plan_options()
    observation = observe_node(options)
    plan = make_plan(observation, plan_options)
    require_writable(plan)
    steps = steps_of(plan.comparison.changes, observation.identities, plan.kubelet_managed)
    return _PendingWrites(steps, plan.protections, plan_caveats(plan))


def _pending_of_file(file: str, writer: CgroupWriter, options: NodeOptions) -> _PendingWrites:
    given = [
        name
        for name in options.__struct_fields__
        if getattr(options, name) and name != "cgroup_root"
    ]
    if given:
        raise click.UsageError(
            f"a saved plan has its own settings: remove --{given[0].replace('_', '-')}"
        )
    name, data = load_file(file)
    plan = decode_saved_plan(data, name)
    check_same_tree(plan, writer.hierarchy(), name)
    return _PendingWrites(plan.steps, {}, ())


def _confirm(count: int) -> bool:
    if not sys.stdin.isatty():
        raise click.UsageError("no terminal to ask for confirmation: add --yes")
    sys.stdout.flush()
    values = "this value" if count == 1 else f"these {count} values"
    return click.confirm(f"Write {values}?", err=True)


def _write(
    steps: Sequence[WriteStep], writer: CgroupWriter, folder: str
) -> tuple[JournalContents, ApplyResult]:
    with open_journal(folder, writer.hierarchy()) as journal:
        try:
            return journal.contents, apply(
                steps, writer.fs, writer.router, journal, writer.options(), progress_printer()
            )
        except KeyboardInterrupt:
            complain(
                "stopped midway: memqos apply continues from here, memqos rollback restores the "
                "previous values"
            )
            raise
        finally:
            end_progress()
            writer.router.close()


def _refuse(differing: Sequence[StaleStep], output: OutputFormat) -> int:
    complain("the cgroups have changed since the plan was made, so nothing is written:")
    for each in differing:
        complain(f"  {each}")
    complain("next: plan again")
    if output != "table":
        emit({"results": [], "moved": [str(each) for each in differing], "notes": []}, output)
    return EXIT_ERROR


def _report(
    applied: ApplyResult, reading: JournalContents, caveats: Sequence[str], output: OutputFormat
) -> int:
    notes = [*journal_notes(reading)]
    if applied.journal_error is not None:
        notes.append(f"the journal could not be written completely: {applied.journal_error}")
    for note in notes:
        complain(f"note: {note}")
    if output != "table":
        results = results_data(applied.results)
        emit({"results": results, "moved": [], "notes": [*caveats, *notes]}, output)
    elif applied.results:
        print_results(applied.results, "written")
    return exit_code(applied.results)
