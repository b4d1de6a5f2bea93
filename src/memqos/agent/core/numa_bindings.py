"""Which NUMA nodes containers are to be bound to: what is assigned of a node, pod by pod."""

from collections.abc import Iterable
from typing import TYPE_CHECKING, Literal

from memqos.agent.core.numa_assigners import (
    AgentAssigner,
    Assignments,
    KubeletAssigner,
    NumaAssigner,
    ObservedPod,
)
from memqos.agent.core.observed import Checkpoint, ObservedCgroups
from memqos.agent.core.pod_intent import IntentPlanner, Notice, PodIntent
from memqos.agent.core.report import Report
from memqos.converge.numa_assignment import NO_CPUSET, is_unbound, nodes_fault
from memqos.converge.values import bound_nodes, container_files, node_permit
from memqos.errors import InputError
from memqos.numa.checkpoint import load_checkpoint
from memqos.plan.cpuset import MEMS, bound_to
from memqos.plan.names import inner
from memqos.plan.tree import Cgroup, cgroup_uid, pod_cgroups

if TYPE_CHECKING:
    from memqos.agent.core.node_intent import NodeIntent


_FaultKind = Literal["state", "nodes", "cpuset"]


class NumaBindings:
    """What is assigned to the pods of a node, by the paths of their cgroups."""

    def __init__(
        self,
        planner: IntentPlanner,
        cgroups: ObservedCgroups,
        report: Report,
        assigner: NumaAssigner,
    ) -> None:
        self.assigner = assigner
        self.assignments: dict[str, Assignments] = {}
        self.notices: dict[str, tuple[Notice, ...]] = {}
        """Why containers of a pod are left alone."""
        self.faults: dict[_FaultKind, str] = {}
        """What keeps containers from being bound, or from being bound as the kubelet says now."""
        node_settings = planner.node_settings
        self._names = planner.names
        self._nodes = () if node_settings.numa is None else node_settings.numa.ids
        parts = self._names.kubepods.split("/")
        self.ancestors = tuple(["/".join(parts[:depth]) for depth in range(2, len(parts))])
        """The cgroups above kubepods: what they are bound to counts below."""
        self._observed = cgroups
        self._report = report
        self._pods: dict[str, ObservedPod] = {}
        self._removed: list[str] = []
        self._can_bind: bool | None = None
        self._last_checkpoint: Checkpoint | None = None

    # Events.

    def accept_checkpoint(self, checkpoint: Checkpoint) -> frozenset[str]:
        """Take in the kubelet's state, if it is another one; the pods to which it matters."""
        if checkpoint is self._last_checkpoint:
            return frozenset()
        self._last_checkpoint = checkpoint
        try:
            text = checkpoint.text
            state = None if text is None else load_checkpoint(text, checkpoint.name).state
        except InputError as error:
            self._set_fault("state", f"{error}: the previous state stays in use")
            return frozenset()
        self._set_fault("state", self.assigner.accept_state(state))
        return frozenset([path for path in list(self._pods) if self._assign(path)])

    def forget_pod(self, pod: str) -> None:
        """The cgroup of a pod was removed, and what it was assigned is free."""
        observed = self._pods.pop(pod, None)
        if observed is not None:
            self._removed.append(observed.uid)
        self.assignments.pop(pod, None)
        self.notices.pop(pod, None)

    def update(self, pods: Iterable[str], node_intent: "NodeIntent") -> frozenset[str]:
        """Take in pods that were looked at; the others that are assigned something else by that."""
        here = {
            path: found for path in pods if (found := self._observe(path, node_intent)) is not None
        }
        self._pods |= here
        self._set_fault("cpuset", NO_CPUSET if self._can_bind is False else None)
        removed, self._removed = self._removed, []
        names = self._names
        above = self._observed.files_of([*self.ancestors, names.kubepods])
        # The trailing "/" asks for what its children may use: its own cpuset.mems counts.
        usable = node_permit(f"{names.kubepods}/", above, self._nodes).nodes
        try:
            concerned = self.assigner.update(here.values(), removed, usable)
            self._set_fault("nodes", None)
        except InputError as error:
            self._set_fault("nodes", str(error))
            concerned = set()
        others = [
            path for path, each in self._pods.items() if each.uid in concerned and path not in here
        ]
        for path in here:
            self._assign(path)
        return frozenset([path for path in others if self._assign(path)])

    # Bindings.

    def apply_to(self, pod: str, cgroups: tuple[Cgroup, ...]) -> tuple[Cgroup, ...]:
        """A pod's cgroups, its containers bound as assigned."""
        assigned = self.assignments.get(pod)
        if not assigned:
            return cgroups
        found = [(each, assigned.get(each.container or "")) for each in cgroups]
        return tuple([each if own is None else bound_to(each, own) for each, own in found])

    def _observe(self, path: str, node_intent: "NodeIntent") -> ObservedPod | None:
        """A pod that has containers, or had some: between two starts it keeps what it holds."""
        intent = node_intent.by_path.get(path)
        uid = None if intent is None else cgroup_uid(intent.pod)
        if intent is None or uid is None or path not in self._observed.pods:
            return None
        bound = dict(self._bound_containers(intent))
        if not bound and path not in self._pods:
            return None
        return ObservedPod(uid, intent, bound, node_intent.uses_plan(intent))

    def _bound_containers(self, intent: PodIntent) -> Iterable[tuple[str, frozenset[int]]]:
        cgroups: Iterable[object] = intent.cgroups
        if intent.mode is None and intent.plan is not None:
            cgroups = pod_cgroups(intent.pod, intent.plan, self._names)
        for each in cgroups:
            if isinstance(each, Cgroup) and each.container is not None:
                files_by_path = self._observed.files_of([each.path, inner(each.path)])
                files = container_files(each.path, files_by_path)
                if files is not None:
                    self._can_bind = MEMS in files
                    yield each.container, bound_nodes(files)

    def _assign(self, path: str) -> bool:
        """Note what is assigned to a pod, but for what those above it lack; whether it is new."""
        pod = self._pods[path]
        intent = pod.intent
        answer = self.assigner.assignment_of_pod(pod)
        above = self._observed.files_of([*self.ancestors, *self._names.levels, path])
        paths = {each.container: each.path for each in intent.cgroups}
        notices = [] if answer.notice is None else [answer.notice]
        assigned = dict(answer.assignments)
        for container, assignment in answer.assignments.items():
            why = nodes_fault(assignment, paths[container], above, self._nodes)
            bound = pod.bound.get(container, frozenset())
            if not assignment.nodes and is_unbound(bound, paths[container], above, self._nodes):
                del assigned[container]
            elif why is not None:
                del assigned[container]
                notices.append(Notice("NumaBeyondParent", f"{container} {why}"))
        is_new = assigned != self.assignments.get(path)
        self.assignments[path] = assigned
        self.notices[path] = tuple(notices)
        return is_new

    def _set_fault(self, about: _FaultKind, fault: str | None) -> None:
        if fault is None:
            self.faults.pop(about, None)
        elif fault != self.faults.get(about):
            self._report.log_error("numa", fault)
            self.faults[about] = fault


def bindings_of(
    planner: IntentPlanner, cgroups: ObservedCgroups, report: Report, before: NumaBindings | None
) -> NumaBindings | None:
    """The bindings of a configuration; what was assigned or read before still counts."""
    numa = planner.configuration.numa
    if numa == "off":
        return None
    was = None if before is None else before.assigner
    assigner: NumaAssigner
    if numa == "allocate":
        assigner = AgentAssigner(
            planner.node_settings, was if isinstance(was, AgentAssigner) else None
        )
    else:
        assigner = KubeletAssigner(
            planner.node_settings, was.state if isinstance(was, KubeletAssigner) else None
        )
    return NumaBindings(planner, cgroups, report, assigner)
