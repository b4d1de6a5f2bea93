"""Values that others change are put back, counted, and given up when it comes to a fight."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.fakes.agent import KUBEPODS, LEVELS, MI, SteppedNode, a_pod, container_paths, pod_path
from tests.fakes.node import memory_folder

from memqos.agent.configuration import FightConfig
from memqos.agent.core.drift import DriftFacts, RestartTimes, attribute_drift
from memqos.agent.core.observed import RestartMarkers

MIN, LOW, HIGH = "memory.min", "memory.low", "memory.high"


class Watched(SteppedNode):
    """A node with a pod that has run for a while."""

    signs = RestartMarkers(1, 1)

    def __init__(self, folder: Path, **options: object) -> None:
        super().__init__(folder, **options)
        self.reader.read_restart_markers = lambda: self.signs  # type: ignore[method-assign]
        self.pod = self.run_pod(a_pod("u1"))
        self.guaranteed = self.run_pod(a_pod("g1", 100, 100))
        self.path = pod_path(self.pod)
        (self.container,) = container_paths(self.pod)
        self.wait(30)
        self.events.clear()

    def causes(self) -> dict[tuple[str, str], int]:
        return dict(self.core.report.drifts)


@pytest.fixture
def bed() -> Iterator[Watched]:
    with memory_folder() as folder:
        yield Watched(folder)


class TestAValueChangedByOthers:
    def test_is_put_back_at_the_next_look(self, bed: Watched) -> None:
        bed.kernel.set(bed.container, HIGH, "max")
        bed.wait(61)
        assert bed.mi(bed.container, HIGH) == 96
        assert bed.causes() == {(HIGH, "unknown"): 1}
        (message,) = bed.log_events("changed by another writer")
        assert message.fields["place"] == f"{bed.container}/{HIGH}"
        assert (message.fields["held"], message.fields["found"]) == (str(96 * MI), "max")

    def test_is_put_back_within_a_second_above_the_pods(self, bed: Watched) -> None:
        for path in LEVELS[:2]:
            bed.kernel.set(path, LOW, "0")
        bed.kernel.set(KUBEPODS, MIN, "0")
        bed.wait(1)
        assert [bed.mi(path, LOW) for path in LEVELS[:2]] == [64, 64]
        assert bed.mi(KUBEPODS, MIN) == 100
        assert bed.causes() == {(LOW, "kubelet-restart"): 2, (MIN, "kubelet-restart"): 1}

    def test_is_not_counted_while_its_cgroup_is_still_being_made(self, bed: Watched) -> None:
        pod = bed.run_pod(a_pod("u2"))
        bed.settle()
        bed.kernel.set(container_paths(pod)[0], HIGH, "max")
        bed.wait(2)
        assert bed.mi(container_paths(pod)[0], HIGH) == 96
        assert bed.causes() == {}

    def test_is_counted_from_the_first_moment_without_a_grace(self) -> None:
        with memory_folder() as folder:
            bed = Watched(folder, fight=FightConfig(grace=0.0))
            pod = bed.run_pod(a_pod("u2"))
            bed.settle()
            bed.kernel.set(container_paths(pod)[0], HIGH, "max")
            bed.wait(2)
            assert bed.causes() == {(HIGH, "unknown"): 1}

    def test_is_not_one_that_is_planned_again(self, bed: Watched) -> None:
        bed.pods.manifests["u1"] = a_pod("u1", 32, 128)
        bed.wait(61)
        assert bed.mi(bed.container, LOW) == 32
        assert bed.causes() == {}

    def test_may_be_taken_back_to_what_the_others_wrote(self, bed: Watched) -> None:
        bed.kernel.set(bed.container, HIGH, str(200 * MI))
        bed.wait(61)
        bed.roll_back()
        assert bed.mi(bed.container, HIGH) == 200


class TestWhoItWas:
    def test_systemd_if_it_has_loaded_its_units(self) -> None:
        slices = "/kubepods.slice/kubepods-pod1.slice/cri-containerd-a.scope"
        facts = DriftFacts("container", slices, "max", 100.0, RestartTimes(reload=101.0), "max")
        assert attribute_drift(facts)[0] == "daemon-reload"
        before = facts._replace(happened=RestartTimes(reload=99.0))
        assert attribute_drift(before)[0] == "cri-update"
        plain = facts._replace(path="/kubepods/pod1/a", kubelet_value=None)
        assert attribute_drift(plain)[0] == "unknown"

    def test_the_kubelet_if_its_service_was_started_again(self, bed: Watched) -> None:
        bed.signs = RestartMarkers(1, 2)
        bed.kernel.set(KUBEPODS, MIN, str(MI))
        bed.wait(1)
        assert bed.causes() == {(MIN, "kubelet-restart"): 1}

    def test_the_kubelet_if_it_is_the_value_it_keeps(self, bed: Watched) -> None:
        bed.kernel.set(KUBEPODS, MIN, str(164 * MI))
        bed.wait(1)
        assert bed.causes() == {(MIN, "kubelet-resync"): 1}
        assert bed.mi(KUBEPODS, MIN) == 100

    def test_the_runtime_if_it_is_the_value_a_kubelet_asks_it_for(self) -> None:
        with memory_folder() as folder:
            bed = Watched(folder, factor=0.9)
            bed.pods.manifests["u1"] = a_pod("u1", annotations={"memqos.io/throttling-factor": "1"})
            bed.wait(61)
            bed.kernel.set(bed.container, HIGH, str(int((64 + 64 * 0.9) * MI) // 4096 * 4096))
            bed.wait(61)
            assert bed.causes() == {(HIGH, "cri-update"): 1}

    def test_nobody_in_particular_if_nothing_tells(self, bed: Watched) -> None:
        bed.kernel.set(bed.path, LOW, str(3 * MI))
        bed.wait(61)
        assert bed.causes() == {(LOW, "unknown"): 1}


class TestAResize:
    """A kubelet that resizes a container sends all of its values: they are not fought over."""

    def resize(self, bed: Watched, limit: int) -> None:
        bed.kernel.set(bed.container, "memory.max", str(limit * MI))
        bed.kernel.set(bed.container, HIGH, "max")

    def test_is_repaired_at_once_and_is_no_drift(self, bed: Watched) -> None:
        self.resize(bed, 256)
        bed.core.note_limit_write(bed.container, bed.now)
        bed.settle()
        assert bed.mi(bed.container, HIGH) == 96
        assert bed.causes() == {}
        assert bed.log_events("changed by a resize")

    def test_is_known_by_its_limit_at_the_next_look(self, bed: Watched) -> None:
        self.resize(bed, 256)
        bed.wait(61)
        assert bed.mi(bed.container, HIGH) == 96
        assert bed.causes() == {}

    def test_is_followed_while_the_runtime_is_still_writing(self, bed: Watched) -> None:
        bed.kernel.set(bed.container, "memory.max", str(256 * MI))
        bed.core.note_limit_write(bed.container, bed.now)
        bed.settle()
        bed.kernel.set(bed.container, HIGH, "max")
        bed.wait(1)
        assert bed.mi(bed.container, HIGH) == 96

    def test_of_requests_alone_is_known_by_the_pod(self, bed: Watched) -> None:
        bed.pods.manifests["u1"] = a_pod("u1", 32, 128)
        bed.core.schedule.schedule_fetch(bed.now)
        bed.wait(1)
        bed.kernel.set(bed.container, HIGH, "max")
        bed.wait(1)
        assert bed.mi(bed.container, HIGH) == 80
        assert bed.causes() == {}

    def test_never_ends_in_a_fight(self) -> None:
        with memory_folder() as folder:
            bed = Watched(folder, fight=FightConfig(times=2, minutes=10))
            for limit in range(200, 210):
                self.resize(bed, limit)
                bed.core.note_limit_write(bed.container, bed.now)
                bed.wait(5)
            assert bed.mi(bed.container, HIGH) == 96
            assert not bed.core.drift.fights.contested

    def test_is_not_what_a_runtime_writes_along_with_the_agents_own_values(self) -> None:
        with memory_folder() as folder:
            bed = Watched(folder, fight=FightConfig(times=3, minutes=10))
            for _ in range(8):
                bed.kernel.set(bed.container, HIGH, "max")
                bed.core.note_limit_write(bed.container, bed.now)
                bed.wait(5)
            assert (bed.container, HIGH) in bed.core.drift.fights.contested

    def test_of_a_container_that_is_being_made_is_none(self, bed: Watched) -> None:
        (container,) = container_paths(bed.run_pod(a_pod("u3")))
        bed.settle()
        bed.core.note_limit_write(container, bed.now)
        assert not bed.core.drift.is_resizing(pod_path(a_pod("u3")), bed.now)


class TestAFight:
    def fight(self, bed: Watched, times: int) -> None:
        for _ in range(times):
            bed.kernel.set(KUBEPODS, LOW, str(MI))
            bed.wait(1)

    def test_ends_with_the_value_left_alone(self) -> None:
        with memory_folder() as folder:
            bed = Watched(folder, fight=FightConfig(times=3, minutes=1))
            self.fight(bed, 3)
            assert bed.mi(KUBEPODS, LOW) == 64
            self.fight(bed, 1)
            assert bed.mi(KUBEPODS, LOW) == 1
            (alarm,) = bed.log_events("not restored any more")
            assert alarm.severity == "error"
            bed.wait(200)
            assert bed.mi(KUBEPODS, LOW) == 1
            # Everything else goes on.
            bed.kernel.set(LEVELS[1], LOW, "0")
            bed.wait(1)
            assert bed.mi(LEVELS[1], LOW) == 64
            bed.reload()
            bed.settle()
            assert bed.mi(KUBEPODS, LOW) == 64

    def test_is_none_when_it_happens_now_and_then(self) -> None:
        with memory_folder() as folder:
            bed = Watched(folder, fight=FightConfig(times=3, minutes=1))
            for _ in range(8):
                self.fight(bed, 1)
                bed.wait(25)
            assert bed.mi(KUBEPODS, LOW) == 64


@pytest.mark.parametrize(("driver", "at_once"), [("systemd", True), ("cgroupfs", False)])
def test_systemd_taking_values_back_has_the_whole_node_looked_at(
    driver: str, at_once: bool, tmp_path: Path
) -> None:
    bed = Watched(tmp_path)
    bed.kernel.make("/kubepods.slice")
    config = tmp_path / "kubelet" / "config.yaml"
    config.write_text(f"{config.read_text()}cgroupDriver: {driver}\n")
    bed.reload()
    bed.wait(1)
    resyncs = bed.core.report.reconcile_seconds["resync"]
    before = resyncs.count
    bed.signs = RestartMarkers(2, 1)
    bed.wait(1)
    assert (resyncs.count > before) == at_once
