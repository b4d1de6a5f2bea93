"""NUMA memory that an agent has given out, kept up as pods come, change and go.

A pod is assigned memory once, and keeps it until it is removed. Where it is assigned again, as
after a resize, it first releases what it has, and keeps its nodes if enough is free: so nothing is
counted twice, and no other pod is moved.
"""

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple, Protocol

import msgspec

from memqos.agent.core.pod_intent import AgentSettings, Notice, PodIntent
from memqos.converge.numa_assignment import (
    KUBELET_ASSIGNS,
    NO_NUMA_NODES,
    assignment_in_state,
    assignment_of,
    creation_order,
    manager_of,
    no_assignment_reason,
    running_pod_of,
    skip_reason,
)
from memqos.errors import InputError
from memqos.kube.kubelet import STATE_FILE, STATIC
from memqos.numa.machine_state import MemoryManagerState
from memqos.numa.machines import NumaMachine, machine_subset
from memqos.numa.manager import Manager
from memqos.numa.masks import Mask, mask_of
from memqos.numa.running_pods import RunningPod, UnplacedPod, assign_running_pods
from memqos.plan.cpuset import Assignment


class NumaLedger:
    """Who holds what of a node's memory; by UID."""

    def __init__(self, manager: Manager) -> None:
        self._manager = manager
        self._residents: dict[str, RunningPod] = {}
        self.unplaced: dict[str, UnplacedPod] = {}
        """Pods for which nothing is free until others release what they have."""

    @property
    def state(self) -> MemoryManagerState:
        return self._manager.state

    def __contains__(self, uid: str) -> bool:
        return uid in self._residents

    def update(self, here: Iterable[RunningPod], removed: Iterable[str] = ()) -> set[str]:
        """Take in residents that were read or removed; the UIDs of other pods it affects.

        These are pods for which there was nothing before.
        """
        to_place: dict[str, RunningPod] = {}
        freed = False
        for uid in removed:
            self._residents.pop(uid, None)
            freed |= self._release(uid)
        for each in here:
            if not self._is_unchanged(each):
                to_place[each.uid] = msgspec.structs.replace(each, bound=self._bound(each))
                self._residents[each.uid] = each
        freed |= any([self._release(uid) for uid in to_place])
        again = [uid for uid in self.unplaced if uid not in to_place] if freed else []
        for uid in again:
            self._release(uid)
            to_place[uid] = self._residents[uid]
        self._manager, unplaced = assign_running_pods(
            self._manager, sorted(to_place.values(), key=creation_order)
        )
        self.unplaced |= unplaced
        return {uid for uid in again if uid not in unplaced}

    def reallocate(self, manager: Manager) -> None:
        """Give out the memory of another machine; who can stay does."""
        residents = [
            msgspec.structs.replace(each, bound=self._bound(each))
            for each in self._residents.values()
        ]
        self._manager, self.unplaced = assign_running_pods(
            manager, sorted(residents, key=creation_order)
        )

    def _is_unchanged(self, resident: RunningPod) -> bool:
        before = self._residents.get(resident.uid)
        if before is None or before is resident:
            return before is not None
        if (before.request, before.managed) != (resident.request, resident.managed):
            return False
        return before.bound == resident.bound or self._holds(resident)

    def _holds(self, resident: RunningPod) -> bool:
        """Whether it was for us to say what a pod holds, so that others do not by binding it."""
        before = self._residents.get(resident.uid)
        return (
            resident.managed
            and before is not None
            and before.managed
            and resident.uid not in self.unplaced
        )

    def _bound(self, resident: RunningPod) -> dict[str, Mask]:
        own: dict[str, Mask] = {}
        if self._holds(resident):
            assigned = self.state.assignments.get(resident.uid, {})
            own = {
                name: mask_of(self.state.container_nodes(resident.uid, name)) for name in assigned
            }
        return {**resident.bound, **{name: mask for name, mask in own.items() if mask}}

    def _release(self, uid: str) -> bool:
        """Release what a pod is assigned; whether there was something."""
        self.unplaced.pop(uid, None)
        is_assigned = uid in self.state.assignments
        self._manager = self._manager.free_pod(uid)
        return is_assigned


Assignments = Mapping[str, Assignment]
"""Container → what it is assigned; one that is left alone is not in it."""

NO_ASSIGNMENTS: Final[Assignments] = {}


class ObservedPod(NamedTuple):
    """A pod as it was last looked at."""

    uid: str
    intent: PodIntent
    bound: Mapping[str, frozenset[int]]
    """Containers that are there, and what they are bound to."""
    is_ours: bool
    """Whether it is for the agent to say what the pod holds."""

    @property
    def containers(self) -> list[str]:
        return [each.container for each in self.intent.cgroups if each.container is not None]


class PodAssignment(NamedTuple):
    """What is assigned to a pod, and why not all that could be."""

    assignments: Assignments = NO_ASSIGNMENTS
    notice: Notice | None = None


class NumaAssigner(Protocol):
    """One of the two."""

    def accept_state(self, state: MemoryManagerState | None) -> str | None:
        """Take in the kubelet's state, None where there is none; what speaks against it."""

    def update(
        self, here: Iterable[ObservedPod], removed: Iterable[str], permitted: frozenset[int]
    ) -> set[str]:
        """Take in pods that were read, and UIDs of removed ones; the UIDs of others it affects.

        `permitted` are the nodes that pods may use at all.
        """

    def assignment_of_pod(self, pod: ObservedPod) -> PodAssignment:
        """What is assigned to a pod."""

    @property
    def state(self) -> MemoryManagerState | None:
        """Who holds what, as far as that is known."""


class KubeletAssigner:
    """The kubelet assigns. Where its state is missing, the last one still counts."""

    def __init__(
        self, node_settings: AgentSettings, state: MemoryManagerState | None = None
    ) -> None:
        self.state = state
        self._release = node_settings.settings.release
        self._residents: dict[str, tuple[PodIntent, RunningPod]] = {}

    def accept_state(self, state: MemoryManagerState | None) -> str | None:
        if state is None:
            known = "the previous state stays in use" if self.state else "no container is bound"
            return f"there is no {STATE_FILE}: {known}"
        self.state = state
        return None if state.policy == STATIC else f"{STATE_FILE}: {no_assignment_reason(state)}"

    def update(
        self, here: Iterable[ObservedPod], removed: Iterable[str], permitted: frozenset[int]
    ) -> set[str]:
        for uid in removed:
            self._residents.pop(uid, None)
        return set()

    def assignment_of_pod(self, pod: ObservedPod) -> PodAssignment:
        if self.state is None or self.state.policy != STATIC:
            return PodAssignment()
        wants = self._resident(pod).request
        found = {
            name: assignment_in_state(self.state, (pod.uid, name), wants) for name in pod.containers
        }
        unknown = [name for name, each in found.items() if each is None]
        notice = None
        if unknown:
            what = f"not changed: the {STATE_FILE} does not contain {', '.join(unknown)}"
            notice = Notice("NumaUnknown", what)
        return PodAssignment(
            {name: each for name, each in found.items() if each is not None}, notice
        )

    def _resident(self, pod: ObservedPod) -> RunningPod:
        """As it was worked out before, where its pod is the same."""
        before = self._residents.get(pod.uid)
        if before is None or before[0] is not pod.intent:
            before = pod.intent, running_pod_of(pod.intent.pod, {}, self._release)
            self._residents[pod.uid] = before
        return before[1]


class AgentAssigner:
    """The agent assigns, by the rules of the Static policy, where the kubelet does not."""

    def __init__(self, node_settings: AgentSettings, before: "AgentAssigner | None" = None) -> None:
        """`before` is who has given out memory until now: what it gave stays given."""
        if node_settings.numa is None:
            raise InputError(NO_NUMA_NODES, field="numa", hint="is /sys mounted?")
        if node_settings.config.memory_manager_policy == STATIC:
            raise InputError(
                KUBELET_ASSIGNS, field="numa", hint="numa: state uses the kubelet's state"
            )
        self._node_settings = node_settings
        self._machine = node_settings.numa
        manager = self._manager(node_settings.numa)
        self._ledger = NumaLedger(manager)
        self._pods: dict[str, tuple[ObservedPod, RunningPod]] = {}
        self._kubelet_assigns = False
        if before is not None:
            self._pods = before._pods
            self._ledger = before._ledger
            self._ledger.reallocate(manager)

    @property
    def state(self) -> MemoryManagerState:
        return self._ledger.state

    def accept_state(self, state: MemoryManagerState | None) -> str | None:
        self._kubelet_assigns = state is not None and state.policy == STATIC
        return f"{KUBELET_ASSIGNS}: memqos binds no container" if self._kubelet_assigns else None

    def update(
        self, here: Iterable[ObservedPod], removed: Iterable[str], permitted: frozenset[int]
    ) -> set[str]:
        machine = machine_subset(self._node_settings.numa or self._machine, permitted)
        residents = [self._resident(each) for each in here]
        removed = list(removed)
        for uid in removed:
            self._pods.pop(uid, None)
        concerned = self._ledger.update((), removed)
        if machine != self._machine:
            self._ledger.reallocate(self._manager(machine))
            self._machine = machine
            concerned |= self._pods.keys()
        return concerned | self._ledger.update(residents)

    def assignment_of_pod(self, pod: ObservedPod) -> PodAssignment:
        if self._kubelet_assigns or not pod.is_ours or pod.uid not in self._ledger:
            return PodAssignment()
        unplaced = self._ledger.unplaced.get(pod.uid)
        if unplaced is not None:
            what = f"not changed: {skip_reason(unplaced)}"
            return PodAssignment(NO_ASSIGNMENTS, Notice("NumaRefused", what))
        state = self._ledger.state
        return PodAssignment(
            {name: assignment_of(state, (pod.uid, name)) for name in pod.containers}
        )

    def _resident(self, pod: ObservedPod) -> RunningPod:
        before = self._pods.get(pod.uid)
        if before is None or not _is_same(before[0], pod):
            resident = running_pod_of(
                pod.intent.pod,
                pod.bound,
                self._node_settings.settings.release,
                managed=pod.is_ours,
            )
            before = self._pods[pod.uid] = pod, resident
        return before[1]

    def _manager(self, machine: NumaMachine) -> Manager:
        return manager_of(machine, self._node_settings.config, self._node_settings.settings.release)


def _is_same(one: ObservedPod, other: ObservedPod) -> bool:
    return one.intent is other.intent and one[2:] == other[2:]
