"""An agent's guard and recorder at work on a node."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.fakes.agent import MI, SteppedNode, a_pod, container_paths, pod_path, view_of
from tests.fakes.node import memory_folder
from tests.unit.test_oom_report import KILLED_4_19, OF_CGROUP, SCOPE

from memqos.agent.configuration import AgentConfiguration, GuardConfig, RecorderConfig
from memqos.agent.core.node_guard import NodeGuard
from memqos.agent.metrics import metric_families
from memqos.agent.reconcile import build_reconciler
from memqos.agent.sampler import Sampler, sampler_of
from memqos.errors import MemqosError
from memqos.host.cgroups import CgroupFs
from memqos.host.kmsg import KernelLog
from memqos.host.record_clock import RecordClock
from memqos.host.record_files import RecordWriter, read_recordings
from memqos.record.format import (
    CountRecord,
    EvictionRecord,
    FlightRecord,
    GuardRecord,
    KillRecord,
    LevelRecord,
    LifeRecord,
    ResizeRecord,
    WriteRecord,
)

HIGH = "memory.high"
PLANNED = 96
LIMIT = 128


WATCHING: list["Watched"] = []
"""Nodes whose records may still be written."""


class Watched:
    """A node with an agent that looks at its containers every few seconds."""

    def __init__(self, folder: Path, log: KernelLog | None = None, **options: Any) -> None:
        self.bed = SteppedNode(folder, **options)
        self.records = folder / "records"
        self.guard = NodeGuard()
        self.set_by = 0
        """Seconds by which the wall clock was set since."""
        clock = RecordClock(
            "boot", uptime=lambda: self.bed.now, wall=lambda: self.bed.now + self.set_by
        )
        self.sampler = Sampler(
            self.bed.kernel,
            guard=self.guard,
            recorder=RecordWriter(str(self.records), clock=clock),
            log=log,
            proc=str(folder / "proc"),
        )
        self.bed.core = build_reconciler(self.bed.reader, self.bed.writer, self.bed.now, self.guard)
        self.pod = self.bed.run_pod(a_pod("web"))
        (self.path,) = container_paths(self.pod)
        self.bed.kernel.set(pod_path(self.pod), "memory.events", "high 0\noom_kill 0")
        self.bed.settle()
        self.bed.kernel.set(self.path, "memory.max", str(LIMIT * MI))
        self.events = self.stalled = 0
        WATCHING.append(self)

    def lives(self, seconds: int, *, stuck: bool = False, anon: int = 40) -> None:
        """Every two seconds a look, and a pass if one is due."""
        kernel = self.bed.kernel
        for _ in range(0, seconds, 2):
            self.bed.now += 2
            high = kernel.read(self.path, HIGH) or "max"
            held = int(high) if stuck and high.isdigit() else anon * MI
            if stuck:
                self.events += 80
                self.stalled += 1_400_000
            kernel.set(self.path, "memory.current", str(held))
            kernel.set(self.path, "memory.stat", f"anon {held}\nfile 0\nshmem 0")
            kernel.set(self.path, "memory.events", f"high {self.events}\noom_kill 0")
            kernel.set(self.path, "memory.pressure", f"full avg10=0 total={self.stalled}")
            kernel.set(self.path, "memory.swap.max", "0")
            self.sampler.sample(self.bed.core, self.bed.now)
            self.bed.settle()

    def high(self) -> float | str:
        return self.bed.mi(self.path, HIGH)

    def recorded(self) -> list[FlightRecord]:
        self.sampler.close()
        assert self.sampler.recorder is not None
        assert self.sampler.recorder.fault is None
        found = [each for each in read_recordings(str(self.records)) if each.who.pod == "web"]
        return list(found[0].records)


@pytest.fixture
def folder() -> Iterator[Path]:
    with memory_folder() as made:
        yield made
        end_watching()


def end_watching() -> None:
    """Nothing is written any more, so that the folder can go."""
    while WATCHING:
        WATCHING.pop().sampler.close()


def test_a_stuck_container_is_let_on_and_reined_in_again(folder: Path) -> None:
    node = Watched(folder)
    assert node.high() == PLANNED
    node.lives(8, stuck=True)
    assert node.high() == PLANNED + 8
    node.lives(40, stuck=True)
    assert node.high() == LIMIT
    node.lives(600)
    assert node.high() == PLANNED
    steps = [record for record in node.recorded() if isinstance(record, GuardRecord)]
    assert [step.step for step in steps] == [1, 2, 3, 4, 3, 2, 1, 0]
    assert node.sampler.guard_moves == {"widen": 4, "narrow": 4}


def test_the_guard_widens_nothing_where_memory_high_is_withheld(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("memqos.settings.resolver.old_kernel_risk", lambda _kernel: "it is old")
    node = Watched(folder)
    node.bed.kernel.set(node.path, HIGH, str(PLANNED * MI))
    node.lives(40, stuck=True)
    assert node.high() == PLANNED
    assert not node.sampler.guard_moves


def test_a_container_that_is_fine_keeps_its_plan(folder: Path) -> None:
    node = Watched(folder)
    node.lives(120)
    assert node.high() == PLANNED
    assert not node.sampler.guard_moves


def test_what_the_guard_set_is_no_drift_and_is_kept(folder: Path) -> None:
    node = Watched(folder)
    node.lives(40, stuck=True)
    node.bed.wait(120)
    assert node.high() == LIMIT
    assert not node.bed.core.drift.drifts


@pytest.mark.parametrize("steps", [1, 2, 4])
def test_an_agent_that_is_started_again_goes_on_where_the_last_one_was(
    folder: Path, steps: int
) -> None:
    node = Watched(folder)
    node.lives(2)
    while node.high() != PLANNED + 8 * steps:
        node.lives(2, stuck=True)
    in_use = (PLANNED + 8 * steps) * MI
    node.bed.kernel.set(node.path, "memory.current", str(in_use))
    node.bed.kernel.set(node.path, "memory.stat", f"anon {in_use}\nfile 0\nshmem 0")
    node.bed.crash()
    node.bed.start()
    node.guard = node.sampler.guard = NodeGuard()
    node.bed.core = build_reconciler(node.bed.reader, node.bed.writer, node.bed.now, node.guard)
    node.bed.settle()
    assert node.high() == PLANNED + 8 * steps
    node.lives(2, stuck=True)
    assert node.guard.widened == {node.path: steps}
    node.lives(600)
    assert node.high() == PLANNED


def test_an_agent_that_only_observes_moves_nothing_and_records_all(folder: Path) -> None:
    node = Watched(folder, mode="observe")
    node.lives(60, stuck=True)
    assert node.high() == "max"
    assert not node.sampler.guard_moves
    assert any(isinstance(record, LevelRecord) for record in node.recorded())


@pytest.mark.parametrize("set_by", [-3600, 8 * 86_400])
def test_a_wall_clock_that_is_set_costs_no_record(folder: Path, set_by: int) -> None:
    def lives_on(folder: Path, set_by: int) -> list[tuple[int, list[type[FlightRecord]]]]:
        node = Watched(folder)
        begun = int(node.bed.now * 1000)
        node.lives(20, stuck=True)
        node.set_by = set_by
        node.lives(120)
        node.recorded()
        found = sorted(read_recordings(str(node.records)), key=lambda each: each.who.key)
        return [
            (each.records[0].at - begun - set_by * 1000, [type(one) for one in each.records])
            for each in found
        ]

    (folder / "as-it-is").mkdir()
    (folder / "set").mkdir()
    assert lives_on(folder / "set", set_by) == lives_on(folder / "as-it-is", 0)


def test_values_written_and_values_others_wrote_are_recorded(folder: Path) -> None:
    node = Watched(folder)
    node.lives(20)
    node.bed.kernel.set(node.path, HIGH, "max")
    node.bed.wait(70)
    node.lives(2)
    changes = [record for record in node.recorded() if isinstance(record, WriteRecord)]
    writes = [(change.file, change.by, change.new) for change in changes]
    assert (HIGH, "memqos", str(PLANNED * MI)) in writes
    assert any(file == HIGH and by != "memqos" and new == "max" for file, by, new in writes)


def test_what_was_done_between_two_looks_has_the_time_at_which_it_was_done(folder: Path) -> None:
    node = Watched(folder)
    node.lives(4)
    begun = node.bed.now
    node.bed.now = begun + 1
    larger = a_pod("web", limit=256)
    node.bed.pods.manifests["web"] = larger
    node.bed.core.schedule.schedule_fetch(node.bed.now)
    node.bed.settle()
    node.bed.now = begun + 2
    node.bed.kernel.set(node.path, HIGH, "max")
    node.bed.core.resync(node.bed.now)
    node.bed.settle()
    node.bed.now = begun + 5
    node.sampler.sample(node.bed.core, node.bed.now)
    writes = [
        (each.at / 1000 - begun, type(each), getattr(each, "new", ""))
        for each in node.recorded()
        if isinstance(each, WriteRecord | ResizeRecord) and each.at > begun * 1000
    ]
    wider = str(160 * MI)
    assert sorted(writes, key=lambda each: each[0]) == [
        (1, ResizeRecord, ""),
        (1, WriteRecord, wider),
        (2, WriteRecord, "max"),
        (2, WriteRecord, wider),
    ]


def test_the_end_of_a_container_and_of_its_pod_is_recorded(folder: Path) -> None:
    node = Watched(folder)
    node.lives(4)
    node.bed.end_pod(node.pod)
    status = {"phase": "Failed", "reason": "Evicted", "message": "low on memory"}
    node.bed.pods.manifests["web"] = {**node.pod, "status": status}
    node.bed.wait(70)
    node.sampler.sample(node.bed.core, node.bed.now)
    records = node.recorded()
    assert any(isinstance(each, LifeRecord) and each.what == "vanished" for each in records)
    (evicted,) = [each for each in records if isinstance(each, EvictionRecord)]
    assert evicted.message == "low on memory"


def opened(node: Watched, monkeypatch: pytest.MonkeyPatch, seconds: int) -> list[str]:
    """The files that are read while the containers do nothing."""
    found: list[str] = []
    really = os.open

    def hear(path: Any, *arguments: Any, **named: Any) -> int:
        found.append(str(path).rpartition("/")[2])
        return really(path, *arguments, **named)

    with monkeypatch.context() as patched:
        patched.setattr(os, "open", hear)
        for _ in range(0, seconds, 5):
            node.bed.now += 5
            node.sampler.sample(node.bed.core, node.bed.now)
    return found


def test_of_a_container_that_meets_nothing_only_usage_is_read_now_and_then(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    node = Watched(folder)
    node.lives(2)
    files = opened(node, monkeypatch, 120)
    assert files.count("memory.stat") == 2
    assert files.count("memory.events") == 2
    assert 8 <= files.count("memory.current") <= 12
    node.sampler.close()


def test_where_the_kernel_cannot_tell_events_are_read_every_time_and_it_is_said_once(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(_instance: object, path: str, _mask: int) -> int:
        raise MemqosError(f"{path}: cannot be watched: No space left on device")

    monkeypatch.setattr("memqos.host.inotify._Instance.add", refused)
    node = Watched(folder)
    node.lives(2)
    files = opened(node, monkeypatch, 120)
    assert files.count("memory.events") >= 24
    assert files.count("memory.stat") == 2
    node.lives(40, stuck=True)
    assert node.high() == LIMIT
    assert len(node.bed.log_events("events of containers are polled")) == 1
    node.sampler.close()


@pytest.mark.parametrize("seconds", [2, 5, 11])
def test_an_event_between_two_looks_is_seen_at_the_next(folder: Path, seconds: int) -> None:
    node = Watched(folder)
    node.lives(2)
    for kills in range(1, 6):
        node.bed.kernel.set(node.path, "memory.events", f"high 0\noom_kill {kills}")
        node.bed.now += seconds
        node.sampler.sample(node.bed.core, node.bed.now)
    counted = [record for record in node.recorded() if isinstance(record, CountRecord)]
    assert [(each.event, each.count) for each in counted] == [("oom_kill", 1)] * 5


def test_a_container_made_again_under_its_name_is_looked_at(folder: Path) -> None:
    node = Watched(folder)
    node.lives(4)
    node.bed.kernel.remove(node.path)
    node.bed.kernel.make("/kept-apart")
    node.bed.kernel.make(node.path, {"memory.current": str(70 * MI), "memory.events": "high 0"})
    node.bed.core.note_cgroup_removed(node.path, node.bed.now)
    node.bed.core.note_cgroup_created(node.path, node.bed.now)
    node.bed.settle()
    node.sampler.sample(node.bed.core, node.bed.now + 1)
    levels = [record for record in node.recorded() if isinstance(record, LevelRecord)]
    assert levels[-1].current == 70 * MI


def test_full_looks_at_many_containers_do_not_come_at_once(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    node = Watched(folder)
    for number in range(60):
        node.bed.run_pod(a_pod(f"p{number}"))
    node.bed.wait(2)
    node.sampler.sample(node.bed.core, node.bed.now)
    fully = [opened(node, monkeypatch, 5).count("memory.stat") for _ in range(12)]
    node.sampler.close()
    assert sum(fully) == 61
    assert max(fully) <= 15


def test_a_kill_in_the_kernels_log_reaches_the_containers_record(folder: Path) -> None:
    device = folder / "kmsg"
    device.write_text("")
    node = Watched(folder, KernelLog(str(device)))
    node.lives(2)
    _play(node, _killed_at(node.path))
    node.lives(2)
    node.lives(2)
    (kill,) = [record for record in node.recorded() if isinstance(record, KillRecord)]
    assert kill.pid == 4711
    assert node.sampler.oom_kills.count == 1


def test_a_kill_of_nobody_known_is_the_nodes(folder: Path) -> None:
    device = folder / "kmsg"
    device.write_text("")
    node = Watched(folder, KernelLog(str(device)))
    _play(node, [KILLED_4_19])
    node.lives(2)
    node.lives(2)
    node.sampler.close()
    found = [each for each in read_recordings(str(node.records)) if each.who.is_node]
    assert any(isinstance(record, KillRecord) for record in found[0].records)


def test_a_kill_told_of_after_its_cgroup_is_gone_is_still_the_containers(folder: Path) -> None:
    device = folder / "kmsg"
    device.write_text("")
    node = Watched(folder, KernelLog(str(device)))
    node.lives(2)
    _play(node, _killed_at(node.path))
    node.bed.end_pod(node.pod)
    node.bed.wait(4)
    node.sampler.sample(node.bed.core, node.bed.now)
    node.bed.wait(4)
    node.sampler.sample(node.bed.core, node.bed.now)
    records = node.recorded()
    assert [each.pid for each in records if isinstance(each, KillRecord)] == [4711]
    assert any(isinstance(each, LifeRecord) and each.what == "vanished" for each in records)


@pytest.mark.parametrize("cgroup", ["its own", "of a name that nobody has told of"])
def test_who_dies_before_the_first_look_is_found_by_the_plan(folder: Path, cgroup: str) -> None:
    device = folder / "kmsg"
    device.write_text("")
    node = Watched(folder, KernelLog(str(device)))
    path = node.path if cgroup == "its own" else f"{node.path.rpartition('/')[0]}/unheard-of"
    _play(node, _killed_at(path))
    kernel = node.bed.kernel
    kernel.set(node.path, "memory.current", "gone")
    for _ in range(2):
        node.bed.now += 2
        node.sampler.sample(node.bed.core, node.bed.now)
    assert [each.pid for each in node.recorded() if isinstance(each, KillRecord)] == [4711]


def test_a_report_heard_just_before_the_end_is_recorded(folder: Path) -> None:
    device = folder / "kmsg"
    device.write_text("")
    node = Watched(folder, KernelLog(str(device)))
    node.lives(2)
    _play(node, _killed_at(node.path))
    node.lives(2)
    assert node.sampler.oom_kills.count == 0
    assert any(isinstance(record, KillRecord) for record in node.recorded())


def _killed_at(path: str) -> list[str]:
    text = OF_CGROUP.replace(SCOPE, path)
    return [line for line in text.splitlines() if "Killed process" in line or "oom-kill" in line]


def _play(node: Watched, lines: list[str]) -> None:
    """A file hands out all of its bytes at once, a log record by record."""
    from memqos.kernel.log import LogRecord as Line

    log = node.sampler.oom_kills.log
    assert log is not None
    queue = [[Line(n, 5_000_000, text) for n, text in enumerate(lines, 1)]]
    log.records = lambda: iter(queue.pop() if queue else [])  # type: ignore[method-assign]


def test_a_disk_that_fails_stops_recording_and_not_the_guard(folder: Path) -> None:
    node = Watched(folder)
    node.records.write_text("no folder")
    node.lives(40, stuck=True)
    assert node.high() == LIMIT
    node.sampler.close()
    assert node.sampler.recorder is not None
    assert node.sampler.recorder.fault is not None


def test_the_log_says_once_that_nothing_is_recorded_and_once_that_it_is_again(
    folder: Path,
) -> None:
    node = Watched(folder)
    node.records.write_text("no folder")
    recorder = node.sampler.recorder
    assert recorder is not None
    for _ in range(20):
        node.lives(2)
        _until_written(node)
    assert len(node.bed.log_events("records cannot be written")) == 1
    node.records.unlink()
    recorder._tried_at = 0.0
    for _ in range(20):
        node.lives(2, anon=60)
        _until_written(node)
    assert (
        len(node.bed.log_events("records cannot be written"))
        == len(node.bed.log_events("records are written again"))
        == 1
    )
    view = view_of(node.bed, node.sampler)
    found = {family.name: list(family.samples) for family in metric_families(view)}
    assert found["memqos_recording"][0].value == 1


def _until_written(node: Watched) -> None:
    writing = node.sampler._writing
    assert writing is not None
    writing.result()


def test_metrics_tell_of_the_guard_and_the_recorder(folder: Path) -> None:
    node = Watched(folder)
    node.lives(40, stuck=True)
    view = view_of(node.bed, node.sampler)
    found = {family.name: list(family.samples) for family in metric_families(view)}
    assert found["memqos_guard_step"][0].value == 4
    assert {sample.value for sample in found["memqos_guard_steps_total"]} == {4, 0}
    assert found["memqos_recording"][0].value == 1


def test_a_configuration_decides_what_is_watched(tmp_path: Path) -> None:
    fs = CgroupFs(str(tmp_path))
    off = AgentConfiguration(guard=GuardConfig(off=True), recorder=RecorderConfig(off=True))
    sampler, _ = sampler_of(off, fs, "/proc")
    assert (sampler.guard, sampler.recorder) == (None, None)
    sampler.close()
    configuration = AgentConfiguration(
        guard=GuardConfig(period=7.0, steps=2),
        recorder=RecorderConfig(folder=str(tmp_path), kib_each=8),
    )
    sampler, _ = sampler_of(configuration, fs, "/proc")
    assert sampler.guard is not None
    assert sampler.recorder is not None
    assert (sampler.guard.tuning.period, sampler.guard.tuning.steps) == (7.0, 2)
    assert sampler.recorder.bounds.bytes_each == 8192
    sampler.close()
