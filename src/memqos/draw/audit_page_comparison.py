"""How an audit differs from another, as a part of its page."""

from typing import Final

from memqos.draw.amounts import counted
from memqos.draw.audited import Compared, both, by_rule, change_of
from memqos.draw.page_parts import card, row, scrolling
from memqos.draw.svg import Markup, el
from memqos.findings.contrast import Contrast, Measure

_DIFFERING: Final = 12
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


def comparison(compared: Compared) -> Markup:
    """What changes, on which nodes, and what is found on one side alone."""
    found = compared.contrast
    rows = [row("th", ["", "here", "there", "change"])]
    for measure, name in _CHANGES:
        one, other = found.before[measure], found.after[measure]
        if one or other:
            rows.append(row("td", [name, *both(measure, one, other)]))
    measures = [each for each in _CHANGES if any(node.by(each[0]) for node in found.nodes)]
    nodes = [row("th", ["node", "pods changed", *[name for _, name in measures]])]
    for node in found.nodes[:_DIFFERING]:
        changes = [change_of(measure, node.by(measure)) for measure, _ in measures]
        nodes.append(row("td", [node.name or "(no node)", f"{node.changed:,}", *changes]))
    findings = [
        el("li", f"{word}: {group.rule}, {counted(len(group.findings), 'place')}")
        for word, groups in (
            ("found only there", by_rule(found.found)),
            ("found only here", by_rule(found.gone)),
        )
        for group in groups
    ]
    return card(
        "Compared",
        el("p", f"here, and there: {compared.title}"),
        el(
            "div",
            el("div", scrolling(rows), *([el("ul", *findings)] if findings else [])),
            el(
                "div",
                *([scrolling(nodes)] if found.nodes else []),
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
