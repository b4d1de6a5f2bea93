"""How an audit differs from another, as a part of its page."""

from typing import Final

from memqos.draw.amounts import pluralize
from memqos.draw.audited import ReportComparison, compare_amounts, group_by_rule, signed_change
from memqos.draw.page_parts import card, scrolling_table, table_row
from memqos.draw.svg import Markup, el
from memqos.findings.contrast import AuditComparison, Measure

_SHOWN_DIFFERING: Final = 12
_CHANGES: Final[tuple[tuple[Measure, str], ...]] = (
    ("pods", "pods"),
    ("requested", "requested"),
    ("limits", "limits"),
    ("min", "memory.min"),
    ("low", "memory.low"),
    ("high", "with memory.high"),
    ("throttled", "throttled at once"),
    ("usage", "in use"),
)


def comparison_card(compared: ReportComparison) -> Markup:
    """What changes, on which nodes, and what is found on one side alone."""
    found = compared.contrast
    rows = [table_row("th", ["", "here", "there", "change"])]
    for measure, name in _CHANGES:
        one, other = found.before[measure], found.after[measure]
        if one or other:
            rows.append(table_row("td", [name, *compare_amounts(measure, one, other)]))
    measures = [each for each in _CHANGES if any(node.change_in(each[0]) for node in found.nodes)]
    nodes = [table_row("th", ["node", "pods changed", *[name for _, name in measures]])]
    for node in found.nodes[:_SHOWN_DIFFERING]:
        changes = [signed_change(measure, node.change_in(measure)) for measure, _ in measures]
        nodes.append(table_row("td", [node.name or "(no node)", f"{node.changed:,}", *changes]))
    findings = [
        el("li", f"{word}: {group.rule}, {pluralize(len(group.findings), 'place')}")
        for word, groups in (
            ("found only there", group_by_rule(found.found)),
            ("found only here", group_by_rule(found.gone)),
        )
        for group in groups
    ]
    return card(
        "Compared",
        el("p", f"here, and there: {compared.title}"),
        el(
            "div",
            el("div", scrolling_table(rows), *([el("ul", *findings)] if findings else [])),
            el(
                "div",
                *([scrolling_table(nodes)] if found.nodes else []),
                el("p", _difference_words(found), class_="dim"),
            ),
            class_="two",
        ),
    )


def _difference_words(found: AuditComparison) -> str:
    if not found.nodes:
        return "No node differs."
    nodes = pluralize(len(found.nodes), "node differs", "nodes differ")
    changed = pluralize(found.changed, "pod has", "pods have")
    shown = (
        f"; the {_SHOWN_DIFFERING} most different are shown"
        if len(found.nodes) > _SHOWN_DIFFERING
        else ""
    )
    return f"{nodes}{shown}. {changed} other values."
