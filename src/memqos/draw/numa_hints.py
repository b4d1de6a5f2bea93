"""Hints of the providers: written out where they are few, described where they are many."""

from itertools import islice
from typing import Any, Final

from memqos.kernel.nodelists import node_list
from memqos.numa.admission import HintRound
from memqos.numa.hints import Hint, Hints, ProviderHints, iterate_hints
from memqos.numa.masks import nodes_of
from memqos.numa.offers import HintSet

_FEW_NODES: Final = 6
"""So many nodes have 63 sets; more would fill the screen."""
_FEW_HINTS: Final = 12


def call_lines(call: HintRound) -> list[str]:
    """What each provider answered, and what merging made of it."""
    lines = []
    for provider in call.providers:
        answer = provider.hints
        if not answer:
            why = "asks for nothing" if answer is None else "finds no nodes"
            lines.append(f"{provider.name}: {why}, so any node will do")
            continue
        for resource, hints in answer.items():
            lines.append(f"{provider.name}, {resource}: {_hints_words(hints)}")
    lines.append(f"merged: {hint_words(call.decision.hint)}")
    return lines


def hint_words(hint: Hint) -> str:
    """One hint."""
    nodes = "any node" if hint.mask is None else f"{{{node_list(nodes_of(hint.mask))}}}"
    return f"{nodes}, {'preferred' if hint.preferred else 'not preferred'}"


def call_data(call: HintRound) -> dict[str, Any]:
    """The same for scripts."""
    return {
        "container": call.container,
        "providers": [
            {"provider": provider.name, "resources": _answer_data(provider.hints)}
            for provider in call.providers
        ],
        "merged": _hint_data(call.decision.hint),
        "admitted": call.decision.admit,
    }


def _hints_words(hints: Hints | HintSet | None) -> str:
    if hints is None:
        return "any node will do"
    if isinstance(hints, HintSet):
        if len(hints.nodes) > _FEW_NODES:
            return _offer_words(hints)
        hints = tuple(iterate_hints(hints))
    if not hints:
        return "no node will do"
    words = [
        ("any" if hint.mask is None else f"{{{node_list(nodes_of(hint.mask))}}}")
        + ("*" if hint.preferred else "")
        for hint in islice(hints, _FEW_HINTS)
    ]
    if len(hints) > _FEW_HINTS:
        words.append(f"… {len(hints)} in all")
    text = " ".join(words)
    return f"{text} (* preferred)" if "*" in text else f"{text} (none preferred)"


def _offer_words(offer: HintSet) -> str:
    """An offer of too many sets to list."""
    singles = [nodes_of(mask)[0] for mask in offer.explicit if mask.bit_count() == 1]
    groups = [nodes_of(mask) for mask in offer.explicit if mask.bit_count() > 1]
    parts = []
    if singles:
        parts.append(f"each of {node_list(singles)} alone")
    if groups:
        parts.append("the groups " + " ".join([f"{{{node_list(group)}}}" for group in groups]))
    together = offer.idle.nodes
    if len(together) > 1 and _idle_nodes_suffice(offer):
        parts.append(f"any of the idle {node_list(together)} that are large enough together")
    narrowest = offer.narrowest()
    assert narrowest is not None
    size = offer.minimum
    preferred = f"preferred are sets of {size} node{'' if size == 1 else 's'}"
    return (
        f"{', or '.join(parts)}; the narrowest is {{{node_list(nodes_of(narrowest))}}}; {preferred}"
    )


def _idle_nodes_suffice(offer: HintSet) -> bool:
    """Whether all idle nodes together would do."""
    return sum([1 << node for node in offer.idle.nodes]) in offer


def _answer_data(answer: ProviderHints) -> dict[str, Any] | None:
    if answer is None:
        return None
    return {resource: _hints_data(hints) for resource, hints in answer.items()}


def _hints_data(hints: Hints | HintSet | None) -> Any:
    if hints is None:
        return None
    if isinstance(hints, HintSet):
        if len(hints.nodes) > _FEW_NODES:
            return {
                "listed": [list(nodes_of(mask)) for mask in hints.explicit],
                "anyLargeEnoughOf": list(hints.idle.nodes) if _idle_nodes_suffice(hints) else [],
                "preferredSize": hints.minimum,
            }
        hints = tuple(iterate_hints(hints))
    return [_hint_data(hint) for hint in hints]


def _hint_data(hint: Hint) -> dict[str, Any]:
    nodes = None if hint.mask is None else list(nodes_of(hint.mask))
    return {"nodes": nodes, "preferred": hint.preferred}
