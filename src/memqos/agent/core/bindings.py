"""Which NUMA nodes containers are to be bound to: what is assigned to a node, told pod by pod."""

from collections.abc import Iterable
from typing import TYPE_CHECKING, Final, Literal

from memqos.agent.core.assigners import (
    Allotting,
    Assigner,
    Assignments,
    Following,
    Standing,
)
from memqos.agent.core.notices import Notice
from memqos.agent.core.observed import Cgroups, Checkpoint
from memqos.agent.core.pod_intent import Desires, Wish
from memqos.agent.tally import Tally
from memqos.converge.assigning import beyond, is_free
from memqos.converge.cpusets import bound_nodes, container_files, permitted
from memqos.errors import InputError
from memqos.numa.unreadable import loaded_from
from memqos.plan.cpuset import MEMS, bound_to
from memqos.plan.names import inner
from memqos.plan.tree import Cgroup, cgroup_uid, pod_cgroups

if TYPE_CHECKING:
    from memqos.agent.core.node_intent import Aims


_About = Literal["state", "nodes", "cpuset"]
_NO_CPUSET: Final = f"no container has a {MEMS}: the cpuset controller is not enabled for them"


class Bindings:
    """What is assigned to the pods of a node, by the paths of their cgroups."""

    def __init__(
        self, desires: Desires, cgroups: Cgroups, tally: Tally, assigner: Assigner
    ) -> None:
        self.assigner = assigner
        self.assigned: dict[str, Assignments] = {}
        self.notices: dict[str, tuple[Notice, ...]] = {}
        """Why containers of a pod are left alone."""
        self.faults: dict[_About, str] = {}
        """What keeps containers from being bound, or from being bound as the kubelet says now."""
        ground = desires.ground
        self._names = ground.names
        self._nodes = () if ground.numa is None else ground.numa.ids
        parts = self._names.kubepods.split("/")
        self.above = tuple(["/".join(parts[:depth]) for depth in range(2, len(parts))])
        """The cgroups above kubepods: what they are bound to counts below."""
        self._cgroups = cgroups
        self._tally = tally
        self._standing: dict[str, Standing] = {}
        self._gone: list[str] = []
        self._can_bind: bool | None = None
        self._read: Checkpoint | None = None

    # What happens.

    def heard(self, checkpoint: Checkpoint) -> frozenset[str]:
        """Take in the kubelet's state, if it is another one; the pods to which it matters."""
        if checkpoint is self._read:
            return frozenset()
        self._read = checkpoint
        try:
            text = checkpoint.text
            state = None if text is None else loaded_from(text, checkpoint.name).state
        except InputError as error:
            self._fault("state", f"{error}: what it said before still counts")
            return frozenset()
        self._fault("state", self.assigner.told(state))
        return frozenset([path for path in list(self._standing) if self._assign(path)])

    def vanished(self, pod: str) -> None:
        """The cgroup of a pod is gone, and what it held with it."""
        standing = self._standing.pop(pod, None)
        if standing is not None:
            self._gone.append(standing.uid)
        self.assigned.pop(pod, None)
        self.notices.pop(pod, None)

    def update(self, pods: Iterable[str], aims: "Aims") -> frozenset[str]:
        """Take in pods that were looked at; the others that are assigned something else by that."""
        here = {path: found for path in pods if (found := self._seen(path, aims)) is not None}
        self._standing |= here
        self._fault("cpuset", _NO_CPUSET if self._can_bind is False else None)
        gone, self._gone = self._gone, []
        names = self._names
        above = self._cgroups.contents([*self.above, names.kubepods])
        # Permitted to those below it, so its own binding counts.
        usable = permitted(f"{names.kubepods}/", above, self._nodes).nodes
        try:
            concerned = self.assigner.take(here.values(), gone, usable)
            self._fault("nodes", None)
        except InputError as error:
            self._fault("nodes", str(error))
            concerned = set()
        others = [
            path
            for path, each in self._standing.items()
            if each.uid in concerned and path not in here
        ]
        for path in here:
            self._assign(path)
        return frozenset([path for path in others if self._assign(path)])

    # What follows.

    def applied(self, pod: str, cgroups: tuple[Cgroup, ...]) -> tuple[Cgroup, ...]:
        """A pod's cgroups, its containers bound as assigned."""
        assigned = self.assigned.get(pod)
        if not assigned:
            return cgroups
        found = [(each, assigned.get(each.container or "")) for each in cgroups]
        return tuple([each if own is None else bound_to(each, own) for each, own in found])

    def _seen(self, path: str, aims: "Aims") -> Standing | None:
        """A pod that has containers, or had some: between two starts it keeps what it holds."""
        wish = aims.by_path.get(path)
        uid = None if wish is None else cgroup_uid(wish.pod)
        if wish is None or uid is None or path not in self._cgroups.pods:
            return None
        bound = dict(self._bound(wish))
        if not bound and path not in self._standing:
            return None
        return Standing(uid, wish, bound, aims.decides(wish))

    def _bound(self, wish: Wish) -> Iterable[tuple[str, frozenset[int]]]:
        cgroups: Iterable[object] = wish.cgroups
        if wish.mode is None and wish.plan is not None:
            cgroups = pod_cgroups(wish.pod, wish.plan, self._names)
        for each in cgroups:
            if isinstance(each, Cgroup) and each.container is not None:
                there = self._cgroups.contents([each.path, inner(each.path)])
                files = container_files(each.path, there)
                if files is not None:
                    self._can_bind = MEMS in files
                    yield each.container, bound_nodes(files)

    def _assign(self, path: str) -> bool:
        """Note what is assigned to a pod, but for what those above it lack; whether it is new."""
        standing = self._standing[path]
        wish = standing.wish
        answer = self.assigner.of(standing)
        above = self._cgroups.contents([*self.above, *self._names.levels, path])
        paths = {each.container: each.path for each in wish.cgroups}
        notices = [] if answer.notice is None else [answer.notice]
        assigned = dict(answer.assignments)
        for container, assignment in answer.assignments.items():
            why = beyond(assignment, paths[container], above, self._nodes)
            bound = standing.bound.get(container, frozenset())
            if not assignment.nodes and is_free(bound, paths[container], above, self._nodes):
                del assigned[container]
            elif why is not None:
                del assigned[container]
                notices.append(Notice("NumaBeyondParent", f"{container} {why}"))
        is_new = assigned != self.assigned.get(path)
        self.assigned[path] = assigned
        self.notices[path] = tuple(notices)
        return is_new

    def _fault(self, about: _About, fault: str | None) -> None:
        if fault is None:
            self.faults.pop(about, None)
        elif fault != self.faults.get(about):
            self._tally.fail("numa", fault)
            self.faults[about] = fault


def bindings_of(
    desires: Desires, cgroups: Cgroups, tally: Tally, before: Bindings | None
) -> Bindings | None:
    """What a configuration asks for; what was given out or read before stays in force."""
    numa = desires.configuration.numa
    if numa == "off":
        return None
    was = None if before is None else before.assigner
    assigner: Assigner
    if numa == "allocate":
        assigner = Allotting(desires.ground, was if isinstance(was, Allotting) else None)
    else:
        assigner = Following(desires.ground, was.state if isinstance(was, Following) else None)
    return Bindings(desires, cgroups, tally, assigner)
