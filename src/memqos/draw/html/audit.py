"""An audit as a page: charts, findings, the fullest nodes and namespaces, a comparison."""

from collections.abc import Callable, Iterator
from datetime import datetime
from functools import partial
from typing import Final

from memqos.audit.cluster_audit import NamespaceAudit, NodeAudit
from memqos.audit.comparison import AuditComparison, Measure
from memqos.audit.report import (
    AuditReport,
    ClusterMemory,
    ReportComparison,
    RuleGroup,
    cluster_memory,
    findings_by_time,
    fullest_nodes,
    group_by_rule,
    share_of_node,
    share_requested,
)
from memqos.draw.html.charts import (
    NodeColumn,
    RingSlice,
    bar_row,
    card,
    histogram,
    legend_entry,
    made_stamp,
    meter,
    ring,
    scrolling_table,
    skyline,
    table_row,
)
from memqos.draw.html.style import PAGE_STYLE
from memqos.draw.svg.elements import Markup, el
from memqos.draw.text.audit import (
    MEASURE_TITLES,
    compare_amounts,
    killed_lines,
    settings_title,
    signed_change,
)
from memqos.draw.text.findings import SEVERITY_NOUNS
from memqos.draw.text.terminal import message_lines
from memqos.findings.catalogue import RULES_BY_ID
from memqos.findings.finding import Finding
from memqos.units import format_bytes, pluralize

_SHOWN_NODES: Final = 36
"""Full rows, whether of two or of three."""
_SHOWN_DIFFERING: Final = 12
_SHOWN_NAMESPACES: Final = 20
_SHOWN_PLACES: Final = 50
_SHOWN_FAULTS: Final = 100
_CHANGES: Final[tuple[tuple[Measure, str], ...]] = (
    ("pods", "pods"),
    ("requested", "requested"),
    ("limits", "limits"),
    ("min", "memory.min"),
    ("low", "memory.low"),
    ("high", "with memory.high"),
    ("throttled", "throttled immediately"),
    ("usage", "in use"),
)


def audit_main(report: AuditReport, *sections: Markup, at: datetime, version: str) -> Markup:
    """What the page shows, without its style: for a page that has that already.

    It was made `at` a time by a version. More sections come before the findings.
    """
    stamp = made_stamp(at, version)
    return el(
        "main",
        _header(report, stamp),
        _summary_cards(report),
        *_faults(report),
        *([] if report.comparison is None else [_comparison_card(report.comparison)]),
        el("div", *_charts(report), class_="grid charts"),
        *sections,
        *_findings(report),
        *_node_cards(report),
        *_namespace_rows(report),
        el("footer", f"Amounts are binary: 1Gi is 1,073,741,824 bytes. {stamp}"),
    )


def audit_html(report: AuditReport, *sections: Markup, at: datetime, version: str) -> str:
    """The whole page; more sections come before the findings."""
    head = el(
        "head",
        Markup('<meta charset="utf-8">'),
        Markup('<meta name="viewport" content="width=device-width, initial-scale=1">'),
        Markup('<meta name="color-scheme" content="light dark">'),
        Markup('<link rel="icon" href="data:,">'),
        el("title", f"Memory audit: {', '.join(report.sources)}"),
        el("style", Markup(PAGE_STYLE)),
    )
    return "<!doctype html>\n" + el(
        "html",
        head,
        el("body", audit_main(report, *sections, at=at, version=version)),
        lang="en",
    )


def _header(report: AuditReport, stamp: str) -> Markup:
    return el(
        "header",
        el("h1", "Memory audit"),
        el("p", ", ".join(report.sources), class_="sources"),
        el("p", stamp, class_="note stamp"),
        el("p", settings_title(report.audit.settings, report.enablement), class_="terms"),
        el("p", str(report.enablement), class_="note"),
        *[el("p", *_line_spans(note), class_="note") for note in report.notes],
        *[el("p", line, class_="killed") for line in killed_lines(report)],
    )


def _summary_cards(report: AuditReport) -> Markup:
    audit = report.audit
    cards = [
        _summary_card(f"{audit.pods:,}", "pods" if audit.pods != 1 else "pod", "plain"),
        _summary_card(
            f"{len(audit.nodes):,}", "nodes" if len(audit.nodes) != 1 else "node", "plain"
        ),
        _summary_card(f"{len(audit.namespaces):,}", "namespaces", "plain"),
    ]
    for severity, (one, many) in SEVERITY_NOUNS.items():
        count = sum(finding.severity == severity for finding in report.findings)
        look = f"{severity} none" if not count else severity
        cards.append(_summary_card(f"{count:,}", one if count == 1 else many, look))
    return el("section", *cards, class_="numbers")


def _summary_card(amount: str, what: str, look: str) -> Markup:
    return el("div", el("b", amount), el("span", what), class_=f"number {look}")


def _charts(report: AuditReport) -> Iterator[Markup]:
    audit = report.audit
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
        rows = _measure_rows(total, total.share, is_measured=bool(audit.measured))
        intro = f"of {format_bytes(total.offered)} allocatable on the nodes"
        yield card("Memory of all nodes", el("p", intro, class_="dim"), *rows)
    full = fullest_nodes(audit)
    if full:
        shares = [share_requested(node) for node in full]
        words = "Number of nodes by percent of their memory requested"
        yield card(
            "Nodes by requested memory",
            histogram(shares, words),
            el("p", "nodes, by percent of their memory requested", class_="dim"),
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


def _findings(report: AuditReport) -> Iterator[Markup]:
    yield el("h2", "Findings")
    if not report.audit.pods:
        yield el("p", "Nothing was audited: there are no pods.", class_="fine")
    elif not report.findings:
        yield el("p", "Nothing found.", class_="fine")
    is_first = True
    for title, findings in findings_by_time(report):
        if findings:
            yield el("h3", title[0].upper() + title[1:])
        for group in group_by_rule(findings):
            yield _rule_details(group, is_open=is_first)
            is_first = False


def _rule_details(group: RuleGroup, *, is_open: bool) -> Markup:
    places = [_finding_item(finding) for finding in group.findings[:_SHOWN_PLACES]]
    more = len(group.findings) - _SHOWN_PLACES
    if more > 0:
        places.append(el("li", f"… and {more:,} more: -o json lists all", class_="dim"))
    inner = [
        el(
            "summary",
            el("span", group.severity, class_=f"tag {group.severity}"),
            el("span", el("b", group.what), el("code", group.rule), class_="what"),
            el("span", f"{len(group.findings):,}", class_="count"),
        ),
        *([el("p", RULES_BY_ID[group.rule].why)] if group.rule in RULES_BY_ID else []),
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


def _faults(report: AuditReport) -> Iterator[Markup]:
    if not report.faults:
        return
    count = len(report.faults) + report.more_faults
    items = [el("li", el("code", *_line_spans(fault))) for fault in report.faults[:_SHOWN_FAULTS]]
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


def _comparison_card(comparison: ReportComparison) -> Markup:
    """What changes, on which nodes, and what is found on one side alone."""
    found = comparison.differences
    rows = [table_row("th", ["", "this", "other", "change"])]
    for measure, name in _CHANGES:
        before, after = found.before[measure], found.after[measure]
        if before or after:
            rows.append(table_row("td", [name, *compare_amounts(measure, before, after)]))
    measures = [each for each in _CHANGES if any(node.change_in(each[0]) for node in found.nodes)]
    nodes = [table_row("th", ["node", "pods changed", *[name for _, name in measures]])]
    for node in found.nodes[:_SHOWN_DIFFERING]:
        changes = [signed_change(measure, node.change_in(measure)) for measure, _ in measures]
        nodes.append(table_row("td", [node.name or "(no node)", f"{node.changed:,}", *changes]))
    findings = [
        el("li", f"{word}: {group.rule}, {pluralize(len(group.findings), 'place')}")
        for word, groups in (
            ("found only in the other", group_by_rule(found.appeared)),
            ("found only in this", group_by_rule(found.removed)),
        )
        for group in groups
    ]
    return card(
        "Compared",
        el("p", f"compared with: {comparison.title}"),
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


def _node_cards(report: AuditReport) -> Iterator[Markup]:
    """The fullest nodes, a card each."""
    found = fullest_nodes(report.audit)
    if not found:
        return
    yield el("h2", "The fullest nodes")
    if len(found) > _SHOWN_NODES:
        yield el("p", f"{_SHOWN_NODES} of {len(found):,}: -o json lists all", class_="dim")
    yield el("div", *[_node_card(node) for node in found[:_SHOWN_NODES]], class_="grid nodes")


def _measure_rows(
    whole: NodeAudit | ClusterMemory, share_of_it: Callable[[int], float], *, is_measured: bool
) -> list[Markup]:
    """Every measure as a share of what there is; usage only where it was measured."""
    rows = []
    for measure, name in MEASURE_TITLES.items():
        if measure == "usage" and not is_measured:
            continue
        amount = getattr(whole, measure)
        share = share_of_it(amount)
        hint = f"{name}: {format_bytes(amount)}, {share:.0%}"
        rows.append(bar_row(measure, name, share, format_bytes(amount), hint))
    return rows


def _node_card(node: NodeAudit) -> Markup:
    assert node.memory is not None
    rows = _measure_rows(node, partial(share_of_node, node), is_measured=bool(node.measured))
    facts = [
        f"{pluralize(node.pods, 'pod')}: {node.classes['Guaranteed']} Guaranteed, "
        f"{node.classes['Burstable']} Burstable, {node.classes['BestEffort']} BestEffort",
        f"{format_bytes(node.memory.published)} for pods, of {format_bytes(node.memory.capacity)}",
    ]
    if node.throttled:
        facts.append(f"throttled immediately: {pluralize(node.throttled, 'container')}")
    lists = [
        _top_list("evicted first", [each.pod for each in node.evicted_first]),
        _top_list(
            "killed first",
            [f"{each.container} ({each.oom_score_adj})" for each in node.killed_first],
        ),
        _top_list(
            "unrequested protection",
            [
                f"{pod}: {format_bytes(amount)} of memory.{knob}"
                for knob, found in (("min", node.unrequested_min), ("low", node.unrequested_low))
                for pod, amount in found.most
            ][:3],
        ),
    ]
    return card(
        node.name,
        *[el("p", fact, class_="dim") for fact in facts],
        *rows,
        *[each for each in lists if each is not None],
        level="h3",
    )


def _top_list(title: str, names: list[str]) -> Markup | None:
    if not names:
        return None
    items = [el("li", el("code", name)) for name in names]
    return el("details", el("summary", title), el("ol", *items), class_="first")


def _namespace_rows(report: AuditReport) -> Iterator[Markup]:
    """Those that request most, as bars."""
    namespaces = sorted(report.audit.namespaces, key=lambda each: (-each.request, each.name))
    if not namespaces:
        return
    yield el("h2", "Namespaces")
    is_measured = bool(report.audit.measured)
    words = "memory requests, relative to the largest"
    if is_measured:
        words += "; the mark is usage"
    if len(namespaces) > _SHOWN_NAMESPACES:
        words += f" · the first {_SHOWN_NAMESPACES} of {len(namespaces):,}: -o json lists all"
    yield el("p", words, class_="dim")
    most = max(namespaces[0].request, 1)
    rows = [
        _namespace_row(namespace, most, is_measured=is_measured)
        for namespace in namespaces[:_SHOWN_NAMESPACES]
    ]
    yield el("div", *rows, class_="card spaces")


def _namespace_row(namespace: NamespaceAudit, most: int, *, is_measured: bool) -> Markup:
    facts = [pluralize(namespace.pods, "pod")]
    if namespace.unrequesting:
        facts.append(f"{namespace.unrequesting:,} without a request")
    if not namespace.defaults_request:
        facts.append("no default request")
    facts += [
        f"quota {each.quota}: {format_bytes(max(0, each.hard - each.used))} left of {each.resource}"
        for each in namespace.quotas
    ]
    used = f", {format_bytes(namespace.usage)} in use" if is_measured else ""
    hint = f"{namespace.name}: {format_bytes(namespace.request)} requested{used}"
    mark = namespace.usage / most if is_measured else None
    return el(
        "div",
        el(
            "div",
            el("b", namespace.name),
            el("span", f"{format_bytes(namespace.request)} requested{used}"),
            class_="bar-words",
        ),
        meter("requested", namespace.request / most, hint, mark),
        el("p", " · ".join(facts), class_="dim"),
        class_="bar-row",
    )
