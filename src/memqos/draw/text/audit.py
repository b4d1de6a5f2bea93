"""An audit as text for a terminal, and as data for scripts."""

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any, Final

import msgspec

from memqos.audit.cluster_audit import NamespaceAudit, NodeAudit
from memqos.audit.comparison import COUNT_MEASURES, Measure, NodeComparison
from memqos.audit.report import (
    AuditReport,
    ReportComparison,
    RuleGroup,
    cluster_memory,
    findings_by_time,
    fullest_nodes,
    group_by_rule,
    is_about_today,
    share_of_node,
)
from memqos.audit.totals import UnrequestedProtection
from memqos.draw.text.findings import findings_data, findings_summary, severity_line
from memqos.draw.text.lines import Line, Paragraph, Table
from memqos.draw.text.terminal import message_lines
from memqos.errors import InputError
from memqos.findings.catalogue import POD_OOM_KILLED
from memqos.settings.enablement import Enablement
from memqos.settings.settings import Settings
from memqos.units import format_bytes, pluralize

MEASURE_TITLES: Final[dict[Measure, str]] = {
    "requested": "requested",
    "limits": "limits",
    "min": "memory.min: never reclaimed",
    "low": "memory.low: reclaimed last",
    "usage": "in use",
}
"""The measures that are shown as a share of the memory of nodes."""

_BAR_WIDTH: Final = 24
_EIGHTHS: Final = " ▏▎▍▌▋▊▉█"
_SHOWN_NODES: Final = 5
_SHOWN_PLACES: Final = 3
_MEASURE_NAMES: Final[dict[Measure, str]] = {
    "pods": "pods",
    "requested": "requested",
    "limits": "limits",
    "min": "memory.min",
    "low": "memory.low",
    "high": "containers with a memory.high",
    "throttled": "containers throttled immediately",
    "usage": "in use",
}


def audit_text(report: AuditReport) -> list[Line]:
    """The whole summary."""
    audit = report.audit
    namespaces = pluralize(len(audit.namespaces), "namespace")
    ended = f" ({pluralize(audit.ended, 'more')} ended)".replace("mores", "more")
    lines: list[Line] = [
        f"{pluralize(audit.pods, 'pod')}{ended if audit.ended else ''} on "
        f"{pluralize(len(audit.nodes), 'node')} in {namespaces} · "
        f"{settings_title(audit.settings, report.enablement)}",
        str(report.enablement),
        *[line for note in report.notes for line in message_lines(note, "note: ")],
        *killed_lines(report),
        "",
    ]
    if not audit.everywhere:
        return [*lines, "nothing was audited"]
    lines += [_class_table(report), "", *_memory_table(report)]
    if report.comparison is not None:
        return [*lines, *_comparison_lines(report.comparison)]
    return [*lines, *_node_lines(report), *_finding_lines(report)]


def killed_lines(report: AuditReport) -> list[str]:
    """The workloads that were OOM-killed: nothing else is as urgent."""
    killed = [each for each in report.findings if each.rule == POD_OOM_KILLED.id]
    if not killed:
        return []
    places = [f"{each.where} ({each.evidence[-1]})" for each in killed[:_SHOWN_PLACES]]
    more = len(killed) - _SHOWN_PLACES
    places += [f"{more:,} more"] if more > 0 else []
    return [f"OOM-killed: {', '.join(places)}"]


def settings_title(settings: Settings, enablement: Enablement) -> str:
    """The settings of an audit, in a line."""
    title = f"Kubernetes {settings.release} · MemoryQoS {enablement.state}"
    if not enablement.is_on:
        return title
    factor = "" if settings.factor is None else f" · factor {settings.factor:g}"
    return f"{title} · {settings.reservation}{factor}"


def compare_amounts(measure: Measure, before: int, after: int) -> tuple[str, str, str]:
    """Two amounts, and by how much the second differs."""
    return (
        _measure_text(measure, before),
        _measure_text(measure, after),
        signed_change(measure, after - before),
    )


def signed_change(measure: Measure, change: int) -> str:
    """By how much, with its sign."""
    if not change:
        return "–"
    return f"{'+' if change > 0 else '−'}{_measure_text(measure, abs(change))}"


def _measure_text(measure: Measure, amount: int) -> str:
    return f"{amount:,}" if measure in COUNT_MEASURES else format_bytes(amount)


def text_bar(share: float, width: int = _BAR_WIDTH) -> str:
    """A bar as long as its share, in eighths of a character; past the end it has an arrow."""
    eighths = min(round(share * width * 8), width * 8)
    full, rest = divmod(max(eighths, 1 if share > 0 else 0), 8)
    text = "█" * full + (_EIGHTHS[rest] if rest else "")
    return (text[:-1] + "▶" if share > 1 else text).ljust(width, "·")


_DROP_BAR: Final = {"the bars": 1}
_DROP_NODE: Final = {"low": 5, "min": 4, "pods": 1, "limits": 3}


def _class_table(report: AuditReport) -> Table:
    pods = report.audit.pods
    return Table(
        [
            [name, text_bar(count / pods if pods else 0), f"{count:,}", f"{_percent(count, pods)}"]
            for name, count in report.audit.classes.items()
        ],
        left=2,
        drop=_DROP_BAR,
    )


def _memory_table(report: AuditReport) -> list[Line]:
    total = cluster_memory(report.audit)
    if not total.offered:
        return ["no node's memory is known"]
    rows = []
    for measure, name in MEASURE_TITLES.items():
        amount = getattr(total, measure)
        if amount or measure != "usage":
            share = total.share(amount)
            rows.append([name, text_bar(share), format_bytes(amount), f"{share:.0%}"])
    return [
        f"of {format_bytes(total.offered)} allocatable on the nodes:",
        Table(rows, left=2, drop=_DROP_BAR),
    ]


def _node_lines(report: AuditReport) -> list[Line]:
    nodes = fullest_nodes(report.audit)
    if not nodes:
        return []
    rows = [["node", "pods", "requested", "limits", "min", "low", "in use", "throttled"]]
    rows += [_node_row(node) for node in nodes[:_SHOWN_NODES]]
    shown = "the fullest nodes:" if len(nodes) > _SHOWN_NODES else "nodes, the fullest first:"
    lines: list[Line] = ["", shown, Table(rows, drop=_DROP_NODE)]
    busiest = max(nodes, key=lambda node: node.usage)
    if busiest.evicted_first:
        order = ", ".join(each.pod for each in busiest.evicted_first)
        lines.append(f"evicted first on {busiest.name}: {order}")
    killed = next((node for node in [busiest, *nodes] if node.killed_first), None)
    if killed is not None:
        order = ", ".join(
            f"{each.container} ({each.oom_score_adj})" for each in killed.killed_first
        )
        lines.append(f"killed first on {killed.name}: {order}")
    return lines


def _node_row(node: NodeAudit) -> list[str]:
    amounts = (node.requested, node.limits, node.min, node.low, node.usage)
    return [
        node.name,
        f"{node.pods:,}",
        *[f"{share_of_node(node, amount):.0%}" for amount in amounts[:-1]],
        f"{share_of_node(node, node.usage):.0%}" if node.measured else "–",
        f"{node.throttled:,}" if node.measured else "–",
    ]


def _finding_lines(report: AuditReport) -> list[Line]:
    lines: list[Line] = [""]
    for title, findings in findings_by_time(report):
        lines += [f"{title}:", ""] if findings else []
        for group in group_by_rule(findings):
            lines += [*_rule_lines(group), ""]
    return [*lines, findings_summary(report.findings)]


def _rule_lines(group: RuleGroup) -> Iterator[Line]:
    places = pluralize(len(group.findings), "place")
    yield severity_line(group.severity, f"{group.rule}  {places}")
    yield Paragraph(group.what)
    for finding in group.findings[:_SHOWN_PLACES]:
        yield f"  · {finding.where}: {'; '.join(finding.evidence[:2])}"
    if len(group.findings) > _SHOWN_PLACES:
        yield f"  · … and {len(group.findings) - _SHOWN_PLACES:,} more"
    yield Paragraph(f"fix: {group.fix}")


def _comparison_lines(comparison: ReportComparison) -> Iterator[Line]:
    found = comparison.differences
    yield ""
    yield f"compared with: {comparison.title}"
    rows = [["", "this", "other", "change"]]
    for measure, name in _MEASURE_NAMES.items():
        before, after = found.before[measure], found.after[measure]
        if before or after:
            rows.append([name, *compare_amounts(measure, before, after)])
    for name, count in found.classes_after.items():
        was = found.classes_before.get(name, 0)
        if was != count:
            rows.append([name, f"{was:,}", f"{count:,}", signed_change("pods", count - was)])
    yield Table(rows)
    yield ""
    if not found.nodes:
        yield "no node differs"
    else:
        yield f"{pluralize(len(found.nodes), 'node differs', 'nodes differ')}" + (
            f", {pluralize(found.changed, 'pod has', 'pods have')} other values"
            if found.changed
            else ""
        )
        yield from _node_changes(found.nodes)
    yield ""
    sides = (found.appeared, "found only in the other"), (found.removed, "found only in this")
    for findings, word in sides:
        for group in group_by_rule(findings):
            yield (
                f"{word}: {group.severity} {group.rule}, {pluralize(len(group.findings), 'place')}"
            )


def _node_changes(nodes: tuple[NodeComparison, ...]) -> list[Line]:
    measures: list[Measure] = [
        measure for measure in _MEASURE_NAMES if any(node.change_in(measure) for node in nodes)
    ]
    rows = [["node", "pods changed", *[_COLUMN_NAMES.get(each, each) for each in measures]]]
    for node in nodes[:_SHOWN_NODES]:
        where = "" if node.before and node.after else " (new)" if node.after else " (gone)"
        rows.append(
            [
                (node.name or "(no node)") + where,
                f"{node.changed:,}",
                *[signed_change(measure, node.change_in(measure)) for measure in measures],
            ]
        )
    lines: list[Line] = [Table(rows)]
    if len(nodes) > _SHOWN_NODES:
        lines.append(f"… and {len(nodes) - _SHOWN_NODES:,} more")
    return lines


_COLUMN_NAMES: Final[dict[Measure, str]] = {
    "min": "memory.min",
    "low": "memory.low",
    "high": "with a high",
}


def _percent(part: int, whole: int) -> str:
    return f"{part / whole:.0%}" if whole else "–"


def audit_data(report: AuditReport, pods: Sequence[bytes]) -> dict[str, Any]:
    """Everything, with `pods` as texts that are JSON already."""
    audit = report.audit
    data: dict[str, Any] = {
        "release": str(audit.settings.release),
        "policy": audit.settings.policy,
        "factor": audit.settings.factor,
        "enablement": report.enablement.data,
        "counts": {
            "pods": audit.pods,
            "nodes": len(audit.nodes),
            "namespaces": len(audit.namespaces),
            "findings": len(report.findings),
            "faults": len(report.faults) + report.more_faults,
            "ended": audit.ended,
            "measured": audit.measured,
            "classes": audit.classes,
            "severities": dict(Counter(finding.severity for finding in report.findings)),
        },
        "memory": msgspec.to_builtins(cluster_memory(audit)),
        "findings": [
            {**data, "when": "today" if is_about_today(each, report.enablement) else "MemoryQoS on"}
            for each, data in zip(report.findings, findings_data(report.findings), strict=True)
        ],
        "nodes": [_node_data(node) for node in audit.nodes],
        "unscheduled": None if audit.unscheduled is None else _node_data(audit.unscheduled),
        "namespaces": [_namespace_data(each) for each in audit.namespaces],
        "pods": [msgspec.Raw(text) for text in pods],
        "faults": [_fault_data(fault) for fault in report.faults],
        "notes": list(map(str, report.notes)),
    }
    if report.comparison is not None:
        differences = msgspec.to_builtins(report.comparison.differences)
        data["compared"] = {"with": report.comparison.title, **differences}
    return data


def _node_data(node: NodeAudit) -> dict[str, Any]:
    data = msgspec.to_builtins(node)
    share = {
        measure: None if (part := node.share(getattr(node, measure))) is None else round(part, 4)
        for measure in ("requested", "limits", "min", "low", "usage")
    }
    return {
        **data,
        "shares": share,
        "unasked_min": _unrequested_data(node.unrequested_min),
        "unasked_low": _unrequested_data(node.unrequested_low),
    }


def _unrequested_data(found: UnrequestedProtection) -> dict[str, Any]:
    return {
        "total": found.total,
        "most": [{"pod": pod, "amount": amount} for pod, amount in found.most],
    }


def _namespace_data(each: NamespaceAudit) -> dict[str, Any]:
    quotas = [
        {**msgspec.to_builtins(quota), "left": max(0, quota.hard - quota.used)}
        for quota in each.quotas
    ]
    return {**msgspec.to_builtins(each), "quotas": quotas}


def _fault_data(fault: InputError) -> dict[str, Any]:
    return {
        "what": fault.what,
        "file": fault.file,
        "line": fault.line,
        "column": fault.column,
        "field": fault.field,
        "hint": fault.advice,
    }
