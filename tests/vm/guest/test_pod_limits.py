"""Limits of a pod as a whole, as planned and as the kernel keeps them."""

import signal
from pathlib import Path

import pytest
from tests.builders import stanza
from tests.eventually import eventually
from tests.vm.guest.node import Node, a_pod
from tests.vm.guest.support import MI, Cgroup, Workload

from memqos.lab.vm.topology import Topology

MACHINES = {"plain": Topology()}

UNLIMITED = {"app": stanza(), "other": stanza()}


@pytest.fixture
def node(kubepods: Cgroup, tmp_path: Path) -> Node:
    limits = stanza("32Mi", "64Mi", cpu=("100m", "200m"))
    pods = [
        a_pod("limited", UNLIMITED, ephemeral=["debug"], resources=limits),
        a_pod("free", UNLIMITED),
    ]
    return Node(tmp_path, kubepods, pods)


def started(node: Node, uid: str, name: str) -> Workload:
    """A process in a container, with the score that is planned for it."""
    container = node.container(uid, name)
    return container.workload(oom_score_adj=int(str(node.planned(container, "oom_score_adj"))))


def test_containers_without_limits_are_killed_at_that_of_their_pod(node: Node) -> None:
    pod = node.pod("limited")
    assert node.planned(pod, "memory.max") == pod.number("memory.max") == 64 * MI
    small, large = (started(node, "limited", name) for name in UNLIMITED)
    small.hold(24 * MI)
    large.ask(56 * MI)
    eventually("the larger one is gone", lambda: not large.alive)
    assert large.killed_by == signal.SIGKILL
    assert small.alive
    # At the pod's own limit, and not at that of a container: neither needs as much alone.
    assert pod.counts("memory.events.local")["oom"] > 0
    killed = {
        name: node.container("limited", name).events()["oom_group_kill"] for name in UNLIMITED
    }
    assert killed == {"app": 0, "other": 1}


def test_an_ephemeral_container_cannot_get_past_it_either(node: Node) -> None:
    pod = node.pod("limited")
    app, debug = started(node, "limited", "app"), started(node, "limited", "debug")
    app.hold(24 * MI)
    debug.ask(56 * MI)
    eventually("the ephemeral container's process is gone", lambda: not debug.alive)
    assert debug.killed_by == signal.SIGKILL
    assert app.alive
    assert pod.number("memory.peak") <= 64 * MI
    assert pod.events()["oom_group_kill"] == 1


def test_a_pod_without_a_limit_goes_on_where_the_other_was_killed(node: Node) -> None:
    for name in UNLIMITED:
        started(node, "free", name).hold(56 * MI)
    assert node.pod("free").number("memory.current") > 112 * MI
    assert node.pod("free").events()["oom_kill"] == 0


def test_a_pod_is_throttled_at_its_cpu_limit_and_no_other_is(node: Node) -> None:
    limited, free = node.pod("limited"), node.pod("free")
    assert node.planned(limited, "cpu.max") == limited.read("cpu.max") == "20000 100000"
    for uid in ("limited", "free"):
        for name in UNLIMITED:
            node.container(uid, name).burn()
    eventually("it was throttled often", lambda: cpu(limited)["nr_throttled"] > 10)
    assert cpu(limited)["throttled_usec"] > 0
    assert cpu(limited)["usage_usec"] < 2 * 20_000 * cpu(limited)["nr_periods"]
    assert cpu(free)["nr_throttled"] == 0


def cpu(cgroup: Cgroup) -> dict[str, int]:
    return cgroup.counts("cpu.stat")
