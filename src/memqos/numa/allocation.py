"""Allocation: memory for one container or a pod's pool, as the Static policy allocates it."""

from collections.abc import Mapping
from typing import Literal

import msgspec

from memqos.kube.shape import Role
from memqos.numa.hints import Hint, HintSet, memory_hint_set
from memqos.numa.machine_state import (
    MemoryBlock,
    MemoryBlocks,
    MemoryManagerState,
    MemorySizes,
    NumaNodeMap,
    assign_block,
    free_memory,
)
from memqos.numa.masks import Mask, SearchEffort, mask_of, nodes_of
from memqos.numa.requests import ContainerMemoryRequest, PodMemoryRequest

AllocationCause = Literal[
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
no_wider_room             the nodes of the hint lack memory, and adding others does not help
no_preferred_wider_room   adding others would, but takes more than an empty machine would need
bound_otherwise           the nodes are in use alone, or within another group
empty_pool                nothing of the pod's pool is left for the containers that share it
"""


class AllocationFailure(msgspec.Struct, frozen=True):
    """An allocation that failed: why, the sizes requested, and the nodes, None meaning any."""

    cause: AllocationCause
    sizes: MemorySizes
    nodes: tuple[int, ...] | None = None
    resource: str | None = None


class ReusableMemory(msgspec.Struct, frozen=True):
    """Memory of finished init containers that later containers of the same pod use again.

    Only the pod that allocated last has any: another pod's allocation wipes the table.
    """

    uid: str = ""
    memory: Mapping[Mask, MemorySizes] = {}

    def for_pod(self, uid: str) -> Mapping[Mask, MemorySizes]:
        return self.memory if uid == self.uid else {}

    def after_allocation(self, uid: str, role: Role, blocks: MemoryBlocks) -> "ReusableMemory":
        """What is left once a container has its blocks; a sidecar's memory is never used again."""
        memory = {mask: dict(sizes) for mask, sizes in self.for_pod(uid).items()}
        for block in blocks:
            sizes = memory.setdefault(mask_of(block.nodes), {})
            before = sizes.get(block.type, 0)
            sizes[block.type] = (
                max(before, block.size) if role == "init" else max(before - block.size, 0)
            )
        return ReusableMemory(uid, memory)


def allocate_container(
    state: MemoryManagerState,
    reusable: ReusableMemory,
    request: PodMemoryRequest,
    container: ContainerMemoryRequest,
    hint: Hint,
    *,
    extend: bool = True,
    effort: SearchEffort | None = None,
) -> tuple[MemoryManagerState, ReusableMemory] | AllocationFailure:
    """Allocate the memory a container requests from the nodes of a hint; idempotent.

    Without `extend` the nodes of the hint are used even if they lack memory.
    """
    uid, sizes = request.uid, container.sizes
    if sizes is None:
        return AllocationFailure("not_an_integer", {})
    if not sizes:
        return state, reusable
    present = state.blocks(uid, container.name)
    if present is not None:
        return state, reusable.after_allocation(uid, container.role, present)
    again = reusable.for_pod(uid)
    mask = choose_nodes(state.nodes, sizes, hint, again, extend=extend, effort=effort)
    if isinstance(mask, AllocationFailure):
        return mask
    nodes = state.nodes
    blocks = make_blocks(sizes, nodes_of(mask))
    for block in blocks:
        used_again = again.get(mask, {}).get(block.type, 0)
        nodes = assign_block(nodes, block, max(block.size - used_again, 0))
    state = state.with_nodes(nodes).with_blocks(uid, container.name, blocks)
    return (
        _deduct_reused(state, request, container, blocks),
        reusable.after_allocation(uid, container.role, blocks),
    )


def choose_nodes(
    nodes: NumaNodeMap,
    sizes: MemorySizes,
    hint: Hint,
    reusable: Mapping[Mask, MemorySizes],
    *,
    extend: bool = True,
    effort: SearchEffort | None = None,
) -> Mask | AllocationFailure:
    """The nodes to allocate from, given the merged hint of the Topology Manager."""
    mask, preferred = hint.mask, hint.preferred
    offer: HintSet | None = None
    if mask is None:
        offer = memory_hint_set(nodes, sizes, reusable, effort)
        mask = offer.narrowest()
        if mask is None:
            return AllocationFailure(
                "no_room", sizes, resource=_scarcest(nodes, tuple(nodes), sizes)
            )
        if preferred and not offer.prefers(mask):
            return AllocationFailure("no_preferred_room", sizes, nodes_of(mask))
        preferred = offer.prefers(mask)
    members = nodes_of(mask)
    if extend and any([free_memory(nodes, members, name) < size for name, size in sizes.items()]):
        if offer is None:
            offer = memory_hint_set(nodes, sizes, reusable, effort)
        wider = offer.narrowest(including=mask)
        if wider is None:
            scarcest = _scarcest(nodes, members, sizes)
            return AllocationFailure("no_wider_room", sizes, members, scarcest)
        if preferred and not offer.prefers(wider):
            return AllocationFailure("no_preferred_wider_room", sizes, nodes_of(wider))
        mask, members = wider, nodes_of(wider)
    if len(members) > 1 and any(
        [nodes[i].assignments and mask_of(nodes[i].cells) != mask for i in members]
    ):
        return AllocationFailure("bound_otherwise", sizes, members)
    return mask


def make_blocks(sizes: MemorySizes, nodes: tuple[int, ...]) -> MemoryBlocks:
    """Blocks of these sizes, all from the same nodes."""
    return tuple([MemoryBlock(name, nodes, size) for name, size in sizes.items()])


def _scarcest(nodes: NumaNodeMap, members: tuple[int, ...], sizes: MemorySizes) -> str:
    """The resource that is furthest from enough, relative to the size requested."""
    return min(
        sizes,
        key=lambda name: free_memory(nodes, members, name) / sizes[name] if sizes[name] else 1,
    )


def _deduct_reused(
    state: MemoryManagerState,
    request: PodMemoryRequest,
    container: ContainerMemoryRequest,
    blocks: MemoryBlocks,
) -> MemoryManagerState:
    """Deduct what a container reuses from the init containers before it.

    Thus the blocks of all containers add up to what the pod takes.
    """
    for block in blocks:
        left = block.size
        for earlier in request.containers:
            if earlier.name == container.name or earlier.role == "regular" or not left:
                break
            earlier_blocks = state.blocks(request.uid, earlier.name)
            if earlier.role == "sidecar" or not earlier_blocks:
                continue
            shrunk = []
            for own in earlier_blocks:
                part = min(own.size, left) if _same_place(own, block) else 0
                left -= part
                shrunk.append(MemoryBlock(own.type, own.nodes, own.size - part))
            state = state.with_blocks(request.uid, earlier.name, tuple(shrunk))
    return state


def _same_place(a: MemoryBlock, b: MemoryBlock) -> bool:
    return a.type == b.type and a.nodes == b.nodes


def pool_fault(request: PodMemoryRequest) -> AllocationFailure | None:
    """Why a pod cannot have a pool: a size, or nothing left for the containers that share it."""
    total = request.total or {}
    lasting: dict[str, int] = {}
    shared = False
    for container in request.containers:
        if container.sizes is None:
            return AllocationFailure("not_an_integer", total)
        if container.role == "init":
            if not container.sizes and (empty := _find_exhausted(total, lasting)) is not None:
                return AllocationFailure("empty_pool", total, resource=empty)
        elif container.sizes:
            for name, size in container.sizes.items():
                lasting[name] = lasting.get(name, 0) + size
        else:
            shared = True
    if shared and (empty := _find_exhausted(total, lasting)) is not None:
        return AllocationFailure("empty_pool", total, resource=empty)
    return None


def allocate_pool(
    state: MemoryManagerState,
    request: PodMemoryRequest,
    hint: Hint,
    effort: SearchEffort | None = None,
) -> MemoryManagerState | AllocationFailure:
    """Give a pod its pool from the nodes of a hint, and each container its part of it."""
    total = request.total
    if total is None:
        # AllocatePod() (policy_static.go) only logs a size that is no int64: the pod is admitted
        # without memory.
        return state
    fault = pool_fault(request)
    if fault is not None:
        return fault
    mask = choose_nodes(state.nodes, total, hint, {}, effort=effort)
    if isinstance(mask, AllocationFailure):
        return mask
    members = nodes_of(mask)
    nodes = state.nodes
    for block in make_blocks(total, members):
        nodes = assign_block(nodes, block)
    state = state.with_nodes(nodes).with_pool(request.uid, make_blocks(total, members))
    for name, sizes in _pool_parts(request, total).items():
        present = {kind: size for kind, size in sizes.items() if size > 0}
        state = state.with_blocks(request.uid, name, make_blocks(present, members))
    return state


def _pool_parts(request: PodMemoryRequest, total: MemorySizes) -> dict[str, MemorySizes]:
    left = dict(total)
    parts: dict[str, MemorySizes] = {}
    sharing = []
    for container in request.containers:
        sizes = container.sizes
        if container.role == "init":
            parts[container.name] = sizes or dict(left)
        elif sizes:
            parts[container.name] = sizes
            for name, size in sizes.items():
                left[name] = left.get(name, 0) - size
        else:
            sharing.append(container.name)
    return parts | dict.fromkeys(sharing, left)


def _find_exhausted(total: MemorySizes, used: MemorySizes) -> str | None:
    return next((name for name, size in total.items() if used.get(name, 0) >= size), None)
