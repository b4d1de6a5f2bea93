"""`memqos fit`: on which nodes a pod fits, and what the others lack."""

import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import click
import msgspec

from memqos.cli.cluster_access import (
    CLUSTER,
    LIVE_NODES,
    RUNNING_PODS,
    LiveCluster,
    cluster_options,
)
from memqos.cli.fit_nodes import (
    Kubelets,
    node_infos,
    pod_demands,
    read_nodes,
    shape_as_stored,
)
from memqos.cli.help_sections import SectionedCommand
from memqos.cli.manifest_reader import LocatedPod, ManifestReader, origin_of
from memqos.cli.options import manifest_arguments, release_options, resolve_release, strict_option
from memqos.cli.output import (
    OutputFormat,
    emit,
    output_option,
    print_lines,
    print_notes,
)
from memqos.cli.streams import raw_stream
from memqos.cluster.fit import judge_fit
from memqos.cluster.fit_demand import NodeInfo, SchedulingDemand
from memqos.cluster.fit_survey import FitSurvey, survey_fit
from memqos.cluster.node_admission import NodeAdmission
from memqos.draw.text.fit import FitReport, fit_text
from memqos.errors import InputError
from memqos.kube.node import OS_LABEL
from memqos.kube.pod import Pod
from memqos.kube.validation import validate
from memqos.release import Release
from memqos.units import name_some, pluralize

FITS_NOWHERE: Final = 2
_MAX_LISTED: Final = 20
"""More nodes than this are counted, not listed, unless --why lists each."""
LONG: Final = 200_000
"""Pairs of pod and node from which on a terminal shows a progress bar."""


@click.command(cls=SectionedCommand)
@manifest_arguments(required=True)
@click.option(
    "--nodes",
    "nodes_file",
    metavar="FILE",
    help="Nodes, with or without Pods: kubectl get nodes,pods -A -o yaml; or 'cluster' for those "
    "of a live cluster.",
)
@click.option("--snapshot", metavar="FILE", help="One node and its Pods, from a snapshot.")
@click.option("--pods", "pods_file", metavar="FILE", help="Pods that run on the nodes.")
@click.option("--why", is_flag=True, help="Show the arithmetic of every node.")
@strict_option
@output_option()
@cluster_options("context", "namespace")
@release_options
def command(
    files: tuple[str, ...],
    nodes_file: str | None,
    snapshot: str | None,
    pods_file: str | None,
    why: bool,
    strict: bool,
    output: OutputFormat,
    context: str | None,
    namespace: str | None,
    release: str | None,
    gates: tuple[str, ...],
) -> int:
    """Show which nodes can run each Pod in FILE…, with the scheduler's arithmetic.

    Pods with a spec.nodeName count on their node. Each pod of FILE… is checked on its own, for
    resources only: taints, selectors and affinity are ignored. More than 20 nodes are not listed,
    unless --why is given.

    FILE is a manifest, a folder, a snapshot, or - for standard input; --nodes takes snapshots too.
    It may also name a pod or workload in a live cluster, such as deployment/web.
    Exit code 2 if a pod fits no node, 1 if anything could not be read or is invalid.
    """
    live = LiveCluster(context, namespace)
    if nodes_file is not None and snapshot is not None:
        raise click.UsageError("give either --nodes or --snapshot")
    file = nodes_file or snapshot
    if file is None and not live.is_chosen:
        raise click.UsageError("give --nodes or --snapshot, or --context for a live cluster")
    if file is None or file == CLUSTER:
        file, pods_file = LIVE_NODES, pods_file or CLUSTER
    if pods_file == CLUSTER:
        pods_file = RUNNING_PODS
    live.require_use(file, pods_file, *files)
    reader = ManifestReader(live, strict=strict)
    nodes = read_nodes(reader, file)
    if not nodes.nodes:
        reader.require_no_faults(file)
    more = [] if pods_file is None else list(reader.pods([pods_file]))
    resolved, notes = resolve_release(
        release, gates, None if release is not None else nodes.newest_kubelet
    )
    cluster, about_pods = node_infos(reader, nodes, more, resolved)
    notes += about_pods
    pods = list(_valid_pods(reader, files, resolved))
    demands = pod_demands(reader, pods, resolved)
    kubelets = Kubelets(nodes.nodes, resolved)
    results = _fit_results(
        demands, kubelets, cluster, resolved, listed=why or len(cluster) <= _MAX_LISTED
    )
    if output == "table":
        _print(results, cluster, resolved, notes, why=why)
    else:
        emit(_data(results, cluster, resolved, notes, why=why), output)
    if reader.faults:
        return 1
    return FITS_NOWHERE if any(not each.survey.fitting for each in results) else 0


def _valid_pods(
    reader: ManifestReader, files: Sequence[str], release: Release
) -> Iterator[LocatedPod]:
    """The pods that a cluster would accept; faults of the others are reported at once."""
    for template, pod in reader.pods(files):
        try:
            faults = [] if pod.status else validate(pod, shape_as_stored(pod, release), release)
        except InputError as error:
            reader.refuse(template.with_position(error))
            continue
        for fault in faults:
            reader.refuse(template.field_error(fault.field, fault.message))
        if not faults:
            yield template, pod


def _fit_results(
    demands: Sequence[tuple[LocatedPod, SchedulingDemand]],
    kubelets: Kubelets,
    cluster: Sequence[NodeInfo],
    release: Release,
    *,
    listed: bool,
) -> list[FitReport]:
    refusals = [kubelets.refusals(pod) for (_, pod), _ in demands]
    surveys = _survey_admitting_nodes([demand for _, demand in demands], refusals, cluster, release)
    return [
        FitReport(
            origin=origin_of(template),
            label=template.label,
            namespace=template.namespace,
            demand=demand,
            survey=survey,
            nodes=tuple(cluster) if listed else (),
            verdicts=tuple(judge_fit(demand, node, release) for node in cluster) if listed else (),
            refused=refused,
            notes=tuple(_pod_notes(pod, kubelets, refused)),
        )
        for ((template, pod), demand), survey, refused in zip(
            demands, surveys, refusals, strict=True
        )
    ]


def _pod_notes(pod: Pod, kubelets: Kubelets, refused: Mapping[str, NodeAdmission]) -> Iterator[str]:
    if pod.spec.node_name:
        yield f"it is bound to {pod.spec.node_name} already"
    unaware = kubelets.without_pod_level(pod)
    if unaware:
        yield (
            "kubelets before 1.32 ignore spec.resources and use the resources of the containers "
            f"only: {name_some(unaware)}"
        )
    windows = [name for name in kubelets.windows_for_any_os(pod) if name not in refused]
    if windows:
        yield (
            f"it names no operating system, neither spec.os nor the nodeSelector {OS_LABEL}, so "
            f"Windows nodes count: {name_some(windows)}"
        )


def _survey_admitting_nodes(
    demands: Sequence[SchedulingDemand],
    refusals: Sequence[Mapping[str, NodeAdmission]],
    cluster: Sequence[NodeInfo],
    release: Release,
) -> list[FitSurvey]:
    """Each pod against the nodes whose kubelets do not refuse it; all nodes are counted."""
    surveys: dict[int, FitSurvey] = {}
    groups: dict[frozenset[str], list[int]] = {}
    for index, refused in enumerate(refusals):
        groups.setdefault(frozenset(refused), []).append(index)
    for refusing, indexes in groups.items():
        admitting = [node for node in cluster if node.name not in refusing]
        found = _survey_nodes([demands[index] for index in indexes], admitting, release)
        for index, survey in zip(indexes, found, strict=True):
            surveys[index] = msgspec.structs.replace(survey, nodes=len(cluster))
    return [surveys[index] for index in range(len(demands))]


def _survey_nodes(
    demands: Sequence[SchedulingDemand], cluster: Sequence[NodeInfo], release: Release
) -> list[FitSurvey]:
    surveys = survey_fit(demands, cluster, release)
    if len(demands) * len(cluster) < LONG or not _at_a_terminal():
        return list(surveys)
    with click.progressbar(
        surveys, length=len(demands), label="fitting", file=raw_stream(sys.stderr)
    ) as bar:
        return list(bar)


def _at_a_terminal() -> bool:
    return sys.stderr.isatty()


def _print(
    results: Sequence[FitReport],
    cluster: Sequence[NodeInfo],
    release: Release,
    notes: Sequence[str],
    *,
    why: bool,
) -> None:
    if not results:
        return
    on_nodes = pluralize(sum(node.pods for node in cluster), "pod")
    settings = (
        f"Kubernetes {release} · {pluralize(len(cluster), 'node')} with {on_nodes} · "
        "resources only, without taints and affinity"
    )
    print_lines([settings])
    print_notes(notes)
    for result in results:
        print_lines(["", *fit_text(result)])
        if why:
            from memqos.draw.text.fit import fit_reasons

            print_lines(fit_reasons(result, release))


def _data(
    results: Sequence[FitReport],
    cluster: Sequence[NodeInfo],
    release: Release,
    notes: Sequence[str],
    *,
    why: bool,
) -> dict[str, Any]:
    from memqos.draw.text.fit import fit_data

    return {
        "release": str(release),
        "gates": dict(release.gates),
        "nodes": len(cluster),
        "notes": list(notes),
        "pods": [fit_data(result, release, why=why) for result in results],
    }
