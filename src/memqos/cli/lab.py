"""`memqos lab`: experiments with Memory QoS on a real kernel, and reports of what they showed."""

import importlib.util
import os
import shlex
import signal
import sys
import tempfile
import time
from collections.abc import Generator, Iterable, Iterator
from contextlib import closing, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import click

from memqos.cli.help_sections import SectionedCommand
from memqos.cli.output import (
    check_output_file,
    complain,
    data_text,
    emit,
    output_option,
    print_data,
    print_lines,
    print_markup,
    write_output_file,
)
from memqos.cli.streams import show_status
from memqos.errors import InputError, LabError, os_reason
from memqos.units import pluralize

if TYPE_CHECKING:
    from memqos.lab.events import LabEvent
    from memqos.lab.report import LabReport
    from memqos.lab.runner import Selected
    from memqos.lab.scenario import Place
    from memqos.lab.vm.topology import Accel, Suite

Output = Literal["table", "json", "yaml", "html"]
_MOST_RUNS = 100


@click.group()
def command() -> None:
    """See Memory QoS at work: experiments on a real kernel.

    \b
    memqos lab list
    memqos lab run throttling
    memqos lab run stability --runs 3 -o html --out stability.html
    memqos lab compare before.json after.json

    An experiment runs in a virtual machine that is thrown away, or with --here in a scratch cgroup
    of this computer.
    """
    if importlib.util.find_spec("memqos.lab") is None:
        raise LabError("this image has no lab", hint="install memqos on your own computer")


@command.command("list")
@output_option()
def list_command(output: Literal["table", "json", "yaml"]) -> None:
    """List the experiments: what they show, and how long they take."""
    from memqos.lab.catalogue import SCENARIOS
    from memqos.lab.text import scenario_table

    if output == "table":
        print_lines(scenario_table(SCENARIOS.values()))
        return
    data = [
        {
            "name": each.name,
            "title": each.title,
            "about": each.about,
            "source": each.source,
            "seconds": each.seconds * len(each.variants),
            "memory": each.memory,
            "here": each.runs_here,
            "variants": {name: variant.title for name, variant in each.variants.items()},
            "measures": {name: measure.title for name, measure in each.measures.items()},
            "hypotheses": [hypothesis.text for hypothesis in each.hypotheses],
        }
        for each in SCENARIOS.values()
    ]
    emit(data, output)


@command.command("run", cls=SectionedCommand)
@click.argument("scenarios", nargs=-1, metavar="SCENARIO…", required=True)
@click.option(
    "--variant",
    "variants",
    multiple=True,
    metavar="NAME",
    help="Run only this variant; may be repeated.",
)
@click.option(
    "--runs",
    type=click.IntRange(1, _MOST_RUNS),
    default=1,
    metavar="N",
    help="Runs of each variant.  [default: 1]",
)
@output_option("html")
@click.option("--out", metavar="FILE", help="Where to write it.  [default: standard output]")
@click.option(
    "--debian",
    type=click.Choice(["12", "13", "testing"]),
    help="The system of the virtual machine.  [default: 12]",
)
@click.option(
    "--accel",
    type=click.Choice(["tcg", "kvm"]),
    help="Emulate the virtual machine, or use KVM.  [default: tcg]",
)
@click.option("--here", is_flag=True, help="In a scratch cgroup of this computer, as root.")
@click.option("--yes", is_flag=True, help="Do not ask before --here.")
def run_command(
    scenarios: tuple[str, ...],
    *,
    variants: tuple[str, ...],
    runs: int,
    output: Output,
    out: str | None,
    debian: str | None,
    accel: "Accel | None",
    here: bool,
    yes: bool,
) -> int:
    """Run experiments, and report what they showed. Exit code 2: a hypothesis was refuted; 1: a run
    could not be measured.
    """
    from memqos.host.versions import own_version
    from memqos.lab.report import LabReport, report_scenarios
    from memqos.lab.vm.topology import DEBIAN

    selection = _select(scenarios, variants)
    if here and (debian or accel):
        raise click.UsageError("--debian and --accel are about the virtual machine, not --here")
    check_output_file(out)
    start = time.monotonic()
    place: Place = "here" if here else "kvm" if accel == "kvm" else "emulated"
    running = (
        _run_here(selection, runs, yes=yes)
        if here
        else _run_in_vm(selection, runs, DEBIAN[debian or "12"], accel or "tcg")
    )
    with _interruptible(), closing(running) as events:
        found, failure = _collect(_show_progress(events, selection, runs))
    report = LabReport(
        made=datetime.now(UTC).isoformat(timespec="seconds"),
        command=shlex.join(["memqos", *sys.argv[1:]]),
        memqos=own_version() or "unknown",
        place=place,
        seconds=time.monotonic() - start,
        scenarios=report_scenarios(found, place),
    )
    _print_report(report, output, out)
    failed = sum(len(one.failures) for one in report.scenarios)
    if failed:
        complain(f"{pluralize(failed, 'run')} could not be measured: the report says why")
    if failure is not None:
        complain(failure)
    if failed or failure is not None:
        return 1
    verdicts = [each.verdict for one in report.scenarios for each in one.hypotheses]
    return 2 if "refuted" in verdicts else 0


@command.command("compare")
@click.argument("first", metavar="A")
@click.argument("second", metavar="B")
@output_option()
def compare_command(first: str, second: str, output: Literal["table", "json", "yaml"]) -> None:
    """Compare two reports: of two kernels, two versions of memqos, two variants.

    A and B are files of `memqos lab run … -o json`; FILE:VARIANT is one variant of it.
    """
    import msgspec

    from memqos.lab.report import compare_reports
    from memqos.lab.text import comparison_lines

    (one, left), (other, right) = _read_report(first), _read_report(second)
    comparison = compare_reports(one, other, (left, right))
    if not comparison.measures:
        raise InputError("the two reports have no experiment and variant in common")
    if output == "table":
        print_lines(comparison_lines(comparison))
        if min(one.fewest_runs, other.fewest_runs) == 1:
            complain("note: one run has no spread, so any difference counts; use --runs 3")
        if "emulated" in (one.place, other.place):
            complain("note: times of an emulated machine depend on what else the computer does")
    else:
        emit(msgspec.to_builtins(comparison), output)


def _select(names: tuple[str, ...], variants: tuple[str, ...]) -> "list[Selected]":
    from memqos.lab.catalogue import SCENARIOS
    from memqos.lab.runner import Selected

    known = ", ".join(SCENARIOS)
    for name in names:
        if name not in SCENARIOS:
            raise click.UsageError(f"there is no scenario {name!r}; there are {known}")
    wanted = [SCENARIOS[name] for name in dict.fromkeys(names)]
    offered = [each for scenario in wanted for each in scenario.variants]
    for variant in variants:
        if variant not in offered:
            there = ", ".join(offered)
            raise click.UsageError(f"there is no variant {variant!r}; there are {there}")
    selection = []
    for scenario in wanted:
        chosen = tuple(each for each in scenario.variants if not variants or each in variants)
        if not chosen:
            there = ", ".join(scenario.variants)
            raise click.UsageError(f"{scenario.name} has none of these variants; it has {there}")
        selection.append(Selected(scenario, chosen))
    return selection


def _run_in_vm(
    selection: "list[Selected]", runs: int, suite: "Suite", accel: "Accel"
) -> "Generator[LabEvent]":
    from memqos.lab.in_vm import check_host, estimate_seconds, run_in_vm

    with tempfile.TemporaryDirectory(prefix="memqos-lab-") as folder:
        check_host(selection, suite, Path(folder))
        minutes = max(estimate_seconds(selection, runs, suite) / 60, 1)
        about, where = "about", "in an emulated machine"
        if accel == "kvm":
            about, where = "at most", "with KVM"
        complain(f"{about} {minutes:.0f} min {where}")
        yield from run_in_vm(
            selection, runs, suite=suite, accel=accel, folder=Path(folder), note=complain
        )


def _run_here(selection: "list[Selected]", runs: int, *, yes: bool) -> "Generator[LabEvent]":
    from memqos.lab.here import check_computer
    from memqos.lab.runner import describe_machine, run_experiments, scratch_space
    from memqos.units import format_bytes

    check_computer(selection)
    most = max(each.scenario.memory for each in selection)
    swap = max(each.scenario.swap for each in selection)
    if not yes:
        click.confirm(
            f"Run on this computer, in a cgroup of up to {format_bytes(most)} of memory and "
            f"{format_bytes(swap)} of swap that is removed at the end?",
            abort=True,
            err=True,
        )
    yield describe_machine()
    with scratch_space() as (cgroup, folder):
        yield from run_experiments(selection, runs, cgroup, folder)


def _collect(events: "Iterable[LabEvent]") -> "tuple[list[LabEvent], LabError | None]":
    """All events, and what ended them too early: what was measured before that is not lost."""
    from memqos.lab.events import RunFailed, RunMeasured, RunStarted

    found: list[LabEvent] = []
    has_measured = False
    try:
        for event in events:
            found.append(event)
            has_measured |= isinstance(event, RunMeasured)
    except LabError as error:
        if not has_measured:
            raise
        last = found[-1]
        if isinstance(last, RunStarted):
            found.append(RunFailed(last.scenario, last.variant, last.run, str(error)))
        return found, error
    return found, None


def _show_progress(
    events: "Iterable[LabEvent]", selection: "list[Selected]", runs: int
) -> "Iterator[LabEvent]":
    """Pass events on; show on a terminal how far it is, and how long the rest takes."""
    from memqos.lab.events import RunFailed, RunMeasured, RunStarted

    seconds = {each.scenario.name: each.scenario.seconds for each in selection}
    left = sum(each.scenario.seconds * len(each.variants) * runs for each in selection)
    total = sum(len(each.variants) * runs for each in selection)
    done, expected, took = 0, 0.0, 0.0
    is_watched = sys.stderr.isatty()
    try:
        for event in events:
            if isinstance(event, RunMeasured | RunFailed):
                done += 1
                left -= seconds[event.scenario]
                expected += seconds[event.scenario]
                took += event.seconds if isinstance(event, RunMeasured) else seconds[event.scenario]
            elif isinstance(event, RunStarted) and is_watched:
                rest = left * (took / expected if expected else 1)
                show_status(
                    f"{done} of {total} · {event.scenario} {event.variant}, run {event.run} · "
                    f"about {rest / 60:.1f} min left"
                )
            yield event
    finally:
        if is_watched:
            show_status("")


@contextmanager
def _interruptible() -> Iterator[None]:
    """A request to end is as good as Ctrl-C: what was made is removed.

    One that is ignored, as nohup has SIGHUP, stays so: a run goes on after its terminal.
    """

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    requests = (signal.SIGTERM, signal.SIGHUP)
    heard = [each for each in requests if signal.getsignal(each) != signal.SIG_IGN]
    before = {each: signal.signal(each, interrupt) for each in heard}
    try:
        yield
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)


def _print_report(report: "LabReport", output: Output, out: str | None) -> None:
    from memqos.draw.text.render import render
    from memqos.lab.page import lab_page
    from memqos.lab.text import report_lines

    if out is None:
        if output == "html":
            print_markup(lab_page(report).removesuffix("\n"))
        elif output == "table":
            print_lines(report_lines(report))
        else:
            print_data(report, output)
        return
    if output == "html":
        text = lab_page(report)
    elif output == "table":
        text = "\n".join(render(report_lines(report))) + "\n"
    else:
        text = data_text(report, output)
    try:
        write_output_file(out, text.encode())
    except InputError:
        # What took minutes to measure is not lost for a disk that is full by now.
        _print_report(report, output, None)
        raise
    complain(f"written to {out}")


def _read_report(name: str) -> "tuple[LabReport, str | None]":
    """A report, and the variant that the name ends with."""
    from memqos.lab.report import decode_report

    file, colon, variant = name.rpartition(":")
    if not colon or os.path.exists(name):
        file, variant = name, ""
    try:
        data = Path(file).read_bytes()
    except OSError as error:
        raise InputError(os_reason(error), file=file) from None
    report = decode_report(data, file)
    there = {each for scenario in report.scenarios for each in scenario.variants}
    if variant and variant not in there:
        raise InputError(f"it has no variant {variant!r}", file=file, hint=", ".join(sorted(there)))
    return report, variant or None
