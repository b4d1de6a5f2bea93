"""Adoption: a manager that comes to a node whose containers are bound to nodes already.

What a container is bound to is kept where the rules would let it be had: thus the kernel remembers
what was assigned, and to ask again changes nothing.
"""

from collections.abc import Mapping

import msgspec

from memqos.numa.allocation import Leftovers, allocate
from memqos.numa.hints import Hint
from memqos.numa.manager import Manager
from memqos.numa.masks import Mask
from memqos.numa.memory import Sizes
from memqos.numa.offers import offer_of
from memqos.numa.pool import allocate_pool
from memqos.numa.requests import PodWants, Wanted
from memqos.numa.state import State

_LAX = ("none", "best-effort")
"""Policies with which pods may have more nodes than they need, and be spread over them."""


def adopted(manager: Manager, wants: PodWants, bound: Mapping[str, Mask]) -> Manager:
    """The manager once a pod holds what its containers are bound to, as far as it may.

    In the scope of pods a container that is not bound yet belongs where the others of its pod are.
    """
    masks = set(bound.values())
    if manager.settings.topology.scope != "pod":
        state = _one_by_one(manager, wants, bound)
    elif len(masks) == 1:
        state = _as_a_whole(manager, wants, masks.pop(), bound)
    elif manager.settings.topology.policy in _LAX and not wants.pooled:
        state = _one_by_one(manager, wants, bound)
    else:
        return manager
    if state is manager.state:
        return manager
    active = {**manager.active, wants.uid: wants}
    return msgspec.structs.replace(manager, state=state, active=active)


def is_spread(manager: Manager, uid: str) -> bool:
    """Whether a pod's containers are on other nodes than each other, and may not be.

    The kubelet admits such a pod where no nodes have room for it as a whole: its Memory Manager
    then has no hint to give, and no hint means that any node will do.
    """
    topology = manager.settings.topology
    if topology.scope != "pod" or topology.policy in _LAX:
        return False
    held = manager.state.assignments.get(uid, {}).values()
    return len({block.nodes for blocks in held for block in blocks}) > 1


def _as_a_whole(manager: Manager, wants: PodWants, mask: Mask, bound: Mapping[str, Mask]) -> State:
    state = manager.state
    if not wants.total or not _allowed(manager, state, mask, wants.total):
        return state
    if wants.pooled:
        done = allocate_pool(state, wants, Hint(mask, True))
        return done if isinstance(done, State) else state
    for container in wants.containers:
        if container.sizes and (container.role != "init" or container.name in bound):
            state = _with_blocks(state, wants, container, mask)
    return state


def _one_by_one(manager: Manager, wants: PodWants, bound: Mapping[str, Mask]) -> State:
    state = manager.state
    for container in wants.containers:
        mask = bound.get(container.name)
        if mask and container.sizes and _allowed(manager, state, mask, container.sizes):
            state = _with_blocks(state, wants, container, mask)
    return state


def _with_blocks(state: State, wants: PodWants, container: Wanted, mask: Mask) -> State:
    done = allocate(state, Leftovers(), wants, container, Hint(mask, True))
    return done[0] if isinstance(done, tuple) else state


def _allowed(manager: Manager, state: State, mask: Mask, sizes: Sizes) -> bool:
    offer = offer_of(state.nodes, sizes, {})
    policy = manager.settings.topology.policy
    if policy == "single-numa-node" and mask.bit_count() > 1:
        return False
    return mask in offer and (policy in _LAX or offer.prefers(mask))
