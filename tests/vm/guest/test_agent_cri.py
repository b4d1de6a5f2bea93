"""An agent beside a container runtime: bare manifests, containers that the runtime owns."""

import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.eventually import eventually
from tests.vm.guest.agent import Agent
from tests.vm.guest.owner_node import Memqos, number, systemctl, text
from tests.vm.guest.runtime import Containerd, RunningPod
from tests.vm.guest.support import MI

from memqos.lab.vm.topology import Topology

MACHINES = {"systemd": Topology(nodes=(1280,), init="systemd")}

LOW, HIGH = "memory.low", "memory.high"
PODS = 2
REQUEST, LIMIT = 16 * MI, 48 * MI


def bare(uid: str) -> dict[str, Any]:
    """A manifest as a person writes it: where it runs is not said."""
    resources = {"requests": {"memory": str(REQUEST)}, "limits": {"memory": str(LIMIT)}}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": uid},
        "spec": {"containers": [{"name": "main", "image": "i", "resources": resources}]},
    }


@pytest.fixture
def agent(tmp_path: Path) -> Iterator[Agent]:
    made = Agent(tmp_path, "systemd")
    yield made
    if made.agent is not None:
        made.end(signal.SIGKILL)


@pytest.fixture
def containerd() -> Iterator[Containerd]:
    """Its pods end with the machine."""
    made = Containerd("systemd")
    yield made
    made.kill()


def test_pods_that_are_manifests_alone_are_found_written_and_kept(
    agent: Agent, containerd: Containerd, tmp_path: Path
) -> None:
    pods = [RunningPod(containerd, f"u{each}", "Burstable") for each in range(PODS)]
    cgroups = [pods[0].container("main", memory_limit_in_bytes=LIMIT)]
    kubepods = pods[0].names.kubepods
    before = Memqos(tmp_path).files(kubepods)
    agent.start()
    for pod in pods:
        agent.tell(bare(pod.uid))
    cgroups += [pod.container("main", memory_limit_in_bytes=LIMIT) for pod in pods[1:]]

    def is_converged() -> bool:
        own = [(number(each, LOW), number_or_max(each, HIGH)) for each in cgroups]
        above = number(cgroups[0].parent.parent, LOW)
        return own == [(REQUEST, (REQUEST + LIMIT) // 2)] * PODS and above == PODS * REQUEST

    eventually("all are as planned", is_converged)
    for pod in pods:
        assert containerd.stored(pod.containers["main"])[LOW] == str(REQUEST)
    # Neither a resize by a kubelet nor a reload takes anything back.
    containerd.update(pods[0].containers["main"], memory_limit_in_bytes=LIMIT + MI)
    systemctl("daemon-reload")
    assert is_converged()
    (cgroups[1] / LOW).write_text("0")
    (cgroups[1].parent.parent / LOW).write_text("0")
    agent.reload()
    eventually("what was written past all owners is put back", is_converged)
    containerd.update(pods[0].containers["main"], memory_limit_in_bytes=LIMIT)
    assert agent.end(signal.SIGTERM) == 0
    agent.roll_back()
    after = Memqos(tmp_path).files(kubepods)
    assert {place: after[place] for place in before} == before


def number_or_max(cgroup: Path, file: str) -> int | str:
    content = text(cgroup, file)
    return int(content) if content.isdigit() else content
