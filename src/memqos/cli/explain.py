"""`memqos explain`: what Kubernetes makes of a Pod, with the reason for every number."""

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Literal

import click
import msgspec

from memqos.cli.browser import open_option, open_page, require_page
from memqos.cli.check_output import CHECK_FORMATS, is_check_format, pod_notes, print_check
from memqos.cli.cluster_access import LIVE_PODS, LiveCluster, cluster_options
from memqos.cli.explain_notes import notes_on_pod
from memqos.cli.help_sections import SectionedCommand
from memqos.cli.manifest_reader import ManifestReader, origin_of
from memqos.cli.options import collect_options, manifest_arguments, strict_option
from memqos.cli.output import complain, emit, output_option, print_lines, print_markup, print_notes
from memqos.cli.settings import (
    SettingsArguments,
    check_settings_options,
    resolve_settings,
    settings_data,
    settings_options,
    with_cluster_defaults,
)
from memqos.cluster.autoscaling import autoscaler_requests
from memqos.draw.text.pod import PodExplanation, settings_line
from memqos.errors import InputError, UnsupportedRelease
from memqos.kube.node import WINDOWS
from memqos.kube.pod import Pod
from memqos.kube.shape import containers_of, shape_of, with_shape
from memqos.manifests.objects import Template
from memqos.plan.semantics import Planner, is_stored
from memqos.plan.volumes import memory_volumes
from memqos.release import Release, stage
from memqos.settings.resolver import NodeSettings, with_gate_off

if TYPE_CHECKING:
    from memqos.draw.text.check_report import CheckResult
    from memqos.draw.text.release_comparison import ReleaseColumn

_Row = list[PodExplanation]
"""One pod in each of the releases; where nothing says whether MemoryQoS is on, then again in each
with it off."""


@click.command(cls=SectionedCommand)
@manifest_arguments()
@click.option("--why", is_flag=True, help="Show the derivation of every number.")
@output_option("svg", *CHECK_FORMATS)
@open_option
@click.option(
    "--compare",
    metavar="VERSION,…",
    help="Show a column for each of these releases, and mark differences.",
)
@strict_option
@cluster_options("context", "namespace", "selector")
@settings_options
@collect_options(SettingsArguments, check_settings_options)
def command(
    options: SettingsArguments,
    *,
    files: tuple[str, ...],
    why: bool,
    output: Literal["table", "json", "yaml", "svg", "sarif", "junit"],
    opens: bool,
    compare: str | None,
    strict: bool,
    context: str | None,
    namespace: str | None,
    selector: str | None,
) -> int:
    """Show the cgroup values of the Pods in FILE…, and the rules behind them.

    FILE is a manifest in YAML or JSON with any number of documents, a folder of them, or - for
    standard input: Pods, Lists, and the templates inside Deployment, StatefulSet, DaemonSet,
    ReplicaSet, Job and CronJob. Or it names one of these in a live cluster, such as pod/web-0;
    without FILE, -n and -l select the pods. A live pod is read as stored in the cluster. Without
    any of these the pods of --snapshot are explained.

    Exit code 1 if anything could not be read or is invalid; the rest is still explained.
    """
    _check_combination(compare, output, why=why, opens=opens)
    live = LiveCluster(context, namespace, selector)
    files = _files_to_read(live, files, options)
    releases = [part.strip() for part in compare.split(",")] if compare else [None]
    if any(map(live.is_object_path, files)):
        options = with_cluster_defaults(live, options, files)
    resolved = [resolve_settings(options, release, live) for release in releases]
    server = None if compare else _server_release(resolved[0], options)
    if server is not None:
        resolved = [_resolve_as_kubelet(resolved[0], options, live, server)]
    if resolved[0].enablement.state == "as if on":
        resolved += map(with_gate_off, resolved[:])
    results: list[CheckResult] | None = [] if is_check_format(output) else None
    reader = ManifestReader(live, strict=strict, results=results)
    rows = _rows(reader, files, resolved, server)
    if results is not None and is_check_format(output):
        results += [each for row in rows for each in pod_notes(row[0])]
        print_check("explain", results, reader.files_read, output)
    elif opens or output == "svg":
        _show_svg(rows, resolved, opens=opens)
    elif output in ("json", "yaml"):
        count = len(releases) if compare else None
        emit(_data(rows, resolved, why=why, compared=count), output)
    elif compare:
        _print_comparison(rows, resolved[: len(releases)])
    else:
        _print(rows, resolved, why=why)
    if LIVE_PODS in files and not reader.pods_read:
        complain(f"there are no {live.selection_text}")
    return 1 if reader.faults else 0


def _check_combination(compare: str | None, output: str, *, why: bool, opens: bool) -> None:
    if opens:
        require_page(output, "table", "svg")
    if compare and why:
        raise click.UsageError("--why derives the values of one release: give --release")


def _files_to_read(
    live: LiveCluster, files: tuple[str, ...], options: SettingsArguments
) -> tuple[str, ...]:
    if not files and not live.is_chosen:
        if options.snapshot is None:
            raise click.UsageError(
                "no pods given: give FILE…, --snapshot, or -n or -l for a live cluster"
            )
        files = (options.snapshot,)
    files = live.paths_to_read(files)
    live.require_use(*files, options.node)
    return files


def _server_release(resolved: NodeSettings, options: SettingsArguments) -> Release | None:
    """The API server's release, where it is not that of the kubelet of the node that is given.

    On a machine as it was observed, a stated release is one to plan by, for every command alike.
    """
    facts = resolved.facts
    stated = None if facts.is_observed else options.release
    version = stated or (None if options.release else facts.server_version)
    if facts.version is None or version is None:
        return None
    from memqos.cluster.node_admission import kubelet_release

    try:
        server = Release.of(version, options.gates)
        is_same = server.minor == kubelet_release(facts.version, server).minor
    except UnsupportedRelease:
        return None  # of a release that memqos does not know, all is as one release has it
    return None if is_same else server


def _resolve_as_kubelet(
    resolved: NodeSettings, options: SettingsArguments, live: LiveCluster, server: Release
) -> NodeSettings:
    """The settings by the release of the node's kubelet, which is not that of the API server."""
    # Imported here: most pods are explained for one release.
    from memqos.audit.preflight import NodeSystem, kubelet_skew
    from memqos.cluster.node_admission import kubelet_release

    version = resolved.facts.version
    kubelet = kubelet_release(version, server)
    gates = {name: on for name, on in options.gates.items() if stage(name, kubelet.minor)}
    changed = msgspec.structs.replace(options, release=None, gates=gates)
    resolved = resolve_settings(changed, live=live)
    skew = kubelet_skew(NodeSystem(kubelet=version), kubelet.minor, server.minor)
    assert skew is not None
    is_supported = "" if skew.is_supported else ", a skew that Kubernetes does not support"
    note = (
        f"API server {server} sets defaults and validates pods; the values are those of the "
        f"node's kubelet, {version}{is_supported}"
    )
    return msgspec.structs.replace(resolved, notes=(*resolved.notes, note))


def _rows(
    reader: ManifestReader,
    files: Sequence[str],
    resolved: Sequence[NodeSettings],
    server: Release | None,
) -> Iterator[_Row]:
    planners = [Planner(each.settings, server) for each in resolved]
    for template, pod in reader.pods(files):
        try:
            row = [
                _explain_pod(planner, node, pod, template)
                for planner, node in zip(planners, resolved, strict=True)
            ]
        except InputError as error:
            reader.refuse(template.with_position(error))
            continue
        for fault in dict.fromkeys(fault for each in row for fault in each.semantics.errors):
            reader.refuse(template.field_error(fault.field, fault.message))
        yield row


def _explain_pod(
    planner: Planner, node: NodeSettings, pod: Pod, template: Template
) -> PodExplanation:
    release = planner.server
    written, semantics = shape_of(pod, release), planner.semantics(pod)
    stored = pod if is_stored(pod) else with_shape(pod, semantics.shape)
    return PodExplanation(
        origin=origin_of(template),
        label=template.label,
        namespace=template.namespace,
        names=tuple(container.name for container in containers_of(pod)),
        written=written,
        semantics=semantics,
        autoscalers=None if semantics.plan is None else autoscaler_requests(stored, release),
        windows=written.windows or node.facts.os == WINDOWS,
        notes=tuple(notes_on_pod(planner, node, pod, written, semantics)),
        volumes=tuple(memory_volumes(pod, semantics.plan.settings, node.published_memory, release))
        if semantics.plan is not None and pod.spec.volumes
        else (),
    )


def _print(rows: Iterable[_Row], resolved: Sequence[NodeSettings], *, why: bool) -> None:
    from memqos.draw.text.pod import pod_overview

    for index, row in enumerate(row for row in rows if row[0].semantics.plan is not None):
        if not index:
            _print_settings(resolved[:1])
        print_lines(["", *pod_overview(*row)])
        if why:
            from memqos.draw.text.pod import derivation, gate_off_derivation

            print_lines(derivation(row[0], resolved[0].settings))
            for each in row[1:]:
                if not each.windows:
                    print_lines(gate_off_derivation(each))


def _print_comparison(rows: Iterable[_Row], resolved: Sequence[NodeSettings]) -> None:
    from memqos.draw.text.release_comparison import release_comparison

    valid = (row for row in rows if any(each.semantics.plan is not None for each in row))
    for index, row in enumerate(valid):
        if not index:
            _print_settings(resolved)
        print_lines(["", *release_comparison(_columns(row, resolved))])


def _columns(row: _Row, resolved: Sequence[NodeSettings]) -> "list[ReleaseColumn]":
    from memqos.draw.text.release_comparison import ReleaseColumn

    gate_off: list[PodExplanation | None] = [*row[len(resolved) :]] or [None] * len(resolved)
    return [
        ReleaseColumn(title=str(each.settings.release), pod=pod, gate_off=off)
        for each, pod, off in zip(resolved, row, gate_off, strict=False)
    ]


def _print_settings(resolved: Sequence[NodeSettings]) -> None:
    releases = [str(each.settings.release) for each in resolved]
    lines = [settings_line(each.settings, each.enablement) for each in resolved]
    print_lines(_merge_releases(lines, releases))
    print_lines(_merge_releases([str(each.enablement) for each in resolved], releases))
    print_notes(dict.fromkeys(note for each in resolved for note in each.notes))


def _merge_releases(lines: Iterable[str], releases: Iterable[str]) -> Iterator[str]:
    """The lines of several releases, those that differ by the release alone as one."""
    merged: dict[tuple[str, ...], list[str]] = {}
    for line, release in zip(lines, releases, strict=True):
        parts = tuple(re.split(rf"(?<![\w.]){re.escape(release)}(?![\w.])", line))
        merged.setdefault(parts, []).append(release)
    for parts, named in merged.items():
        yield ", ".join(dict.fromkeys(named)).join(parts)


def _show_svg(rows: Iterable[_Row], resolved: Sequence[NodeSettings], *, opens: bool) -> None:
    from memqos.draw.svg.levels import levels_svg
    from memqos.draw.svg.pod_levels import pod_levels_chart

    charts = [
        pod_levels_chart(pod, each.settings, each.enablement)
        for row in rows
        for pod, each in zip(row, resolved, strict=True)
        if pod.semantics.plan is not None and not pod.windows
    ]
    if not charts:
        complain("no pod here has cgroup values: there is nothing to draw")
    elif opens:
        from memqos.draw.html.picture import picture_page

        open_page(picture_page("Memory levels", levels_svg(charts)))
    else:
        print_markup(levels_svg(charts))


def _data(
    rows: Iterable[_Row], resolved: Sequence[NodeSettings], *, why: bool, compared: int | None
) -> dict[str, Any]:
    """All of it for scripts; `compared` is how many releases are."""
    if compared is not None:
        from memqos.draw.text.release_comparison import release_comparison_data

        releases = {str(each.settings.release): each for each in resolved[:compared]}
        return {
            "terms": {title: settings_data(each) for title, each in releases.items()},
            "enablement": {title: each.enablement.data for title, each in releases.items()},
            "pods": [release_comparison_data(_columns(row, resolved[:compared])) for row in rows],
        }
    from memqos.draw.text.pod_data import pod_data

    return {
        "terms": settings_data(resolved[0]),
        "enablement": resolved[0].enablement.data,
        "pods": [
            pod_data(
                row[0],
                resolved[0].settings,
                why=why,
                gate_off=row[1] if len(row) > 1 else None,
            )
            for row in rows
        ],
    }
