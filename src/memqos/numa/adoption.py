"""Adoption: a manager that comes to a node whose containers are bound to nodes already.

What a container is bound to is kept where the rules would let it be had: thus the kernel remembers
what was assigned, and to ask again changes nothing.
"""

from collections.abc import Mapping

import msgspec

from memqos.numa.allocation import ReusableMemory, allocate_container
from memqos.numa.hints import Hint
from memqos.numa.manager import Manager
from memqos.numa.masks import Mask
from memqos.numa.memory import MemorySizes
from memqos.numa.offers import memory_hint_set
from memqos.numa.pool import allocate_pool
from memqos.numa.requests import ContainerMemoryRequest, PodMemoryRequest
from memqos.numa.state import MemoryManagerState

_LENIENT_POLICIES = ("none", "best-effort")
"""Policies with which pods may have more nodes than they need, and be spread over them."""


def adopt_pod(manager: Manager, request: PodMemoryRequest, bound: Mapping[str, Mask]) -> Manager:
    """The manager once a pod holds what its containers are bound to, as far as it may.

    In the scope of pods a container that is not bound yet belongs where the others of its pod are.
    """
    masks = set(bound.values())
    if manager.settings.topology.scope != "pod":
        state = _adopt_containers(manager, request, bound)
    elif len(masks) == 1:
        state = _adopt_whole_pod(manager, request, masks.pop(), bound)
    elif manager.settings.topology.policy in _LENIENT_POLICIES and not request.pooled:
        state = _adopt_containers(manager, request, bound)
    else:
        return manager
    if state is manager.state:
        return manager
    active = {**manager.active, request.uid: request}
    return msgspec.structs.replace(manager, state=state, active=active)


def is_spread(manager: Manager, uid: str) -> bool:
    """Whether a pod's containers are on other nodes than each other, and may not be.

    The kubelet admits such a pod where no nodes have room for it as a whole: its Memory Manager
    then has no hint to give, and no hint means that any node will do.
    """
    topology = manager.settings.topology
    if topology.scope != "pod" or topology.policy in _LENIENT_POLICIES:
        return False
    held = manager.state.assignments.get(uid, {}).values()
    return len({block.nodes for blocks in held for block in blocks}) > 1


def _adopt_whole_pod(
    manager: Manager, request: PodMemoryRequest, mask: Mask, bound: Mapping[str, Mask]
) -> MemoryManagerState:
    state = manager.state
    if not request.total or not _is_allowed(manager, state, mask, request.total):
        return state
    if request.pooled:
        done = allocate_pool(state, request, Hint(mask, True))
        return done if isinstance(done, MemoryManagerState) else state
    for container in request.containers:
        if container.sizes and (container.role != "init" or container.name in bound):
            state = _with_blocks(state, request, container, mask)
    return state


def _adopt_containers(
    manager: Manager, request: PodMemoryRequest, bound: Mapping[str, Mask]
) -> MemoryManagerState:
    state = manager.state
    for container in request.containers:
        mask = bound.get(container.name)
        if mask and container.sizes and _is_allowed(manager, state, mask, container.sizes):
            state = _with_blocks(state, request, container, mask)
    return state


def _with_blocks(
    state: MemoryManagerState,
    request: PodMemoryRequest,
    container: ContainerMemoryRequest,
    mask: Mask,
) -> MemoryManagerState:
    done = allocate_container(state, ReusableMemory(), request, container, Hint(mask, True))
    return done[0] if isinstance(done, tuple) else state


def _is_allowed(
    manager: Manager, state: MemoryManagerState, mask: Mask, sizes: MemorySizes
) -> bool:
    offer = memory_hint_set(state.nodes, sizes, {})
    policy = manager.settings.topology.policy
    if policy == "single-numa-node" and mask.bit_count() > 1:
        return False
    return mask in offer and (policy in _LENIENT_POLICIES or offer.prefers(mask))
