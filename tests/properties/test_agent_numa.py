"""Whatever pods come, change and go: NUMA memory is given out once, kept, and given back."""

import contextlib
from typing import Any, Final

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)
from tests.builders import stanza
from tests.fakes.agent import MI, NUMA_NODES, SteppedNode, a_pod, container_paths, pod_path
from tests.fakes.node import memory_folder

from memqos.agent.configuration import FightConfig
from memqos.converge.node_plan import PLAN_FILES, NodePlan, PlanOptions, plan_observation
from memqos.converge.observation import observe_live
from memqos.kernel.file_formats import node_list
from memqos.numa.machine_state import MemoryBlocks, MemoryManagerState
from memqos.numa.topology_manager import TOPOLOGY_POLICY_NAMES

MEMS: Final = "cpuset.mems"
GATES: Final = {"PodLevelResourceManagers": True}
TO_GIVE: Final = 999 * MI
"""Of each node."""

sizes = st.sampled_from([300, 450, 600, 900, 1500])
at_once = st.booleans()
kinds = st.sampled_from(["full", "full", "full", "pooled", "burstable"])


class Node(RuleBasedStateMachine):
    """Beside the node: what others last wrote to each container's cpuset.mems."""

    def __init__(self) -> None:
        super().__init__()
        self._folder = memory_folder()
        self.running: dict[str, dict[str, Any]] = {}
        self.theirs: dict[str, str] = {}
        self.unnoticed: dict[str, tuple[float, str, str]] = {}
        """Path → when it was first changed, and what it and `theirs` were before."""
        self.born = 0

    @initialize(
        policy=st.sampled_from(TOPOLOGY_POLICY_NAMES), scope=st.sampled_from(["container", "pod"])
    )
    def begin(self, policy: str, scope: str) -> None:
        kubelet = f"topologyManagerPolicy: {policy}\ntopologyManagerScope: {scope}\n"
        self.bed = SteppedNode(self._folder.__enter__(), kubelet, **self.options())
        self.bed.settle()

    def options(self) -> dict[str, Any]:
        return {"numa": "allocate", "gates": GATES, "fight": FightConfig(times=10_000)}

    def state(self) -> MemoryManagerState:
        assert self.bed.core.bindings is not None
        found = self.bed.core.bindings.assigner.state
        assert found is not None
        return found

    # Pods.

    def made(self, uid: str, kind: str, size: int, created: str) -> dict[str, Any]:
        if kind == "burstable":
            return a_pod(uid, size, size + 1, containers=("a", "b"), created=created)
        pod = a_pod(uid, size, size, containers=("a", "b"), created=created)
        if kind == "pooled":
            pod["spec"]["resources"] = stanza(f"{size + 100}Mi", f"{size + 100}Mi", cpu=("4", "4"))
            del pod["spec"]["containers"][1]["resources"]
        return pod

    def some_pod(self, data: st.DataObject) -> str:
        return data.draw(st.sampled_from(sorted(self.running)))

    @rule(kind=kinds, size=sizes, mems=st.sampled_from(["", "", "1", "2", "0-1"]), at_once=at_once)
    def run(self, kind: str, size: int, mems: str, at_once: bool) -> None:
        """A pod starts; somebody may have bound its first container."""
        self.born += 1
        uid = f"u{self.born}"
        pod = self.running[uid] = self.made(uid, kind, size, f"{self.born:04}")
        self.bed.run_pod(pod)
        for path in container_paths(pod):
            self.theirs[path] = ""
        first = container_paths(pod)[0]
        self.bed.kernel.set(first, MEMS, mems)
        self.theirs[first] = mems
        self.later(at_once)

    @precondition(lambda self: self.running)
    @rule(data=st.data(), noticed=st.booleans(), at_once=at_once)
    def end(self, data: st.DataObject, noticed: bool, at_once: bool) -> None:
        uid = self.some_pod(data)
        pod = self.running.pop(uid)
        for path in container_paths(pod):
            del self.theirs[path]
        if noticed:
            self.bed.end_pod(pod)
        else:
            self.bed.kernel.remove(pod_path(pod))
            self.bed.pods.manifests.pop(uid)
        self.later(at_once)

    @precondition(lambda self: self.running)
    @rule(data=st.data(), size=sizes, at_once=at_once)
    def resize(self, data: st.DataObject, size: int, at_once: bool) -> None:
        uid = self.some_pod(data)
        pod = self.running[uid]
        if "burstable" in pod_path(pod):
            return
        kind = "pooled" if "resources" in pod["spec"] else "full"
        created = pod["metadata"]["creationTimestamp"]
        self.running[uid] = self.bed.pods.manifests[uid] = self.made(uid, kind, size, created)
        self.later(at_once)

    @precondition(lambda self: self.running)
    @rule(data=st.data(), mems=st.sampled_from(["", "0", "3", "1-2"]))
    def external_write(self, data: st.DataObject, mems: str) -> None:
        path = data.draw(st.sampled_from(sorted(self.theirs)))
        current = self.bed.read(path, MEMS)
        if current == mems:
            return
        if self.unnoticed.get(path, (None,))[0] != self.bed.now:
            self.unnoticed[path] = self.bed.now, current, self.theirs[path]
        _, noticed, original = self.unnoticed[path]
        self.bed.kernel.set(path, MEMS, mems)
        # A value that is back before the agent has looked again was never changed, to the agent.
        self.theirs[path] = original if mems == noticed else mems

    # Time, and the end of agents.

    def later(self, at_once: bool) -> None:
        """Go on at once, or when all that is due has been done."""
        if not at_once:
            self.bed.wait(70)

    @rule(seconds=st.sampled_from([0.3, 6]))
    def wait(self, seconds: float) -> None:
        self.bed.wait(seconds)

    @precondition(lambda self: self.running)
    @rule()
    def start_again(self) -> None:
        """What is bound once all is written stays so, and is counted as before."""
        self.bed.wait(130)
        before, bound = self.held(), self.bound()
        self.bed.crash()
        self.bed.start(**self.options())
        self.bed.wait(130)
        if self.is_clear():
            assert self.bound() == bound
            assert self.held() == before

    def is_clear(self) -> bool:
        """Whether nobody is bound for whom there is no room: who comes first then counts."""
        return not any(
            self.bed.read(path, MEMS)
            for uid, pod in self.running.items()
            if self.is_refused(uid)
            for path in container_paths(pod)
        )

    @invariant()
    def gives_out_no_more_than_there_is(self) -> None:
        if not hasattr(self, "bed"):
            return
        state = self.state()
        assert len(state.nodes) == NUMA_NODES
        for node in state.nodes.values():
            table = node.table("memory")
            assert table.allocatable == TO_GIVE
            assert 0 <= table.free == table.allocatable - table.reserved
        reserved = sum(node.table("memory").reserved for node in state.nodes.values())
        assert reserved == sum(block.size for blocks in holdings(state) for block in blocks)

    def held(self) -> dict[int, int]:
        """What is taken of each group of nodes."""
        found: dict[int, int] = {}
        for blocks in holdings(self.state()):
            for block in blocks:
                for node in block.nodes:
                    found[node] = found.get(node, 0) + block.size
        return found

    def bound(self) -> dict[str, str]:
        return {path: self.bed.read(path, MEMS) for path in self.theirs}

    # The end.

    def teardown(self) -> None:
        try:
            if hasattr(self, "bed"):
                self.bed.wait(130)
                self.is_as_assigned()
                self.is_as_planned_from_scratch()
                self.bed.roll_back()
                assert self.bound() == self.theirs
                self.leaves_nothing_behind()
        finally:
            with contextlib.suppress(AttributeError):
                self.bed.crash()
            self._folder.__exit__(None, None, None)

    def is_as_assigned(self) -> None:
        for uid, pod in self.running.items():
            if self.is_refused(uid):
                continue
            for container, path in zip(("a", "b"), container_paths(pod), strict=True):
                held = self.state().container_nodes(uid, container)
                assert self.bed.read(path, MEMS) == node_list(held)
                self.holds_what_it_wants(uid, pod, container)

    def holds_what_it_wants(self, uid: str, pod: dict[str, Any], container: str) -> None:
        """No more and no less, after whatever resizes."""
        wanted = {
            each["name"]: each["resources"]["requests"]["memory"]
            for each in pod["spec"]["containers"]
            if "cpu" in each.get("resources", {}).get("limits", {})
        }
        if container in wanted:
            blocks = self.state().blocks(uid, container) or ()
            assert [f"{block.size // MI}Mi" for block in blocks] == [wanted[container]]

    def is_as_planned_from_scratch(self) -> None:
        """`memqos plan --numa allocate` finds nothing to change, and refuses the same pods."""
        if not self.is_clear():
            return
        plan = self.planned()
        assert [change for change in plan.comparison.changes if change.file == MEMS] == []
        refused = {f"default/{uid}" for uid in self.running if self.is_refused(uid)}
        noted = {note.partition(":")[0] for note in plan.notes if "not changed" in note}
        assert noted == refused

    def is_refused(self, uid: str) -> bool:
        bindings = self.bed.core.bindings
        assert bindings is not None
        return bool(bindings.notices.get(pod_path(self.running[uid])))

    def planned(self) -> NodePlan:
        observation = observe_live(
            self.bed.pods, PLAN_FILES, below=("/kubepods",), roots=self.bed.reader.roots
        )
        return plan_observation(
            observation, PlanOptions(release="1.38", gates=GATES, numa="allocate")
        )

    def leaves_nothing_behind(self) -> None:
        for pod in self.running.values():
            self.bed.end_pod(pod)
        self.bed.wait(70)
        state = self.state()
        assert not state.assignments
        assert not state.pools
        for number, node in state.nodes.items():
            assert (node.assignments, node.cells) == (0, (number,))
            assert node.table("memory").free == TO_GIVE


def holdings(state: MemoryManagerState) -> list[MemoryBlocks]:
    """Of pools and of containers; those of a pool hold parts of it."""
    found = list(state.pools.values())
    for uid, containers in state.assignments.items():
        if uid not in state.pools:
            found += containers.values()
    return found


Node.TestCase.settings = settings(
    max_examples=30,
    stateful_step_count=20,
)
TestANodeWithNumaNodes = Node.TestCase
