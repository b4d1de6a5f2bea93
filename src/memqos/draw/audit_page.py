"""An audit as a page: one file that needs nothing else, for screens and phones, light and dark."""

from collections.abc import Iterable, Iterator
from typing import Final

from memqos.draw.amounts import counted
from memqos.draw.audit_style import STYLE
from memqos.draw.audited import (
    MEASURES,
    Audited,
    Compared,
    RuleGroup,
    by_rule,
    fullest,
    requested_share,
    share_of,
    total_of,
)
from memqos.draw.charts import Column, Slice, histogram, meter, ring, skyline
from memqos.draw.svg import Markup, el
from memqos.draw.table import short
from memqos.findings.audit import NodeAudit, SpaceAudit
from memqos.findings.catalogue import RULES
from memqos.findings.contrast import COUNTS, Contrast, Measure
from memqos.findings.finding import Finding, Severity

_NODES: Final = 40
_SPACES: Final = 20
_PLACES: Final = 50
_FAULTS: Final = 100
_DIFFERING: Final = 12
_SEVERITIES: Final[tuple[tuple[Severity, str, str], ...]] = (
    ("error", "error", "errors"),
    ("warning", "warning", "warnings"),
    ("info", "thing to know", "things to know"),
)
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


def page(audited: Audited) -> str:
    """The whole page."""
    body = [
        _header(audited),
        _numbers(audited),
        *_faults(audited),
        *([] if audited.compared is None else [_compared(audited.compared)]),
        el("div", *_charts(audited), class_="grid charts"),
        *_findings(audited),
        *_nodes(audited),
        *_spaces(audited),
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
        *[el("p", note, class_="note") for note in audited.notes],
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
    legend = [
        _legend(each.look, name, f"{each.amount:,}", _percent(each.amount, audit.pods))
        for each, name in zip(classes, audit.classes, strict=True)
    ]
    yield _card(
        "QoS classes",
        el("div", ring(classes, f"{audit.pods:,}", "pods"), el("ul", *legend), class_="beside"),
    )
    total = total_of(audit)
    if total.offered:
        rows = []
        for measure, name in MEASURES:
            amount = getattr(total, measure)
            if measure == "usage" and not audit.measured:
                continue
            share = total.share(amount)
            hint = f"{name}: {short(amount)}, {share:.0%}"
            rows.append(_bar_row(measure, name, share, short(amount), hint))
        intro = f"of {short(total.offered)} that nodes offer to pods"
        yield _card("Memory of all nodes", el("p", intro, class_="dim"), *rows)
    nodes = fullest(audit)
    if nodes:
        shares = [requested_share(node) for node in nodes]
        words = "How many nodes have how much of their memory requested, in percent"
        yield _card(
            "Nodes by what is requested",
            histogram(shares, words),
            el("p", "nodes, by percent of their memory that is requested", class_="dim"),
        )
        columns = [
            Column(_hint(node), share_of(node, node.usage), requested_share(node)) for node in nodes
        ]
        keys = [_legend("requested", "requested", "", "")]
        if audit.measured:
            keys.append(_legend("usage", "in use", "", ""))
        yield _card(
            "Every node, the fullest first",
            skyline(columns, "Requested and used memory of every node"),
            el("ul", *keys, class_="inline"),
        )


def _bar_row(look: str, name: str, share: float, amount: str, hint: str) -> Markup:
    return el(
        "div",
        el("div", el("span", name), el("span", f"{amount} · {share:.0%}"), class_="bar-words"),
        meter(look, share, hint),
        class_="bar-row",
    )


def _legend(look: str, name: str, amount: str, share: str) -> Markup:
    return el(
        "li",
        el("i", "", class_=f"swatch back-{look}"),
        el("span", name),
        el("b", amount),
        el("span", share, class_="dim"),
    )


def _hint(node: NodeAudit) -> str:
    used = f", {share_of(node, node.usage):.0%} in use" if node.measured else ""
    return f"{node.name}: {counted(node.pods, 'pod')}, {requested_share(node):.0%} requested{used}"


def _findings(audited: Audited) -> Iterator[Markup]:
    groups = by_rule(audited.findings)
    yield el("h2", "Findings")
    if not groups:
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


def _nodes(audited: Audited) -> Iterator[Markup]:
    nodes = fullest(audited.audit)
    if not nodes:
        return
    yield el("h2", "The fullest nodes")
    if len(nodes) > _NODES:
        yield el("p", f"{_NODES} of {len(nodes):,}: -o json has them all", class_="dim")
    yield el("div", *[_node(node) for node in nodes[:_NODES]], class_="grid nodes")


def _node(node: NodeAudit) -> Markup:
    assert node.memory is not None
    rows = []
    for measure, name in MEASURES:
        amount = getattr(node, measure)
        if measure == "usage" and not node.measured:
            continue
        share = share_of(node, amount)
        hint = f"{name}: {short(amount)}, {share:.0%}"
        rows.append(_bar_row(measure, name, share, short(amount), hint))
    facts = [
        f"{counted(node.pods, 'pod')}: {node.classes['Guaranteed']} Guaranteed, "
        f"{node.classes['Burstable']} Burstable, {node.classes['BestEffort']} BestEffort",
        f"{short(node.memory.published)} for pods, of {short(node.memory.capacity)}",
    ]
    if node.throttled:
        facts.append(f"throttled at once: {counted(node.throttled, 'container')}")
    lists = [
        _first("evicted first", [each.pod for each in node.evicted_first]),
        _first(
            "killed first",
            [f"{each.container} ({each.oom_score_adj})" for each in node.killed_first],
        ),
        _first(
            "protected unasked",
            [
                f"{pod}: {short(amount)} of memory.{knob}"
                for knob, found in (("min", node.unasked_min), ("low", node.unasked_low))
                for pod, amount in found.most
            ][:3],
        ),
    ]
    return _card(
        node.name,
        *[el("p", fact, class_="dim") for fact in facts],
        *rows,
        *[each for each in lists if each is not None],
        level="h3",
    )


def _first(title: str, names: list[str]) -> Markup | None:
    if not names:
        return None
    items = [el("li", el("code", name)) for name in names]
    return el("details", el("summary", title), el("ol", *items), class_="first")


def _spaces(audited: Audited) -> Iterator[Markup]:
    spaces = sorted(audited.audit.spaces, key=lambda space: (-space.request, space.name))
    if not spaces:
        return
    yield el("h2", "Namespaces")
    if len(spaces) > _SPACES:
        words = f"the {_SPACES} that request most, of {len(spaces):,}: -o json has them all"
        yield el("p", words, class_="dim")
    most = max(spaces[0].request, 1)
    rows = [
        _space(space, most, is_measured=bool(audited.audit.measured)) for space in spaces[:_SPACES]
    ]
    yield el("div", *rows, class_="card spaces")


def _space(space: SpaceAudit, most: int, *, is_measured: bool) -> Markup:
    facts = [counted(space.pods, "pod")]
    if space.unrequesting:
        facts.append(f"{space.unrequesting:,} without a request")
    if not space.defaults_request:
        facts.append("no default request")
    facts += [
        f"{room.quota}: {short(max(0, room.hard - room.used))} left of {room.resource}"
        for room in space.quotas
    ]
    used = f", {short(space.usage)} in use" if is_measured else ""
    hint = f"{space.name}: {short(space.request)} requested{used}"
    mark = space.usage / most if is_measured else None
    return el(
        "div",
        el(
            "div",
            el("b", space.name),
            el("span", f"{short(space.request)} requested{used}"),
            class_="bar-words",
        ),
        meter("requested", space.request / most, hint, mark),
        el("p", " · ".join(facts), class_="dim"),
        class_="bar-row",
    )


def _faults(audited: Audited) -> Iterator[Markup]:
    if not audited.faults:
        return
    count = len(audited.faults) + audited.more_faults
    items = [el("li", el("code", str(fault))) for fault in audited.faults[:_FAULTS]]
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


def _compared(compared: Compared) -> Markup:
    found = compared.contrast
    rows = [_row("th", ["", "here", "there", "change"])]
    for measure, name in _CHANGES:
        one, other = found.before[measure], found.after[measure]
        if one or other:
            cells = [_amount(measure, one), _amount(measure, other), _by(measure, other - one)]
            rows.append(_row("td", [name, *cells]))
    measures = [each for each in _CHANGES if any(node.by(each[0]) for node in found.nodes)]
    nodes = [_row("th", ["node", "pods changed", *[name for _, name in measures]])]
    for node in found.nodes[:_DIFFERING]:
        changes = [_by(measure, node.by(measure)) for measure, _ in measures]
        nodes.append(_row("td", [node.name or "(no node)", f"{node.changed:,}", *changes]))
    findings = [
        el("li", f"{word}: {group.rule}, {counted(len(group.findings), 'place')}")
        for word, groups in (
            ("found only there", by_rule(found.found)),
            ("found only here", by_rule(found.gone)),
        )
        for group in groups
    ]
    return _card(
        "Compared",
        el("p", f"here, and there: {compared.title}"),
        el(
            "div",
            el("div", _scrolling(rows), *([el("ul", *findings)] if findings else [])),
            el(
                "div",
                *([_scrolling(nodes)] if found.nodes else []),
                el("p", _differing(found), class_="dim"),
            ),
            class_="two",
        ),
    )


def _differing(found: Contrast) -> str:
    if not found.nodes:
        return "No node differs."
    nodes = counted(len(found.nodes), "node differs", "nodes differ")
    changed = counted(found.changed, "pod has", "pods have")
    shown = f"; the {_DIFFERING} most different are shown" if len(found.nodes) > _DIFFERING else ""
    return f"{nodes}{shown}. {changed} other values."


def _scrolling(rows: Iterable[Markup]) -> Markup:
    """A table that moves sideways in its own room, never the page."""
    return el("div", el("table", *rows), class_="scrolling", tabindex="0")


def _row(tag: str, cells: Iterable[str]) -> Markup:
    return el("tr", *[el(tag, cell) for cell in cells])


def _card(title: str, *parts: Markup, level: str = "h2") -> Markup:
    return el("section", el(level, title), *parts, class_="card")


def _amount(measure: Measure, amount: int) -> str:
    return f"{amount:,}" if measure in COUNTS else short(amount)


def _by(measure: Measure, change: int) -> str:
    if not change:
        return "–"
    return f"{'+' if change > 0 else '−'}{_amount(measure, abs(change))}"


def _percent(part: int, whole: int) -> str:
    return f"{part / whole:.0%}" if whole else ""
