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

_ANY_SIZE = ("none", "best-effort")
"""Policies with which a container may have more nodes than it needs."""


def adopted(manager: Manager, wants: PodWants, bound: Mapping[str, Mask]) -> Manager:
    """The manager once a pod holds what its containers are bound to, as far as it may.

    In the scope of pods a container that is not bound yet belongs where the others of its pod are.
    """
    as_a_whole = manager.settings.topology.scope == "pod"
    state = manager.state
    if as_a_whole and wants.pooled:
        state = _with_pool(manager, wants, bound)
    else:
        common = set(bound.values())
        elsewhere = common.pop() if as_a_whole and len(common) == 1 else 0
        for container in wants.containers:
            later = 0 if container.role == "init" else elsewhere
            mask = bound.get(container.name, later)
            if mask and container.sizes and _allowed(manager, state, mask, container.sizes):
                state = _with_blocks(state, wants, container, mask)
    if state is manager.state:
        return manager
    active = {**manager.active, wants.uid: wants}
    return msgspec.structs.replace(manager, state=state, active=active)


def _with_pool(manager: Manager, wants: PodWants, bound: Mapping[str, Mask]) -> State:
    state, masks = manager.state, set(bound.values())
    if len(masks) != 1 or not wants.total:
        return state
    (mask,) = masks
    if not _allowed(manager, state, mask, wants.total):
        return state
    done = allocate_pool(state, wants, Hint(mask, True))
    return done if isinstance(done, State) else state


def _with_blocks(state: State, wants: PodWants, container: Wanted, mask: Mask) -> State:
    done = allocate(state, Leftovers(), wants, container, Hint(mask, True))
    return done[0] if isinstance(done, tuple) else state


def _allowed(manager: Manager, state: State, mask: Mask, sizes: Sizes) -> bool:
    offer = offer_of(state.nodes, sizes, {})
    policy = manager.settings.topology.policy
    if policy == "single-numa-node" and mask.bit_count() > 1:
        return False
    return mask in offer and (policy in _ANY_SIZE or offer.prefers(mask))
