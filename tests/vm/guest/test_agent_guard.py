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
from tests.vm.guest.pods import file_of
from tests.vm.guest.support import MI, Cgroup
from tests.vm.harness.topology import Topology

from memqos.host.record_files import read_recordings
from memqos.record.format import FlightRecord, GuardRecord, KillRecord, LevelRecord

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
        "widened",
        "narrowed",
    ]
    assert any(each["kind"] == "throttled" for each in chapters)
    assert "changed by others" not in node.log()


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
    eventually("it is recorded", lambda: node.has_recorded("leaker", KillRecord))
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


def test_page_cache_that_its_own_protection_keeps_is_reported_as_such(
    node: Node, tmp_path: Path
) -> None:
    node.start()
    pod = node.run_pod("reader", 48 * MI, 48 * MI)
    pod.pod.child("pause").idle()
    eventually("it is protected", lambda: pod.container.number("memory.min") == 48 * MI)
    (tmp_path / "more").mkdir()
    with file_of(tmp_path, 32 * MI) as file, file_of(tmp_path / "more", 64 * MI) as another:
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
    with file_of(tmp_path, 96 * MI) as file:
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
    workload.ask(28 * MI)
    node.start(guard_calm="1h")
    eventually("it goes on", workload.answered)
    last = STEPS.index(container.number(HIGH))
    assert 0 < reached < last
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
    eventually("the log says so", lambda: "nothing is recorded" in node.log())
    assert node.recorded("grower") == []
    filler.unlink()
    eventually("it is recorded again", lambda: node.metric("memqos_recording") == 1)
    eventually("the log says that too", lambda: "recording goes on" in node.log())
    chapters = node.chapters("grower")
    (gap,) = [each for each in chapters if each["kind"] == "gap"]
    assert "No space left on device" in gap["what"]
    # What happened meanwhile had waited in memory.
    assert any(each["kind"] == "guarded" for each in chapters)


def _is_the_story_of_a_leak(chapters: list[dict[str, Any]], pid: int) -> None:
    assert {each["kind"] for each in chapters} >= {"changed", "throttled", "guarded", "killed"}
    (end,) = [each for each in chapters if each["kind"] == "killed"]
    # The pod's limit is the container's: the kernel may find either of them reached first.
    assert f"(pid {pid}), because the " in end["what"]
    assert end["what"].endswith("was reached")
    assert f"{LIMIT // MI}Mi were in use of {LIMIT // MI}Mi" in end["evidence"][1]
    assert "number 1 of 1 that could be killed" in end["evidence"][0]
    assert "oom_score_adj 0" in end["evidence"][0]
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
