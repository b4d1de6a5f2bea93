"""Hints: which NUMA nodes could provide a resource, as the Topology Manager receives them."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

import msgspec

from memqos.numa.machine_state import MemorySizes, NumaNodeMap, free_memory
from memqos.numa.masks import (
    Mask,
    NodeDistances,
    SearchEffort,
    WeightedNodes,
    WeightVector,
    all_masks,
    lowest_mask,
    mask_of,
    narrowest_mask,
    nodes_of,
)

ReusableByMask = Mapping[Mask, MemorySizes]
"""Mask → what the pod's finished init containers leave there."""


class HintSet(msgspec.Struct, frozen=True):
    """The masks that could satisfy a request, and how many nodes an empty machine would need."""

    nodes: tuple[int, ...]
    minimum: int
    explicit: tuple[Mask, ...]
    idle: WeightedNodes
    needs: WeightVector
    effort: SearchEffort = msgspec.field(default_factory=SearchEffort)
    """What searches in it have cost so far."""

    def __bool__(self) -> bool:
        return bool(self.explicit) or _is_enough(self.idle, self.needs)

    def __iter__(self) -> Iterator[Mask]:
        return filter(self.__contains__, all_masks(self.nodes))

    def __contains__(self, mask: object) -> bool:
        if mask in self.explicit:
            return True
        assert isinstance(mask, int)
        chosen = self.idle.within(mask)
        return len(chosen.nodes) == mask.bit_count() and _is_enough(chosen, self.needs)

    def prefers(self, mask: Mask) -> bool:
        """Whether no mask could be smaller, were the machine empty."""
        return mask.bit_count() == self.minimum

    def narrowest(self, *, including: Mask = 0) -> Mask | None:
        """The mask of the fewest nodes, then the lowest, among those that include some nodes."""
        found = [mask for mask in self.explicit if mask & including == including]
        base = self.idle.within(including)
        if len(base.nodes) == including.bit_count():
            others = self.idle.within(~including)
            added = narrowest_mask(others, _remaining_needs(self.needs, base), effort=self.effort)
            if added is not None:
                found.append(including | added)
        return min(found, key=lambda mask: (mask.bit_count(), mask), default=None)

    def best_preferred(self, distances: NodeDistances | None) -> tuple[Mask, ...]:
        """Among preferred masks of idle nodes the best one, and all explicit ones."""
        best = lowest_mask(
            self.idle, self.needs, self.minimum, distances=distances, effort=self.effort
        )
        return (
            *[mask for mask in self.explicit if self.prefers(mask)],
            *([] if best is None else [best]),
        )

    def best_intersection(
        self, mask: Mask, copies: int, target: int, distances: NodeDistances | None
    ) -> Mask | None:
        """What `mask` and `copies` of our masks of idle nodes can best have in common.

        The nodes of `mask` not in common are shared out, each to a copy that does without it, and
        no copy can do without more than it has to spare. The best size is `target`, or all nodes
        there are if they are fewer; where that is impossible, the smallest larger one.
        """
        common = self.idle.within(mask)
        if not common.nodes or not _is_enough(self.idle, self.needs):
            return None
        spare = tuple(
            [total - need for total, need in zip(self.idle.total, self.needs, strict=True)]
        )
        fixed = mask_of(
            [
                node
                for node, weight in zip(common.nodes, common.weights, strict=True)
                if any([own > most for own, most in zip(weight, spare, strict=True)])
            ]
        )
        choice = common.within(~fixed)
        missing = tuple(
            [total - copies * most for total, most in zip(choice.total, spare, strict=True)]
            if choice.nodes
            else ()
        )

        def can_share_out(kept: Mask) -> bool:
            return _packs(choice.within(~kept).weights, (spare,) * copies, self.effort)

        least = max(1, min(target, len(common.nodes))) - fixed.bit_count()
        found = narrowest_mask(
            choice,
            missing,
            least=max(least, 0),
            beside=fixed,
            distances=distances,
            accept=can_share_out if copies > 1 else None,
            effort=self.effort,
        )
        if found is None or not fixed | found:
            return None
        return fixed | found


def memory_hint_set(
    nodes: NumaNodeMap,
    sizes: MemorySizes,
    reusable: ReusableByMask,
    effort: SearchEffort | None = None,
) -> HintSet:
    """What a node map offers for some sizes, given what the pod may reuse."""
    effort = effort or SearchEffort()
    ids = tuple(sorted(nodes))
    needs = tuple(sizes.values())
    allocatable = WeightedNodes(
        ids, tuple([tuple([nodes[i].table(name).allocatable for name in sizes]) for i in ids])
    )
    smallest = narrowest_mask(allocatable, needs, least=1, effort=effort)
    idle = tuple([i for i in ids if nodes[i].assignments <= 0])
    candidates = {
        *[1 << i for i in ids],
        *[mask_of(nodes[i].cells) for i in ids if len(nodes[i].cells) > 1],
        *reusable,
    }

    def suffices(mask: Mask) -> bool:
        members = nodes_of(mask)
        if not _is_enough(allocatable.within(mask), needs):
            return False
        if len(members) == 1:
            if len(nodes[members[0]].cells) > 1:
                return False
        elif any(
            [
                nodes[i].assignments > 0
                and (len(nodes[i].cells) == 1 or mask_of(nodes[i].cells) != mask)
                for i in members
            ]
        ):
            return False
        again = reusable.get(mask, {})
        return all(
            [
                free_memory(nodes, members, name) + again.get(name, 0) >= size
                for name, size in sizes.items()
            ]
        )

    columns = dict.fromkeys(
        [
            ((1,) * len(idle), 2),
            *[
                (tuple([nodes[i].table(name).allocatable for i in idle]), size)
                for name, size in sizes.items()
            ],
            *[
                (tuple([nodes[i].table(name).free for i in idle]), size)
                for name, size in sizes.items()
            ],
        ]
    )
    return HintSet(
        nodes=ids,
        minimum=len(ids) if smallest is None else smallest.bit_count(),
        explicit=tuple(sorted(filter(suffices, candidates))),
        idle=WeightedNodes(idle, tuple(zip(*[column for column, _ in columns], strict=True))),
        needs=tuple([need for _, need in columns]),
        effort=effort,
    )


def _is_enough(pool: WeightedNodes, needs: WeightVector) -> bool:
    return bool(pool.nodes) and all(
        [total >= need for total, need in zip(pool.total, needs, strict=True)]
    )


def _remaining_needs(needs: WeightVector, pool: WeightedNodes) -> WeightVector:
    if not pool.nodes:
        return needs
    return tuple([need - total for need, total in zip(needs, pool.total, strict=True)])


def _packs(
    items: tuple[WeightVector, ...], bins: tuple[WeightVector, ...], effort: SearchEffort
) -> bool:
    """Whether the items fit into the bins."""
    items = tuple(sorted(items, reverse=True))
    dead_ends: set[tuple[int, tuple[WeightVector, ...]]] = set()

    def pack(index: int, bins: tuple[WeightVector, ...]) -> bool:
        if index == len(items):
            return True
        if (index, bins) in dead_ends or effort.runs_out():
            return False
        for bin_ in sorted(set(bins)):
            rest = tuple([free - own for free, own in zip(bin_, items[index], strict=True)])
            if min(rest) >= 0:
                others = list(bins)
                others.remove(bin_)
                if pack(index + 1, tuple(sorted([*others, rest]))):
                    return True
        dead_ends.add((index, bins))
        return False

    return pack(0, bins)


class Hint(msgspec.Struct, frozen=True):
    """Nodes that suffice, None meaning any, and whether there are no better ones."""

    mask: Mask | None
    preferred: bool


Hints = tuple[Hint, ...]
ProviderHints = Mapping[str, Hints | HintSet | None] | None
"""The hints of a provider, by resource. No hints, no resource, or None: any node suffices."""

ANY_NODE: Final = Hint(None, True)
NO_NODE: Final = Hint(None, False)


class HintProvider(msgspec.Struct, frozen=True):
    """A resource manager of the kubelet and its hints."""

    name: str
    hints: ProviderHints


class ResourceHints(msgspec.Struct, frozen=True):
    """The hints of one provider for one resource; `resource` is None if it gave none at all."""

    provider: str
    resource: str | None
    hints: Hints | HintSet


def list_hints(providers: Sequence[HintProvider]) -> tuple[ResourceHints, ...]:
    """All lists the merge has to satisfy at once."""
    lists = []
    for provider in providers:
        if not provider.hints:
            lists.append(ResourceHints(provider.name, None, (ANY_NODE,)))
            continue
        lists += [
            ResourceHints(provider.name, resource, _hints_or_default(hints))
            for resource, hints in provider.hints.items()
        ]
    return tuple(lists)


def iterate_hints(offer: HintSet) -> Iterator[Hint]:
    """The hints of an offer one by one, in the kubelet's order: 2ⁿ of them on a large machine."""
    for mask in offer:
        yield Hint(mask, offer.prefers(mask))


def single_node_hints(hints: Hints | HintSet) -> Hints:
    """What single-numa-node leaves of a list: preferred hints of any node or of one."""
    if isinstance(hints, HintSet):
        return tuple(
            [Hint(m, True) for m in hints.explicit if m.bit_count() == 1 and hints.prefers(m)]
        )
    return tuple(
        [
            hint
            for hint in hints
            if hint.preferred and (hint.mask is None or hint.mask.bit_count() == 1)
        ]
    )


def _hints_or_default(hints: Hints | HintSet | None) -> Hints | HintSet:
    if hints is None:
        return (ANY_NODE,)
    return (NO_NODE,) if hints == () else hints
