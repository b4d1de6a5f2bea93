"""An audit as a person reads it in a terminal: bars, tables, and who stands out."""

from collections.abc import Iterator
from typing import Final

from memqos.audit.cluster_audit import NodeAudit
from memqos.audit.comparison import Measure, NodeComparison
from memqos.draw.audit_report import (
    MEASURE_TITLES,
    AuditReport,
    ReportComparison,
    RuleGroup,
    cluster_memory,
    compare_amounts,
    fullest_nodes,
    group_by_rule,
    share_of_node,
    signed_change,
)
from memqos.draw.text.findings import findings_summary
from memqos.draw.text.table import table
from memqos.draw.text.terminal import message_lines, paragraph
from memqos.units import format_bytes, pluralize

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
    "throttled": "containers throttled at once",
    "usage": "in use",
}


def audit_text(audited: AuditReport) -> list[str]:
    """The whole summary."""
    audit = audited.audit
    spaces = pluralize(len(audit.spaces), "namespace")
    ended = f" ({pluralize(audit.ended, 'more')} ended)".replace("mores", "more")
    lines = [
        f"{pluralize(audit.pods, 'pod')}{ended if audit.ended else ''} on "
        f"{pluralize(len(audit.nodes), 'node')} in {spaces} · {audited.settings}",
        *[line for note in audited.notes for line in message_lines(note, "note: ")],
        "",
    ]
    if not audit.everywhere:
        return [*lines, "nothing was audited"]
    lines += [*_class_table(audited), "", *_memory_table(audited)]
    if audited.comparison is not None:
        return [*lines, *_comparison_lines(audited.comparison)]
    return [*lines, *_node_lines(audited), *_finding_lines(audited)]


def text_bar(share: float, width: int = _BAR_WIDTH) -> str:
    """A bar as long as its share, in eighths of a sign; past the end it says so."""
    eighths = min(round(share * width * 8), width * 8)
    full, rest = divmod(max(eighths, 1 if share > 0 else 0), 8)
    text = "█" * full + (_EIGHTHS[rest] if rest else "")
    return (text[:-1] + "▶" if share > 1 else text).ljust(width, "·")


def _class_table(audited: AuditReport) -> list[str]:
    pods = audited.audit.pods
    return table(
        [
            [name, text_bar(count / pods if pods else 0), f"{count:,}", f"{_percent(count, pods)}"]
            for name, count in audited.audit.classes.items()
        ],
        left=2,
    )


def _memory_table(audited: AuditReport) -> list[str]:
    total = cluster_memory(audited.audit)
    if not total.offered:
        return ["no node's memory is known"]
    rows = []
    for measure, name in MEASURE_TITLES:
        amount = getattr(total, measure)
        if amount or measure != "usage":
            share = total.share(amount)
            rows.append([name, text_bar(share), format_bytes(amount), f"{share:.0%}"])
    return [
        f"of {format_bytes(total.offered)} that nodes offer to pods:",
        *table(rows, left=2),
    ]


def _node_lines(audited: AuditReport) -> list[str]:
    nodes = fullest_nodes(audited.audit)
    if not nodes:
        return []
    rows = [["node", "pods", "requested", "limits", "min", "low", "in use", "throttled"]]
    rows += [_node_row(node) for node in nodes[:_SHOWN_NODES]]
    shown = "the fullest nodes:" if len(nodes) > _SHOWN_NODES else "nodes, the fullest first:"
    lines = ["", shown, *table(rows)]
    busiest = max(nodes, key=lambda node: (node.usage, node.name))
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


def _finding_lines(audited: AuditReport) -> list[str]:
    lines = [""]
    for group in group_by_rule(audited.findings):
        lines += [*_rule_lines(group), ""]
    return [*lines, findings_summary(audited.findings)]


def _rule_lines(group: RuleGroup) -> Iterator[str]:
    places = pluralize(len(group.findings), "place")
    yield f"{group.severity:7}  {group.rule}  {places}"
    yield from paragraph(group.what)
    for finding in group.findings[:_SHOWN_PLACES]:
        yield f"  · {finding.where}: {'; '.join(finding.evidence[:2])}"
    if len(group.findings) > _SHOWN_PLACES:
        yield f"  · … and {len(group.findings) - _SHOWN_PLACES:,} more"
    yield from paragraph(f"fix: {group.fix}")


def _comparison_lines(compared: ReportComparison) -> Iterator[str]:
    found = compared.contrast
    yield ""
    yield f"here, and there: {compared.title}"
    rows = [["", "here", "there", "change"]]
    for measure, name in _MEASURE_NAMES.items():
        one, other = found.before[measure], found.after[measure]
        if one or other:
            rows.append([name, *compare_amounts(measure, one, other)])
    for name, count in found.classes_after.items():
        was = found.classes_before.get(name, 0)
        if was != count:
            rows.append([name, f"{was:,}", f"{count:,}", signed_change("pods", count - was)])
    yield from table(rows)
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
    for findings, word in ((found.found, "found only there"), (found.gone, "found only here")):
        for group in group_by_rule(findings):
            yield (
                f"{word}: {group.severity} {group.rule}, {pluralize(len(group.findings), 'place')}"
            )


def _node_changes(nodes: tuple[NodeComparison, ...]) -> list[str]:
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
    lines = table(rows)
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
