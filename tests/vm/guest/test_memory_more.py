"""Swap, memory-backed volumes and resizes: what memqos says is what the kernel does."""

import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.builders import box, pod
from tests.eventually import eventually
from tests.vm.guest.support import MI, Cgroup
from tests.vm.harness.topology import Topology

from memqos.cluster.resize_verdict import limit_effect
from memqos.host.machine import read_machine
from memqos.kube.qos import qos_class
from memqos.kube.shape import shape_of
from memqos.plan.pod import plan_pod
from memqos.record.chapters import kill_chapters
from memqos.record.format import KillRecord, LifeRecord, Subject
from memqos.record.readings import MemoryReading, level_of, reading_of
from memqos.record.recordings import RecordIndex
from memqos.release import Release
from memqos.settings.settings import Settings

MACHINES = {"swapping": Topology(nodes=(512,), swap=256)}

LIMIT = 96 * MI


@pytest.fixture
def volume(tmp_path: Path) -> Iterator[Path]:
    """A tmpfs, as the kubelet mounts one for an emptyDir with medium Memory."""
    folder = tmp_path / "volume"
    folder.mkdir()
    subprocess.run(
        ["busybox", "mount", "-t", "tmpfs", "-o", "size=128m", "tmpfs", folder], check=True
    )
    yield folder
    subprocess.run(["busybox", "umount", folder], check=True)


class TestSwap:
    def planned_swap(self, request: int, limit: int) -> int:
        machine, release = read_machine(), Release.of("1.37")
        settings = Settings(
            release,
            None,
            memory_capacity=machine.memory,
            swap_behavior="LimitedSwap",
            swap_capacity=machine.swap,
        )
        shape = shape_of(pod([box(request, limit)]), release)
        plan = plan_pod(shape, settings, qos_class(shape, release))
        planned = plan.containers[0].settings["memory.swap.max"].value
        assert isinstance(planned, int)
        return planned

    def test_a_container_swaps_up_to_its_share_and_is_killed_past_it(self, cgroup: Cgroup) -> None:
        share = self.planned_swap(64 * MI, LIMIT)
        assert 16 * MI < share < 64 * MI
        cgroup.write(memory_max=LIMIT, memory_swap_max=share)
        workload = cgroup.workload()
        workload.hold(LIMIT)
        assert workload.alive
        assert 0 < cgroup.number("memory.swap.current") <= share
        workload.ask(share + 16 * MI)
        eventually("the process is gone", lambda: not workload.alive)
        assert workload.killed_by == signal.SIGKILL
        assert cgroup.events()["oom_kill"] == 1

    def test_the_swap_disk_is_known(self) -> None:
        assert read_machine().swap_devices == ("/dev/vdc",)

    def test_a_container_that_opts_out_never_swaps(self, cgroup: Cgroup) -> None:
        assert self.planned_swap(LIMIT, LIMIT) == 0
        cgroup.write(memory_max=LIMIT, memory_swap_max=0)
        workload = cgroup.workload()
        workload.ask(LIMIT + 16 * MI)
        eventually("the process is gone", lambda: not workload.alive)
        assert cgroup.events()["oom_kill"] == 1
        assert cgroup.number("memory.swap.current") == 0


class TestVolumes:
    def test_files_outlive_their_container_and_kill_the_next_one(
        self, cgroup: Cgroup, volume: Path
    ) -> None:
        cgroup.write(memory_max=LIMIT, memory_swap_max=0)
        first = cgroup.child("first", memory_max=LIMIT)
        file = os.fspath(volume / "cache")
        first.run("busybox", "dd", "if=/dev/zero", f"of={file}", "bs=1M", "count=64")
        assert first.counts("memory.stat")["shmem"] >= 64 * MI
        writer = first.workload()
        before = level_of(reading(first))
        writer.ask(48 * MI)
        eventually("it is killed", lambda: not writer.alive)
        # Its container limit or the pod's: both are reached at once.
        killed = KillRecord(1000, pid=writer.pid, constraint="memcg", usage=LIMIT, limit=LIMIT)
        (chapter,) = kill_chapters(RecordIndex(Subject(1), (before, killed), ()))
        assert any("files in memory" in each for each in chapter.evidence)
        assert any("sizeLimit" in each for each in chapter.remedies)

        # A runtime starts a container again in a new cgroup: the files stay with the pod.
        first.remove()
        cgroup.forget(first)
        assert cgroup.counts("memory.stat")["shmem"] >= 64 * MI
        second = cgroup.child("second", memory_max=LIMIT)
        again = second.workload()
        again.hold(MI)
        started = LifeRecord(1, "appeared", second.name)
        now = level_of(reading(second))
        assert now.shmem < MI
        again.ask(48 * MI)
        eventually("it is killed again", lambda: not again.alive)
        killed = KillRecord(
            1000,
            pid=again.pid,
            constraint="memcg",
            oom_cgroup=cgroup.name,
            usage=LIMIT,
            limit=LIMIT,
        )
        (chapter,) = kill_chapters(RecordIndex(Subject(1), (started, now, killed), ()))
        assert "the memory limit of its pod" in chapter.what
        assert any("an earlier container wrote" in each for each in chapter.evidence)


def reading(cgroup: Cgroup) -> MemoryReading:
    """A container's files, as the recorder reads them."""
    names = ("memory.current", "memory.stat", "memory.events", "memory.max")
    found = reading_of({name: cgroup.read(name) for name in names}, 1)
    assert found is not None
    return found


class TestResize:
    @pytest.mark.parametrize("limit", [128 * MI, 32 * MI])
    def test_a_lower_limit_kills_where_the_rule_says_so(self, cgroup: Cgroup, limit: int) -> None:
        cgroup.write(memory_max=192 * MI, memory_swap_max=0)
        workload = cgroup.workload()
        workload.hold(64 * MI)
        usage = cgroup.number("memory.current")
        effect = limit_effect(192 * MI, limit, usage, Release.of("1.32"), restarts=False)
        cgroup.write(memory_max=limit)
        if effect == "deadly":
            eventually("it is killed", lambda: not workload.alive)
            assert cgroup.events()["oom_kill"] == 1
        else:
            assert effect == "fits"
            workload.hold(MI)
            assert cgroup.events()["oom_kill"] == 0
        assert (effect == "deadly") == (limit == 32 * MI)
