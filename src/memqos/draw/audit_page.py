"""An audit as a page: one file that needs nothing else, for screens and phones, light and dark."""

from collections.abc import Iterator
from typing import Final

from memqos.draw.amounts import counted
from memqos.draw.audit_page_comparison import comparison
from memqos.draw.audit_page_places import measure_rows, namespaces, nodes
from memqos.draw.audit_style import STYLE
from memqos.draw.audited import (
    Audited,
    RuleGroup,
    by_rule,
    fullest,
    requested_share,
    share_of,
    total_of,
)
from memqos.draw.charts import Column, Slice, histogram, ring, skyline
from memqos.draw.page_parts import card, legend
from memqos.draw.svg import Markup, el
from memqos.draw.terminal import message_lines
from memqos.findings.audit import NodeAudit
from memqos.findings.catalogue import RULES
from memqos.findings.cluster import size
from memqos.findings.finding import Finding, Severity

_PLACES: Final = 50
_FAULTS: Final = 100
_SEVERITIES: Final[tuple[tuple[Severity, str, str], ...]] = (
    ("error", "error", "errors"),
    ("warning", "warning", "warnings"),
    ("info", "thing to know", "things to know"),
)


def page(audited: Audited) -> str:
    """The whole page."""
    body = [
        _header(audited),
        _numbers(audited),
        *_faults(audited),
        *([] if audited.compared is None else [comparison(audited.compared)]),
        el("div", *_charts(audited), class_="grid charts"),
        *_findings(audited),
        *nodes(audited),
        *namespaces(audited),
        el("footer", "Amounts are binary: 1Gi is 1,073,741,824 bytes. Made by memqos audit."),
    ]
    head = el(
        "head",
        Markup('<meta charset="utf-8">'),
        Markup('<meta name="viewport" content="width=device-width, initial-scale=1">'),
        Markup('<meta name="color-scheme" content="light dark">'),
        Markup('<link rel="icon" href="data:,">'),
        el("title", f"Memory audit: {', '.join(audited.sources)}"),
        el("style", Markup(STYLE)),
    )
    return "<!doctype html>\n" + el("html", head, el("body", el("main", *body)), lang="en")


def _header(audited: Audited) -> Markup:
    return el(
        "header",
        el("h1", "Memory audit"),
        el("p", ", ".join(audited.sources), class_="sources"),
        el("p", str(audited.terms), class_="terms"),
        *[el("p", *_lines(note), class_="note") for note in audited.notes],
    )


def _numbers(audited: Audited) -> Markup:
    audit = audited.audit
    cards = [
        _number(f"{audit.pods:,}", "pods" if audit.pods != 1 else "pod", "plain"),
        _number(f"{len(audit.nodes):,}", "nodes" if len(audit.nodes) != 1 else "node", "plain"),
        _number(f"{len(audit.spaces):,}", "namespaces", "plain"),
    ]
    for severity, one, many in _SEVERITIES:
        count = sum(finding.severity == severity for finding in audited.findings)
        look = f"{severity} none" if not count else severity
        cards.append(_number(f"{count:,}", one if count == 1 else many, look))
    return el("section", *cards, class_="numbers")


def _number(amount: str, what: str, look: str) -> Markup:
    return el("div", el("b", amount), el("span", what), class_=f"number {look}")


def _charts(audited: Audited) -> Iterator[Markup]:
    audit = audited.audit
    classes = [
        Slice(name.lower(), f"{name} {count:,}", count) for name, count in audit.classes.items()
    ]
    key = [
        legend(each.look, name, f"{each.amount:,}", _percent(each.amount, audit.pods))
        for each, name in zip(classes, audit.classes, strict=True)
    ]
    yield card(
        "QoS classes",
        el("div", ring(classes, f"{audit.pods:,}", "pods"), el("ul", *key), class_="beside"),
    )
    total = total_of(audit)
    if total.offered:
        rows = measure_rows(total, total.share, is_measured=bool(audit.measured))
        intro = f"of {size(total.offered)} that nodes offer to pods"
        yield card("Memory of all nodes", el("p", intro, class_="dim"), *rows)
    full = fullest(audit)
    if full:
        shares = [requested_share(node) for node in full]
        words = "How many nodes have how much of their memory requested, in percent"
        yield card(
            "Nodes by what is requested",
            histogram(shares, words),
            el("p", "nodes, by percent of their memory that is requested", class_="dim"),
        )
        columns = [
            Column(_hint(node), share_of(node, node.usage), requested_share(node)) for node in full
        ]
        keys = [legend("requested", "requested", "", "")]
        if audit.measured:
            keys.append(legend("usage", "in use", "", ""))
        yield card(
            "Every node, the fullest first",
            skyline(columns, "Requested and used memory of every node"),
            el("ul", *keys, class_="inline"),
        )


def _hint(node: NodeAudit) -> str:
    used = f", {share_of(node, node.usage):.0%} in use" if node.measured else ""
    return f"{node.name}: {counted(node.pods, 'pod')}, {requested_share(node):.0%} requested{used}"


def _findings(audited: Audited) -> Iterator[Markup]:
    groups = by_rule(audited.findings)
    yield el("h2", "Findings")
    if not audited.audit.pods:
        yield el("p", "Nothing was audited: there are no pods.", class_="fine")
    elif not groups:
        yield el("p", "Nothing found.", class_="fine")
    for index, group in enumerate(groups):
        yield _group(group, is_open=index == 0)


def _group(group: RuleGroup, *, is_open: bool) -> Markup:
    places = [_place(finding) for finding in group.findings[:_PLACES]]
    more = len(group.findings) - _PLACES
    if more > 0:
        places.append(el("li", f"… and {more:,} more: -o json has them all", class_="dim"))
    inner = [
        el(
            "summary",
            el("span", group.severity, class_=f"tag {group.severity}"),
            el("span", el("b", group.what), el("code", group.rule), class_="what"),
            el("span", f"{len(group.findings):,}", class_="count"),
        ),
        el("p", RULES[group.rule].why),
        el("p", el("b", "Fix: "), group.fix),
        el("ol", *places),
    ]
    if is_open:
        return el("details", *inner, class_=f"finding {group.severity}", open="open")
    return el("details", *inner, class_=f"finding {group.severity}")


def _place(finding: Finding) -> Markup:
    return el(
        "li",
        el("code", finding.where),
        *[el("span", each, class_="evidence") for each in finding.evidence],
    )


def _faults(audited: Audited) -> Iterator[Markup]:
    if not audited.faults:
        return
    count = len(audited.faults) + audited.more_faults
    items = [el("li", el("code", *_lines(fault))) for fault in audited.faults[:_FAULTS]]
    if count > _FAULTS:
        items.append(el("li", f"… and {count - _FAULTS:,} more"))
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


def _lines(message: object) -> list[Markup]:
    """A message, and the lines of its snippet apart."""
    return [el("span", line, class_="line") for line in message_lines(message)]


def _percent(part: int, whole: int) -> str:
    return f"{part / whole:.0%}" if whole else ""
