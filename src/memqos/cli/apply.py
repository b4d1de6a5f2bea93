"""`memqos apply`: writes a plan, and keeps what was there before."""

import sys
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import click

from memqos.cli.outcomes import (
    ERROR,
    LEFT,
    Hand,
    end_progress,
    exit_code,
    hand,
    journal_notes,
    print_results,
    progress,
    results_data,
    writer_options,
)
from memqos.cli.output import Form, complain, emit, print_lines
from memqos.cli.owners import owner_options, route_lines
from memqos.cli.plan import (
    caveats_of,
    insist_on_all,
    insist_on_no_doubt,
    insist_on_pods,
    node_options,
    observed,
    planned,
    wanted,
)
from memqos.converge.apply import Applied, apply, in_order
from memqos.converge.journal import Reading, writing
from memqos.converge.saved_plan import check_is_of, decode
from memqos.converge.steps import Moved, Step, standing, steps_of
from memqos.draw.changes import changes_text, summary
from memqos.host.manifests import load_one
from memqos.plan.changes import Comparison
from memqos.plan.effective import Protection

_NOTHING: Final = Reading({}), Applied()


class _Todo(NamedTuple):
    """What is to be written, and what there is to say about it first."""

    steps: tuple[Step, ...]
    protections: dict[str, Protection]
    caveats: Sequence[str]


@click.command()
@click.argument("plan", required=False, metavar="[PLAN]")
@click.option("-y", "--yes", is_flag=True, help="Write without asking.")
@click.option(
    "--force", is_flag=True, help="Set memory.high below memory that cannot be reclaimed, too."
)
@owner_options
@writer_options
@node_options
def command(
    plan: str | None,
    yes: bool,
    force: bool,
    output: Form,
    timeout: float,
    journal: str,
    direct: bool,
    cri_socket: str | None,
    **options: Any,
) -> int:
    """Write what memqos plan shows, or a PLAN saved with its --out, to this node's cgroups.

    What was there before is kept in a journal first: memqos rollback puts it back. Every value is
    read back. Values go through systemd and the container runtime where those own the cgroups, as
    they would put back what they were not told. A cgroup that vanishes meanwhile is no fault; a
    value that is refused does not hold up the rest.

    Exit code 0: all is as planned, 2: something is left to do, 1: something failed.
    """
    if output != "table" and not yes:
        raise click.UsageError(f"-o {output} asks nobody: --yes writes without asking")
    writer = hand(
        options["cgroup_root"], timeout, force=force, direct=direct, cri_socket=cri_socket
    )
    todo = _planned(options) if plan is None else _saved(plan, writer, options)
    now = [standing(step, writer.fs, writer.cautions.page_size) for step in todo.steps]
    differing = [found for found in now if isinstance(found, Moved)]
    if differing:
        return _refuse(differing, output)
    ready = [step for step, found in zip(todo.steps, now, strict=True) if found == "ready"]
    for line in todo.caveats:
        complain(line)
    if output == "table":
        _show(ready, todo.protections, writer)
    if ready and not yes and not _agreed(len(ready)):
        return LEFT
    reading, applied = _write(todo.steps, writer, journal) if ready else _NOTHING
    if applied.moved:
        return _refuse(applied.moved, output)
    return _tell(applied, reading, todo.caveats, output)


def _show(steps: Sequence[Step], protections: dict[str, Protection], writer: Hand) -> None:
    comparison = Comparison(tuple(step.change for step in in_order(steps)), (), ())
    lines = changes_text(comparison, protections, why=False)
    lines += [""] if lines else []
    print_lines([*lines, summary(comparison), *route_lines(comparison.changes, writer.driver)])


def _planned(options: dict[str, Any]) -> _Todo:
    insist_on_pods(options)
    asked = wanted(**options)
    observation = observed(options)
    plan = planned(observation, asked)
    insist_on_all(plan)
    insist_on_no_doubt(plan)
    steps = steps_of(plan.comparison.changes, observation.identities, plan.kubelet_keeps)
    return _Todo(steps, plan.protections, caveats_of(plan))


def _saved(file: str, writer: Hand, options: dict[str, Any]) -> _Todo:
    given = [name for name, value in options.items() if value and name != "cgroup_root"]
    if given:
        raise click.UsageError(
            f"a saved plan holds its terms already: leave out --{given[0].replace('_', '-')}"
        )
    name, data = load_one(file)
    plan = decode(data, name)
    check_is_of(plan, writer.hierarchy, name)
    return _Todo(plan.steps, {}, ())


def _agreed(count: int) -> bool:
    if not sys.stdin.isatty():
        raise click.UsageError("there is nobody to ask: --yes writes without asking")
    sys.stdout.flush()
    values = "this value" if count == 1 else f"these {count} values"
    return click.confirm(f"Write {values}?", err=True)


def _write(steps: Sequence[Step], writer: Hand, folder: str) -> tuple[Reading, Applied]:
    with writing(folder, writer.hierarchy) as journal:
        try:
            return journal.reading, apply(
                steps, writer.fs, writer.driver, journal, writer.cautions, progress()
            )
        except KeyboardInterrupt:
            complain(
                "stopped midway: memqos apply goes on from here, memqos rollback puts back what "
                "was written"
            )
            raise
        finally:
            end_progress()
            writer.driver.close()


def _refuse(differing: Sequence[Moved], output: Form) -> int:
    complain("the cgroups have changed since they were planned, so nothing is written:")
    for each in differing:
        complain(f"  {each}")
    complain("next: plan again")
    if output != "table":
        emit({"results": [], "moved": [str(each) for each in differing], "notes": []}, output)
    return ERROR


def _tell(applied: Applied, reading: Reading, caveats: Sequence[str], output: Form) -> int:
    notes = [*journal_notes(reading)]
    if applied.unrecorded is not None:
        notes.append(f"the journal could not be kept to the end: {applied.unrecorded}")
    for note in notes:
        complain(f"note: {note}")
    if output != "table":
        results = results_data(applied.results)
        emit({"results": results, "moved": [], "notes": [*caveats, *notes]}, output)
    elif applied.results:
        print_results(applied.results, "written")
    return exit_code(applied.results)
