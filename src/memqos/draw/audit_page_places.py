"""The nodes and namespaces of an audit, as parts of its page."""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Final

from memqos.draw.amounts import counted
from memqos.draw.audited import MEASURES, Audited, Total, fullest, share_of
from memqos.draw.charts import meter
from memqos.draw.page_parts import bar_row, card
from memqos.draw.svg import Markup, el
from memqos.findings.audit import NodeAudit, SpaceAudit
from memqos.findings.cluster import size

_NODES: Final = 36
"""Full rows, be they of two or three."""
_SPACES: Final = 20


def nodes(audited: Audited) -> Iterator[Markup]:
    """The fullest nodes, a card each."""
    found = fullest(audited.audit)
    if not found:
        return
    yield el("h2", "The fullest nodes")
    if len(found) > _NODES:
        yield el("p", f"{_NODES} of {len(found):,}: -o json has them all", class_="dim")
    yield el("div", *[_node(node) for node in found[:_NODES]], class_="grid nodes")


def measure_rows(
    whole: NodeAudit | Total, share_of_it: Callable[[int], float], *, is_measured: bool
) -> list[Markup]:
    """Every measure as a share of what there is; usage only where it was measured."""
    rows = []
    for measure, name in MEASURES:
        if measure == "usage" and not is_measured:
            continue
        amount = getattr(whole, measure)
        share = share_of_it(amount)
        hint = f"{name}: {size(amount)}, {share:.0%}"
        rows.append(bar_row(measure, name, share, size(amount), hint))
    return rows


def _node(node: NodeAudit) -> Markup:
    assert node.memory is not None
    rows = measure_rows(node, partial(share_of, node), is_measured=bool(node.measured))
    facts = [
        f"{counted(node.pods, 'pod')}: {node.classes['Guaranteed']} Guaranteed, "
        f"{node.classes['Burstable']} Burstable, {node.classes['BestEffort']} BestEffort",
        f"{size(node.memory.published)} for pods, of {size(node.memory.capacity)}",
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
                f"{pod}: {size(amount)} of memory.{knob}"
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


def _first(title: str, names: list[str]) -> Markup | None:
    if not names:
        return None
    items = [el("li", el("code", name)) for name in names]
    return el("details", el("summary", title), el("ol", *items), class_="first")


def namespaces(audited: Audited) -> Iterator[Markup]:
    """Those that request most, as bars."""
    spaces = sorted(audited.audit.spaces, key=lambda space: (-space.request, space.name))
    if not spaces:
        return
    yield el("h2", "Namespaces")
    is_measured = bool(audited.audit.measured)
    words = "what each requests, beside the one that requests most"
    if is_measured:
        words += "; the mark is what is in use"
    if len(spaces) > _SPACES:
        words += f" · the first {_SPACES} of {len(spaces):,}: -o json has them all"
    yield el("p", words, class_="dim")
    most = max(spaces[0].request, 1)
    rows = [_space(space, most, is_measured=is_measured) for space in spaces[:_SPACES]]
    yield el("div", *rows, class_="card spaces")


def _space(space: SpaceAudit, most: int, *, is_measured: bool) -> Markup:
    facts = [counted(space.pods, "pod")]
    if space.unrequesting:
        facts.append(f"{space.unrequesting:,} without a request")
    if not space.defaults_request:
        facts.append("no default request")
    facts += [
        f"quota {room.quota}: {size(max(0, room.hard - room.used))} left of {room.resource}"
        for room in space.quotas
    ]
    used = f", {size(space.usage)} in use" if is_measured else ""
    hint = f"{space.name}: {size(space.request)} requested{used}"
    mark = space.usage / most if is_measured else None
    return el(
        "div",
        el(
            "div",
            el("b", space.name),
            el("span", f"{size(space.request)} requested{used}"),
            class_="bar-words",
        ),
        meter("requested", space.request / most, hint, mark),
        el("p", " · ".join(facts), class_="dim"),
        class_="bar-row",
    )
