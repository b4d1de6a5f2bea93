"""A kubelet's NUMA state over its lifetime: start, pods and containers added and removed, restart.

Every step is a value: it leaves the manager as it was and returns the next one, so that a what-if
is a step whose result is dropped.
"""

from collections.abc import Mapping
from typing import Final, Literal, cast, get_args

import msgspec

from memqos.kube.pod import Pod
from memqos.numa.admission import (
    UNSET_HINT,
    AdmissionAttempt,
    AdmissionOperation,
    AdmissionOutcome,
    AdmissionRules,
    AdmittedPod,
    MemoryPolicy,
    admit_pod,
)
from memqos.numa.allocation import ReusableMemory
from memqos.numa.hints import Hint, HintProvider
from memqos.numa.machine_state import (
    MachineMemory,
    MemoryManagerState,
    empty_node_map,
    over_reserved,
)
from memqos.numa.requests import PodMemoryRequest, pod_memory_request
from memqos.numa.reserved_memory import InvalidReservation, ReservationFault, reserves_no_memory
from memqos.numa.restart import StateFault, UnusableState, resume_state
from memqos.numa.topology_manager import TopologySettings
from memqos.release import Release

StartFault = (
    Literal[
        "unknown_policy",
        "policy_not_on_platform",
        "gate_off",
        "no_system_reserved_memory",
        "reserved_more_than_there_is",
        "state_policy_mismatch",
    ]
    | ReservationFault
    | StateFault
)
MEMORY_POLICIES: Final[tuple[MemoryPolicy, ...]] = get_args(MemoryPolicy)


class ManagerSettings(msgspec.Struct, frozen=True, kw_only=True):
    """What a kubelet is started with.

    `reserved` is the result of `reserved_memory.system_reserved`. `as_kubelet` is for predicting a
    real kubelet, with its bugs.
    """

    machine: MachineMemory
    policy: str
    topology: TopologySettings
    release: Release
    reserved: Mapping[int, Mapping[str, int]] | InvalidReservation = {}
    windows: bool = False
    as_kubelet: bool = False


class StartRefused(msgspec.Struct, frozen=True):
    """A kubelet that does not start: because of its reservations, its policy or its state file."""

    kind: StartFault
    reservations: InvalidReservation | None = None
    state: UnusableState | None = None
    places: tuple[tuple[int, str], ...] = ()


class Manager(msgspec.Struct, frozen=True):
    """A running kubelet: its state, the pods it runs, the containers that were started."""

    settings: ManagerSettings
    state: MemoryManagerState
    leftovers: ReusableMemory = ReusableMemory()
    active: Mapping[str, PodMemoryRequest] = {}
    started: frozenset[tuple[str, str]] = frozenset()
    affinity: Mapping[str, Mapping[str, Hint]] = {}

    def admit(
        self,
        pod: Pod,
        *,
        operation: AdmissionOperation = "add",
        other_providers: tuple[HintProvider, ...] = (),
        cpu_nodes: Mapping[str, tuple[int, ...]] | None = None,
    ) -> "tuple[Manager, AdmissionOutcome]":
        """The next manager and the outcome for the pod."""
        settings = self.settings
        request = pod_memory_request(pod, settings.release)
        manager = msgspec.structs.replace(
            self, active={**self.active, request.uid: request}
        )._remove_stale_state()
        state, leftovers, outcome = admit_pod(
            AdmissionRules(
                cast(MemoryPolicy, settings.policy), settings.topology, settings.as_kubelet
            ),
            manager.state,
            manager.leftovers,
            AdmissionAttempt(request, operation, other_providers, cpu_nodes or {}),
        )
        active = dict(manager.active)
        if not isinstance(outcome, AdmittedPod):
            del active[request.uid]
        affinity = {**self.affinity.get(request.uid, {}), **outcome.affinity}
        return (
            msgspec.structs.replace(
                manager,
                state=state,
                leftovers=leftovers,
                active=active,
                affinity={**self.affinity, request.uid: affinity},
            ),
            outcome,
        )

    def start_container(self, uid: str, container: str) -> "Manager":
        """A container of a running pod starts: plain init containers before it are done."""
        request = self.active.get(uid)
        if request is None:
            return self
        manager = msgspec.structs.replace(self, started=self.started | {(uid, container)})
        for earlier in request.containers:
            if earlier.name == container or earlier.role == "regular":
                break
            if earlier.role == "init":
                manager = manager._without_container(uid, earlier.name)
        return manager

    def remove_container(self, uid: str, container: str) -> "Manager":
        """A container is removed for good; one that was never started has no effect."""
        if (uid, container) not in self.started:
            return self
        return self._without_container(uid, container)

    def delete_pod(self, uid: str) -> "Manager":
        """A pod is deleted; its memory is released when the next one is admitted."""
        active = {other: request for other, request in self.active.items() if other != uid}
        return msgspec.structs.replace(self, active=active)

    def free_pod(self, uid: str) -> "Manager":
        """A pod is deleted, and its memory released at once."""
        manager = self.delete_pod(uid)
        for container in self.state.assignments.get(uid, {}):
            manager = manager._without_container(uid, container)
        affinity = {other: hints for other, hints in self.affinity.items() if other != uid}
        return msgspec.structs.replace(manager, affinity=affinity)

    def restart(
        self, settings: ManagerSettings, running: frozenset[tuple[str, str]] = frozenset()
    ) -> "Manager | StartRefused":
        """A new kubelet with the same state and pods; `running` containers have started."""
        successor = start_manager(settings, self.state)
        if isinstance(successor, StartRefused):
            return successor
        return msgspec.structs.replace(successor, active=self.active, started=running)

    def cpuset_nodes(self, uid: str, container: str) -> tuple[int, ...]:
        """The nodes of a container's cpuset.mems: none where it is not pinned, as on Windows."""
        return () if self.settings.windows else self.state.container_nodes(uid, container)

    def get_affinity(self, uid: str, container: str) -> Hint:
        """The hint that the Topology Manager chose for a container."""
        return self.affinity.get(uid, {}).get(container, UNSET_HINT)

    def _remove_stale_state(self) -> "Manager":
        """Without the memory of pods that do not run any more."""
        manager = self
        for uid, containers in self.state.assignments.items():
            request = self.active.get(uid)
            alive = set() if request is None else {c.name for c in request.containers}
            for name in containers:
                if name not in alive:
                    manager = manager._without_container(uid, name)
        stale = {(uid, name) for uid, name in manager.started if uid not in self.active}
        return msgspec.structs.replace(manager, started=manager.started - stale)

    def _without_container(self, uid: str, container: str) -> "Manager":
        state = (
            self.state
            if self.settings.policy == "None"
            else self.state.without_container(uid, container)
        )
        # RemoveContainer() (kubelet memorymanager/policy_static.go) leaves the pod's entry in
        # initContainersReusableMemory: the kubelet offers again what was released already.
        forget = self.leftovers.uid == uid and not self.settings.as_kubelet
        return msgspec.structs.replace(
            self,
            state=state,
            leftovers=ReusableMemory() if forget else self.leftovers,
            started=self.started - {(uid, container)},
        )


def start_manager(
    settings: ManagerSettings, state: MemoryManagerState | None = None
) -> Manager | StartRefused:
    """Start a kubelet, with the state of an earlier run if there is one."""
    fault = _policy_fault(settings)
    if fault is not None:
        return StartRefused(fault)
    policy, reserved = settings.policy, settings.reserved
    before = MemoryManagerState(policy) if state is None else state
    if policy != "None":
        if isinstance(reserved, InvalidReservation):
            return StartRefused(reserved.kind, reservations=reserved)
        if reserves_no_memory(reserved):
            return StartRefused("no_system_reserved_memory")
    if before.policy != policy:
        return StartRefused("state_policy_mismatch")
    if policy == "None" or isinstance(reserved, InvalidReservation):
        return Manager(settings, before)
    if not settings.release.is_enabled("PodLevelResourceManagers"):
        before = msgspec.structs.replace(before, pools={})
    machine = empty_node_map(settings.machine, reserved)
    # getDefaultMachineState() (policy_static.go) subtracts unsigned numbers: a kubelet starts with
    # nearly 2^64 bytes allocatable. memqos refuses.
    places = tuple(over_reserved(machine))
    if places:
        return StartRefused("reserved_more_than_there_is", places=places)
    after = resume_state(before, machine)
    if isinstance(after, UnusableState):
        return StartRefused(after.kind, state=after)
    return Manager(settings, after)


def _policy_fault(settings: ManagerSettings) -> StartFault | None:
    policy = settings.policy
    if policy not in MEMORY_POLICIES:
        return "unknown_policy"
    if policy == "None":
        return None
    if settings.windows != (policy == "BestEffort"):
        return "policy_not_on_platform"
    # Without the gate a kubelet on Windows runs without a Memory Manager
    # (container_manager_windows.go), so its policy has no effect.
    if settings.windows and not settings.release.is_enabled("WindowsCPUAndMemoryAffinity"):
        return "gate_off"
    return None
