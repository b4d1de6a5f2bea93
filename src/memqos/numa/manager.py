"""A kubelet's NUMA view over its whole life: start, pods and containers coming and going, restart.

Every step is a value: it leaves the manager as it was and gives the next one, so that a what-if is
a step whose result is dropped.
"""

from collections.abc import Mapping
from typing import Final, Literal, cast, get_args

import msgspec

from memqos.kube.pod import Pod
from memqos.numa.admission import (
    UNSET,
    Admitted,
    Attempt,
    MemoryPolicy,
    Operation,
    Outcome,
    Rules,
    admit,
)
from memqos.numa.allocation import Leftovers
from memqos.numa.hints import Hint, Provider
from memqos.numa.memory import Machine, empty_nodes, over_reserved
from memqos.numa.requests import PodWants, wants_of
from memqos.numa.reserved import ReservedFault, Unreservable, is_empty
from memqos.numa.restart import StateFault, Unfit, resumed
from memqos.numa.state import State
from memqos.numa.topology import Topology
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
    | ReservedFault
    | StateFault
)
POLICIES: Final[tuple[MemoryPolicy, ...]] = get_args(MemoryPolicy)


class Settings(msgspec.Struct, frozen=True):
    """What a kubelet is started with.

    `reserved` is what `reserved.system_reserved` makes of the reservations. `as_kubelet` is for
    foretelling a real kubelet, whose mistakes are then made as well.
    """

    machine: Machine
    policy: str
    topology: Topology
    release: Release
    reserved: Mapping[int, Mapping[str, int]] | Unreservable = {}
    windows: bool = False
    as_kubelet: bool = False


class StartRefused(msgspec.Struct, frozen=True):
    """A kubelet that does not start: over its reservations, its policy or the state it left."""

    kind: StartFault
    reservations: Unreservable | None = None
    state: Unfit | None = None
    places: tuple[tuple[int, str], ...] = ()


class Manager(msgspec.Struct, frozen=True):
    """A running kubelet: its state, the pods it runs, the containers that were started."""

    settings: Settings
    state: State
    leftovers: Leftovers = Leftovers()
    active: Mapping[str, PodWants] = {}
    started: frozenset[tuple[str, str]] = frozenset()
    affinity: Mapping[str, Mapping[str, Hint]] = {}

    def admit(
        self,
        pod: Pod,
        *,
        operation: Operation = "add",
        others: tuple[Provider, ...] = (),
        cpu_nodes: Mapping[str, tuple[int, ...]] | None = None,
    ) -> "tuple[Manager, Outcome]":
        """The next manager and what became of the pod."""
        settings = self.settings
        wants = wants_of(pod, settings.release)
        manager = msgspec.structs.replace(self, active={**self.active, wants.uid: wants})._swept()
        state, leftovers, outcome = admit(
            Rules(cast(MemoryPolicy, settings.policy), settings.topology, settings.as_kubelet),
            manager.state,
            manager.leftovers,
            Attempt(wants, operation, others, cpu_nodes or {}),
        )
        active = dict(manager.active)
        if not isinstance(outcome, Admitted):
            del active[wants.uid]
        known = {**self.affinity.get(wants.uid, {}), **outcome.affinity}
        return (
            msgspec.structs.replace(
                manager,
                state=state,
                leftovers=leftovers,
                active=active,
                affinity={**self.affinity, wants.uid: known},
            ),
            outcome,
        )

    def start(self, uid: str, container: str) -> "Manager":
        """A container of a running pod starts: plain init containers before it are done."""
        wants = self.active.get(uid)
        if wants is None:
            return self
        manager = msgspec.structs.replace(self, started=self.started | {(uid, container)})
        for earlier in wants.containers:
            if earlier.name == container or earlier.role == "regular":
                break
            if earlier.role == "init":
                manager = manager._without(uid, earlier.name)
        return manager

    def remove(self, uid: str, container: str) -> "Manager":
        """A container is gone for good; one that was never started is left alone."""
        if (uid, container) not in self.started:
            return self
        return self._without(uid, container)

    def delete(self, uid: str) -> "Manager":
        """A pod is gone; what it held is given back when the next one is admitted."""
        active = {other: wants for other, wants in self.active.items() if other != uid}
        return msgspec.structs.replace(self, active=active)

    def forget(self, uid: str) -> "Manager":
        """A pod is gone, and what it held is free at once."""
        manager = self.delete(uid)
        for container in self.state.assignments.get(uid, {}):
            manager = manager._without(uid, container)
        affinity = {other: hints for other, hints in self.affinity.items() if other != uid}
        return msgspec.structs.replace(manager, affinity=affinity)

    def restart(
        self, settings: Settings, running: frozenset[tuple[str, str]] = frozenset()
    ) -> "Manager | StartRefused":
        """A new kubelet over the same state and pods; the runtime says what is still running."""
        successor = start(settings, self.state)
        if isinstance(successor, StartRefused):
            return successor
        return msgspec.structs.replace(successor, active=self.active, started=running)

    def pinned_nodes(self, uid: str, container: str) -> tuple[int, ...]:
        """The nodes of a container's cpuset.mems: none where it is not pinned, as on Windows."""
        return () if self.settings.windows else self.state.held_nodes(uid, container)

    def hint_of(self, uid: str, container: str) -> Hint:
        """The hint the Topology Manager settled on for a container."""
        return self.affinity.get(uid, {}).get(container, UNSET)

    def _swept(self) -> "Manager":
        """Without what pods hold that do not run any more."""
        manager = self
        for uid, containers in self.state.assignments.items():
            wants = self.active.get(uid)
            alive = set() if wants is None else {c.name for c in wants.containers}
            for name in containers:
                if name not in alive:
                    manager = manager._without(uid, name)
        stale = {(uid, name) for uid, name in manager.started if uid not in self.active}
        return msgspec.structs.replace(manager, started=manager.started - stale)

    def _without(self, uid: str, container: str) -> "Manager":
        state = self.state if self.settings.policy == "None" else self.state.without(uid, container)
        # Upstream goes on offering a pod memory that its init containers have given back since.
        forget = self.leftovers.uid == uid and not self.settings.as_kubelet
        return msgspec.structs.replace(
            self,
            state=state,
            leftovers=Leftovers() if forget else self.leftovers,
            started=self.started - {(uid, container)},
        )


def start(settings: Settings, state: State | None = None) -> Manager | StartRefused:
    """Start a kubelet, over the state it left if there is one."""
    fault = _policy_fault(settings)
    if fault is not None:
        return StartRefused(fault)
    policy, reserved = settings.policy, settings.reserved
    before = State(policy) if state is None else state
    if policy != "None":
        if isinstance(reserved, Unreservable):
            return StartRefused(reserved.kind, reservations=reserved)
        if is_empty(reserved):
            return StartRefused("no_system_reserved_memory")
    if before.policy != policy:
        return StartRefused("state_policy_mismatch")
    if policy == "None" or isinstance(reserved, Unreservable):
        return Manager(settings, before)
    if not settings.release.enabled("PodLevelResourceManagers"):
        before = msgspec.structs.replace(before, pools={})
    machine = empty_nodes(settings.machine, reserved)
    # The kubelet does not notice and takes the negative for an enormous number.
    places = tuple(over_reserved(machine))
    if places:
        return StartRefused("reserved_more_than_there_is", places=places)
    after = resumed(before, machine)
    if isinstance(after, Unfit):
        return StartRefused(after.kind, state=after)
    return Manager(settings, after)


def _policy_fault(settings: Settings) -> StartFault | None:
    policy = settings.policy
    if policy not in POLICIES:
        return "unknown_policy"
    if policy == "None":
        return None
    if settings.windows != (policy == "BestEffort"):
        return "policy_not_on_platform"
    # Without the gate a kubelet on Windows starts, but has no Memory Manager at all.
    if settings.windows and not settings.release.enabled("WindowsCPUAndMemoryAffinity"):
        return "gate_off"
    return None
