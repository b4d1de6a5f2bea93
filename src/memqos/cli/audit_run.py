"""A bar that moves while something long goes on, where somebody watches."""

import os
import sys
import time
from collections.abc import Iterable, Mapping
from typing import Any, Final, NamedTuple

import click
import msgspec

from memqos.audit.census import ClusterObjects, MeasuredUsage
from memqos.audit.cluster_audit import (
    Audit,
    NodeMemory,
    NodeMemoryEstimator,
    audit_cluster,
    node_sizes,
)
from memqos.audit.comparison import compare_audits
from memqos.audit.rules import judge_cluster
from memqos.audit.totals import ClusterTotals
from memqos.cli.cluster_access import CLUSTER, LiveCluster
from memqos.cli.output import show_status
from memqos.cli.settings import (
    POLICY_CHOICES,
    FactorType,
    SettingsArguments,
    resolve_settings,
    with_cluster_defaults,
)
from memqos.draw.audit_report import AuditReport, AuditSettings, ReportComparison
from memqos.errors import InputError, UnsupportedRelease
from memqos.findings.finding import Finding
from memqos.host.census_reader import CensusReader
from memqos.host.census_workers import CountSettings
from memqos.host.dumps import DumpSource, dump_of
from memqos.release import Release
from memqos.settings.resolver import NodeSettings
from memqos.settings.settings import Settings as PlanTerms
from memqos.units import pluralize

_WIDTH: Final = 30
_EVERY: Final = 0.1
"""Seconds."""


class ProgressBar:
    """Bytes and objects read so far, of as many as are known to come."""

    def __init__(self, total: int) -> None:
        self._total = total
        self._done = 0
        self._objects = 0
        self._expected = 0
        self._shown = 0.0
        self._is_watched = sys.stderr.isatty()

    def advance(self, size: int, objects: int) -> None:
        """So much more was read."""
        self._done += size
        self._objects += objects
        if self._is_watched and time.monotonic() - self._shown > _EVERY:
            self._shown = time.monotonic()
            self._write(self._line())

    def expect(self, objects: int) -> None:
        """So many objects are to come, whatever their size."""
        self._expected = self._objects + objects

    def end(self) -> None:
        """Take the bar away."""
        if self._is_watched:
            self._write("")

    def _line(self) -> str:
        told = f"{self._objects:,} objects, {self._done >> 20:,} MiB"
        if self._expected:
            share = min(1.0, self._objects / self._expected)
        elif self._total:
            share = min(1.0, self._done / self._total)
        else:
            return told
        full = round(_WIDTH * share)
        return f"{'█' * full}{'░' * (_WIDTH - full)} {share:4.0%}  {told}"

    def _write(self, line: str) -> None:
        show_status(line)


_MAX_NAMES: Final = 3


class AuditRequest(NamedTuple):
    """What is to be audited, and how."""

    files: tuple[str, ...]
    usage_files: tuple[str, ...]
    compare: str | None
    rules: tuple[str, ...]
    jobs: int
    with_pods: bool


class _SettingsAudit(NamedTuple):
    """An audit under one set of terms."""

    under: NodeSettings
    audit: Audit
    findings: tuple[Finding, ...]
    tallies: ClusterTotals


def run_audit(
    question: AuditRequest, wanted: SettingsArguments, live: LiveCluster
) -> tuple[AuditReport, list[bytes]]:
    """The audit, and every pod as JSON where that was asked for."""
    compare, rules = question.compare, question.rules
    other = _parse_compare(compare, wanted) if compare is not None and "=" in compare else None
    usage, faults = _read_usage_files(question.usage_files)
    is_live = CLUSTER in question.files
    measured: dict[str, MeasuredUsage] = {}
    notes: list[str | InputError] = []
    if is_live:
        from memqos.cli.audit_live import read_metrics_usage, selection_notes

        notes += selection_notes(live)
        if not question.usage_files:
            measured, missing, more = read_metrics_usage(live)
            faults += missing
            notes += more
    with _read_dumps(question.files, question.jobs, usage | measured, live) as survey:
        for fault in faults:
            survey.add_fault(fault)
        others = survey.cluster_objects()
        under = _resolve_audit_settings(wanted, others, survey, live if is_live else None)
        here = _audit_under(survey, others, under, rules, with_pods=question.with_pods)
        _add_late_faults(survey, others, here, usage | others.usage, is_live=is_live)
        compared = None
        if other is not None:
            then = _resolve_audit_settings(other, others, survey, live if is_live else None)
            there = _audit_under(survey, others, then, rules, beside=under.settings)
            compared = _compare(str(_display_settings(then)), here, there)
        elif compare is not None:
            with _read_dumps([compare], question.jobs, usage | measured, live) as beside:
                there = _audit_under(beside, beside.cluster_objects(), under, rules)
                for fault in beside.faults:
                    survey.add_fault(fault)
            compared = _compare(_source_name(compare, live), here, there)
        audited = AuditReport(
            _display_settings(under),
            here.audit,
            here.findings,
            tuple(sorted(survey.faults, key=_fault_position)),
            survey.more_faults,
            (*under.notes, *notes, *_kind_notes(others)),
            tuple([_source_name(file, live) for file in question.files]),
            compared,
        )
    return audited, [text for _, text in sorted(here.tallies.pod_rows)]


def _read_usage_files(files: tuple[str, ...]) -> tuple[dict[str, MeasuredUsage], list[InputError]]:
    if not files:
        return {}, []
    from memqos.host.census_reader import read_usage

    return read_usage(files)


def _read_dumps(
    files: Iterable[str], jobs: int, usage: dict[str, MeasuredUsage], live: LiveCluster
) -> CensusReader:
    """All dumps read."""
    sources: list[DumpSource] = []
    dumps = [dump_of(file) for file in files if file != CLUSTER]
    bar = ProgressBar(sum(dump.size for dump in dumps))
    for file in files:
        if file == CLUSTER:
            from memqos.cli.audit_live import cluster_lists

            sources += cluster_lists(live, bar.expect)
    sources += dumps
    survey = CensusReader(jobs or os.cpu_count() or 1, usage, bar.advance)
    try:
        survey.read(sources)
    except BaseException:
        survey.__exit__()
        raise
    finally:
        bar.end()
    return survey


def _source_name(file: str, live: LiveCluster) -> str:
    """What a person calls what was read."""
    return live.server.where if file == CLUSTER else file


def _audit_under(
    survey: CensusReader,
    others: ClusterObjects,
    under: NodeSettings,
    rules: tuple[str, ...],
    *,
    with_pods: bool = False,
    beside: PlanTerms | None = None,
) -> _SettingsAudit:
    nodes, refused = _node_memories(others, under)
    order = CountSettings(
        under.settings,
        node_sizes(nodes, under.settings.page_size),
        {},
        others.usage,
        beside,
        with_pods,
    )
    tallies = survey.count_pods(order)
    audit, faults = audit_cluster(
        tallies, under.settings, nodes, others.limit_ranges, others.quotas
    )
    if beside is None:
        for fault in (*refused, *faults):
            survey.add_fault(fault)
    return _SettingsAudit(under, audit, judge_cluster(audit, rules), tallies)


def _resolve_audit_settings(
    wanted: SettingsArguments,
    others: ClusterObjects,
    survey: CensusReader,
    live: LiveCluster | None = None,
) -> NodeSettings:
    """Without a release asked for, that of the newest kubelet counts, else the API server's."""
    if wanted.release is not None:
        return resolve_settings(wanted)
    newest: Release | None = None
    told: dict[str, str] = {}
    for name, node in others.nodes.items():
        info = node.status.node_info
        if info is not None and info.kubelet_version is not None:
            told.setdefault(info.kubelet_version, name)
    for version, name in told.items():
        try:
            release = Release.of(version)
        except UnsupportedRelease as error:
            fault = InputError(f"node {name}: {error.what}", hint=error.hint)
            if not any(str(each) == str(fault) for each in survey.faults):
                survey.add_fault(fault)
            continue
        if newest is None or release.minor > newest.minor:
            newest = release
    if newest is None:
        return resolve_settings(wanted if live is None else with_cluster_defaults(live, wanted))
    under = resolve_settings(wanted, str(newest))
    note = f"the release is that of the newest kubelet, {newest}"
    return msgspec.structs.replace(under, notes=(note, *under.notes))


def _node_memories(
    others: ClusterObjects, under: NodeSettings
) -> tuple[dict[str, NodeMemory], list[InputError]]:
    sizing = NodeMemoryEstimator(under.config, under.settings, exact=under.is_configured)
    found: dict[str, NodeMemory] = {}
    faults: list[InputError] = []
    for name, node in others.nodes.items():
        try:
            found[name] = sizing.memory_of(node)
        except InputError as error:
            faults.append(InputError(f"node {name}: {error.what}", field=error.field))
    return found, faults


def _add_late_faults(
    survey: CensusReader,
    others: ClusterObjects,
    here: _SettingsAudit,
    usage: Mapping[str, MeasuredUsage],
    *,
    is_live: bool,
) -> None:
    """What is missing, wrong or there twice, once all is known."""
    for place, name, what, field in sorted(here.tallies.unreadable):
        survey.add_fault_at(place, f"{name}: {what}", field)
    survey.report_duplicates()
    missing = [node for node in here.audit.nodes if node.name not in others.nodes]
    if missing and not others.nodes:
        pods = pluralize(sum(node.pods for node in missing), "pod")
        what = f"no Node was read: {pods} audited without the memory of their nodes"
        hint = None if is_live else "add them: kubectl get nodes -o json"
        survey.add_fault(InputError(what, hint=hint))
        missing = []
    for unread in missing:
        pods = pluralize(unread.pods, "pod")
        what = f"node {unread.name} was not read: {pods} audited without its memory"
        survey.add_fault(InputError(what))
    strangers = sorted(usage.keys() - here.tallies.matched)
    if strangers:
        some = ", ".join(strangers[:_MAX_NAMES])
        more = f" and {len(strangers) - _MAX_NAMES:,} more" if len(strangers) > _MAX_NAMES else ""
        survey.add_fault(InputError(f"usage of pods that were not read: {some}{more}"))


def _parse_compare(compare: str, wanted: SettingsArguments) -> SettingsArguments:
    """release=1.37,policy=None,factor=0.8"""
    changes: dict[str, Any] = {}
    for part in compare.split(","):
        name, _, value = part.partition("=")
        if name == "factor":
            changes[name] = FactorType().convert(value, None, None)
        elif name == "policy" and value in POLICY_CHOICES:
            changes[name] = value
        elif name == "release" and value:
            Release.of(value)
            changes[name] = value
        else:
            raise click.BadParameter(
                f"{part!r}: write release=1.37, policy={'|'.join(POLICY_CHOICES)} or factor=0.8",
                param_hint="--compare",
            )
    return msgspec.structs.replace(wanted, **changes)


def _compare(title: str, here: _SettingsAudit, there: _SettingsAudit) -> ReportComparison:
    changed = {name: node.changed for name, node in there.tallies.nodes.items() if node.changed}
    findings = (here.findings, there.findings)
    return ReportComparison(title, compare_audits(here.audit, there.audit, findings, changed))


def _display_settings(under: NodeSettings) -> AuditSettings:
    return AuditSettings(str(under.settings.release), under.settings.policy, under.settings.factor)


def _kind_notes(others: ClusterObjects) -> list[str]:
    if not others.skipped_kinds:
        return []
    kinds = ", ".join(f"{count:,} {kind}" for kind, count in sorted(others.skipped_kinds.items()))
    return [f"passed over: {kinds}"]


def _fault_position(fault: InputError) -> tuple[bool, str, int, int]:
    """What has a place first, in its order."""
    return fault.file is None, fault.file or "", fault.line or 0, fault.column or 0
