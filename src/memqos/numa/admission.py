"""Admission: collect hints from the providers, merge them, allocate from the result."""

from collections.abc import Mapping
from typing import Literal

import msgspec

from memqos.numa.allocation import (
    AllocationCause,
    AllocationFailure,
    ReusableMemory,
    allocate_container,
    allocate_pool,
    pool_fault,
)
from memqos.numa.hints import Hint, HintProvider, Hints, ProviderHints, memory_hint_set
from memqos.numa.machine_state import MemoryBlocks, MemoryManagerState, MemorySizes
from memqos.numa.masks import SearchEffort, mask_of
from memqos.numa.requests import ContainerMemoryRequest, PodMemoryRequest, is_unaligned
from memqos.numa.topology_manager import (
    Obstruction,
    TopologyDecision,
    TopologySettings,
    decide_affinity,
)

MemoryPolicy = Literal["None", "Static", "BestEffort"]
AdmissionOperation = Literal["add", "resize"]
PodRefusal = Literal["TopologyAffinityError", "UnexpectedAdmissionError", "EmptyPodSharedPoolError"]

MEMORY_MANAGER = "memorymanager"
UNSET_HINT = Hint(None, False)


class HintRound(msgspec.Struct, frozen=True):
    """One round of hints: for a container, or with None for the pod as a whole."""

    container: str | None
    providers: tuple[HintProvider, ...]
    decision: TopologyDecision


class AdmittedPod(msgspec.Struct, frozen=True):
    """A pod the kubelet runs, and the blocks of each of its containers."""

    calls: tuple[HintRound, ...]
    affinity: Mapping[str, Hint]
    blocks: Mapping[str, MemoryBlocks]
    unaligned: bool = False
    """Whether its pod-level resources are ignored, though it is Guaranteed."""
    gave_up: bool = False
    """Whether a search ended early, so that there may be better nodes."""


class RefusedPod(msgspec.Struct, frozen=True, kw_only=True):
    """A pod the kubelet refuses, with all that led to it.

    `obstruction` is why the policy refused the merged hint, `cause` why an allocation failed: one
    of them is set. `nodes` are those to allocate from; None means any.
    """

    reason: PodRefusal
    calls: tuple[HintRound, ...]
    affinity: Mapping[str, Hint]
    container: str | None
    sizes: MemorySizes
    cause: AllocationCause | None = None
    resource: str | None = None
    nodes: tuple[int, ...] | None = None
    obstruction: Obstruction | None = None
    gave_up: bool = False
    """Whether a search ended early, so that there may be nodes after all."""


AdmissionOutcome = AdmittedPod | RefusedPod


class AdmissionRules(msgspec.Struct, frozen=True):
    """The rules by which the managers of a kubelet admit.

    `as_kubelet` repeats an upstream bug when a pod is admitted again, as after a restart:
    a pool is taken a second time.
    """

    policy: MemoryPolicy
    topology: TopologySettings
    as_kubelet: bool = False


class AdmissionAttempt(msgspec.Struct, frozen=True):
    """One pod to admit; `other_providers` have the hints of others in every call.

    `cpu_nodes` are the nodes of containers' exclusive CPUs, which BestEffort follows on Windows.
    """

    request: PodMemoryRequest
    operation: AdmissionOperation = "add"
    other_providers: tuple[HintProvider, ...] = ()
    cpu_nodes: Mapping[str, tuple[int, ...]] = {}


def admit_pod(
    rules: AdmissionRules,
    state: MemoryManagerState,
    reusable: ReusableMemory,
    attempt: AdmissionAttempt,
) -> tuple[MemoryManagerState, ReusableMemory, AdmissionOutcome]:
    """Admit a pod or refuse it; a refused pod keeps what was allocated until then."""
    admission = _Admission(rules, state, reusable, attempt)
    outcome = admission.run()
    return admission.state, admission.reusable, outcome


class _Admission:
    """One admission under way."""

    def __init__(
        self,
        rules: AdmissionRules,
        state: MemoryManagerState,
        leftovers: ReusableMemory,
        attempt: AdmissionAttempt,
    ) -> None:
        self.rules = rules
        self.state = state
        self.reusable = leftovers
        self.attempt = attempt
        self.request = attempt.request
        self.calls: list[HintRound] = []
        self.affinity: dict[str, Hint] = {}
        self.effort = SearchEffort()

    def run(self) -> AdmissionOutcome:
        scope = self.rules.topology.scope
        if scope == "pod":
            return self._run_pod_scope()
        for container in self.request.containers:
            if scope == "container":
                decision = self._decide(container.name, self._container_hints(container))
                if not decision.admit:
                    return self._refuse_misaligned(decision, container.name, container.sizes)
                self.affinity[container.name] = decision.hint
            denied = self._allocate(container)
            if denied is not None:
                return self._refuse_allocation(denied, container.name)
        return self._admit()

    def _run_pod_scope(self) -> AdmissionOutcome:
        decision = self._decide(None, self._pod_hints())
        if not decision.admit:
            return self._refuse_misaligned(decision, None, self.request.total)
        if self.request.pooled:
            self.affinity = {container.name: decision.hint for container in self.request.containers}
            denied = self._allocate_pool(decision.hint)
            return self._admit() if denied is None else self._refuse_allocation(denied, None)
        for container in self.request.containers:
            self.affinity[container.name] = decision.hint
            denied = self._allocate(container)
            if denied is not None:
                return self._refuse_allocation(denied, container.name)
        return self._admit()

    def _decide(self, container: str | None, answer: ProviderHints) -> TopologyDecision:
        providers = (HintProvider(MEMORY_MANAGER, answer), *self.attempt.other_providers)
        decision = decide_affinity(self.rules.topology, providers)
        self.calls.append(HintRound(container, providers, decision))
        return decision

    def _is_managed(self) -> bool:
        return (
            self.rules.policy != "None"
            and self.attempt.operation == "add"
            and self.request.guaranteed
            and not self.request.unmanaged
        )

    def _container_hints(self, container: ContainerMemoryRequest) -> ProviderHints:
        if not self._is_managed() or not container.sizes:
            return None
        present = self.state.blocks(self.request.uid, container.name)
        if present is not None:
            return _hints_of_blocks(present, container.sizes)
        return self._memory_hints(container.sizes)

    def _pod_hints(self) -> ProviderHints:
        request = self.request
        # The policy for Windows has no hints for a whole pod (policy_best_effort.go), nor has the
        # static one where a size is no int64 (policy_static.go, GetPodTopologyHints).
        if not self._is_managed() or self.rules.policy == "BestEffort" or request.total is None:
            return None
        if request.pooled and pool_fault(request) is not None:
            return dict.fromkeys(request.total, ())
        if not request.total:
            return None
        # A kubelet does not look for the pool of an earlier run: GetPodTopologyHints() goes by the
        # blocks of the first container, and AllocatePod() allocates again (policy_static.go).
        pool = self.state.pools.get(request.uid)
        if pool is not None and not self.rules.as_kubelet:
            return _hints_of_blocks(pool, request.total)
        for container in request.containers:
            present = self.state.blocks(request.uid, container.name)
            if present is not None:
                return _hints_of_blocks(present, request.total)
        return self._memory_hints(request.total)

    def _memory_hints(self, sizes: MemorySizes) -> ProviderHints:
        offer = memory_hint_set(
            self.state.nodes, sizes, self.reusable.for_pod(self.request.uid), self.effort
        )
        # calculateHints() returns an empty map where nothing fits, and filterProvidersHints()
        # (topologymanager/policy.go) reads that as "any node, preferred".
        return dict.fromkeys(sizes, offer) if offer else {}

    def _allocate(self, container: ContainerMemoryRequest) -> AllocationFailure | None:
        if not self._is_managed():
            return None
        hint = self.affinity.get(container.name, UNSET_HINT)
        followed = self.attempt.cpu_nodes.get(container.name, ())
        follows = self.rules.policy == "BestEffort" and bool(followed)
        if follows:
            hint = Hint(mask_of(followed), hint.preferred)
        done = allocate_container(
            self.state,
            self.reusable,
            self.request,
            container,
            hint,
            extend=not follows,
            effort=self.effort,
        )
        if isinstance(done, AllocationFailure):
            return done
        self.state, self.reusable = done
        return None

    def _allocate_pool(self, hint: Hint) -> AllocationFailure | None:
        if not self._is_managed() or self.rules.policy == "BestEffort":
            return None
        if self.request.uid in self.state.pools and not self.rules.as_kubelet:
            return None
        done = allocate_pool(self.state, self.request, hint, self.effort)
        if isinstance(done, AllocationFailure):
            return done
        self.state = done
        return None

    def _admit(self) -> AdmittedPod:
        return AdmittedPod(
            tuple(self.calls),
            self.affinity,
            self.state.assignments.get(self.request.uid, {}),
            self.rules.policy != "None" and is_unaligned(self.request),
            self.effort.gave_up,
        )

    def _refuse_misaligned(
        self, decision: TopologyDecision, container: str | None, sizes: MemorySizes | None
    ) -> RefusedPod:
        return RefusedPod(
            reason="TopologyAffinityError",
            calls=tuple(self.calls),
            affinity=self.affinity,
            container=container,
            sizes=sizes or {},
            obstruction=decision.obstruction,
            gave_up=self.effort.gave_up,
        )

    def _refuse_allocation(self, denied: AllocationFailure, container: str | None) -> RefusedPod:
        # AllocatePod() (policy_static.go) reports every failure of validatePodScopeResources() as
        # an empty shared pool.
        of_pool = container is None and denied.cause in ("empty_pool", "not_an_integer")
        return RefusedPod(
            reason="EmptyPodSharedPoolError" if of_pool else "UnexpectedAdmissionError",
            calls=tuple(self.calls),
            affinity=self.affinity,
            container=container,
            sizes=denied.sizes,
            cause=denied.cause,
            resource=denied.resource,
            nodes=denied.nodes,
            gave_up=self.effort.gave_up,
        )


def _hints_of_blocks(blocks: MemoryBlocks, sizes: MemorySizes) -> Mapping[str, Hints] | None:
    """Hints for memory that is assigned already; none if the sizes requested differ."""
    if {block.type: block.size for block in blocks} != sizes or len(blocks) != len(sizes):
        return None
    return {block.type: (Hint(mask_of(block.nodes), True),) for block in blocks}
