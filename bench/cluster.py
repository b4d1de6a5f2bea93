"""A generated cluster like real ones: machines of four sizes, more than half full, and pods from
tiny sidecars to databases, most of which request round numbers."""

import random
from collections.abc import Iterator

import msgspec

from memqos.cluster.fit_demand import NodeInfo, SchedulingDemand, node_info, scheduling_demands
from memqos.kube.pod import Pod
from memqos.kube.resources import Amounts
from memqos.release import Release

MACHINES = ((4, 16), (8, 32), (16, 64), (32, 128))
"""cpus, GiB."""
CPU = (10, 25, 50, 100, 100, 200, 250, 500, 500, 1000, 2000, 4000)
"""Millicores; frequent values are listed several times."""
MEMORY = (16, 32, 64, 128, 128, 256, 256, 512, 512, 1024, 2048, 4096, 8192)
"""MiB."""
FULL = (0.4, 0.95)
"""The share of a node that is requested; a scheduler never exceeds 1."""
MOST_PODS = 60


def pods(count: int, seed: int = 1) -> list[Pod]:
    """Pods to be scheduled, few of them alike."""
    dice = random.Random(seed)
    return [_pod(dice, f"new-{number}", uneven=True) for number in range(count)]


def nodes(count: int, release: Release, seed: int = 2) -> list[NodeInfo]:
    """Nodes with the pods that run there."""
    dice = random.Random(seed)
    return [_node(dice, number, release) for number in range(count)]


def _node(dice: random.Random, number: int, release: Release) -> NodeInfo:
    cpus, memory = dice.choice(MACHINES)
    allocatable: Amounts = {
        "cpu": cpus * 1000 - 200,
        "memory": ((memory << 30) * 94 // 100) * 1000,
        "ephemeral-storage": (100 << 30) * 1000,
        "pods": 110 * 1000,
    }
    full = dice.uniform(*FULL)
    free = {"cpu": allocatable["cpu"] * full, "memory": allocatable["memory"] / 1000 * full}
    running: list[SchedulingDemand] = []
    for index in range(MOST_PODS):
        (demand,) = scheduling_demands([_pod(dice, f"old-{number}-{index}")], release)
        for name in free:
            free[name] -= demand.charged.get(name, 0)
        if min(free.values()) < 0:
            break
        running.append(demand)
    return node_info(f"node-{number}", allocatable, running)


def _pod(dice: random.Random, name: str, *, uneven: bool = False) -> Pod:
    return msgspec.convert(
        {"metadata": {"name": name}, "spec": {"containers": list(_containers(dice, uneven))}}, Pod
    )


def _containers(dice: random.Random, uneven: bool) -> Iterator[dict[str, object]]:
    for index in range(dice.choice((1, 1, 1, 2, 2, 3))):
        odd = dice.randrange(10) if uneven else 0
        cpu, memory = dice.choice(CPU) + odd, dice.choice(MEMORY) + odd
        requests = {"cpu": f"{cpu}m", "memory": f"{memory}Mi"}
        limits = {"memory": f"{2 * memory}Mi"} if dice.random() < 0.6 else {}
        yield {
            "name": f"c{index}",
            "image": "i",
            "resources": {} if dice.random() < 0.1 else {"requests": requests, "limits": limits},
        }
