"""An agent binds Guaranteed containers to NUMA nodes: as the kubelet says, or as it chooses."""

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import pytest
from tests.builders import stanza
from tests.fakes.agent import (
    KUBEPODS,
    LEVELS,
    MI,
    SteppedNode,
    a_pod,
    container_paths,
    numa_sys,
    pod_path,
    view_of,
)
from tests.fakes.machine import put
from tests.fakes.node import memory_folder

from memqos.agent.core.observed import NodeReading, ReadScope
from memqos.agent.core.report import Report
from memqos.agent.metrics import metric_families
from memqos.agent.state import agent_state
from memqos.converge.steps import StaleStep, WriteResult, WriteStep
from memqos.errors import InputError
from memqos.kube.selector import Selector
from memqos.numa.checkpoint import encode_checkpoint
from memqos.numa.machine_state import MemoryBlock, MemoryManagerState
from memqos.release import Release
from memqos.serve.exposition import exposition

MEMS: Final = "cpuset.mems"
RESTRICTED: Final = "topologyManagerPolicy: restricted\n"


@pytest.fixture
def folder() -> Iterator[Path]:
    with memory_folder() as made:
        yield made


@pytest.fixture
def bed(folder: Path) -> SteppedNode:
    """A node of four NUMA nodes with 999 Mi to give each, and nobody else who gives."""
    return SteppedNode(folder, RESTRICTED, numa="allocate")


def full(uid: str, size: int = 600, **given: Any) -> dict[str, Any]:
    return a_pod(uid, size, size, **given)


def bound(bed: SteppedNode, pod: dict[str, Any]) -> list[str]:
    return [bed.read(path, MEMS) for path in container_paths(pod)]


def checkpoint(bed: SteppedNode, **nodes: int) -> None:
    """The kubelet writes its state: container a of each pod holds memory of a node."""
    blocks = {
        uid: {"a": (MemoryBlock("memory", (node,), 600 * MI),)} for uid, node in nodes.items()
    }
    put_state(bed, encode_checkpoint(MemoryManagerState("Static", {}, blocks), Release.of("1.38")))


def put_state(bed: SteppedNode, text: str) -> None:
    file = bed.folder / "kubelet" / "memory_manager_state"
    fresh = file.with_suffix(".tmp")
    fresh.write_text(text)
    fresh.rename(file)


def free(bed: SteppedNode) -> dict[int, int]:
    """What the agent takes to be free, in Mi a node."""
    assert bed.core.bindings is not None
    found = bed.core.bindings.assigner.state
    assert found is not None
    return {i: node.table("memory").free // MI for i, node in found.nodes.items()}


def steps_of(bed: SteppedNode) -> list[list[tuple[str, str]]]:
    """What is written from now on, pass by pass."""
    passes: list[list[tuple[str, str]]] = []
    write_all = bed.writer.write

    def write_and_tell(
        steps: Sequence[WriteStep], report: Report
    ) -> tuple[list[WriteResult], list[StaleStep]]:
        passes.append([(step.change.path, step.change.file) for step in steps])
        return write_all(steps, report)

    bed.writer.write = write_and_tell  # type: ignore[method-assign]
    return passes


def report(bed: SteppedNode) -> dict[str, Any]:
    return agent_state(view_of(bed), bed.now)


def metrics(bed: SteppedNode) -> str:
    return exposition(metric_families(view_of(bed))).decode()


class TestWithoutBeingAsked:
    def test_nobody_is_bound_and_no_more_is_read(self, folder: Path) -> None:
        bed = SteppedNode(folder)
        pod = bed.run_pod(full("g1"))
        bed.kernel.set(container_paths(pod)[0], MEMS, "2")
        bed.wait(70)
        assert bound(bed, pod) == ["2"]
        assert MEMS not in bed.core.observed.by_path[container_paths(pod)[0]].files


class TestMemoryTheAgentGivesOut:
    def test_is_where_containers_are_bound(self, bed: SteppedNode) -> None:
        pods = [bed.run_pod(full(uid)) for uid in ("g1", "g2", "g3")]
        bed.settle()
        assert [bound(bed, pod) for pod in pods] == [["0"], ["1"], ["2"]]
        assert free(bed) == {0: 399, 1: 399, 2: 399, 3: 999}

    def test_is_given_to_guaranteed_pods_alone(self, bed: SteppedNode) -> None:
        pod = bed.run_pod(a_pod("u1", 64, 128))
        bed.kernel.set(container_paths(pod)[0], MEMS, "3")
        bed.settle()
        assert bound(bed, pod) == [""]

    def test_is_given_back_when_a_pod_ends(self, bed: SteppedNode) -> None:
        pods = [bed.run_pod(full(uid)) for uid in ("g1", "g2")]
        bed.settle()
        bed.end_pod(pods[0])
        bed.settle()
        assert free(bed) == {0: 999, 1: 399, 2: 999, 3: 999}
        bed.run_pod(full("g3"))
        bed.wait(1)
        assert free(bed) == {0: 399, 1: 399, 2: 999, 3: 999}

    def test_stays_a_pods_own_while_its_containers_start_again(self, bed: SteppedNode) -> None:
        pod = bed.run_pod(full("g1"))
        bed.settle()
        (old,) = container_paths(pod)
        bed.kernel.remove(old)
        bed.core.note_cgroup_removed(old, bed.now)
        other = bed.run_pod(full("g2", 999))
        bed.wait(1)
        assert bound(bed, other) == ["1"]
        again = full("g1")
        again["status"]["containerStatuses"] = [{"name": "a", "containerID": "containerd://new"}]
        bed.pods.manifests["g1"] = again
        (new,) = container_paths(again)
        bed.kernel.make(new)
        bed.core.note_cgroup_created(new, bed.now)
        bed.wait(1)
        assert bound(bed, again) == ["0"]

    def test_is_not_moved_by_other_pods_that_come_and_go(self, bed: SteppedNode) -> None:
        first = [bed.run_pod(full(uid)) for uid in ("g1", "g2", "g3", "g4")]
        bed.settle()
        bed.end_pod(first[0])
        bed.settle()
        kept = [bound(bed, pod) for pod in first[1:]]
        bed.run_pod(full("g5"))
        bed.wait(70)
        assert [bound(bed, pod) for pod in first[1:]] == kept == [["1"], ["2"], ["3"]]

    def test_is_written_and_read_for_the_pod_alone_that_an_event_is_about(
        self, bed: SteppedNode
    ) -> None:
        for uid in ("g1", "g2"):
            bed.run_pod(full(uid))
        bed.wait(3)
        read: list[str] = []
        steps = steps_of(bed)
        looked = bed.reader.read_cgroups

        def look(scope: ReadScope) -> NodeReading:
            read.extend(scope.subtrees)
            return looked(scope)

        bed.reader.read_cgroups = look  # type: ignore[method-assign]
        pod = bed.run_pod(full("g3"))
        bed.settle()
        assert set(read) == {pod_path(pod)}
        written = {path for taken in steps for path, _ in taken}
        assert written <= {*LEVELS, pod_path(pod), *container_paths(pod)}
        assert bound(bed, pod) == ["2"]

    def test_includes_huge_pages(self, folder: Path) -> None:
        bed = SteppedNode(folder, RESTRICTED, numa="allocate")
        put(folder / "sys", numa_sys(pages=8))
        bed.wait(70)
        pod = full("g1", 100)
        for amounts in pod["spec"]["containers"][0]["resources"].values():
            amounts["hugepages-2Mi"] = "8Mi"
        bed.run_pod(pod)
        bed.settle()
        assert bound(bed, pod) == ["3"]


class TestAPodThatDoesNotFit:
    def test_is_left_as_it_is_and_told_of_once(self, bed: SteppedNode) -> None:
        for uid in ("g1", "g2", "g3", "g4"):
            bed.run_pod(full(uid))
        late = bed.run_pod(full("late", 999, namespace="shop"))
        bed.kernel.set(container_paths(late)[0], MEMS, "1-2")
        bed.wait(130)
        assert bound(bed, late) == ["1-2"]
        (event,) = bed.log_events("not changed")
        assert event.fields == {"pod": "shop/late", "reason": "NumaRefused"}
        assert "requests memory 999Mi" in event.what
        assert 'namespace="shop",pod="late",reason="NumaRefused"} 1' in metrics(bed)
        (shown,) = [each for each in report(bed)["pods"] if each["pod"] == "shop/late"]
        assert shown["notices"][0]["reason"] == "NumaRefused"

    def test_is_let_in_when_others_have_gone(self, bed: SteppedNode) -> None:
        first = [bed.run_pod(full(uid)) for uid in ("g1", "g2", "g3", "g4")]
        late = bed.run_pod(full("late"))
        bed.wait(10)
        assert bound(bed, late) == [""]
        bed.end_pod(first[2])
        bed.settle()
        assert bound(bed, late) == ["2"]
        assert "NumaRefused" not in metrics(bed)


class TestAnAgentThatIsStartedAgain:
    def test_finds_what_it_gave_out_and_counts_it_once(self, bed: SteppedNode) -> None:
        pods = [bed.run_pod(full(uid)) for uid in ("g1", "g2", "g3", "g4")]
        bed.settle()
        bed.end_pod(pods[0])
        bed.settle()
        before, places = free(bed), [bound(bed, pod) for pod in pods[1:]]
        for _ in range(3):
            bed.crash()
            bed.start(numa="allocate")
            bed.settle()
            assert free(bed) == before
        # Counted twice, the pods that run would leave no room for one that just fits.
        for uid, size in (("n1", 999), ("n2", 399), ("n3", 399), ("n4", 399)):
            bed.run_pod(full(uid, size))
        bed.wait(1)
        assert free(bed) == {0: 0, 1: 0, 2: 0, 3: 0}
        assert [bound(bed, pod) for pod in pods[1:]] == places
        assert bed.log_events("not changed") == []

    @pytest.mark.parametrize("policy", ["restricted", "best-effort"])
    def test_counts_a_pod_with_resources_of_its_own_once(self, folder: Path, policy: str) -> None:
        options: dict[str, Any] = {
            "numa": "allocate",
            "gates": {"PodLevelResourceManagers": True},
        }
        kubelet = f"topologyManagerPolicy: {policy}\ntopologyManagerScope: pod\n"
        bed = SteppedNode(folder, kubelet, **options)
        pod = full("g1", 200, containers=("a", "b"))
        pod["spec"]["resources"] = stanza("600Mi", "600Mi", cpu=("4", "4"))
        pod["spec"]["containers"][1]["resources"] = {}
        bed.run_pod(pod)
        bed.settle()
        before = free(bed)
        assert (bound(bed, pod), before[0]) == (["0", "0"], 399)
        bed.crash()
        bed.start(**options)
        bed.wait(70)
        assert (bound(bed, pod), free(bed)) == (["0", "0"], before)
        assert bed.log_events("not changed") == []

    def test_does_not_write_what_is_in_place(self, bed: SteppedNode) -> None:
        bed.run_pod(full("g1"))
        bed.settle()
        bed.crash()
        bed.start(numa="allocate")
        steps = steps_of(bed)
        bed.wait(70)
        assert steps == []


class TestAPodThatChanges:
    def test_gives_back_what_its_init_containers_had(self, bed: SteppedNode) -> None:
        pod = full("g1", 300)
        amounts = {"memory": "900Mi", "cpu": "1"}
        pod["spec"]["initContainers"] = [
            {"name": "i", "image": "i", "resources": {"requests": amounts, "limits": amounts}}
        ]
        begun = json.loads(json.dumps(pod))
        begun["status"] = {
            "phase": "Pending",
            "initContainerStatuses": [{"name": "i", "containerID": "containerd://g1i"}],
            "containerStatuses": [],
        }
        bed.run_pod(begun)
        first = f"{pod_path(pod)}/g1i"
        bed.kernel.make(first)
        bed.core.note_cgroup_created(first, bed.now)
        bed.settle()
        assert (bed.read(first, MEMS), free(bed)[0]) == ("0", 99)
        bed.kernel.remove(first)
        bed.core.note_cgroup_removed(first, bed.now)
        bed.pods.manifests["g1"] = pod
        (own,) = container_paths(pod)
        bed.kernel.make(own)
        bed.core.note_cgroup_created(own, bed.now)
        bed.wait(1)
        assert (bound(bed, pod), free(bed)[0]) == (["0"], 699)

    def test_stays_on_its_node_when_it_is_resized_and_has_room_there(
        self, bed: SteppedNode
    ) -> None:
        bed.run_pod(full("g0", 300))
        pod = bed.run_pod(full("g1", 300))
        bed.settle()
        bed.end_pod(bed.pods.manifests["g0"])
        self.resize(bed, "g1", 800)
        assert (bound(bed, pod), free(bed)[0]) == (["0"], 199)

    def test_moves_when_it_is_resized_and_has_no_room_there(self, bed: SteppedNode) -> None:
        bed.run_pod(full("g0", 600))
        pod = bed.run_pod(full("g1", 300))
        bed.settle()
        assert bound(bed, pod) == ["0"]
        self.resize(bed, "g1", 800)
        assert (bound(bed, pod), free(bed)) == (["1"], {0: 399, 1: 199, 2: 999, 3: 999})

    def test_holds_nothing_when_it_is_resized_beyond_every_node(self, bed: SteppedNode) -> None:
        pod = bed.run_pod(full("g1", 300))
        others = [bed.run_pod(full(uid, 500)) for uid in ("g2", "g3", "g4", "g5")]
        bed.settle()
        self.resize(bed, "g1", 990)
        assert bound(bed, pod) == ["0"]
        assert len(bed.log_events("not changed")) == 1
        bed.end_pod(others[3])
        bed.settle()
        assert bound(bed, pod) == ["3"]

    def resize(self, bed: SteppedNode, uid: str, size: int) -> None:
        bed.pods.manifests[uid] = full(uid, size)
        bed.core.schedule.schedule_fetch(bed.now)
        bed.wait(1)


class TestPodsOfOthers:
    def test_hold_what_they_are_bound_to(self, folder: Path) -> None:
        mine = Selector(not_namespaces=("theirs",))
        bed = SteppedNode(folder, RESTRICTED, numa="allocate", select=mine)
        theirs = bed.run_pod(full("g1", namespace="theirs"))
        bed.kernel.set(container_paths(theirs)[0], MEMS, "0")
        pod = bed.run_pod(full("g2"))
        bed.settle()
        assert (bound(bed, theirs), bound(bed, pod)) == (["0"], ["1"])
        bed.kernel.set(container_paths(theirs)[0], MEMS, "")
        bed.wait(70)
        assert free(bed) == {0: 999, 1: 399, 2: 999, 3: 999}
        assert bound(bed, theirs) == [""]

    def test_that_are_only_observed_are_not_bound(self, folder: Path) -> None:
        canary = Selector(namespaces=("first",))
        bed = SteppedNode(folder, RESTRICTED, numa="allocate", canary=canary)
        observed = bed.run_pod(full("g1"))
        pod = bed.run_pod(full("g2", namespace="first"))
        bed.settle()
        assert (bound(bed, observed), bound(bed, pod)) == ([""], ["0"])


class TestAnAgentThatObserves:
    def test_binds_nobody_and_tells_what_it_would(self, folder: Path) -> None:
        bed = SteppedNode(folder, RESTRICTED, numa="allocate", mode="observe")
        pod = bed.run_pod(full("g1"))
        bed.settle()
        assert bound(bed, pod) == [""]
        (place,) = container_paths(pod)
        assert [(each.file, each.new) for each in bed.core.pending[place]][-1] == (MEMS, "0")


class TestABindingThatOthersChange:
    def test_is_put_back_and_counted(self, bed: SteppedNode) -> None:
        pod = bed.run_pod(full("g1"))
        bed.wait(10)
        bed.kernel.set(container_paths(pod)[0], MEMS, "2")
        bed.wait(70)
        assert bound(bed, pod) == ["0"]
        assert bed.core.report.drifts[MEMS, "unknown"] == 1

    def test_is_all_nodes_once_taken_back_where_there_are_processes(self, bed: SteppedNode) -> None:
        pod = bed.run_pod(full("g1"))
        self.start_processes(bed, pod)
        bed.settle()
        results = bed.roll_back().results
        assert bound(bed, pod) == ["0-3"]
        assert {result.outcome for result in results} == {"written"}
        assert bed.roll_back().results == ()

    def test_of_others_is_taken_away_as_far_as_processes_let_go(self, bed: SteppedNode) -> None:
        pod = bed.run_pod(a_pod("u1", 64, 128))
        self.start_processes(bed, pod)
        bed.kernel.set(container_paths(pod)[0], MEMS, "3")
        bed.wait(10)
        steps = steps_of(bed)
        bed.wait(130)
        assert bound(bed, pod) == ["0-3"]
        assert (steps, dict(bed.core.report.drifts)) == ([], {})

    def start_processes(self, bed: SteppedNode, pod: dict[str, Any]) -> None:
        bed.kernel.populated |= set(container_paths(pod))
        (bed.kernel.folder / pod_path(pod)[1:] / f"{MEMS}.effective").write_text("0-3\n")

    def test_is_not_what_a_reload_goes_by(self, bed: SteppedNode) -> None:
        pods = [bed.run_pod(full(uid)) for uid in ("g1", "g2", "g3")]
        bed.wait(10)
        bed.kernel.set(container_paths(pods[0])[0], MEMS, "2")
        bed.reload(resync=30.0)
        bed.wait(2)
        assert [bound(bed, pod) for pod in pods] == [["0"], ["1"], ["2"]]

    def test_is_no_drift_where_it_is_not_the_agents(self, bed: SteppedNode) -> None:
        late = bed.run_pod(full("late", 5000))
        bed.wait(10)
        bed.kernel.set(container_paths(late)[0], MEMS, "2")
        bed.wait(70)
        assert bound(bed, late) == ["2"]
        assert not bed.core.report.drifts

    def test_is_taken_back_with_everything_else(self, bed: SteppedNode) -> None:
        pod = full("g1")
        bed.run_pod(pod)
        bed.kernel.set(container_paths(pod)[0], MEMS, "3,1")
        bed.kernel.set(container_paths(pod)[0], MEMS, "1,3")
        bed.settle()
        assert bound(bed, pod) == ["0"]
        bed.roll_back()
        assert bound(bed, pod) == ["1,3"]


class TestThoseAbove:
    def test_leave_only_the_nodes_they_are_bound_to(self, bed: SteppedNode) -> None:
        bed.kernel.set(KUBEPODS, MEMS, "2-3")
        pods = [bed.run_pod(full(uid)) for uid in ("g1", "g2", "g3")]
        bed.settle()
        assert [bound(bed, pod) for pod in pods] == [["2"], ["3"], [""]]
        bed.kernel.set(KUBEPODS, MEMS, "1-3")
        bed.wait(70)
        assert [bound(bed, pod) for pod in pods] == [["2"], ["3"], ["1"]]

    def test_may_keep_a_pod_from_where_it_belongs(self, bed: SteppedNode) -> None:
        pod = full("g1")
        bed.run_pod(pod)
        bed.kernel.set(pod_path(pod), MEMS, "3")
        bed.settle()
        assert bound(bed, pod) == [""]
        (event,) = bed.log_events("belongs on node 0")
        assert event.fields["reason"] == "NumaBeyondParent"
        assert "is bound to node 3" in event.what


class TestCgroupsWithoutCpusets:
    def test_are_reported_and_looked_after_all_the_same(self, bed: SteppedNode) -> None:
        pod = full("g1", 100)
        bed.run_pod(pod)
        (place,) = container_paths(pod)
        (bed.kernel.folder / place[1:] / MEMS).unlink()
        bed.wait(70)
        assert len(bed.log_events("the cpuset controller is not enabled")) == 1
        assert bed.mi(place, "memory.min") == 100


class TestWhereItIsNotForTheAgentToChoose:
    def test_it_does_not_start(self, folder: Path) -> None:
        with pytest.raises(InputError, match=r"assigns NUMA memory itself.*numa: state"):
            SteppedNode(folder, "memoryManagerPolicy: Static\n", numa="allocate")

    def test_it_does_not_start_on_a_machine_without_nodes(self, folder: Path) -> None:
        bed = SteppedNode(folder)
        bed.crash()
        for file in sorted((folder / "sys").rglob("*"), reverse=True):
            file.rmdir() if file.is_dir() else file.unlink()
        with pytest.raises(InputError, match="no NUMA node is known"):
            bed.start(numa="allocate")

    def test_it_goes_on_as_before_where_a_reload_asks_for_it(self, folder: Path) -> None:
        bed = SteppedNode(folder, "memoryManagerPolicy: Static\n", numa="state")
        with pytest.raises(InputError, match="assigns NUMA memory itself"):
            bed.reload(numa="allocate")
        pod = bed.run_pod(a_pod("u1", 64, 128))
        bed.wait(70)
        assert bed.mi(container_paths(pod)[0], "memory.low") == 64

    def test_it_lets_go_once_the_kubelet_assigns(self, bed: SteppedNode) -> None:
        bed.run_pod(full("g1"))
        bed.wait(10)
        checkpoint(bed, g1=3)
        bed.wait(2)
        pod = bed.run_pod(full("g2"))
        bed.wait(10)
        assert bound(bed, pod) == [""]
        assert "assigns NUMA memory itself" in report(bed)["numa"]["faults"][0]
        assert "memqos_numa_faults 1" in metrics(bed)
        put_state(bed, encode_checkpoint(MemoryManagerState("None", {}), Release.of("1.38")))
        bed.wait(2)
        assert bound(bed, pod) == ["1"]
        assert report(bed)["numa"]["faults"] == []


class TestTheStateOfTheKubelet:
    @pytest.fixture
    def bed(self, folder: Path) -> SteppedNode:
        return SteppedNode(folder, "memoryManagerPolicy: Static\n", numa="state")

    def test_is_followed_as_it_changes(self, bed: SteppedNode) -> None:
        pods = [bed.run_pod(full(uid)) for uid in ("g1", "g2")]
        checkpoint(bed, g1=1, g2=2)
        bed.settle()
        assert [bound(bed, pod) for pod in pods] == [["1"], ["2"]]
        bed.wait(10)
        steps = steps_of(bed)
        checkpoint(bed, g1=1, g2=3)
        bed.wait(2)
        assert [bound(bed, pod) for pod in pods] == [["1"], ["3"]]
        (place,) = container_paths(pods[1])
        assert steps == [[(place, MEMS)]]

    def test_is_read_only_when_it_is_another(self, bed: SteppedNode) -> None:
        checkpoint(bed, g1=1)
        assert bed.reader.read_checkpoint() is bed.reader.read_checkpoint()

    @pytest.mark.parametrize("cut", [0, 10, -40])
    def test_that_is_damaged_leaves_the_last_good_one_in_force(
        self, bed: SteppedNode, cut: int
    ) -> None:
        checkpoint(bed, g1=1)
        pod = bed.run_pod(full("g1"))
        bed.wait(10)
        file = bed.folder / "kubelet" / "memory_manager_state"
        put_state(bed, file.read_text()[:cut])
        bed.kernel.set(container_paths(pod)[0], MEMS, "")
        bed.wait(130)
        assert bound(bed, pod) == ["1"]
        assert len(bed.log_events("the previous state stays in use")) == 1
        assert bed.core.report.errors["numa"] == 1
        bed.reload(resync=30.0)
        bed.wait(70)
        assert bound(bed, pod) == ["1"]
        checkpoint(bed, g1=2)
        bed.wait(2)
        assert bound(bed, pod) == ["2"]
        assert report(bed)["numa"]["faults"] == []

    def test_that_is_not_there_yet_binds_nobody(self, bed: SteppedNode) -> None:
        pod = bed.run_pod(full("g1"))
        bed.wait(10)
        assert bound(bed, pod) == [""]
        assert len(bed.log_events("there is no memory_manager_state: no container is bound")) == 1
        checkpoint(bed, g1=2)
        bed.wait(2)
        assert bound(bed, pod) == ["2"]

    def test_that_does_not_know_a_pod_leaves_it_alone(self, bed: SteppedNode) -> None:
        checkpoint(bed, other=1)
        pod = bed.run_pod(full("g1"))
        bed.kernel.set(container_paths(pod)[0], MEMS, "2")
        bed.wait(70)
        assert bound(bed, pod) == ["2"]
        (event,) = bed.log_events("does not contain a")
        assert event.fields == {"pod": "default/g1", "reason": "NumaUnknown"}

    def test_may_be_elsewhere(self, folder: Path) -> None:
        checkpoint_at = str(folder / "elsewhere")
        bed = SteppedNode(folder, numa="state", memory_manager_state=checkpoint_at)
        checkpoint(bed, g1=1)
        (folder / "kubelet" / "memory_manager_state").rename(checkpoint_at)
        pod = bed.run_pod(full("g1"))
        bed.settle()
        assert bound(bed, pod) == ["1"]


class TestAPodWithPodLevelResources:
    def test_is_reported_once_that_it_is_not_aligned(self, bed: SteppedNode) -> None:
        pod = full("g1")
        pod["spec"]["resources"] = stanza("600Mi", "600Mi", cpu=("1", "1"))
        bed.run_pod(pod)
        bed.wait(10)
        bed.pods.manifests["g1"] = {**pod, "status": {**pod["status"], "message": "still here"}}
        bed.wait(130)
        (event,) = bed.log_events("not aligned to NUMA nodes")
        assert (event.fields["pod"], event.fields["reason"]) == ("default/g1", "NumaUnaligned")
        assert 'pod="g1",reason="NumaUnaligned"} 1' in metrics(bed)

    def test_is_told_nothing_where_nobody_is_aligned(self, folder: Path) -> None:
        bed = SteppedNode(folder)
        pod = full("g1")
        pod["spec"]["resources"] = stanza("600Mi", "600Mi", cpu=("1", "1"))
        bed.run_pod(pod)
        bed.wait(70)
        assert bed.log_events("not aligned") == []


class TestWhatItTells:
    def test_is_who_is_where_and_what_is_left(self, bed: SteppedNode) -> None:
        bed.run_pod(full("g1"))
        bed.settle()
        numa = report(bed)["numa"]
        assert numa["mode"] == "allocate"
        assert numa["assigned"] == [
            {"pod": "default/g1", "container": "a", "nodes": [0], "holds": {"memory": 600 * MI}}
        ]
        assert numa["nodes"]["0"]["memory"]["free"] == 399 * MI
        (pod,) = report(bed)["pods"]
        shown = pod["cgroups"][1]["files"][MEMS]
        assert (shown["desired"], shown["rule"]) == ("0", "numa/memqos")
        text = metrics(bed)
        assert 'memqos_numa_assigned{namespace="default",pod="g1",container="a",node="0"} 1' in text
        assert f'memqos_numa_free_bytes{{node="0",resource="memory"}} {399 * MI}' in text


class TestManyContainers:
    def moved(self, bed: SteppedNode, usage: int) -> list[list[str]]:
        """The containers of three pods that are bound, a pass each."""
        pods = [full(uid, 200) for uid in ("g1", "g2", "g3")]
        for pod in pods:
            bed.run_pod(pod)
            bed.kernel.set(container_paths(pod)[0], "memory.current", str(usage))
        steps = steps_of(bed)
        bed.settle()
        assert [bound(bed, pod) for pod in pods] == [["0"], ["0"], ["0"]]
        moved = [[path for path, file in taken if file == MEMS] for taken in steps]
        assert sorted(path for each in moved for path in each) == sorted(
            container_paths(pod)[0] for pod in pods
        )
        return [each for each in moved if each]

    def test_with_much_memory_are_moved_one_after_the_other(self, bed: SteppedNode) -> None:
        assert [len(each) for each in self.moved(bed, (16 << 20) + 1)] == [1, 1, 1]

    def test_with_little_memory_are_moved_together(self, bed: SteppedNode) -> None:
        assert [len(each) for each in self.moved(bed, 16 << 20)] == [3]
