"""An agent goes carefully: step by step, within a budget, and never against its own sums."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.fakes.agent import (
    KUBEPODS,
    LEVELS,
    MEMORY,
    MI,
    SteppedNode,
    a_pod,
    container_paths,
    pod_path,
)
from tests.fakes.node import memory_folder

from memqos.agent.configuration import RampConfig

MIN, LOW, HIGH = "memory.min", "memory.low", "memory.high"


@pytest.fixture
def folder() -> Iterator[Path]:
    with memory_folder() as made:
        yield made


def guaranteed(
    bed: SteppedNode, uid: str, size: int, *, priority: int = 0, created: str = ""
) -> str:
    """The path of a Guaranteed pod that runs."""
    made = created or "2026-01-01T00:00:00Z"
    return pod_path(bed.run_pod(a_pod(uid, size, size, priority=priority, created=made)))


class TestMemoryHigh:
    def busy(self, bed: SteppedNode, usage: int) -> str:
        """A container that should be throttled from 96 Mi on, and uses so many Mi."""
        pod = bed.run_pod(a_pod("u1", 64, 128))
        (container,) = container_paths(pod)
        bed.kernel.set(container, "memory.current", str(usage * MI))
        return container

    def test_goes_below_usage_step_by_step(self, folder: Path) -> None:
        bed = SteppedNode(folder, ramp=RampConfig(step=0.1, interval=10))
        container = self.busy(bed, 120)
        bed.settle()
        assert bed.mi(container, HIGH) == 108
        bed.kernel.set(container, "memory.current", str(108 * MI))
        bed.wait(9)
        assert bed.mi(container, HIGH) == 108
        bed.wait(2)
        assert bed.read(container, HIGH) == str(int(108 * MI * 0.9) // 4096 * 4096)
        bed.kernel.set(container, "memory.current", str(97 * MI))
        bed.wait(11)
        assert bed.mi(container, HIGH) == 96
        assert not bed.core.pending

    def test_does_not_go_on_while_nothing_can_be_taken_away(self, folder: Path) -> None:
        bed = SteppedNode(folder, ramp=RampConfig(step=0.1, interval=10))
        container = self.busy(bed, 120)
        bed.wait(100)
        assert bed.mi(container, HIGH) == 108

    def test_is_set_at_once_where_there_is_room(self, folder: Path) -> None:
        bed = SteppedNode(folder)
        container = self.busy(bed, 90)
        bed.settle()
        assert bed.mi(container, HIGH) == 96

    def test_is_set_at_once_when_told_to(self, folder: Path) -> None:
        bed = SteppedNode(folder, ramp=RampConfig(off=True))
        container = self.busy(bed, 120)
        bed.settle()
        assert bed.mi(container, HIGH) == 96

    def test_is_withheld_from_memory_that_cannot_leave(self, folder: Path) -> None:
        bed = SteppedNode(folder)
        container = self.busy(bed, 120)
        bed.kernel.set(container, "memory.stat", f"anon {120 * MI}\nshmem 0")
        bed.wait(100)
        assert bed.mi(container, HIGH) == "max"
        assert bed.core.report.writes[HIGH, "withheld"] >= 5
        bed.kernel.set(container, "memory.stat", "anon 0\nshmem 0")
        bed.wait(11)
        assert bed.mi(container, HIGH) == 108

    def test_makes_its_writer_wait_for_one_container_at_a_time(self, folder: Path) -> None:
        bed = SteppedNode(folder)
        pods = [bed.run_pod(a_pod(f"u{number}")) for number in range(3)]
        paths = [path for pod in pods for path in container_paths(pod)]
        for path in paths:
            bed.kernel.set(path, "memory.current", str(120 * MI))
        bed.run_due_pass()
        assert sorted(str(bed.mi(path, HIGH)) for path in paths) == ["108.0", "max", "max"]
        assert all(bed.mi(path, LOW) == 64 for path in paths)
        bed.settle()
        assert [bed.mi(path, HIGH) for path in paths] == [108, 108, 108]


class TestTheSumOfMemoryMin:
    def test_stays_within_its_share(self, folder: Path) -> None:
        bed = SteppedNode(folder, min_share=0.5)
        paths = [guaranteed(bed, f"g{number}", 300) for number in range(10)]
        bed.settle()
        reserved = [bed.mi(path, MIN) for path in paths]
        assert reserved == [300] * 6 + [0] * 4
        assert bed.mi(KUBEPODS, MIN) == 1800 <= MEMORY / MI / 2
        (message,) = bed.log_events("not reserved")
        assert message.fields["pods"] == "default/g6, default/g7, default/g8, default/g9"

    def test_may_be_all_of_its_share_and_not_a_page_more(self, folder: Path) -> None:
        bed = SteppedNode(folder, min_share=0.5)
        paths = [guaranteed(bed, f"g{number}", 1024) for number in range(2)]
        bed.settle()
        assert [bed.mi(path, MIN) for path in paths] == [1024, 1024]
        assert bed.mi(KUBEPODS, MIN) == MEMORY / MI / 2
        late = guaranteed(bed, "late", 1)
        bed.wait(5)
        assert bed.mi(late, MIN) == 0

    def test_serves_priority_first_then_age_then_uid(self, folder: Path) -> None:
        bed = SteppedNode(folder, min_share=0.25)
        low = guaranteed(bed, "a", 600, priority=1, created="2020-01-01T00:00:00Z")
        bed.wait(2)
        assert bed.mi(low, MIN) == 600
        young = guaranteed(bed, "b", 600, priority=5, created="2025-01-01T00:00:00Z")
        bed.wait(2)
        assert (bed.mi(low, MIN), bed.mi(young, MIN)) == (0, 600)
        old = guaranteed(bed, "z", 600, priority=5, created="2024-01-01T00:00:00Z")
        bed.wait(2)
        assert [bed.mi(path, MIN) for path in (low, young, old)] == [0, 0, 600]
        same = guaranteed(bed, "c", 600, priority=5, created="2024-01-01T00:00:00Z")
        bed.wait(2)
        assert [bed.mi(path, MIN) for path in (low, young, old, same)] == [0, 0, 0, 600]

    def test_goes_to_another_pod_as_soon_as_one_has_given_it_up(self, folder: Path) -> None:
        bed = SteppedNode(folder, min_share=0.25)
        low = guaranteed(bed, "a", 600, priority=1)
        bed.settle()
        written: dict[str, float] = {}

        def note(path: str, file: str) -> None:
            if file == MIN:
                written[path] = bed.now

        bed.kernel.before_write = note
        high = guaranteed(bed, "b", 600, priority=5)
        bed.wait(5)
        assert (bed.mi(low, MIN), bed.mi(high, MIN)) == (0, 600)
        assert written[low] == written[high]

    def test_is_never_more_for_a_moment_either(self, folder: Path) -> None:
        bed = SteppedNode(folder, min_share=0.25)
        paths = [guaranteed(bed, "a", 600, priority=1)]
        bed.settle()
        sums: list[float] = []

        def note(_path: str, _file: str) -> None:
            sums.append(sum(float(bed.mi(path, MIN)) for path in paths))

        bed.kernel.before_write = note
        paths.append(guaranteed(bed, "b", 600, priority=5))
        bed.wait(5)
        assert [bed.mi(path, MIN) for path in paths] == [0, 600]
        assert 0 < max(sums) <= 1024

    def test_counts_what_others_have_set(self, folder: Path) -> None:
        bed = SteppedNode(folder, min_share=0.25)
        external = bed.run_pod(a_pod("unknown", 900, 900), listed=False)
        bed.kernel.set(pod_path(external), MIN, str(900 * MI))
        mine = guaranteed(bed, "g1", 200)
        bed.wait(2)
        assert bed.mi(mine, MIN) == 0
        assert bed.mi(KUBEPODS, MIN) == 900
        bed.end_pod(external)
        bed.settle()
        assert bed.mi(mine, MIN) == 200
        assert bed.log_events("reserved again")

    def test_leaves_room_for_what_the_system_keeps(self, folder: Path) -> None:
        bed = SteppedNode(folder)
        config = folder / "kubelet" / "config.yaml"
        config.write_text(
            config.read_text() + "systemReserved: {memory: 1Gi}\nsystemReservedCgroup: /system\n"
            "enforceNodeAllocatable: [pods, system-reserved]\n"
        )
        bed.kernel.make("/system")
        bed.reload(min_share=0.5)
        first, second = guaranteed(bed, "a", 800), guaranteed(bed, "b", 800)
        bed.settle()
        assert bed.mi("/system", MIN) == 1024
        assert (bed.mi(first, MIN), bed.mi(second, MIN)) == (800, 0)


class TestWhatIsAbove:
    def test_holds_the_sum_of_what_is_claimed_below(self, folder: Path) -> None:
        bed = SteppedNode(folder)
        guaranteed(bed, "g1", 100)
        bed.run_pod(a_pod("u1", 64, 128))
        bed.run_pod(a_pod("u2", 32, 128))
        bed.run_pod(a_pod("e1", 0, 0))
        bed.settle()
        assert [bed.mi(path, MIN) for path in LEVELS] == [100, 0, 0]
        assert [bed.mi(path, LOW) for path in LEVELS] == [96, 96, 0]

    def test_is_raised_before_and_lowered_after_what_is_below(self, folder: Path) -> None:
        bed = SteppedNode(folder)
        written: list[str] = []
        bed.kernel.before_write = lambda path, file: written.append(path) if file == LOW else None
        pod = bed.run_pod(a_pod("u1"))
        bed.settle()
        down = [*LEVELS[:2], pod_path(pod), *container_paths(pod)]
        assert written == down
        written.clear()
        bed.reload(policy="None")
        bed.settle()
        assert written == down[::-1]
