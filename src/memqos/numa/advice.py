"""Advice: the smallest changes with which a refused pod would be admitted, each one tried out.

A change is tried by admitting the changed pod, or the pod on a changed node, and dropping the
result. What is tried comes from the node map (what nodes, groups and idle nodes have free); where
that is not exact, as with several containers or resources, a bisection finds the most that fits.
Sizes are whole mebibytes, or pages.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import accumulate
from typing import Final, Literal

import msgspec

from memqos.kube.pod import Pod
from memqos.kube.shape import shape_of
from memqos.kube.validation import shape_errors
from memqos.numa.admission import AdmittedPod, RefusedPod
from memqos.numa.machine_state import MemoryManagerState, NumaNodeMap, empty_node_map, free_memory
from memqos.numa.manager import Manager
from memqos.numa.pod_sizes import (
    SizeTarget,
    is_unreadable_size,
    pod_size_text,
    size_targets,
    with_sizes,
)
from memqos.numa.topology_manager import (
    TOPOLOGY_POLICY_NAMES,
    TOPOLOGY_SCOPE_NAMES,
    TopologySettings,
)

AdviceKind = Literal["smaller", "spelling", "without", "topology_policy", "scope", "memory_policy"]

_MAX_TRIALS: Final = 2000
_MAX_PODS: Final = 3
"""How many pods are named, each of which would have to be removed."""


class FittingSize(msgspec.Struct, frozen=True):
    """A size that would fit; `container` is None for that of the pod as a whole."""

    container: str | None
    resource: str
    before: int
    after: int
    text: str
    """The size as a manifest would spell it."""


class AdvisedChange(msgspec.Struct, frozen=True):
    """One change after which the pod is admitted."""

    kind: AdviceKind
    sizes: tuple[FittingSize, ...] = ()
    uids: tuple[str, ...] = ()
    """Pods that would have to be removed, all of them."""
    value: str | None = None
    """The policy or scope to set."""


class Advice(msgspec.Struct, frozen=True):
    """All changes that were found, how many were tried, and whether the search was cut short."""

    changes: tuple[AdvisedChange, ...]
    trials: int
    gave_up: bool
    fits_empty: bool
    """Whether the pod would be admitted if no other pod had memory of this machine."""


class _GaveUp(Exception):
    """Too many changes were tried."""


def advise(manager: Manager, pod: Pod, refused: RefusedPod) -> Advice:
    """Changes after which a refused pod would be admitted."""
    trials = _Trials(manager, pod)
    changes: list[AdvisedChange] = []
    gave_up = False
    try:
        for find in (_respell, _shrink_one, _without, _other_topology):
            changes += find(trials, refused)
    except _GaveUp:
        gave_up = True
    if not changes and trials.admits(_without_memory_manager(manager), pod, free=True):
        changes.append(AdvisedChange("memory_policy", value="None"))
    empty = msgspec.structs.replace(manager, state=_empty_state(manager), active={})
    return Advice(tuple(changes), trials.count, gave_up, trials.admits(empty, pod, free=True))


class _Trials:
    """Tries changes, and counts them."""

    def __init__(self, manager: Manager, pod: Pod) -> None:
        self.manager = manager
        self.pod = pod
        self.count = 0

    def admits(self, manager: Manager, pod: Pod, *, free: bool = False) -> bool:
        if self.count >= _MAX_TRIALS and not free:
            raise _GaveUp
        self.count += 1
        _, outcome = manager.admit(pod)
        return isinstance(outcome, AdmittedPod)

    def fits(self, sizes: Mapping[SizeTarget, int]) -> bool:
        release, pod = self.manager.settings.release, with_sizes(self.pod, sizes)
        # Validation refuses containers that request more than the pod level does (KEP-2837).
        valid = not shape_errors(shape_of(pod, release), release)
        return valid and self.admits(self.manager, pod)


# Other sizes


def _respell(trials: _Trials, refused: RefusedPod) -> Iterator[AdvisedChange]:
    """Sizes the kubelet cannot read, written so that it can."""
    if refused.cause != "not_an_integer":
        return
    unread = [
        target for target in size_targets(trials.pod) if is_unreadable_size(trials.pod, target)
    ]
    if unread and trials.fits({target: target.size for target in unread}):
        yield AdvisedChange("spelling", tuple([_fitting_size(each, each.size) for each in unread]))


def _shrink_one(trials: _Trials, refused: RefusedPod) -> Iterator[AdvisedChange]:
    targets = [target for target in size_targets(trials.pod) if target.resource in refused.sizes]
    found = False
    for resource in refused.sizes:
        best: tuple[int, SizeTarget, int] | None = None
        for target in targets:
            if target.resource != resource:
                continue
            size = _largest_fitting(trials, refused, target, {})
            if size is not None and (best is None or target.size - size < best[0]):
                best = target.size - size, target, size
        if best is not None:
            yield AdvisedChange("smaller", (_fitting_size(best[1], best[2]),))
            found = True
    if not found:
        yield from _shrink_all(trials, refused, targets)


def _shrink_all(
    trials: _Trials, refused: RefusedPod, targets: Sequence[SizeTarget]
) -> Iterator[AdvisedChange]:
    """Several sizes at once, each as large as the others allow."""
    sizes = {target: target.unit for target in targets}
    if len(targets) < 2 or not trials.fits(sizes):
        return
    for target in targets:
        others = {other: size for other, size in sizes.items() if other != target}
        sizes[target] = (
            target.size
            if trials.fits({**others, target: target.size})
            else _largest_fitting(trials, refused, target, others) or target.unit
        )
    yield AdvisedChange(
        "smaller",
        tuple([_fitting_size(each, size) for each, size in sizes.items() if size != each.size]),
    )


def _largest_fitting(
    trials: _Trials, refused: RefusedPod, target: SizeTarget, others: Mapping[SizeTarget, int]
) -> int | None:
    """The largest smaller size that fits while the others stay."""
    unit = target.unit

    def fits(size: int) -> bool:
        return trials.fits({**others, target: size})

    if target.size <= unit:
        return None
    tried = (*_candidates(trials.manager, refused, target), unit)
    found = next(filter(fits, tried), None)
    return None if found is None else _bisect(fits, found, target.size, unit)


def _bisect(fits: Callable[[int], bool], fitting: int, failing: int, unit: int) -> int:
    """The largest fitting size from one that fits up to one that does not."""
    low, high = fitting // unit, -(-failing // unit)
    while high - low > 1:
        middle = (low + high) // 2
        if fits(middle * unit):
            low = middle
        else:
            high = middle
    return max(low * unit, fitting)


def _candidates(manager: Manager, refused: RefusedPod, target: SizeTarget) -> list[int]:
    """Sizes at which the outcome may change, largest first.

    Where the pod was admitted as a whole, what it lacks is deducted from the one size.
    """
    lacking_of = refused.sizes[target.resource]
    sizes = set()
    for free in _free_sizes(manager.state.nodes, target.resource):
        for size in (free, target.size - (lacking_of - free)):
            whole = size // target.unit * target.unit
            if target.unit <= whole < target.size:
                sizes.add(whole)
    return sorted(sizes, reverse=True)


def _free_sizes(nodes: NumaNodeMap, resource: str) -> set[int]:
    """What single nodes, groups, and the 2, 3 … idle nodes with the most have free."""
    idle = sorted(
        [node.table(resource).free for node in nodes.values() if node.assignments <= 0],
        reverse=True,
    )
    return {
        *[node.table(resource).free for node in nodes.values()],
        *[
            free_memory(nodes, node.cells, resource)
            for node in nodes.values()
            if len(node.cells) > 1
        ],
        *accumulate(idle),
    }


# Another node


def _without(trials: _Trials, refused: RefusedPod) -> Iterator[AdvisedChange]:
    manager = trials.manager
    own = trials.pod.metadata.uid or ""
    sizes = {uid: _pod_bytes(manager.state, uid) for uid in manager.state.assignments if uid != own}
    order = sorted(sizes, key=lambda uid: (sizes[uid], uid))
    found = 0
    for uid in order:
        if trials.admits(manager.delete_pod(uid), trials.pod):
            yield AdvisedChange("without", uids=(uid,))
            found += 1
            if found == _MAX_PODS:
                return
    if not found:
        yield from _without_several(trials, order)


def _without_several(trials: _Trials, order: Sequence[str]) -> Iterator[AdvisedChange]:
    """Remove the largest until the pod fits; then put back those that need not be removed."""
    removed: list[str] = []
    for uid in reversed(order):
        removed.append(uid)
        if trials.admits(_without_pods(trials.manager, removed), trials.pod):
            break
    else:
        return
    for uid in sorted(removed, key=order.index, reverse=True):
        fewer = [other for other in removed if other != uid]
        if fewer and trials.admits(_without_pods(trials.manager, fewer), trials.pod):
            removed = fewer
    yield AdvisedChange("without", uids=tuple(sorted(removed, key=order.index)))


def _other_topology(trials: _Trials, refused: RefusedPod) -> Iterator[AdvisedChange]:
    """The strictest of the laxer topology policies that admits the pod; the other scope."""
    topology = trials.manager.settings.topology
    if topology.policy == "none":
        return
    for policy in reversed(TOPOLOGY_POLICY_NAMES[: TOPOLOGY_POLICY_NAMES.index(topology.policy)]):
        laxer = (
            TopologySettings("none", "none")
            if policy == "none"
            else msgspec.structs.replace(topology, policy=policy)
        )
        if trials.admits(_with_topology(trials.manager, laxer), trials.pod):
            yield AdvisedChange("topology_policy", value=policy)
            break
    for scope in TOPOLOGY_SCOPE_NAMES:
        if scope != topology.scope and trials.admits(
            _with_topology(trials.manager, msgspec.structs.replace(topology, scope=scope)),
            trials.pod,
        ):
            yield AdvisedChange("scope", value=scope)


def _with_topology(manager: Manager, topology: TopologySettings) -> Manager:
    settings = msgspec.structs.replace(manager.settings, topology=topology)
    return msgspec.structs.replace(manager, settings=settings)


def _without_memory_manager(manager: Manager) -> Manager:
    settings = msgspec.structs.replace(manager.settings, policy="None")
    return msgspec.structs.replace(manager, settings=settings)


def _without_pods(manager: Manager, uids: Sequence[str]) -> Manager:
    for uid in uids:
        manager = manager.delete_pod(uid)
    return manager


def _empty_state(manager: Manager) -> MemoryManagerState:
    reserved = {
        i: {name: table.system_reserved for name, table in node.memory.items()}
        for i, node in manager.state.nodes.items()
    }
    return MemoryManagerState(
        manager.state.policy, empty_node_map(manager.settings.machine, reserved)
    )


def _pod_bytes(state: MemoryManagerState, uid: str) -> int:
    blocks = state.pools.get(uid) or [
        block for blocks in state.assignments[uid].values() for block in blocks
    ]
    return sum([block.size for block in blocks])


def _fitting_size(target: SizeTarget, size: int) -> FittingSize:
    text = pod_size_text(target.resource, size)
    return FittingSize(target.container, target.resource, target.size, size, text)
