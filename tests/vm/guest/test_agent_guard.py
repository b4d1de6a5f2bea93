"""A whole agent on a real kernel: what it does for who cannot progress, and what it tells of it."""

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from tests.eventually import eventually
from tests.vm.guest.agent import BareNode
from tests.vm.guest.support import MI, Cgroup

from memqos.agent.oom_kills import describe_kill
from memqos.host.record_files import read_recordings
from memqos.lab.throttled import sparse_file
from memqos.lab.vm.topology import Topology
from memqos.record.format import FlightRecord, GuardRecord, KillRecord, LevelRecord, LifeRecord

MACHINES = {"roomy": Topology(seconds_a_test=2000)}

HIGH, MAX = "memory.high", "memory.max"
REQUEST, LIMIT = 16 * MI, 112 * MI
STEPS = [(64 + 12 * step) * MI for step in range(5)]
"""memory.high as planned with a factor of a half, and as the guard widens it up to memory.max."""
LISTEN = "127.0.0.1:9177"
QUICK = {"guard_interval": "1s", "guard_period": "1s", "guard_calm": "2s", "listen": LISTEN}


class Pod(NamedTuple):
    """The cgroups of a pod with one container, as a kubelet and a runtime make them."""

    name: str
    pod: Cgroup
    container: Cgroup


class Node(BareNode):
    """An agent that keeps records."""

    def __init__(self, folder: Path, kubepods: Cgroup) -> None:
        super().__init__(folder, kubepods)
        self.records = folder / "records"

    def start(self, **more: object) -> None:
        super().start(**{**QUICK, "recorder_folder": self.records, **more})

    def run_pod(self, name: str, request: int = REQUEST, limit: int = LIMIT) -> Pod:
        qos = "Guaranteed" if request == limit else "Burstable"
        above = self.kubepods if qos == "Guaranteed" else self.burstable
        self.tell(_manifest(name, request, limit, qos))
        pod = above.child(f"pod{name}", memory_max=limit)
        container = pod.child(f"{name}app", memory_max=limit, memory_swap_max=0)
        return Pod(name, pod, container)

    def end_pod(self, pod: Pod) -> None:
        """As when a kubelet has removed it."""
        (self.folder / "pods" / f"{pod.name}.json").unlink()
        pod.pod.remove()
        self.burstable.forget(pod.pod)

    def log(self) -> str:
        return (self.folder / "log").read_text()

    def metric(self, name: str) -> float | None:
        return self.metrics(LISTEN).get(name)

    def recorded(self, pod: str) -> list[FlightRecord]:
        found = [each for each in read_recordings(str(self.records)) if each.who.pod == pod]
        assert all(each.damaged == 0 for each in found)
        return [record for each in found for record in each.records]

    def has_recorded(self, pod: str, kind: type[FlightRecord]) -> bool:
        return any(isinstance(record, kind) for record in self.recorded(pod))

    def largest_shmem(self, pod: str) -> int:
        levels = [each for each in self.recorded(pod) if isinstance(each, LevelRecord)]
        return max((each.shmem for each in levels), default=0)

    def heights(self, pod: str, kind: str) -> list[int | None]:
        """memory.high as the guard has set it step by step: none is missed, as by looking on."""
        guarded = [each for each in self.recorded(pod) if isinstance(each, GuardRecord)]
        return [each.new for each in guarded if each.kind == kind]

    def why(self, pod: str, *more: str) -> str:
        return memqos("why", f"pod/{pod}", *(more or ("--records", str(self.records))))

    def chapters(self, pod: str, *more: str) -> list[dict[str, Any]]:
        asked = more or ("--records", str(self.records))
        (container,) = json.loads(self.why(pod, *asked, "-o", "json"))["containers"]
        chapters: list[dict[str, Any]] = container["chapters"]
        return chapters


@pytest.fixture
def node(tmp_path: Path, kubepods: Cgroup, loopback: None) -> Iterator[Node]:
    with Node(tmp_path, kubepods) as made:
        yield made


def memqos(*arguments: str) -> str:
    command = [sys.executable, "-m", "memqos.cli.main", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_who_cannot_progress_is_let_on_and_reined_in_when_that_has_passed(node: Node) -> None:
    node.start()
    container = node.run_pod("grower").container
    eventually("the pod is as planned", lambda: container.read(HIGH) == str(STEPS[0]))
    workload = container.workload()
    workload.hold(100 * MI)
    assert container.events()["high"] > 0
    assert container.events()["oom_kill"] == 0
    # The pressure is gone with the one that made it.
    workload.end()
    eventually("it is reined in", lambda: container.read(HIGH) == str(STEPS[0]))
    labels = 'namespace="default",pod="grower",container="app"'
    eventually("the metrics know", lambda: node.metric(f"memqos_guard_step{{{labels}}}") is None)
    widened = node.metric('memqos_guard_steps_total{kind="widen"}')
    assert widened == node.metric('memqos_guard_steps_total{kind="narrow"}')
    assert widened is not None
    assert widened >= 2
    top = int(widened)
    eventually("all is recorded", lambda: len(node.heights("grower", "narrow")) == top)
    assert node.heights("grower", "widen") == STEPS[1 : top + 1]
    assert node.heights("grower", "narrow") == STEPS[:top][::-1]
    chapters = node.chapters("grower")
    assert [each["what"].split()[2] for each in chapters if each["kind"] == "guarded"] == [
        "raised",
        "lowered",
    ]
    assert any(each["kind"] == "throttled" for each in chapters)
    assert "changed by another writer" not in node.log()


def test_the_story_of_a_leak_is_reported_live_afterwards_and_elsewhere(node: Node) -> None:
    node.run_pod("bystander")
    node.start()
    pod = node.run_pod("leaker")
    container = pod.container
    eventually("the pod is as planned", lambda: container.read(HIGH) == str(STEPS[0]))
    program = container.program("leak", MI)
    eventually("it has ended", lambda: program.killed)
    assert container.events()["oom_kill"] == 1
    eventually("the kill is told of", lambda: node.metric("memqos_oom_kills_total") == 1)
    labels = 'namespace="default",pod="leaker",container="app"'
    assert node.metric(f"memqos_container_oom_kills_total{{{labels}}}") == 1
    eventually("it is recorded", lambda: node.has_recorded("leaker", KillRecord))
    (kill,) = [each for each in node.recorded("leaker") if isinstance(each, KillRecord)]
    _has_the_kernels_statistics(kill, pod)
    assert node.heights("leaker", "widen") == STEPS[1:]
    _is_the_story_of_a_leak(node.chapters("leaker"), program.pid)
    # The cgroup and the pod are gone, then the agent is.
    node.end_pod(pod)
    eventually("it is noticed", lambda: "vanished" in str(node.recorded("leaker")))
    assert node.end(signal.SIGTERM) == 0
    live = node.why("leaker")
    _is_the_story_of_a_leak(node.chapters("leaker"), program.pid)
    assert "what would have prevented it" in live
    assert node.why("leaker", "--records", str(node.records), "-o", "svg").startswith("<svg")
    # Then the node is.
    snapshot = str(node.folder / "node.json")
    source = ("--pods", str(node.folder / "pods"), "--kubelet", str(node.folder / "kubelet.yaml"))
    memqos("snapshot", "--out", snapshot, *source, "--records", str(node.records))
    for file in node.records.iterdir():
        file.unlink()
    assert node.why("leaker", "--snapshot", snapshot) == live
    assert "killed" in node.why("leaker", "--snapshot", snapshot, "-o", "svg")


@pytest.fixture
def volume(tmp_path: Path) -> Iterator[Path]:
    """A tmpfs, as the kubelet mounts one for an emptyDir with medium Memory."""
    folder = tmp_path / "volume"
    folder.mkdir()
    command = ["busybox", "mount", "-t", "tmpfs", "-o", "size=128m", "tmpfs", str(folder)]
    subprocess.run(command, check=True)
    yield folder
    subprocess.run(["busybox", "umount", str(folder)], check=True)


def test_files_in_memory_that_kill_container_after_container_are_reported(
    node: Node, volume: Path
) -> None:
    node.start()
    # Guaranteed: no memory.high slows it down.
    pod = node.run_pod("cache", LIMIT, LIMIT)
    first = pod.container
    eventually("it is recorded", lambda: node.has_recorded("cache", LifeRecord))
    first.run("busybox", "dd", "if=/dev/zero", f"of={volume}/files", "bs=1M", "count=80")
    eventually("its files are recorded", lambda: node.largest_shmem("cache") >= 80 * MI)
    writer = first.workload()
    writer.ask(64 * MI)
    eventually("it is killed", lambda: not writer.alive)
    eventually("the kill is recorded", lambda: node.has_recorded("cache", KillRecord))
    (killed,) = _killed(node, "cache")
    assert any("files in memory" in each for each in killed["evidence"])
    assert any("sizeLimit" in each for each in killed["remedies"])

    # The runtime starts it again in a new cgroup: the files stay charged to the pod.
    first.remove()
    pod.pod.forget(first)
    assert pod.pod.counts("memory.stat")["shmem"] >= 80 * MI
    manifest = _manifest("cache", LIMIT, LIMIT, "Guaranteed")
    manifest["status"]["containerStatuses"][0]["containerID"] = "containerd://again"
    node.tell(manifest)
    second = pod.pod.child("again", memory_max=LIMIT, memory_swap_max=0)
    workload = second.workload()
    workload.hold(MI)
    eventually("the agent knows it", lambda: "again" in str(node.recorded("cache")))
    workload.ask(64 * MI)
    eventually("it is killed again", lambda: not workload.alive)
    eventually("both kills are told of", lambda: len(_killed(node, "cache")) == 2)
    again = _killed(node, "cache")[-1]
    assert "the memory limit of its pod" in again["what"]
    assert any("an earlier container wrote" in each for each in again["evidence"])
    # Sentences are wrapped.
    assert "an earlier container wrote" in " ".join(node.why("cache").split())


def _killed(node: Node, pod: str) -> list[dict[str, Any]]:
    return [each for each in node.chapters(pod) if each["kind"] == "killed"]


def test_page_cache_that_its_own_protection_keeps_is_reported_as_such(
    node: Node, tmp_path: Path
) -> None:
    node.start()
    pod = node.run_pod("reader", 48 * MI, 48 * MI)
    pod.pod.child("pause").idle()
    eventually("it is protected", lambda: pod.container.number("memory.min") == 48 * MI)
    data, more = tmp_path / "data", tmp_path / "more"
    with sparse_file(data, 32 * MI) as file, sparse_file(more, 64 * MI) as another:
        read = pod.container.program("read", file, 1)
        eventually("a part is read", lambda: read.finished)
        eventually("that is recorded", lambda: _cache(node.recorded("reader")) > 24 * MI)
        read = pod.container.program("read", another, 1)
        eventually("it has come to an end", lambda: read.over)
    assert read.killed
    assert pod.container.events()["oom_kill"] >= 1
    eventually("it is recorded", lambda: node.has_recorded("reader", KillRecord))
    (end,) = [each for each in node.chapters("reader") if each["kind"] == "killed"]
    assert "because the memory limit of its pod was reached" in end["what"]
    assert end["rule"] == "min/protects-own-cache"
    assert "placement: pods" in end["remedies"][0]
    assert not node.has_recorded("reader", GuardRecord)


def test_page_cache_under_protection_of_the_pod_is_read_to_the_end(
    node: Node, tmp_path: Path
) -> None:
    node.start(placement="pods")
    pod = node.run_pod("reader", 48 * MI, 48 * MI)
    pod.pod.child("pause").idle()
    eventually("it is protected", lambda: pod.pod.number("memory.min") == 48 * MI)
    assert pod.container.number("memory.min") == 0
    with sparse_file(tmp_path / "data", 96 * MI) as file:
        read = pod.container.program("read", file, 2)
        eventually("it has come to an end", lambda: read.over)
    assert read.finished
    assert pod.container.events()["oom_kill"] == 0
    assert not node.has_recorded("reader", GuardRecord)


def test_an_agent_killed_in_the_midst_of_it_goes_on_where_it_was(node: Node) -> None:
    node.start(guard_calm="1h")
    container = node.run_pod("grower").container
    eventually("the pod is as planned", lambda: container.read(HIGH) == str(STEPS[0]))
    workload = container.workload()
    # Enough for a step or two, and not for all.
    workload.hold(72 * MI)
    eventually("a step is recorded", lambda: node.heights("grower", "widen"))
    node.end(signal.SIGKILL)
    reached = STEPS.index(container.number(HIGH))
    before = node.recorded("grower")
    node.start(guard_calm="1h")
    # A little at a time: on a slow machine all of it is allocated before the guard has looked.
    for _ in range(28):
        workload.hold(MI)
        if STEPS.index(container.number(HIGH)) > reached:
            break
    eventually("the guard goes on", lambda: STEPS.index(container.number(HIGH)) > reached)
    last = STEPS.index(container.number(HIGH))
    assert reached > 0
    eventually("that is recorded", lambda: STEPS[last] in node.heights("grower", "widen"))
    after = node.recorded("grower")
    assert after[: len(before)] == before
    guarded = [each.new for each in after[len(before) :] if isinstance(each, GuardRecord)]
    # It may have taken another step since.
    assert guarded[-1] is not None
    top = STEPS.index(guarded[-1])
    assert top >= last
    assert guarded[-(top - reached) :] == STEPS[reached + 1 : top + 1]


@pytest.fixture
def small_disk(node: Node) -> Iterator[Path]:
    node.records.mkdir(mode=0o700)
    options = ["-o", "size=64k,mode=0700", "tmpfs", str(node.records)]
    subprocess.run(["busybox", "mount", "-t", "tmpfs", *options], check=True)
    yield node.records
    if node.agent is not None:
        node.end(signal.SIGKILL)
    subprocess.run(["busybox", "umount", str(node.records)], check=True)


def test_a_full_disk_stops_the_recording_and_nothing_else(node: Node, small_disk: Path) -> None:
    filler = small_disk / "filler"
    with pytest.raises(OSError, match="No space"):
        filler.write_bytes(b"x" * MI)
    node.start()
    container = node.run_pod("grower").container
    eventually("the pod is as planned", lambda: container.read(HIGH) == str(STEPS[0]))
    workload = container.workload()
    workload.hold(100 * MI)
    assert container.number(HIGH) > STEPS[1]
    eventually("nothing is recorded", lambda: node.metric("memqos_recording") == 0)
    eventually("the log says so", lambda: "records cannot be written" in node.log())
    assert node.recorded("grower") == []
    filler.unlink()
    eventually("it is recorded again", lambda: node.metric("memqos_recording") == 1)
    eventually("the log says that too", lambda: "records are written again" in node.log())
    chapters = node.chapters("grower")
    (gap,) = [each for each in chapters if each["kind"] == "gap"]
    assert "No space left on device" in gap["what"]
    # What happened meanwhile had waited in memory.
    assert any(each["kind"] == "guarded" for each in chapters)


def _has_the_kernels_statistics(kill: KillRecord, pod: Pod) -> None:
    """What the kernel has logged adds up to the limit, and the pod's event says it."""
    kinds = (kill.total_anon, kill.total_file, kill.total_kernel)
    assert all(each is not None for each in kinds)
    assert 0.95 * LIMIT <= sum(filter(None, kinds)) <= LIMIT
    whose = "pod" if kill.oom_cgroup == pod.pod.name else "container"
    note = describe_kill(kill, pod.pod.name)
    assert f"killed: the {whose}'s memory limit of {LIMIT // MI}Mi was reached with " in note
    for word in ("anonymous", "page cache", "tmpfs", "kernel memory"):
        assert word in note


def _is_the_story_of_a_leak(chapters: list[dict[str, Any]], pid: int) -> None:
    assert {each["kind"] for each in chapters} >= {"changed", "throttled", "guarded", "killed"}
    (end,) = [each for each in chapters if each["kind"] == "killed"]
    # The pod's limit is the container's: the kernel may find either of them reached first.
    assert f"(pid {pid}), because the " in end["what"]
    assert end["what"].endswith("was reached")
    assert f"{LIMIT // MI}Mi were in use of {LIMIT // MI}Mi" in end["evidence"][1]
    assert "number 1 of 1 OOM candidates" in end["evidence"][0]
    assert "oom_score_adj 0" in end["evidence"][0]
    assert end["evidence"][2].startswith("by kind: ")
    assert end["rule"] == "max/limit"


def _cache(records: list[FlightRecord]) -> int:
    return max([record.file for record in records if isinstance(record, LevelRecord)], default=0)


def _manifest(name: str, request: int, limit: int, qos: str) -> dict[str, Any]:
    amounts = {
        "requests": {"memory": str(request), "cpu": "1"},
        "limits": {"memory": str(limit), "cpu": "1"},
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "default", "uid": name},
        "spec": {
            "nodeName": "node",
            "containers": [{"name": "app", "image": "i", "resources": amounts}],
        },
        "status": {
            "phase": "Running",
            "qosClass": qos,
            "containerStatuses": [{"name": "app", "containerID": f"containerd://{name}app"}],
        },
    }
