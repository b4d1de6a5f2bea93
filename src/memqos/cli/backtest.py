"""`memqos backtest`: what would have happened in the past under other settings."""

from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Literal

import click

from memqos.cli.cluster_access import LiveCluster, cluster_options
from memqos.cli.help_sections import SectionedCommand
from memqos.cli.history_options import (
    HistoryOptions,
    HistorySelection,
    history_options,
    history_sources,
    read_batches,
    read_table,
    select_series,
)
from memqos.cli.options import BytesType, collect_options, manifest_arguments
from memqos.cli.output import emit, output_option, print_lines, print_markup, print_notes
from memqos.cli.settings import (
    SettingsArguments,
    check_settings_options,
    parse_compare,
    resolve_for_objects,
    settings_options,
)
from memqos.draw.text.audit import settings_title
from memqos.draw.text.backtest import (
    BacktestReport,
    ReplayedContainer,
    backtest_data,
    backtest_text,
)
from memqos.errors import InputError
from memqos.plan.semantics import Planner
from memqos.settings.resolver import NodeSettings
from memqos.size.consequences import ContainerLevels, MemorySize, container_levels, levels_of_sizes
from memqos.size.history import HistorySource, SampleBatch, SeriesName
from memqos.size.replay import Replay

_SizeOf = Callable[[SeriesName], MemorySize]


@click.command(cls=SectionedCommand)
@manifest_arguments("targets", "[POD|WORKLOAD|FILE]…")
@history_options
@click.option("--request", type=BytesType(), help="The memory request, if no manifest has one.")
@click.option(
    "--limit",
    type=BytesType(),
    help="The memory limit, if no manifest has one.  [default: the limit in the history]",
)
@click.option(
    "--compare",
    metavar="CHANGES",
    help="Compare with a second replay: release=1.37,policy=None,factor=0.8.",
)
@click.option("--why", is_flag=True, help="Show when containers are throttled or killed.")
@output_option("html")
@cluster_options("context", "namespace")
@settings_options
@collect_options(HistoryOptions)
@collect_options(SettingsArguments, check_settings_options)
def command(
    settings: SettingsArguments,
    histories: HistoryOptions,
    *,
    targets: tuple[str, ...],
    request: int | None,
    limit: int | None,
    compare: str | None,
    why: bool,
    output: Literal["table", "json", "yaml", "html"],
    context: str | None,
    namespace: str | None,
) -> int:
    """Replay the history of containers under the settings of a node.

    Shows how long a container would have been throttled above memory.high, protected by
    memory.min or memory.low, and how often it would have been OOM-killed at its limit.
    Requests and limits come from manifests, else from --request and --limit, else from the limit
    in the history. History shows actual usage: how a throttled container would have
    behaved is unknown.

    \b
    memqos backtest web.yaml --history usage.csv.gz --factor 0.8
    memqos backtest --history usage.csv --limit 1Gi --compare factor=0.6
    """
    chosen = [settings] + ([] if compare is None else [parse_compare(compare, settings)])
    live = None if context is None else LiveCluster(context, namespace)
    resolved = [resolve_for_objects(each, targets, live) for each in chosen]
    selection = select_series(targets, live, namespace)
    sources = history_sources(histories, namespace)
    given = MemorySize(request, limit)
    size_of = _sizes(selection, given, sources, histories.until)
    report = _replay(sources, histories.until, selection, size_of, resolved)
    if output == "table":
        print_lines(dict.fromkeys(str(each) for each in report.enablement))
        print_notes(dict.fromkeys(note for each in resolved for note in each.notes))
        print_lines(backtest_text(report, why=why))
    elif output == "html":
        from memqos import __version__
        from memqos.draw.html.backtest import backtest_page

        print_markup(backtest_page(report, at=datetime.now(UTC), version=__version__))
    else:
        emit(backtest_data(report), output)
    return 1 if selection.faults else 0


def _sizes(
    selection: HistorySelection,
    given: MemorySize,
    sources: Sequence[HistorySource],
    until: float | None,
) -> _SizeOf:
    """Where requests and limits come from; the history is read for them where nothing else is."""
    if given == MemorySize() and not selection.manifests:
        table = read_table(sources, until, selection.matches)
        limits = {name: each.limit for name, each in table.containers.items()}

        def limit_of(name: SeriesName) -> MemorySize:
            limit = limits.get(name)
            return MemorySize(None, None if limit is None else int(limit))

        return limit_of
    return lambda _name: given


def _replay(
    sources: Sequence[HistorySource],
    until: float | None,
    selection: HistorySelection,
    size_of: _SizeOf,
    resolved: Sequence[NodeSettings],
) -> BacktestReport:
    planners = [Planner(each.settings) for each in resolved]
    levels: dict[SeriesName, tuple[ContainerLevels, ...]] = {}
    replays: dict[SeriesName, list[Replay]] = {}
    skipped: dict[SeriesName, None] = {}
    for batch in read_batches(sources, selection.matches):
        if batch.quantity != "usage" or batch.name in skipped:
            continue
        if batch.name not in replays:
            found = [_levels_of(batch.name, selection, size_of, each) for each in planners]
            known = [each for each in found if each is not None]
            if len(known) < len(found):
                skipped[batch.name] = None
                continue
            levels[batch.name] = tuple(known)
            replays[batch.name] = [Replay(each.replayed) for each in known]
        times, values = _samples_until(batch, until)
        for replay in replays[batch.name]:
            replay.add(times, values)
    if not replays:
        raise InputError(
            "no series has a request or a limit" if skipped else "no series matches",
            hint="give a manifest, or --request and --limit",
        )
    return BacktestReport(
        tuple(settings_title(each.settings, each.enablement) for each in resolved),
        tuple(each.enablement for each in resolved),
        tuple(
            ReplayedContainer(name, levels[name], tuple(each.result() for each in found))
            for name, found in replays.items()
        ),
        tuple(name.text for name in skipped),
    )


def _levels_of(
    name: SeriesName, selection: HistorySelection, size_of: _SizeOf, planner: Planner
) -> ContainerLevels | None:
    container = name.container or "container"
    for manifest in selection.manifests:
        if manifest.covers(name):
            return container_levels(manifest.pod, planner).get(container)
    size = size_of(name)
    if size == MemorySize():
        return None
    return levels_of_sizes(name, {container: size}, planner).get(container)


def _samples_until(
    batch: SampleBatch, until: float | None
) -> tuple[Sequence[float], Sequence[float]]:
    if until is None or not batch.times or max(batch.times) <= until:
        return batch.times, batch.values
    kept = [each for each in zip(batch.times, batch.values, strict=True) if each[0] <= until]
    return [at for at, _ in kept], [value for _, value in kept]
