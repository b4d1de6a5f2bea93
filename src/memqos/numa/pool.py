"""Pools: memory for a pod as a whole, shared out among its containers.

Exclusive containers (requests equal to limits, of cpu and of memory) get their own size of it. An
init container that is not exclusive may use all that sidecars leave; everybody else shares what is
left once all are served.
"""

from memqos.numa.allocation import AllocationFailure, choose_nodes, make_blocks
from memqos.numa.hints import Hint
from memqos.numa.masks import nodes_of
from memqos.numa.memory import MemorySizes, assign_block
from memqos.numa.requests import PodMemoryRequest
from memqos.numa.state import MemoryManagerState
from memqos.numa.subsets import SearchEffort


def pool_fault(request: PodMemoryRequest) -> AllocationFailure | None:
    """Why a pod cannot be served from a pool: a size, or nothing left for those who share it."""
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
        # The kubelet logs that it cannot read the size, and admits the pod without memory.
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
