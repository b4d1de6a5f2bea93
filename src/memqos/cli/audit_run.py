"""An audit from what is to be read to the report: dumps, a live cluster, a comparison."""

import os
from collections.abc import Iterable, Mapping

import msgspec

from memqos.audit import AuditResult, audit_cluster
from memqos.audit.census import ClusterObjects, MeasuredUsage
from memqos.audit.comparison import compare_audits
from memqos.audit.node_memory import NodeMemoryEstimator
from memqos.audit.report import AuditReport, ReportComparison
from memqos.audit.rules import ClusterRule
from memqos.cli.audit_kubelets import FleetKubelets, ask_kubelets
from memqos.cli.audit_settings import AuditSettings, is_of_all_nodes
from memqos.cli.cluster_access import CLUSTER, LiveCluster
from memqos.cli.output import ProgressBar
from memqos.cli.settings import SettingsArguments, parse_compare
from memqos.draw.text.audit import settings_title
from memqos.errors import InputError, MemqosError
from memqos.host.census_reader import CensusReader
from memqos.host.dumps import Dump, DumpSource, dump_of
from memqos.host.manifest_files import manifest_paths
from memqos.release import Release
from memqos.settings.resolver import NodeSettings
from memqos.settings.settings import Settings
from memqos.units import name_some, pluralize


class AuditRequest(msgspec.Struct, frozen=True, kw_only=True):
    """What is to be audited, and how."""

    files: tuple[str, ...]
    rules: tuple[str, ...]
    usage_files: tuple[str, ...] = ()
    compare: str | None = None
    jobs: int = 1
    with_pods: bool = False
    downgrade: Release | None = None
    own_rules: tuple[ClusterRule, ...] = ()


def run_audit(
    request: AuditRequest, options: SettingsArguments, live: LiveCluster
) -> tuple[AuditReport, list[bytes]]:
    """The report, and every pod as JSON if the request is `with_pods`."""
    compare, rules = request.compare, request.rules
    other_options = (
        parse_compare(compare, options) if compare is not None and "=" in compare else None
    )
    usage, faults = _read_usage_files(request.usage_files)
    is_live = CLUSTER in request.files
    measured: dict[str, MeasuredUsage] = {}
    notes: list[str | InputError] = []
    if is_live:
        from memqos.cli.audit_live import read_autoscalers, read_metrics_usage, selection_notes

        notes += selection_notes(live)
        if not request.usage_files:
            measured, missing, more = read_metrics_usage(live)
            faults += missing
            notes += more
    with _read_dumps(request.files, request.jobs, usage | measured, live) as census:
        for fault in faults:
            census.add_fault(fault)
        objects = census.cluster_objects()
        kubelets = FleetKubelets()
        if is_live:
            autoscalers, missing_notes = read_autoscalers(live)
            objects.autoscalers.extend(autoscalers)
            notes += missing_notes
            if options.kubelet is None:
                kubelets = ask_kubelets(live, objects.nodes, options)
                notes += kubelets.notes
        resolver = AuditSettings(objects, census, live if is_live else None, kubelets)
        resolved = resolver.resolve(options)
        server = _server_release(live) if is_live else None
        here = _audit_with(
            census,
            objects,
            resolved,
            rules,
            request.own_rules,
            with_pods=request.with_pods,
            downgrade=request.downgrade,
            server=server,
        )
        notes += _add_late_faults(census, objects, here, usage | objects.usage, is_live=is_live)
        compared = None
        if other_options is not None:
            other_resolved = resolver.resolve(other_options)
            there = _audit_with(
                census,
                objects,
                other_resolved,
                rules,
                request.own_rules,
                compared_with=resolved.settings,
            )
            title = settings_title(other_resolved.settings, other_resolved.enablement)
            compared = _compare(title, here, there)
        elif compare is not None:
            with _read_dumps([compare], request.jobs, usage | measured, live) as other:
                there = _audit_with(
                    other, other.cluster_objects(), resolved, rules, request.own_rules
                )
                for fault in other.faults:
                    census.add_fault(fault)
            name = _source_name(compare, live)
            if there.audit.pods or not other.faults:
                compared = _compare(name, here, there)
            else:
                hint = "give a dump, 'cluster', or other settings such as release=1.37"
                census.add_fault(InputError("nothing to compare with", file=name, hint=hint))
        report = AuditReport(
            audit=here.audit,
            enablement=resolved.enablement,
            findings=here.findings,
            faults=tuple(sorted(census.faults, key=_fault_position)),
            more_faults=census.more_faults,
            notes=(*resolved.notes, *notes, *_kind_notes(objects)),
            sources=tuple([_source_name(file, live) for file in request.files]),
            comparison=compared,
        )
    return report, [text for _, text in sorted(here.totals.pod_rows)]


def _read_usage_files(files: tuple[str, ...]) -> tuple[dict[str, MeasuredUsage], list[InputError]]:
    if not files:
        return {}, []
    from memqos.host.census_reader import read_usage

    return read_usage(files)


def _read_dumps(
    files: Iterable[str], jobs: int, usage: dict[str, MeasuredUsage], live: LiveCluster
) -> CensusReader:
    """A census of all dumps, and of the cluster where it is one of them."""
    sources: list[DumpSource] = []
    dumps = [dump for file in files if file != CLUSTER for dump in _dumps_in(file)]
    bar = ProgressBar(sum(dump.size for dump in dumps))
    for file in files:
        if file == CLUSTER:
            from memqos.cli.audit_live import cluster_lists

            sources += cluster_lists(live, bar.expect)
    sources += dumps
    census = CensusReader(jobs or os.cpu_count() or 1, usage, bar.advance)
    try:
        census.read(sources)
    except BaseException:
        census.__exit__()
        raise
    finally:
        bar.end()
    return census


def _dumps_in(path: str) -> list[Dump]:
    """A file by its path, or the manifests in a folder; `-` is standard input."""
    if not os.path.isdir(path):
        return [dump_of(path)]
    found = [
        dump_of(each.filename if isinstance(each, OSError) else each)
        for each in manifest_paths(path)
    ]
    return found or [Dump(path, 0)]


def _source_name(file: str, live: LiveCluster) -> str:
    """What a report calls a file or the cluster."""
    return live.server.where if file == CLUSTER else file


def _audit_with(
    census: CensusReader,
    objects: ClusterObjects,
    resolved: NodeSettings,
    rules: tuple[str, ...],
    own_rules: tuple[ClusterRule, ...],
    *,
    with_pods: bool = False,
    downgrade: Release | None = None,
    compared_with: Settings | None = None,
    server: Release | None = None,
) -> AuditResult:
    result = audit_cluster(
        objects,
        NodeMemoryEstimator(resolved.config, resolved.settings, exact=is_of_all_nodes(resolved)),
        resolved.settings,
        census.count_pods,
        rules=rules,
        own_rules=own_rules,
        before=compared_with,
        with_rows=with_pods,
        downgrade=downgrade,
        server=server,
    )
    if compared_with is None:
        for fault in result.faults:
            census.add_fault(fault)
    return result


def _server_release(live: LiveCluster) -> Release | None:
    """The API server's release; None where it does not say, or says one that memqos does not know.

    Only the skew of kubelets depends on it.
    """
    try:
        return Release.of(live.server_version())
    except MemqosError:
        return None


def _add_late_faults(
    census: CensusReader,
    objects: ClusterObjects,
    here: AuditResult,
    usage: Mapping[str, MeasuredUsage],
    *,
    is_live: bool,
) -> list[str]:
    """Report what is missing, wrong or duplicate, once everything was read; notes on the rest."""
    notes: list[str] = []
    for place, name, what, field in sorted(here.totals.unreadable):
        census.add_fault_at(place, f"{name}: {what}", field)
    census.report_duplicates()
    missing = [node for node in here.audit.nodes if node.name not in objects.nodes]
    if missing and not objects.nodes:
        pods = pluralize(sum(node.pods for node in missing), "pod")
        hint = "" if is_live else " – add them: kubectl get nodes -o json"
        notes.append(f"no Node was read: {pods} audited without the memory of their nodes{hint}")
        missing = []
    for unread in missing:
        pods = pluralize(unread.pods, "pod")
        what = f"node {unread.name} was not read: {pods} audited without its memory"
        census.add_fault(InputError(what))
    unmatched = sorted(usage.keys() - here.totals.matched)
    if unmatched:
        some = name_some(unmatched)
        census.add_fault(InputError(f"usage given for pods that were not read: {some}"))
    return notes


def _compare(title: str, here: AuditResult, there: AuditResult) -> ReportComparison:
    changed = {name: node.changed for name, node in there.totals.nodes.items() if node.changed}
    findings = (here.findings, there.findings)
    return ReportComparison(title, compare_audits(here.audit, there.audit, findings, changed))


def _kind_notes(objects: ClusterObjects) -> list[str]:
    if not objects.skipped_kinds:
        return []
    kinds = ", ".join(f"{count:,} {kind}" for kind, count in sorted(objects.skipped_kinds.items()))
    return [f"skipped: {kinds}"]


def _fault_position(fault: InputError) -> tuple[bool, str, int, int]:
    """Faults with a file come first, in its order."""
    return fault.file is None, fault.file or "", fault.line or 0, fault.column or 0
