"""Whom the kernel kills when a whole node has no memory left."""

from pathlib import Path

import pytest
from tests.builders import box, node_settings, of_containers, planned, pod
from tests.eventually import eventually
from tests.vm.guest.support import MI, Cgroup, Workload, killed_in_order

from memqos.lab.vm.topology import Topology

pytestmark = pytest.mark.usefixtures("spared")

MACHINES = {"small": Topology(nodes=(512,))}

HOG = -999
"""Spared longer than any pod."""


def test_besteffort_dies_first_then_burstable_and_guaranteed_never(cgroup: Cgroup) -> None:
    sizes = {"guaranteed": 64, "burstable": 64, "besteffort": 32}
    pods = {name: cgroup.child(name) for name in sizes}
    running = {
        name: pods[name].workload(oom_score_adj=score) for name, score in planned_scores().items()
    }
    for name, workload in running.items():
        workload.hold(sizes[name] * MI)

    hog = cgroup.child("hog").workload(oom_score_adj=HOG)
    take_until_gone(hog, running["besteffort"])
    take_until_gone(hog, running["burstable"])
    assert killed_in_order(running) == ["besteffort", "burstable"]
    assert {name: pods[name].events()["oom_kill"] for name in pods} == {
        "guaranteed": 0,
        "burstable": 1,
        "besteffort": 1,
    }
    assert running["guaranteed"].alive
    assert hog.alive


def planned_scores() -> dict[str, int]:
    capacity = node_settings(capacity=memory_capacity())
    pods = {
        "guaranteed": pod([box("64Mi", "64Mi", cpu=(1, 1))]),
        "burstable": pod([box("64Mi")]),
        "besteffort": pod([box()]),
    }
    scores = {
        name: of_containers(planned(made, capacity), "oom_score_adj") for name, made in pods.items()
    }
    return {name: int(str(score)) for name, [score] in scores.items()}


def memory_capacity() -> int:
    [line] = [line for line in Path("/proc/meminfo").read_text().splitlines() if "MemTotal" in line]
    return int(line.split()[1]) << 10


def take_until_gone(hog: Workload, victim: Workload) -> None:
    """Take the node's memory bit by bit, so that each shortage ends with its first death."""
    while victim.alive:
        hog.ask(8 * MI)
        eventually("the hog goes on", hog.answered)
