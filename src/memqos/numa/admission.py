"""Admission: asking the providers, merging what they answer, allocating what was settled on."""

from collections.abc import Mapping
from typing import Literal

import msgspec

from memqos.numa.allocation import Cause, Denied, Leftovers, allocate
from memqos.numa.hints import Answer, Hint, Hints, Provider
from memqos.numa.masks import mask_of
from memqos.numa.memory import Blocks, Sizes
from memqos.numa.merge import Obstruction
from memqos.numa.offers import offer_of
from memqos.numa.pool import allocate_pool, pool_fault
from memqos.numa.requests import PodWants, Wanted
from memqos.numa.state import State
from memqos.numa.subsets import Effort
from memqos.numa.topology import Decision, Topology, decide
from memqos.numa.unaligned import is_unaligned

MemoryPolicy = Literal["None", "Static", "BestEffort"]
Operation = Literal["add", "resize"]
Reason = Literal["TopologyAffinityError", "UnexpectedAdmissionError", "EmptyPodSharedPoolError"]

MEMORY_MANAGER = "memorymanager"
UNSET = Hint(None, False)


class Call(msgspec.Struct, frozen=True):
    """One round of hints: for a container, or with None for the pod as a whole."""

    container: str | None
    providers: tuple[Provider, ...]
    decision: Decision


class Admitted(msgspec.Struct, frozen=True):
    """A pod the kubelet runs, and the blocks each of its containers holds."""

    calls: tuple[Call, ...]
    affinity: Mapping[str, Hint]
    blocks: Mapping[str, Blocks]
    unaligned: bool = False
    """Whether its pod-level resources are ignored, though it is Guaranteed."""
    gave_up: bool = False
    """Whether a search ended early, so that there may be better nodes."""


class Refused(msgspec.Struct, frozen=True):
    """A pod the kubelet fails, with all that led to it.

    `obstruction` says why the policy did not like the merged hint, `cause` why an allocation
    failed: one of them is there. `nodes` are those to allocate from; None means any.
    """

    reason: Reason
    calls: tuple[Call, ...]
    affinity: Mapping[str, Hint]
    container: str | None
    sizes: Sizes
    cause: Cause | None = None
    resource: str | None = None
    nodes: tuple[int, ...] | None = None
    obstruction: Obstruction | None = None
    gave_up: bool = False
    """Whether a search ended early, so that there may be nodes after all."""


Outcome = Admitted | Refused


class Rules(msgspec.Struct, frozen=True):
    """What the managers of a kubelet admit by.

    `as_kubelet` repeats what upstream gets wrong when a pod is admitted again, as after a restart:
    a pool is taken a second time.
    """

    policy: MemoryPolicy
    topology: Topology
    as_kubelet: bool = False


class Attempt(msgspec.Struct, frozen=True):
    """One pod to admit; `others` are the answers of other providers to every call.

    `cpu_nodes` are the nodes of containers' exclusive CPUs, which BestEffort follows on Windows.
    """

    wants: PodWants
    operation: Operation = "add"
    others: tuple[Provider, ...] = ()
    cpu_nodes: Mapping[str, tuple[int, ...]] = {}


def admit(
    rules: Rules, state: State, leftovers: Leftovers, attempt: Attempt
) -> tuple[State, Leftovers, Outcome]:
    """Admit a pod or refuse it; a refused pod keeps what it got until then."""
    admission = _Admission(rules, state, leftovers, attempt)
    outcome = admission.run()
    return admission.state, admission.leftovers, outcome


class _Admission:
    """One admission under way."""

    def __init__(self, rules: Rules, state: State, leftovers: Leftovers, attempt: Attempt) -> None:
        self.rules = rules
        self.state = state
        self.leftovers = leftovers
        self.attempt = attempt
        self.wants = attempt.wants
        self.calls: list[Call] = []
        self.affinity: dict[str, Hint] = {}
        self.effort = Effort()

    def run(self) -> Outcome:
        scope = self.rules.topology.scope
        if scope == "pod":
            return self._as_a_whole()
        for container in self.wants.containers:
            if scope == "container":
                decision = self._ask(container.name, self._container_answer(container))
                if not decision.admit:
                    return self._misaligned(decision, container.name, container.sizes)
                self.affinity[container.name] = decision.hint
            denied = self._allocate(container)
            if denied is not None:
                return self._denied(denied, container.name)
        return self._admitted()

    def _as_a_whole(self) -> Outcome:
        decision = self._ask(None, self._pod_answer())
        if not decision.admit:
            return self._misaligned(decision, None, self.wants.total)
        if self.wants.pooled:
            self.affinity = {container.name: decision.hint for container in self.wants.containers}
            denied = self._allocate_pool(decision.hint)
            return self._admitted() if denied is None else self._denied(denied, None)
        for container in self.wants.containers:
            self.affinity[container.name] = decision.hint
            denied = self._allocate(container)
            if denied is not None:
                return self._denied(denied, container.name)
        return self._admitted()

    def _ask(self, container: str | None, answer: Answer) -> Decision:
        providers = (Provider(MEMORY_MANAGER, answer), *self.attempt.others)
        decision = decide(self.rules.topology, providers)
        self.calls.append(Call(container, providers, decision))
        return decision

    def _managed(self) -> bool:
        return (
            self.rules.policy != "None"
            and self.attempt.operation == "add"
            and self.wants.guaranteed
            and not self.wants.unmanaged
        )

    def _container_answer(self, container: Wanted) -> Answer:
        if not self._managed() or not container.sizes:
            return None
        present = self.state.blocks(self.wants.uid, container.name)
        if present is not None:
            return _as_before(present, container.sizes)
        return self._offer(container.sizes)

    def _pod_answer(self) -> Answer:
        wants = self.wants
        # On Windows pods are not served as a whole.
        if not self._managed() or self.rules.policy == "BestEffort" or wants.total is None:
            return None
        if wants.pooled and pool_fault(wants) is not None:
            return dict.fromkeys(wants.total, ())
        if not wants.total:
            return None
        pool = self.state.pools.get(wants.uid)
        if pool is not None and not self.rules.as_kubelet:
            return _as_before(pool, wants.total)
        for container in wants.containers:
            present = self.state.blocks(wants.uid, container.name)
            if present is not None:
                return _as_before(present, wants.total)
        return self._offer(wants.total)

    def _offer(self, sizes: Sizes) -> Answer:
        offer = offer_of(self.state.nodes, sizes, self.leftovers.of(self.wants.uid), self.effort)
        # Nothing that fits is an empty answer, which the merge takes for "any node will do".
        return dict.fromkeys(sizes, offer) if offer else {}

    def _allocate(self, container: Wanted) -> Denied | None:
        if not self._managed():
            return None
        hint = self.affinity.get(container.name, UNSET)
        followed = self.attempt.cpu_nodes.get(container.name, ())
        follows = self.rules.policy == "BestEffort" and bool(followed)
        if follows:
            hint = Hint(mask_of(followed), hint.preferred)
        done = allocate(
            self.state,
            self.leftovers,
            self.wants,
            container,
            hint,
            extend=not follows,
            effort=self.effort,
        )
        if isinstance(done, Denied):
            return done
        self.state, self.leftovers = done
        return None

    def _allocate_pool(self, hint: Hint) -> Denied | None:
        if not self._managed() or self.rules.policy == "BestEffort":
            return None
        if self.wants.uid in self.state.pools and not self.rules.as_kubelet:
            return None
        done = allocate_pool(self.state, self.wants, hint, self.effort)
        if isinstance(done, Denied):
            return done
        self.state = done
        return None

    def _admitted(self) -> Admitted:
        return Admitted(
            tuple(self.calls),
            self.affinity,
            self.state.assignments.get(self.wants.uid, {}),
            self.rules.policy != "None" and is_unaligned(self.wants),
            self.effort.gave_up,
        )

    def _misaligned(
        self, decision: Decision, container: str | None, sizes: Sizes | None
    ) -> Refused:
        return Refused(
            "TopologyAffinityError",
            tuple(self.calls),
            self.affinity,
            container,
            sizes or {},
            obstruction=decision.obstruction,
            gave_up=self.effort.gave_up,
        )

    def _denied(self, denied: Denied, container: str | None) -> Refused:
        # Whatever keeps a pool from being shared out, the kubelet calls it empty.
        of_pool = container is None and denied.cause in ("empty_pool", "not_an_integer")
        return Refused(
            "EmptyPodSharedPoolError" if of_pool else "UnexpectedAdmissionError",
            tuple(self.calls),
            self.affinity,
            container,
            denied.sizes,
            denied.cause,
            denied.resource,
            denied.nodes,
            gave_up=self.effort.gave_up,
        )


def _as_before(blocks: Blocks, sizes: Sizes) -> Mapping[str, Hints] | None:
    """Hints for memory that is assigned already; none if it is not what is wanted now."""
    if {block.type: block.size for block in blocks} != sizes or len(blocks) != len(sizes):
        return None
    return {block.type: (Hint(mask_of(block.nodes), True),) for block in blocks}
