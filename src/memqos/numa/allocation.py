"""Allocation: memory for one container, as the Static policy gives it."""

from collections.abc import Mapping
from typing import Literal

import msgspec

from memqos.kube.shape import Role
from memqos.numa.hints import Hint
from memqos.numa.masks import Mask, mask_of, nodes_of
from memqos.numa.memory import Block, Blocks, NodeMap, Sizes, free_in, taken
from memqos.numa.offers import Offer, offer_of
from memqos.numa.requests import PodWants, Wanted
from memqos.numa.state import State
from memqos.numa.subsets import Effort

Cause = Literal[
    "not_an_integer",
    "no_room",
    "no_preferred_room",
    "no_wider_room",
    "no_preferred_wider_room",
    "bound_otherwise",
    "empty_pool",
]
"""Why an allocation fails.

not_an_integer            a size the kubelet cannot read as bytes
no_room                   no nodes have enough
no_preferred_room         some have, but more of them than an empty machine would need
no_wider_room             the nodes settled on lack memory, and adding others does not help
no_preferred_wider_room   adding others would, but takes more than an empty machine would need
bound_otherwise           the nodes are in use alone, or within another group
empty_pool                nothing of the pod's pool is left for the containers that share it
"""


class Denied(msgspec.Struct, frozen=True):
    """An allocation that failed: why, what was asked for, and of which nodes, None meaning any."""

    cause: Cause
    sizes: Sizes
    nodes: tuple[int, ...] | None = None
    resource: str | None = None


class Leftovers(msgspec.Struct, frozen=True):
    """Memory of finished init containers that later containers of the same pod use again.

    Only the pod that allocated last has any: another pod's allocation wipes the table.
    """

    uid: str = ""
    memory: Mapping[Mask, Sizes] = {}

    def of(self, uid: str) -> Mapping[Mask, Sizes]:
        return self.memory if uid == self.uid else {}

    def after(self, uid: str, role: Role, blocks: Blocks) -> "Leftovers":
        """What is left once a container has its blocks; a sidecar's memory is never used again."""
        memory = {mask: dict(sizes) for mask, sizes in self.of(uid).items()}
        for block in blocks:
            sizes = memory.setdefault(mask_of(block.nodes), {})
            before = sizes.get(block.type, 0)
            sizes[block.type] = (
                max(before, block.size) if role == "init" else max(before - block.size, 0)
            )
        return Leftovers(uid, memory)


def allocate(
    state: State,
    leftovers: Leftovers,
    wants: PodWants,
    container: Wanted,
    hint: Hint,
    *,
    extend: bool = True,
    effort: Effort | None = None,
) -> tuple[State, Leftovers] | Denied:
    """Give a container the memory it wants from the nodes of a hint; done twice, it is done once.

    Without `extend` the hint stands even if its nodes lack memory.
    """
    uid, sizes = wants.uid, container.sizes
    if sizes is None:
        return Denied("not_an_integer", {})
    if not sizes:
        return state, leftovers
    present = state.blocks(uid, container.name)
    if present is not None:
        return state, leftovers.after(uid, container.role, present)
    again = leftovers.of(uid)
    mask = settled(state.nodes, sizes, hint, again, extend=extend, effort=effort)
    if isinstance(mask, Denied):
        return mask
    nodes = state.nodes
    blocks = blocks_of(sizes, nodes_of(mask))
    for block in blocks:
        used_again = again.get(mask, {}).get(block.type, 0)
        nodes = taken(nodes, block, max(block.size - used_again, 0))
    state = state.with_nodes(nodes).with_blocks(uid, container.name, blocks)
    return (
        _without_used_again(state, wants, container, blocks),
        leftovers.after(uid, container.role, blocks),
    )


def settled(
    nodes: NodeMap,
    sizes: Sizes,
    hint: Hint,
    again: Mapping[Mask, Sizes],
    *,
    extend: bool = True,
    effort: Effort | None = None,
) -> Mask | Denied:
    """The nodes to allocate from, given the hint the Topology Manager settled on."""
    mask, preferred = hint.mask, hint.preferred
    offer: Offer | None = None
    if mask is None:
        offer = offer_of(nodes, sizes, again, effort)
        mask = offer.narrowest()
        if mask is None:
            return Denied("no_room", sizes, resource=_scarcest(nodes, tuple(nodes), sizes))
        if preferred and not offer.prefers(mask):
            return Denied("no_preferred_room", sizes, nodes_of(mask))
        preferred = offer.prefers(mask)
    members = nodes_of(mask)
    if extend and any([free_in(nodes, members, name) < size for name, size in sizes.items()]):
        if offer is None:
            offer = offer_of(nodes, sizes, again, effort)
        wider = offer.narrowest(including=mask)
        if wider is None:
            scarcest = _scarcest(nodes, members, sizes)
            return Denied("no_wider_room", sizes, members, scarcest)
        if preferred and not offer.prefers(wider):
            return Denied("no_preferred_wider_room", sizes, nodes_of(wider))
        mask, members = wider, nodes_of(wider)
    if len(members) > 1 and any(
        [nodes[i].assignments and mask_of(nodes[i].cells) != mask for i in members]
    ):
        return Denied("bound_otherwise", sizes, members)
    return mask


def blocks_of(sizes: Sizes, nodes: tuple[int, ...]) -> Blocks:
    """Blocks of these sizes, all from the same nodes."""
    return tuple([Block(name, nodes, size) for name, size in sizes.items()])


def _scarcest(nodes: NodeMap, members: tuple[int, ...], sizes: Sizes) -> str:
    """The resource that is furthest from enough, measured against what is wanted of it."""
    return min(
        sizes, key=lambda name: free_in(nodes, members, name) / sizes[name] if sizes[name] else 1
    )


def _without_used_again(state: State, wants: PodWants, container: Wanted, blocks: Blocks) -> State:
    """Take what a container uses again off the init containers before it.

    Thus the blocks of all containers add up to what the pod really took.
    """
    for block in blocks:
        left = block.size
        for earlier in wants.containers:
            if earlier.name == container.name or earlier.role == "regular" or not left:
                break
            held = state.blocks(wants.uid, earlier.name)
            if earlier.role == "sidecar" or not held:
                continue
            shrunk = []
            for own in held:
                part = min(own.size, left) if _same_place(own, block) else 0
                left -= part
                shrunk.append(Block(own.type, own.nodes, own.size - part))
            state = state.with_blocks(wants.uid, earlier.name, tuple(shrunk))
    return state


def _same_place(a: Block, b: Block) -> bool:
    return a.type == b.type and a.nodes == b.nodes
