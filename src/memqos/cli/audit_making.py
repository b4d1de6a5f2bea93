"""An audit made: all read, counted under the terms in force, and held against others."""

import os
from collections.abc import Iterable, Mapping
from typing import Any, Final, NamedTuple

import click
import msgspec

from memqos.cli.audit_reading import Survey
from memqos.cli.audit_sharing import Order
from memqos.cli.clusters import CLUSTER, Live
from memqos.cli.progress import Bar
from memqos.cli.terms import POLICIES, Asked, FactorType, InForce, in_force, wanted_in
from memqos.draw.amounts import counted
from memqos.draw.audited import Audited, Compared, Terms
from memqos.errors import InputError, UnsupportedRelease
from memqos.findings.audit import Audit, NodeMemory, Sizing, concluded, sizes_of
from memqos.findings.cluster import judge
from memqos.findings.contrast import contrast
from memqos.findings.finding import Finding
from memqos.findings.others import Others, Used
from memqos.findings.tallies import Tallies
from memqos.host.dumps import Source, dump_of
from memqos.plan.terms import Terms as PlanTerms
from memqos.release import Release

_NAMED: Final = 3


class Question(NamedTuple):
    """What is to be audited, and how."""

    files: tuple[str, ...]
    usage_files: tuple[str, ...]
    compare: str | None
    rules: tuple[str, ...]
    jobs: int
    with_pods: bool


class _Under(NamedTuple):
    """An audit under one set of terms."""

    under: InForce
    audit: Audit
    findings: tuple[Finding, ...]
    tallies: Tallies


def audited_by(question: Question, wanted: Asked, live: Live) -> tuple[Audited, list[bytes]]:
    """The audit, and every pod as JSON where that was asked for."""
    compare, rules = question.compare, question.rules
    other = _other_terms(compare, wanted) if compare is not None and "=" in compare else None
    usage, faults = _usage(question.usage_files)
    is_live = CLUSTER in question.files
    measured: dict[str, Used] = {}
    notes: list[str | InputError] = []
    if is_live:
        from memqos.cli.audit_live import about_selection, live_usage

        notes += about_selection(live)
        if not question.usage_files:
            measured, missing, more = live_usage(live)
            faults += missing
            notes += more
    with _survey(question.files, question.jobs, usage | measured, live) as survey:
        for fault in faults:
            survey.fault(fault)
        others = survey.others()
        under = _terms_in_force(wanted, others, survey, live if is_live else None)
        here = _under(survey, others, under, rules, with_pods=question.with_pods)
        _complete_faults(survey, others, here, usage | others.usage, is_live=is_live)
        compared = None
        if other is not None:
            then = _terms_in_force(other, others, survey, live if is_live else None)
            there = _under(survey, others, then, rules, beside=under.terms)
            compared = _compared(str(_shown(then)), here, there)
        elif compare is not None:
            with _survey([compare], question.jobs, usage | measured, live) as beside:
                there = _under(beside, beside.others(), under, rules)
                for fault in beside.faults:
                    survey.fault(fault)
            compared = _compared(_named(compare, live), here, there)
        audited = Audited(
            _shown(under),
            here.audit,
            here.findings,
            tuple(sorted(survey.faults, key=_place)),
            survey.more_faults,
            (*under.notes, *notes, *_about_kinds(others)),
            tuple([_named(file, live) for file in question.files]),
            compared,
        )
    return audited, [text for _, text in sorted(here.tallies.pods)]


def _usage(files: tuple[str, ...]) -> tuple[dict[str, Used], list[InputError]]:
    if not files:
        return {}, []
    from memqos.cli.audit_usage import read_usage

    return read_usage(files)


def _survey(files: Iterable[str], jobs: int, usage: dict[str, Used], live: Live) -> Survey:
    """All dumps read."""
    sources: list[Source] = []
    dumps = [dump_of(file) for file in files if file != CLUSTER]
    bar = Bar(sum(dump.size for dump in dumps))
    for file in files:
        if file == CLUSTER:
            from memqos.cli.audit_live import live_sources

            sources += live_sources(live, bar.expect)
    sources += dumps
    survey = Survey(jobs or os.cpu_count() or 1, usage, bar.advance)
    try:
        survey.read(sources)
    except BaseException:
        survey.__exit__()
        raise
    finally:
        bar.end()
    return survey


def _named(file: str, live: Live) -> str:
    """What a person calls what was read."""
    return live.server.where if file == CLUSTER else file


def _under(
    survey: Survey,
    others: Others,
    under: InForce,
    rules: tuple[str, ...],
    *,
    with_pods: bool = False,
    beside: PlanTerms | None = None,
) -> _Under:
    nodes, refused = _memories(others, under)
    order = Order(
        under.terms,
        sizes_of(nodes, under.terms.page_size),
        {},
        others.usage,
        beside,
        with_pods,
    )
    tallies = survey.tally(order)
    audit, faults = concluded(tallies, under.terms, nodes, others.limit_ranges, others.quotas)
    if beside is None:
        for fault in (*refused, *faults):
            survey.fault(fault)
    return _Under(under, audit, judge(audit, rules), tallies)


def _terms_in_force(
    wanted: Asked, others: Others, survey: Survey, live: Live | None = None
) -> InForce:
    """Without a release asked for, that of the newest kubelet counts, else the API server's."""
    if wanted.release is not None:
        return in_force(wanted)
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
                survey.fault(fault)
            continue
        if newest is None or release.minor > newest.minor:
            newest = release
    if newest is None:
        return in_force(wanted if live is None else wanted_in(live, wanted))
    under = in_force(wanted, str(newest))
    note = f"the release is that of the newest kubelet, {newest}"
    return msgspec.structs.replace(under, notes=(note, *under.notes))


def _memories(others: Others, under: InForce) -> tuple[dict[str, NodeMemory], list[InputError]]:
    sizing = Sizing(under.config, under.terms, exact=under.is_configured)
    found: dict[str, NodeMemory] = {}
    faults: list[InputError] = []
    for name, node in others.nodes.items():
        try:
            found[name] = sizing.memory_of(node)
        except InputError as error:
            faults.append(InputError(f"node {name}: {error.what}", field=error.field))
    return found, faults


def _complete_faults(
    survey: Survey, others: Others, here: _Under, usage: Mapping[str, Used], *, is_live: bool
) -> None:
    """What is missing, wrong or there twice, once all is known."""
    for place, name, what, field in sorted(here.tallies.unreadable):
        survey.refuse(place, f"{name}: {what}", field)
    survey.tell_twice()
    missing = [node for node in here.audit.nodes if node.name not in others.nodes]
    if missing and not others.nodes:
        pods = counted(sum(node.pods for node in missing), "pod")
        what = f"no Node was read: {pods} audited without the memory of their nodes"
        hint = None if is_live else "add them: kubectl get nodes -o json"
        survey.fault(InputError(what, hint=hint))
        missing = []
    for unread in missing:
        pods = counted(unread.pods, "pod")
        what = f"node {unread.name} was not read: {pods} audited without its memory"
        survey.fault(InputError(what))
    strangers = sorted(usage.keys() - here.tallies.matched)
    if strangers:
        some = ", ".join(strangers[:_NAMED])
        more = f" and {len(strangers) - _NAMED:,} more" if len(strangers) > _NAMED else ""
        survey.fault(InputError(f"usage of pods that were not read: {some}{more}"))


def _other_terms(compare: str, wanted: Asked) -> Asked:
    """release=1.37,policy=None,factor=0.8"""
    changes: dict[str, Any] = {}
    for part in compare.split(","):
        name, _, value = part.partition("=")
        if name == "factor":
            changes[name] = FactorType().convert(value, None, None)
        elif name == "policy" and value in POLICIES:
            changes[name] = value
        elif name == "release" and value:
            Release.of(value)
            changes[name] = value
        else:
            raise click.BadParameter(
                f"{part!r}: write release=1.37, policy={'|'.join(POLICIES)} or factor=0.8",
                param_hint="--compare",
            )
    return msgspec.structs.replace(wanted, **changes)


def _compared(title: str, here: _Under, there: _Under) -> Compared:
    changed = {name: node.changed for name, node in there.tallies.nodes.items() if node.changed}
    findings = (here.findings, there.findings)
    return Compared(title, contrast(here.audit, there.audit, findings, changed))


def _shown(under: InForce) -> Terms:
    return Terms(str(under.terms.release), under.terms.policy, under.terms.factor)


def _about_kinds(others: Others) -> list[str]:
    if not others.passed_over:
        return []
    kinds = ", ".join(f"{count:,} {kind}" for kind, count in sorted(others.passed_over.items()))
    return [f"passed over: {kinds}"]


def _place(fault: InputError) -> tuple[bool, str, int, int]:
    """What has a place first, in its order."""
    return fault.file is None, fault.file or "", fault.line or 0, fault.column or 0
