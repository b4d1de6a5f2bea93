"""`memqos explain`: what Kubernetes makes of a Pod, with the reason for every number."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Literal

import click

from memqos.cli.cluster_access import LIVE_PODS, LiveCluster, cluster_options
from memqos.cli.manifest_reader import ManifestReader, origin_of
from memqos.cli.options import collect_options
from memqos.cli.output import complain, emit, output_option, print_lines, print_notes
from memqos.cli.settings import (
    SettingsArguments,
    check_settings_options,
    resolve_settings,
    settings_data,
    settings_options,
    with_cluster_defaults,
)
from memqos.draw.text.pod import PodExplanation, settings_line
from memqos.errors import InputError
from memqos.kube.aggregate import aggregate_limits, aggregate_requests
from memqos.kube.pod import Pod
from memqos.kube.quantity import MAX_INT64
from memqos.kube.resources import MEMORY, NO_RESOURCES, Resources, whole
from memqos.kube.shape import Part, Shape, containers_of, shape_of
from memqos.manifests.objects import Template
from memqos.plan.semantics import Planner, is_stored
from memqos.release import Release, default, stage
from memqos.settings.resolver import NodeSettings
from memqos.units import scientific

_Row = list[PodExplanation]
"""One pod, in each of the releases compared."""


@click.command()
@click.argument("files", nargs=-1, metavar="FILE…")
@click.option("--why", is_flag=True, help="Show the derivation of every number.")
@output_option("svg")
@click.option(
    "--compare",
    metavar="VERSION,…",
    help="A column for each of these releases, differences marked.",
)
@cluster_options("context", "namespace", "selector")
@settings_options
@collect_options(SettingsArguments, check_settings_options)
def command(
    options: SettingsArguments,
    *,
    files: tuple[str, ...],
    why: bool,
    output: Literal["table", "json", "yaml", "svg"],
    compare: str | None,
    context: str | None,
    namespace: str | None,
    selector: str | None,
) -> int:
    """Show what a node will do with the Pods in FILE… and why.

    FILE is a manifest in YAML or JSON with any number of documents, a folder of them, or - for
    standard input: Pods, Lists, and the templates inside Deployment, StatefulSet, DaemonSet,
    ReplicaSet, Job and CronJob. Or it names one of these in a live cluster, such as pod/web-0;
    without FILE, -n and -l select the pods. A live pod is taken as the cluster holds it. Without
    any of these it is the pods of --snapshot.

    Exit code 1 if anything could not be read or is invalid; the rest is explained all the same.
    """
    live = LiveCluster(context, namespace, selector)
    if not files and not live.is_chosen:
        if options.snapshot is None:
            raise click.UsageError(
                "explain what? Give FILE…, --snapshot, or -n or -l for a live cluster"
            )
        files = (options.snapshot,)
    files = live.paths_to_read(files)
    live.require_use(*files, options.node)
    releases = [part.strip() for part in compare.split(",")] if compare else [None]
    if any(map(live.is_object_path, files)):
        options = with_cluster_defaults(live, options, files)
    resolved = [resolve_settings(options, release, live) for release in releases]
    reader = ManifestReader(live)
    rows = _rows(reader, files, resolved)
    if output == "svg":
        _print_svg(rows, resolved)
    elif output != "table":
        emit(_data(rows, resolved, why=why, compared=compare is not None), output)
    elif compare:
        _print_comparison(rows, resolved)
    else:
        _print(rows, resolved[0], why=why)
    if LIVE_PODS in files and not reader.pods_read:
        complain(f"there are no {live.selection_text}")
    return 1 if reader.faults else 0


def _rows(
    reader: ManifestReader, files: Sequence[str], resolved: Sequence[NodeSettings]
) -> Iterator[_Row]:
    planners = [Planner(each.settings) for each in resolved]
    for template, pod in reader.pods(files):
        try:
            row = [_explain_pod(planner, pod, template) for planner in planners]
        except InputError as error:
            reader.refuse(template.with_position(error))
            continue
        for fault in dict.fromkeys(fault for each in row for fault in each.semantics.errors):
            reader.refuse(template.field_error(fault.field, fault.message))
        yield row


def _explain_pod(planner: Planner, pod: Pod, template: Template) -> PodExplanation:
    release = planner.settings.release
    written, semantics = shape_of(pod, release), planner.semantics(pod)
    notes = [*_drop_notes(written, semantics.shape, release), *_overflow_notes(written)]
    if is_stored(pod):
        notes.append("taken as the cluster holds it: defaulted and accepted already")
    return PodExplanation(
        origin=origin_of(template),
        label=template.label,
        namespace=template.namespace,
        names=tuple(container.name for container in containers_of(pod)),
        written=written,
        semantics=semantics,
        notes=tuple(notes),
    )


def _drop_notes(written: Shape, shape: Shape, release: Release) -> Iterator[str]:
    if written.pod is None or shape.pod is not None:
        return
    gate = "PodLevelResources"
    since = stage(gate, release.minor)
    if since is None:
        yield f"spec.resources is dropped: Kubernetes {release} does not know it"
    elif default(gate, release.minor):
        yield f"spec.resources is dropped: {gate} is off"
    else:
        yield f"spec.resources is dropped: {gate} is {since} and off by default in {release}"


def _overflow_notes(shape: Shape) -> Iterator[str]:
    stanzas: list[Part | Resources] = [*shape.parts, shape.pod or NO_RESOURCES]
    sides = [side for each in stanzas for side in (each.requests, each.limits)]
    sides += [aggregate_requests(shape), aggregate_limits(shape)]
    amounts = [side.get(MEMORY, 0) for side in sides]
    most = whole(max(amounts, default=0))
    if most > MAX_INT64:
        yield (
            f"{scientific(most)} of memory is more than 2⁶³ − 1, the most that Kubernetes can "
            "hold: scheduler and kubelet make something else of it, and it counts as nothing here"
        )


def _print(rows: Iterable[_Row], resolved: NodeSettings, *, why: bool) -> None:
    from memqos.draw.text.pod import pod_overview

    for index, (pod,) in enumerate(row for row in rows if row[0].semantics.plan is not None):
        if not index:
            _print_settings([resolved])
        print_lines(["", *pod_overview(pod)])
        if why:
            from memqos.draw.text.pod import derivation

            print_lines(derivation(pod, resolved.settings))


def _print_comparison(rows: Iterable[_Row], resolved: Sequence[NodeSettings]) -> None:
    from memqos.draw.text.pod import release_comparison

    titles = [str(each.settings.release) for each in resolved]
    valid = (row for row in rows if any(each.semantics.plan is not None for each in row))
    for index, row in enumerate(valid):
        if not index:
            _print_settings(resolved)
        print_lines(["", *release_comparison(list(zip(titles, row, strict=True)))])


def _print_settings(resolved: Sequence[NodeSettings]) -> None:
    for each in resolved:
        print(settings_line(each.settings))
    print_notes(dict.fromkeys(note for each in resolved for note in each.notes))


def _print_svg(rows: Iterable[_Row], resolved: Sequence[NodeSettings]) -> None:
    from memqos.draw.svg.levels import levels_svg
    from memqos.draw.svg.pod_levels import pod_levels_chart

    charts = [
        pod_levels_chart(pod, each.settings)
        for row in rows
        for pod, each in zip(row, resolved, strict=True)
        if pod.semantics.plan is not None
    ]
    if charts:
        print(levels_svg(charts))


def _data(
    rows: Iterable[_Row], resolved: Sequence[NodeSettings], *, why: bool, compared: bool
) -> dict[str, Any]:
    settings = [settings_data(each) for each in resolved]
    if compared:
        from memqos.draw.text.pod import release_comparison_data

        titles = [str(each.settings.release) for each in resolved]
        pods = [release_comparison_data(list(zip(titles, row, strict=True))) for row in rows]
        return {"terms": dict(zip(titles, settings, strict=True)), "pods": pods}
    from memqos.draw.text.pod import pod_data

    return {
        "terms": settings[0],
        "pods": [pod_data(row[0], resolved[0].settings, why=why) for row in rows],
    }
