"""An audit as a page: one file that needs nothing else, for screens and phones, light and dark."""

from collections.abc import Iterator
from typing import Final

from memqos.draw.amounts import pluralize
from memqos.draw.audit_page_comparison import comparison_card
from memqos.draw.audit_page_places import measure_rows, namespace_rows, node_cards
from memqos.draw.audit_style import PAGE_STYLE
from memqos.draw.audited import (
    AuditReport,
    RuleGroup,
    cluster_memory,
    fullest_nodes,
    group_by_rule,
    share_of_node,
    share_requested,
)
from memqos.draw.charts import NodeColumn, RingSlice, histogram, ring, skyline
from memqos.draw.page_parts import card, legend_entry
from memqos.draw.svg import Markup, el
from memqos.draw.terminal import message_lines
from memqos.findings.audit import NodeAudit
from memqos.findings.catalogue import RULES_BY_ID
from memqos.findings.cluster import approximate_bytes
from memqos.findings.finding import Finding, Severity

_SHOWN_PLACES: Final = 50
_SHOWN_FAULTS: Final = 100
_SEVERITIES: Final[tuple[tuple[Severity, str, str], ...]] = (
    ("error", "error", "errors"),
    ("warning", "warning", "warnings"),
    ("info", "thing to know", "things to know"),
)


def audit_html(audited: AuditReport) -> str:
    """The whole page."""
    body = [
        _header(audited),
        _summary_cards(audited),
        *_faults(audited),
        *([] if audited.comparison is None else [comparison_card(audited.comparison)]),
        el("div", *_charts(audited), class_="grid charts"),
        *_findings(audited),
        *node_cards(audited),
        *namespace_rows(audited),
        el("footer", "Amounts are binary: 1Gi is 1,073,741,824 bytes. Made by memqos audit."),
    ]
    head = el(
        "head",
        Markup('<meta charset="utf-8">'),
        Markup('<meta name="viewport" content="width=device-width, initial-scale=1">'),
        Markup('<meta name="color-scheme" content="light dark">'),
        Markup('<link rel="icon" href="data:,">'),
        el("title", f"Memory audit: {', '.join(audited.sources)}"),
        el("style", Markup(PAGE_STYLE)),
    )
    return "<!doctype html>\n" + el("html", head, el("body", el("main", *body)), lang="en")


def _header(audited: AuditReport) -> Markup:
    return el(
        "header",
        el("h1", "Memory audit"),
        el("p", ", ".join(audited.sources), class_="sources"),
        el("p", str(audited.settings), class_="terms"),
        *[el("p", *_line_spans(note), class_="note") for note in audited.notes],
    )


def _summary_cards(audited: AuditReport) -> Markup:
    audit = audited.audit
    cards = [
        _summary_card(f"{audit.pods:,}", "pods" if audit.pods != 1 else "pod", "plain"),
        _summary_card(
            f"{len(audit.nodes):,}", "nodes" if len(audit.nodes) != 1 else "node", "plain"
        ),
        _summary_card(f"{len(audit.spaces):,}", "namespaces", "plain"),
    ]
    for severity, one, many in _SEVERITIES:
        count = sum(finding.severity == severity for finding in audited.findings)
        look = f"{severity} none" if not count else severity
        cards.append(_summary_card(f"{count:,}", one if count == 1 else many, look))
    return el("section", *cards, class_="numbers")


def _summary_card(amount: str, what: str, look: str) -> Markup:
    return el("div", el("b", amount), el("span", what), class_=f"number {look}")


def _charts(audited: AuditReport) -> Iterator[Markup]:
    audit = audited.audit
    classes = [
        RingSlice(name.lower(), f"{name} {count:,}", count) for name, count in audit.classes.items()
    ]
    key = [
        legend_entry(each.look, name, f"{each.amount:,}", _percent(each.amount, audit.pods))
        for each, name in zip(classes, audit.classes, strict=True)
    ]
    yield card(
        "QoS classes",
        el("div", ring(classes, f"{audit.pods:,}", "pods"), el("ul", *key), class_="beside"),
    )
    total = cluster_memory(audit)
    if total.offered:
        rows = measure_rows(total, total.share, is_measured=bool(audit.measured))
        intro = f"of {approximate_bytes(total.offered)} that nodes offer to pods"
        yield card("Memory of all nodes", el("p", intro, class_="dim"), *rows)
    full = fullest_nodes(audit)
    if full:
        shares = [share_requested(node) for node in full]
        words = "How many nodes have how much of their memory requested, in percent"
        yield card(
            "Nodes by what is requested",
            histogram(shares, words),
            el("p", "nodes, by percent of their memory that is requested", class_="dim"),
        )
        columns = [
            NodeColumn(_node_hint(node), share_of_node(node, node.usage), share_requested(node))
            for node in full
        ]
        keys = [legend_entry("requested", "requested", "", "")]
        if audit.measured:
            keys.append(legend_entry("usage", "in use", "", ""))
        yield card(
            "Every node, the fullest first",
            skyline(columns, "Requested and used memory of every node"),
            el("ul", *keys, class_="inline"),
        )


def _node_hint(node: NodeAudit) -> str:
    used = f", {share_of_node(node, node.usage):.0%} in use" if node.measured else ""
    return (
        f"{node.name}: {pluralize(node.pods, 'pod')}, {share_requested(node):.0%} requested{used}"
    )


def _findings(audited: AuditReport) -> Iterator[Markup]:
    groups = group_by_rule(audited.findings)
    yield el("h2", "Findings")
    if not audited.audit.pods:
        yield el("p", "Nothing was audited: there are no pods.", class_="fine")
    elif not groups:
        yield el("p", "Nothing found.", class_="fine")
    for index, group in enumerate(groups):
        yield _rule_details(group, is_open=index == 0)


def _rule_details(group: RuleGroup, *, is_open: bool) -> Markup:
    places = [_finding_item(finding) for finding in group.findings[:_SHOWN_PLACES]]
    more = len(group.findings) - _SHOWN_PLACES
    if more > 0:
        places.append(el("li", f"… and {more:,} more: -o json has them all", class_="dim"))
    inner = [
        el(
            "summary",
            el("span", group.severity, class_=f"tag {group.severity}"),
            el("span", el("b", group.what), el("code", group.rule), class_="what"),
            el("span", f"{len(group.findings):,}", class_="count"),
        ),
        el("p", RULES_BY_ID[group.rule].why),
        el("p", el("b", "Fix: "), group.fix),
        el("ol", *places),
    ]
    if is_open:
        return el("details", *inner, class_=f"finding {group.severity}", open="open")
    return el("details", *inner, class_=f"finding {group.severity}")


def _finding_item(finding: Finding) -> Markup:
    return el(
        "li",
        el("code", finding.where),
        *[el("span", each, class_="evidence") for each in finding.evidence],
    )


def _faults(audited: AuditReport) -> Iterator[Markup]:
    if not audited.faults:
        return
    count = len(audited.faults) + audited.more_faults
    items = [el("li", el("code", *_line_spans(fault))) for fault in audited.faults[:_SHOWN_FAULTS]]
    if count > _SHOWN_FAULTS:
        items.append(el("li", f"… and {count - _SHOWN_FAULTS:,} more"))
    yield el(
        "details",
        el(
            "summary",
            el("span", "not read", class_="tag error"),
            el("span", el("b", "Some of the input is missing or broken"), class_="what"),
            el("span", f"{count:,}", class_="count"),
        ),
        el("p", "The rest was audited."),
        el("ol", *items),
        class_="finding error",
    )


def _line_spans(message: object) -> list[Markup]:
    """A message, and the lines of its snippet apart."""
    return [el("span", line, class_="line") for line in message_lines(message)]


def _percent(part: int, whole: int) -> str:
    return f"{part / whole:.0%}" if whole else ""
