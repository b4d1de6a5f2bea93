"""`memqos size`: what containers should request, and how that is known."""

from typing import Literal

import click

from memqos.cli.cluster_access import LiveCluster, cluster_options
from memqos.cli.help_sections import SectionedCommand
from memqos.cli.history_options import (
    HistoryOptions,
    HistorySelection,
    history_options,
    history_sources,
    read_table,
    select_series,
)
from memqos.cli.options import collect_options, manifest_arguments
from memqos.cli.output import (
    emit,
    output_option,
    print_data,
    print_lines,
    print_markup,
    print_notes,
)
from memqos.cli.settings import (
    SettingsArguments,
    check_settings_options,
    resolve_for_objects,
    settings_options,
)
from memqos.draw.text.size import size_data, size_lines, summary_line
from memqos.plan.semantics import Planner
from memqos.settings.resolver import NodeSettings
from memqos.size.recommendation import SizeOptions
from memqos.size.workloads import SizeReport, size_histories

_Output = Literal["table", "json", "yaml", "patch", "vpa", "kustomize", "svg"]
_SHARE = click.FloatRange(min=0, max=1)


@click.command(cls=SectionedCommand)
@manifest_arguments("targets", "[POD|WORKLOAD|FILE]…")
@history_options
@click.option("--guaranteed", is_flag=True, help="Set requests equal to limits.")
@click.option(
    "--risk", type=_SHARE, metavar="SHARE", help="Share of days above the limit, such as 0.01."
)
@click.option(
    "--slack", type=_SHARE, metavar="SHARE", help="Share of the limit left unused, such as 0.3."
)
@click.option("--why", is_flag=True, help="Show the reason for every number.")
@output_option("patch", "vpa", "kustomize", "svg")
@cluster_options("context", "namespace")
@settings_options
@collect_options(HistoryOptions)
@collect_options(SettingsArguments, check_settings_options)
def command(
    settings: SettingsArguments,
    histories: HistoryOptions,
    *,
    targets: tuple[str, ...],
    guaranteed: bool,
    risk: float | None,
    slack: float | None,
    why: bool,
    output: _Output,
    context: str | None,
    namespace: str | None,
) -> int:
    """Recommend memory requests and limits from the usage history of containers.

    Targets are manifests, or pods and workloads by name; without any, every series is sized.
    A container with too little history gets no recommendation, but a reason.

    \b
    memqos size --history usage.csv.gz --why
    memqos size web.yaml --history https://prometheus:9090 -o patch
    memqos size --history usage.csv --until 86400 --guaranteed -o json
    """
    if risk is not None and slack is not None:
        raise click.UsageError("give either --risk or --slack")
    live = None if context is None else LiveCluster(context, namespace)
    selection = select_series(targets, live, namespace)
    sources = history_sources(histories, namespace)
    table = read_table(sources, histories.until, selection.matches)
    resolved = resolve_for_objects(settings, targets, live)
    report = size_histories(
        table,
        SizeOptions(guaranteed=guaranteed, risk=risk, slack=slack),
        Planner(resolved.settings),
        selection.manifests,
    )
    _print(report, resolved, len(sources), output, why=why)
    return _exit_code(selection)


def _exit_code(selection: HistorySelection) -> int:
    return 1 if selection.faults else 0


def _print(
    report: SizeReport, resolved: NodeSettings, sources: int, output: _Output, *, why: bool
) -> None:
    if output == "table":
        print_lines([summary_line(report, sources), str(resolved.enablement)])
        print_notes(resolved.notes)
        print_lines(["", *size_lines(report, resolved.settings.memory_allocatable, why=why)])
    elif output in ("json", "yaml"):
        emit(size_data(report, resolved.enablement), "json" if output == "json" else "yaml")
    elif output == "svg":
        from memqos.draw.svg.size import size_svg

        print_markup(size_svg(report, resolved.enablement, resolved.settings.release))
    else:
        _print_manifests(report, output)


def _print_manifests(report: SizeReport, output: _Output) -> None:
    from memqos.draw.text.size_manifests import autoscaler_bounds, kustomization, size_patches

    if output == "kustomize":
        print_data(kustomization(report), "yaml")
        return
    documents = autoscaler_bounds(report) if output == "vpa" else size_patches(report)
    for index, document in enumerate(documents):
        if index:
            print("---")
        print_data(document, "yaml")
