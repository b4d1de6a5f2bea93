"""Pools: memory for a pod as a whole, shared out among its containers.

Exclusive containers (requests equal to limits, of cpu and of memory) get their own size of it. An
init container that is not exclusive may use all that sidecars leave; everybody else shares what is
left once all are served.
"""

from memqos.numa.allocation import Denied, blocks_of, settled
from memqos.numa.hints import Hint
from memqos.numa.masks import nodes_of
from memqos.numa.memory import Sizes, taken
from memqos.numa.requests import PodWants
from memqos.numa.state import State
from memqos.numa.subsets import Effort


def pool_fault(wants: PodWants) -> Denied | None:
    """Why a pod cannot be served from a pool: a size, or nothing left for those who share it."""
    total = wants.total or {}
    lasting: dict[str, int] = {}
    shared = False
    for container in wants.containers:
        if container.sizes is None:
            return Denied("not_an_integer", total)
        if container.role == "init":
            if not container.sizes and (empty := _used_up(total, lasting)) is not None:
                return Denied("empty_pool", total, resource=empty)
        elif container.sizes:
            for name, size in container.sizes.items():
                lasting[name] = lasting.get(name, 0) + size
        else:
            shared = True
    if shared and (empty := _used_up(total, lasting)) is not None:
        return Denied("empty_pool", total, resource=empty)
    return None


def allocate_pool(
    state: State, wants: PodWants, hint: Hint, effort: Effort | None = None
) -> State | Denied:
    """Give a pod its pool from the nodes of a hint, and each container its part of it."""
    total = wants.total
    if total is None:
        # The kubelet logs that it cannot read the size, and admits the pod without memory.
        return state
    fault = pool_fault(wants)
    if fault is not None:
        return fault
    mask = settled(state.nodes, total, hint, {}, effort=effort)
    if isinstance(mask, Denied):
        return mask
    members = nodes_of(mask)
    nodes = state.nodes
    for block in blocks_of(total, members):
        nodes = taken(nodes, block)
    state = state.with_nodes(nodes).with_pool(wants.uid, blocks_of(total, members))
    for name, sizes in _parts(wants, total).items():
        present = {kind: size for kind, size in sizes.items() if size > 0}
        state = state.with_blocks(wants.uid, name, blocks_of(present, members))
    return state


def _parts(wants: PodWants, total: Sizes) -> dict[str, Sizes]:
    left = dict(total)
    parts: dict[str, Sizes] = {}
    sharing = []
    for container in wants.containers:
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


def _used_up(total: Sizes, used: Sizes) -> str | None:
    return next((name for name, size in total.items() if used.get(name, 0) >= size), None)
