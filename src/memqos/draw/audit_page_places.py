"""The nodes and namespaces of an audit, as parts of its page."""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Final

from memqos.draw.amounts import pluralize
from memqos.draw.audited import (
    MEASURE_TITLES,
    AuditReport,
    ClusterMemory,
    fullest_nodes,
    share_of_node,
)
from memqos.draw.charts import meter
from memqos.draw.page_parts import bar_row, card
from memqos.draw.svg import Markup, el
from memqos.findings.audit import NamespaceAudit, NodeAudit
from memqos.findings.cluster import approximate_bytes

_SHOWN_NODES: Final = 36
"""Full rows, be they of two or three."""
_SHOWN_NAMESPACES: Final = 20


def node_cards(audited: AuditReport) -> Iterator[Markup]:
    """The fullest nodes, a card each."""
    found = fullest_nodes(audited.audit)
    if not found:
        return
    yield el("h2", "The fullest nodes")
    if len(found) > _SHOWN_NODES:
        yield el("p", f"{_SHOWN_NODES} of {len(found):,}: -o json has them all", class_="dim")
    yield el("div", *[_node_card(node) for node in found[:_SHOWN_NODES]], class_="grid nodes")


def measure_rows(
    whole: NodeAudit | ClusterMemory, share_of_it: Callable[[int], float], *, is_measured: bool
) -> list[Markup]:
    """Every measure as a share of what there is; usage only where it was measured."""
    rows = []
    for measure, name in MEASURE_TITLES:
        if measure == "usage" and not is_measured:
            continue
        amount = getattr(whole, measure)
        share = share_of_it(amount)
        hint = f"{name}: {approximate_bytes(amount)}, {share:.0%}"
        rows.append(bar_row(measure, name, share, approximate_bytes(amount), hint))
    return rows


def _node_card(node: NodeAudit) -> Markup:
    assert node.memory is not None
    rows = measure_rows(node, partial(share_of_node, node), is_measured=bool(node.measured))
    facts = [
        f"{pluralize(node.pods, 'pod')}: {node.classes['Guaranteed']} Guaranteed, "
        f"{node.classes['Burstable']} Burstable, {node.classes['BestEffort']} BestEffort",
        f"{approximate_bytes(node.memory.published)} for pods, of "
        f"{approximate_bytes(node.memory.capacity)}",
    ]
    if node.throttled:
        facts.append(f"throttled at once: {pluralize(node.throttled, 'container')}")
    lists = [
        _top_list("evicted first", [each.pod for each in node.evicted_first]),
        _top_list(
            "killed first",
            [f"{each.container} ({each.oom_score_adj})" for each in node.killed_first],
        ),
        _top_list(
            "protected unasked",
            [
                f"{pod}: {approximate_bytes(amount)} of memory.{knob}"
                for knob, found in (("min", node.unasked_min), ("low", node.unasked_low))
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


def namespace_rows(audited: AuditReport) -> Iterator[Markup]:
    """Those that request most, as bars."""
    spaces = sorted(audited.audit.spaces, key=lambda space: (-space.request, space.name))
    if not spaces:
        return
    yield el("h2", "Namespaces")
    is_measured = bool(audited.audit.measured)
    words = "what each requests, beside the one that requests most"
    if is_measured:
        words += "; the mark is what is in use"
    if len(spaces) > _SHOWN_NAMESPACES:
        words += f" · the first {_SHOWN_NAMESPACES} of {len(spaces):,}: -o json has them all"
    yield el("p", words, class_="dim")
    most = max(spaces[0].request, 1)
    rows = [
        _namespace_row(space, most, is_measured=is_measured) for space in spaces[:_SHOWN_NAMESPACES]
    ]
    yield el("div", *rows, class_="card spaces")


def _namespace_row(space: NamespaceAudit, most: int, *, is_measured: bool) -> Markup:
    facts = [pluralize(space.pods, "pod")]
    if space.unrequesting:
        facts.append(f"{space.unrequesting:,} without a request")
    if not space.defaults_request:
        facts.append("no default request")
    facts += [
        f"quota {room.quota}: {approximate_bytes(max(0, room.hard - room.used))} left of "
        f"{room.resource}"
        for room in space.quotas
    ]
    used = f", {approximate_bytes(space.usage)} in use" if is_measured else ""
    hint = f"{space.name}: {approximate_bytes(space.request)} requested{used}"
    mark = space.usage / most if is_measured else None
    return el(
        "div",
        el(
            "div",
            el("b", space.name),
            el("span", f"{approximate_bytes(space.request)} requested{used}"),
            class_="bar-words",
        ),
        meter("requested", space.request / most, hint, mark),
        el("p", " · ".join(facts), class_="dim"),
        class_="bar-row",
    )
