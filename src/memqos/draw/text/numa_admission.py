"""A NUMA admission: verdict, hints of the providers, advice; as text and as data."""

from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from typing import Any, Final

import msgspec

from memqos.cluster.node_admission import NodeAdmission
from memqos.draw.text.lines import Line, Table
from memqos.kernel.file_formats import describe_nodes, node_list
from memqos.numa.admission import (
    AdmissionOutcome,
    AdmittedPod,
    HintRound,
)
from memqos.numa.advice import Advice, AdvisedChange, FittingSize
from memqos.numa.hints import Hint, Hints, HintSet, ProviderHints, iterate_hints
from memqos.numa.largest_fit import largest_fits
from memqos.numa.machine_state import MemoryBlocks, MemoryManagerState
from memqos.numa.masks import nodes_of
from memqos.numa.refusal_text import exact_bytes, refusal_sentences
from memqos.numa.topology_manager import TopologySettings
from memqos.units import format_bytes, pluralize

_FEW_NODES: Final = 6
"""So many nodes have 63 sets; more would fill the screen."""
_FEW_HINTS: Final = 12


def call_lines(call: HintRound) -> list[str]:
    """What each provider answered, and the merged hint."""
    lines = []
    for provider in call.providers:
        answer = provider.hints
        if not answer:
            why = "requests nothing" if answer is None else "finds no nodes"
            lines.append(f"{provider.name}: {why}, so any node is allowed")
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
        return "any node is allowed"
    if isinstance(hints, HintSet):
        if len(hints.nodes) > _FEW_NODES:
            return _offer_words(hints)
        hints = tuple(iterate_hints(hints))
    if not hints:
        return "no node is enough"
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


class NumaVerdict(msgspec.Struct, frozen=True, kw_only=True):
    """A pod, the outcome of its admission, and the node afterwards."""

    origin: str
    label: str
    namespace: str | None
    qos: str
    outcome: AdmissionOutcome | NodeAdmission
    """That of the managers, or the refusal of a kubelet that did not ask them."""
    state: MemoryManagerState
    pins: bool
    """Whether containers are bound to the nodes they hold memory of."""
    advice: Advice | None = None
    notes: tuple[str, ...] = ()


GAVE_UP: Final = (
    "the search for nodes was stopped early: other nodes may be better, or the only ones that fit"
)


def _gave_up(outcome: AdmissionOutcome | NodeAdmission) -> bool:
    return not isinstance(outcome, NodeAdmission) and outcome.gave_up


def verdict_lines(
    verdict: NumaVerdict, topology: TopologySettings, names: Mapping[str, str]
) -> list[Line]:
    """A pod and the outcome of its admission."""
    outcome = verdict.outcome
    namespace = f" in {verdict.namespace}" if verdict.namespace else ""
    heading = f"{verdict.label}{namespace}  {verdict.qos}  "
    lines: list[Line]
    if isinstance(outcome, AdmittedPod):
        lines = [f"{heading}admitted", *_holding_tables(outcome.blocks, verdict.pins)]
    elif isinstance(outcome, NodeAdmission):
        lines = [f"{heading}refused: {outcome.reason}", f"  {outcome.message}"]
    else:
        lines = [
            f"{heading}refused: {outcome.reason}",
            *_indent(refusal_sentences(outcome, verdict.state)),
        ]
        for call in outcome.calls[-1:]:
            whose = "the pod" if call.container is None else f"container {call.container}"
            lines += ["", f"  hints for {whose}", *_indent(call_lines(call), 4)]
        if verdict.advice is not None:
            fitting = list(advice_lines(verdict.advice, topology, verdict.state, names))
            lines += ["", "  what would fit (each one was tried)", *_indent(fitting, 4)]
    notes = [*verdict.notes, *([GAVE_UP] if _gave_up(outcome) else [])]
    return [*lines, *[f"  note: {note}" for note in notes]]


def verdict_data(
    verdict: NumaVerdict, topology: TopologySettings, names: Mapping[str, str]
) -> dict[str, Any]:
    """The same for scripts."""
    outcome = verdict.outcome
    data: dict[str, Any] = {
        "origin": verdict.origin,
        "name": verdict.label,
        "namespace": verdict.namespace,
        "qosClass": verdict.qos,
        "admitted": isinstance(outcome, AdmittedPod),
        "notes": list(verdict.notes),
        "gaveUp": _gave_up(outcome),
        "hints": []
        if isinstance(outcome, NodeAdmission)
        else [call_data(call) for call in outcome.calls],
    }
    if isinstance(outcome, NodeAdmission):
        return data | {"reason": outcome.reason, "why": [outcome.message]}
    if isinstance(outcome, AdmittedPod):
        data["containers"] = {
            name: {
                "cpusetMems": node_list(_members(blocks)) if verdict.pins else None,
                "memory": [
                    {"resource": b.type, "nodes": list(b.nodes), "size": b.size} for b in blocks
                ],
            }
            for name, blocks in outcome.blocks.items()
        }
        return data
    obstruction = outcome.obstruction
    data |= {
        "reason": outcome.reason,
        "container": outcome.container,
        "wanted": dict(outcome.sizes),
        "cause": outcome.cause if obstruction is None else obstruction.obstacle,
        "resource": outcome.resource,
        "nodes": None if outcome.nodes is None else list(outcome.nodes),
        "why": [*refusal_sentences(outcome, verdict.state)],
        "room": [
            msgspec.to_builtins(fit) for fit in largest_fits(verdict.state.nodes, outcome.sizes)
        ],
    }
    if verdict.advice is not None:
        advice = verdict.advice
        data["advice"] = {
            "changes": [
                {
                    **msgspec.to_builtins(change),
                    "words": change_words(change, topology, verdict.state, names),
                }
                for change in advice.changes
            ],
            "fitsEmptyMachine": advice.fits_empty,
            "tried": advice.trials,
            "gaveUp": advice.gave_up,
        }
    return data


def advice_lines(
    advice: Advice, topology: TopologySettings, state: MemoryManagerState, names: Mapping[str, str]
) -> Iterator[str]:
    """The changes, one a line."""
    for change in advice.changes:
        yield f"- {change_words(change, topology, state, names)}"
    if not advice.changes:
        yield "nothing of what was tried"
    if not advice.fits_empty:
        yield "it would not be admitted even if this machine were empty"
    if advice.gave_up:
        yield f"stopped after {pluralize(advice.trials, 'trial')}: there may be more"


def change_words(
    change: AdvisedChange,
    topology: TopologySettings,
    state: MemoryManagerState,
    names: Mapping[str, str],
) -> str:
    """One change."""
    if change.kind == "smaller":
        return " and ".join([_smaller_words(each) for each in change.sizes])
    if change.kind == "spelling":
        written = [f"{each.text} for {_whose(each)}" for each in change.sizes]
        return f"{change.sizes[0].resource} written as {', '.join(written)}"
    if change.kind == "without":
        return _without_words(change.uids, state, names)
    if change.kind == "topology_policy":
        return f"topologyManagerPolicy {change.value} instead of {topology.policy}"
    if change.kind == "scope":
        return f"topologyManagerScope {change.value} instead of {topology.scope}"
    return f"memoryManagerPolicy {change.value}, which gives no pod exclusive memory"


def _smaller_words(size: FittingSize) -> str:
    less = exact_bytes(size.before - size.after)
    return (
        f"{size.resource} {size.text} instead of {exact_bytes(size.before)} for {_whose(size)} "
        f"({less} less)"
    )


def _whose(size: FittingSize) -> str:
    return "the whole pod" if size.container is None else f"container {size.container}"


def _without_words(
    uids: tuple[str, ...], state: MemoryManagerState, names: Mapping[str, str]
) -> str:
    called = [names.get(uid, uid) for uid in uids]
    sizes: dict[str, int] = {}
    members: set[int] = set()
    for uid in uids:
        for block in state.pools.get(uid) or [
            block for blocks in state.assignments.get(uid, {}).values() for block in blocks
        ]:
            sizes[block.type] = sizes.get(block.type, 0) + block.size
            members.update(block.nodes)
    what = ", ".join([f"{format_bytes(size)} of {name}" for name, size in sorted(sizes.items())])
    where = describe_nodes(sorted(members))
    if len(called) == 1:
        return f"without pod {called[0]}, which is assigned {what} on {where}"
    listed = f"{', '.join(called[:-1])} and {called[-1]}"
    return f"without pods {listed}, which are assigned {what} on {where}"


def _holding_tables(blocks_of: Mapping[str, MemoryBlocks], pins: bool) -> list[Table]:
    rows = [["container", "resource", "size", "nodes", "cpuset.mems"]]
    for name, blocks in blocks_of.items():
        cpuset = node_list(_members(blocks)) if pins else "–"
        rows += [
            [name, block.type, exact_bytes(block.size), node_list(block.nodes), cpuset]
            for block in blocks
        ]
    return [Table(rows, left=5, indent="  ")] if len(rows) > 1 else []


def _members(blocks: MemoryBlocks) -> list[int]:
    return sorted({node for block in blocks for node in block.nodes})


def _indent(lines: Iterable[str], by: int = 2) -> list[str]:
    return [" " * by + line for line in lines]
