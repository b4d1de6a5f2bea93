"""Adoption: a manager that starts on a machine whose containers are bound to NUMA nodes already.

The binding of a container is kept where the rules would allow it: thus the kernel keeps the state,
and assigning again changes nothing.
"""

from collections.abc import Mapping, Sequence

import msgspec

from memqos.kube.pod import Pod
from memqos.numa.admission import RefusedPod
from memqos.numa.allocation import ReusableMemory, allocate_container, allocate_pool
from memqos.numa.hints import Hint, memory_hint_set
from memqos.numa.machine_state import MemoryBlocks, MemoryManagerState, MemorySizes
from memqos.numa.manager import Manager
from memqos.numa.masks import Mask
from memqos.numa.requests import ContainerMemoryRequest, PodMemoryRequest, pod_memory_request
from memqos.release import Release

_LENIENT_POLICIES = ("none", "best-effort")
"""Policies with which pods may have more nodes than they need, and be spread over them."""


def adopt_pod(manager: Manager, request: PodMemoryRequest, bound: Mapping[str, Mask]) -> Manager:
    """The manager once a pod is assigned what its containers are bound to, as far as allowed.

    In the scope of pods a container that is not bound yet belongs to the nodes of its pod.
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
    """Whether a pod's containers are on different nodes although the scope does not allow it.

    The kubelet admits such a pod where no nodes have enough for it as a whole: its Memory Manager
    then gives no hint, and no hint means any node.
    """
    topology = manager.settings.topology
    if topology.scope != "pod" or topology.policy in _LENIENT_POLICIES:
        return False
    assigned = manager.state.assignments.get(uid, {}).values()
    return len({block.nodes for blocks in assigned for block in blocks}) > 1


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


class RunningPod(msgspec.Struct, frozen=True):
    """A running pod, and the nodes that its containers are bound to, where they are."""

    pod: Pod
    request: PodMemoryRequest
    bound: Mapping[str, Mask] = {}
    managed: bool = True
    """Whether it is assigned memory; others only keep what they are bound to."""

    @property
    def uid(self) -> str:
        return self.request.uid

    @property
    def is_eligible(self) -> bool:
        """Whether the Static policy would assign memory to it at all."""
        return self.request.guaranteed and not self.request.unmanaged


class UnplacedPod(msgspec.Struct, frozen=True):
    """A running pod that no memory is assigned to; without a refusal it would be spread."""

    refused: RefusedPod | None
    state: MemoryManagerState
    """Of the node when it was refused."""


def assign_running_pods(
    manager: Manager, running: Sequence[RunningPod]
) -> tuple[Manager, dict[str, UnplacedPod]]:
    """Assign memory to running pods in order; by UID those that get none."""
    due = [each for each in running if each.is_eligible]
    for each in due:
        manager = adopt_pod(manager, each.request, each.bound)
    unplaced: dict[str, UnplacedPod] = {}
    for each in due:
        if not each.managed:
            continue
        after, outcome = manager.admit(each.pod)
        if isinstance(outcome, RefusedPod):
            unplaced[each.uid] = UnplacedPod(outcome, after.state)
        elif is_spread(after, each.uid):
            unplaced[each.uid] = UnplacedPod(None, after.state)
        else:
            manager = after
    return manager, unplaced


def pods_in_state(
    state: MemoryManagerState, pods: tuple[Pod, ...] = (), release: Release | None = None
) -> dict[str, PodMemoryRequest]:
    """Every pod with memory assigned; `pods` are used as they are.

    For other pods the state has all that is needed here: the names of the containers with memory,
    which they keep for as long as their pod runs.
    """
    by_uid = {pod.metadata.uid: pod for pod in pods}
    running = {}
    for uid, containers in state.assignments.items():
        pod = by_uid.get(uid)
        if pod is not None and release is not None:
            running[uid] = pod_memory_request(pod, release)
            continue
        pool = state.pools.get(uid)
        running[uid] = PodMemoryRequest(
            uid=uid,
            guaranteed=True,
            containers=tuple(
                [
                    ContainerMemoryRequest(name, "regular", _block_sizes(blocks))
                    for name, blocks in containers.items()
                ]
            ),
            total=_block_sizes(pool) if pool else None,
            pooled=bool(pool),
        )
    return running


def _block_sizes(blocks: MemoryBlocks) -> MemorySizes:
    return {block.type: block.size for block in blocks}
