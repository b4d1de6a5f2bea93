"""Merging: the one hint that serves the hints of all providers best.

A merge takes one hint of every list; its mask is what they have in common. It is preferred if all
are, and are for the same nodes. A preferred result beats any other, then fewer nodes do, then
nodes closer together, where that counts, then a lower mask. Among results that are not preferred
the best size is that of the most demanding list: smaller is better than larger, and closer to it
better still.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final, Literal

import msgspec

from memqos.kube.kubelet.topology_options import (
    BOOLEANS,
    DEFAULT_MAX_NODES,
    MAX_NODES_OPTION,
    PREFER_CLOSEST_OPTION,
    OptionProblem,
    option_fault,
)
from memqos.numa.hints import (
    Hint,
    HintProvider,
    Hints,
    HintSet,
    ResourceHints,
    list_hints,
    single_node_hints,
)
from memqos.numa.masks import Mask, NodeDistances, lowest_nodes, mask_of, total_distance

_RankKey = tuple[int, ...]
Obstacle = Literal["nowhere", "not_preferred", "more_than_one_node", "no_common_nodes"]


class MergeContext(msgspec.Struct, frozen=True):
    """The machine for a merge; distances only where closer nodes are better."""

    nodes: Mask
    distances: NodeDistances | None = None

    def key(self, mask: Mask, target: int | None = None) -> _RankKey:
        """The rank of a result; given a target size, that of one which is not preferred."""
        size = mask.bit_count()
        apart = 0 if self.distances is None else total_distance(mask, self.distances)
        if target is None:
            return size, apart, mask
        return size > target, size if size > target else -size, apart, mask


class Obstruction(msgspec.Struct, frozen=True):
    """Why no result is preferred, and the lists that prevent it."""

    obstacle: Obstacle
    lists: tuple[ResourceHints, ...]


def merge_hints(lists: Sequence[ResourceHints], context: MergeContext) -> Hint:
    """The best hint of all that taking one hint of every list can give."""
    lines = _HintLists(lists)
    preferred = _best_preferred(lines, context)
    if preferred is not None:
        return Hint(preferred, True)
    other = _best_other(lines, context)
    return Hint(context.nodes if other is None else other, False)


def find_obstruction(
    lists: Sequence[ResourceHints], usable: Sequence[ResourceHints]
) -> Obstruction:
    """Why merging gives no preferred hint; `usable` is what the policy leaves of the lists."""
    if blamed := tuple([line for line in lists if not _has_nodes(line.hints)]):
        return Obstruction("nowhere", blamed)
    if blamed := tuple([line for line in lists if not _has_preferred(line.hints)]):
        return Obstruction("not_preferred", blamed)
    pairs = zip(lists, usable, strict=True)
    if blamed := tuple([line for line, left in pairs if not _has_preferred(left.hints)]):
        return Obstruction("more_than_one_node", blamed)
    return Obstruction(
        "no_common_nodes", tuple([line for line in lists if not _takes_any(line.hints)])
    )


class _HintLists:
    """Lists sorted by kind: those written out, and how often the one offer occurs."""

    __slots__ = ("copies", "explicit", "offer")

    def __init__(self, lists: Iterable[ResourceHints]) -> None:
        self.explicit: list[Hints] = []
        self.offer: HintSet | None = None
        self.copies = 0
        for line in lists:
            if isinstance(line.hints, HintSet):
                assert self.offer in (None, line.hints), "the Memory Manager makes one offer a call"
                self.offer = line.hints
                self.copies += 1
            else:
                self.explicit.append(line.hints)


def _best_preferred(lines: _HintLists, context: MergeContext) -> Mask | None:
    allowed: set[Mask] | None = None
    for hints in lines.explicit:
        if not _takes_any(hints):
            own = {hint.mask for hint in hints if hint.preferred and hint.mask is not None}
            allowed = own if allowed is None else allowed & own
    offer = lines.offer
    if allowed is not None:
        if offer is not None:
            allowed = {mask for mask in allowed if offer.prefers(mask) and mask in offer}
    elif offer is not None:
        allowed = set(offer.best_preferred(context.distances))
    else:
        # Every list accepts any node; masks that some of them name as well are narrower, and win.
        named = {hint.mask for hints in lines.explicit for hint in hints if hint.preferred}
        allowed = {context.nodes if mask is None else mask for mask in named} or {context.nodes}
    results = {mask & context.nodes for mask in allowed} - {0}
    return min(results, key=context.key, default=None)


def _best_other(lines: _HintLists, context: MergeContext) -> Mask | None:
    offer = lines.offer
    demanded = [_narrowest_size(hints) for hints in lines.explicit]
    target = max([*demanded, 0 if offer is None else _narrowest_size(offer)])
    common = {context.nodes}
    for hints in lines.explicit:
        masks = {context.nodes if hint.mask is None else hint.mask for hint in hints}
        common = _in_common(common, masks)
    if offer is None:
        return min(common, key=lambda mask: context.key(mask, target), default=None)

    # The Memory Manager gives one list a resource, all alike: some of these copies give an
    # explicit mask, the others one of idle nodes.
    layers = [common]
    for _ in range(lines.copies):
        layers.append(_in_common(layers[-1], offer.explicit))
    best = min(layers[-1], key=lambda mask: context.key(mask, target), default=None)
    best_key = None if best is None else context.key(best, target)
    idle = sum([1 << node for node in offer.idle.nodes])
    for copies in range(1, lines.copies + 1):
        for mask in layers[lines.copies - copies]:
            size = min(target, (mask & idle).bit_count())
            at_best = (False, -size, 0, lowest_nodes(mask & idle, size))
            if best_key is not None and at_best >= best_key:
                continue
            met = offer.best_intersection(mask, copies, target, context.distances)
            if met is not None and (best_key is None or context.key(met, target) < best_key):
                best, best_key = met, context.key(met, target)
    return best


def _in_common(masks: set[Mask], others: Iterable[Mask]) -> set[Mask]:
    return {mask & other for other in others for mask in masks} - {0}


def _narrowest_size(hints: Hints | HintSet) -> int:
    if isinstance(hints, HintSet):
        narrowest = hints.narrowest()
        return 0 if narrowest is None else narrowest.bit_count()
    return min([hint.mask.bit_count() for hint in hints if hint.mask is not None], default=0)


def _takes_any(hints: Hints | HintSet) -> bool:
    return not isinstance(hints, HintSet) and any(
        [hint.mask is None and hint.preferred for hint in hints]
    )


def _has_nodes(hints: Hints | HintSet) -> bool:
    return isinstance(hints, HintSet) or any(
        [hint.preferred or hint.mask is not None for hint in hints]
    )


def _has_preferred(hints: Hints | HintSet) -> bool:
    if isinstance(hints, HintSet):
        narrowest = hints.narrowest()
        return narrowest is not None and hints.prefers(narrowest)
    return any([hint.preferred for hint in hints])


TopologyPolicy = Literal["none", "best-effort", "restricted", "single-numa-node"]
TopologyScope = Literal["container", "pod", "none"]
TopologyFault = (
    OptionProblem
    | Literal["no_numa_distances", "too_many_numa_nodes", "unknown_policy", "unknown_scope"]
)

TOPOLOGY_POLICY_NAMES: Final[tuple[TopologyPolicy, ...]] = (
    "none",
    "best-effort",
    "restricted",
    "single-numa-node",
)
TOPOLOGY_SCOPE_NAMES: Final[tuple[TopologyScope, ...]] = ("container", "pod")


class TopologySettings(msgspec.Struct, frozen=True):
    """A Topology Manager that starts; distances are kept only where closer nodes are better."""

    policy: TopologyPolicy
    scope: TopologyScope
    nodes: Mask = 0
    distances: NodeDistances | None = None


class InvalidTopology(msgspec.Struct, frozen=True):
    """Settings with which the kubelet does not start."""

    kind: TopologyFault
    detail: str


class TopologyDecision(msgspec.Struct, frozen=True):
    """The merged hint, and whether the policy admits it; if not, the obstruction."""

    hint: Hint
    admit: bool
    obstruction: Obstruction | None = None


def configure_topology(
    policy: str,
    scope: str,
    options: Mapping[str, str],
    nodes: Sequence[int],
    distances: Sequence[Sequence[int]] | None,
) -> TopologySettings | InvalidTopology:
    """A Topology Manager of these settings on a machine; distances are rows in the nodes' order."""
    if policy == "none":
        return TopologySettings("none", "none")
    fault = option_fault(options)
    if fault is not None:
        return InvalidTopology(fault.problem, f"{fault.name}: {fault.detail}")
    prefer_closest = BOOLEANS[options.get(PREFER_CLOSEST_OPTION, "false")]
    most = int(options.get(MAX_NODES_OPTION, DEFAULT_MAX_NODES))
    if prefer_closest and distances is None:
        return InvalidTopology(
            "no_numa_distances", f"{PREFER_CLOSEST_OPTION} needs the nodes' distances"
        )
    if len(nodes) > most:
        return InvalidTopology(
            "too_many_numa_nodes",
            f"the machine has {len(nodes)} NUMA nodes, {MAX_NODES_OPTION} allows {most}",
        )
    if policy not in TOPOLOGY_POLICY_NAMES:
        return InvalidTopology("unknown_policy", f"there is no policy {policy!r}")
    if scope not in TOPOLOGY_SCOPE_NAMES:
        return InvalidTopology("unknown_scope", f"there is no scope {scope!r}")
    return TopologySettings(
        policy, scope, mask_of(nodes), _by_node(nodes, distances) if prefer_closest else None
    )


def decide_affinity(
    topology: TopologySettings, providers: Sequence[HintProvider]
) -> TopologyDecision:
    """Merge the providers' hints and decide whether the policy admits the result."""
    return _DECIDE[topology.policy](topology, providers)


def _admit_anything(
    _topology: TopologySettings, _providers: Sequence[HintProvider]
) -> TopologyDecision:
    return TopologyDecision(Hint(None, False), True)


def _admit_best(topology: TopologySettings, providers: Sequence[HintProvider]) -> TopologyDecision:
    hint = merge_hints(list_hints(providers), MergeContext(topology.nodes, topology.distances))
    return TopologyDecision(hint, True)


def _admit_preferred(
    topology: TopologySettings, providers: Sequence[HintProvider]
) -> TopologyDecision:
    lists = list_hints(providers)
    return _if_preferred(
        merge_hints(lists, MergeContext(topology.nodes, topology.distances)), lists, lists
    )


def _admit_one_node(
    topology: TopologySettings, providers: Sequence[HintProvider]
) -> TopologyDecision:
    lists = list_hints(providers)
    usable = [
        ResourceHints(line.provider, line.resource, single_node_hints(line.hints)) for line in lists
    ]
    hint = merge_hints(usable, MergeContext(topology.nodes))
    if hint.mask == topology.nodes:
        hint = Hint(None, hint.preferred)
    return _if_preferred(hint, lists, usable)


def _if_preferred(
    hint: Hint, lists: Sequence[ResourceHints], usable: Sequence[ResourceHints]
) -> TopologyDecision:
    if hint.preferred:
        return TopologyDecision(hint, True)
    return TopologyDecision(hint, False, find_obstruction(lists, usable))


_DECIDE: Final = {
    "none": _admit_anything,
    "best-effort": _admit_best,
    "restricted": _admit_preferred,
    "single-numa-node": _admit_one_node,
}


def _by_node(
    nodes: Sequence[int], distances: Sequence[Sequence[int]] | None
) -> NodeDistances | None:
    if distances is None:
        return None
    # A kubelet looks distances up by the other node's number (topologymanager/numa_info.go). Where
    # numbers are missing, as after a node was removed, a row may still have all places; a row
    # without them, which makes the kubelet crash, has one for each node that there is.
    return {
        node: {
            other: row[other if len(row) > max(nodes) else index]
            for index, other in enumerate(nodes)
        }
        for node, row in zip(nodes, distances, strict=True)
    }
