"""A converged plan of 250 pods with 2 containers each, beside a bare loop over the same files."""

import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator

import msgspec

from memqos.converge.node_plan import PLAN_FILES, PlanOptions, plan_observation
from memqos.converge.observation import observe_live
from memqos.converge.pod_sources import PodSource
from memqos.host.machine import Roots
from memqos.kernel.machine import Machine
from memqos.kube.kubelet import with_defaults
from memqos.kube.node import Capacity
from memqos.kube.pod import Pod
from memqos.plan.changes import DEFAULTS, as_stored
from memqos.plan.tree import Tree, plan_node
from memqos.release import Release
from memqos.settings.facts import RawKubeletConfig
from memqos.settings.settings import Settings

PODS = 250
ROUNDS = 7
MOST = 3.0
MEMORY = 256 << 30
CONFIG = b"""
kind: KubeletConfiguration
memoryReservationPolicy: TieredReservation
memoryThrottlingFactor: 0.9
"""


class _Pods(PodSource):
    def __init__(self, pods: list[Pod]) -> None:
        self._pods = pods

    def pods(self) -> list[Pod]:
        return self._pods

    def describe(self) -> str:
        return "generated pods"


def report() -> Iterator[str]:
    """Opens counted once, times as the best of several rounds."""
    pods = [_pod(number) for number in range(PODS)]
    with tempfile.TemporaryDirectory() as root:
        files = _create_tree(root, _tree(pods))
        machine = Machine(layout="v2", meminfo=f"MemTotal: {MEMORY // 1024} kB\n", page_size=4096)

        def plan() -> int:
            observation = observe_live(
                _Pods(pods),
                PLAN_FILES,
                roots=Roots(cgroup=root),
                configuration=RawKubeletConfig("bench", CONFIG),
                machine=machine,
            )
            return len(
                plan_observation(observation, PlanOptions(release="1.38")).comparison.changes
            )

        def bare() -> None:
            for file in files:
                handle = os.open(file, os.O_RDONLY)
                os.read(handle, 4096)
                os.close(handle)

        opened = _opens(root, plan)
        best_plan = best_bare = float("inf")
        for _ in range(ROUNDS):
            best_plan = min(best_plan, _seconds(plan))
            best_bare = min(best_bare, _seconds(bare))
        yield f"{PODS} pods × 2 containers: {plan()} changes, {len(files)} files, {opened} opened"
        yield (
            f"plan {best_plan * 1000:.1f} ms, bare loop {best_bare * 1000:.1f} ms: "
            f"{best_plan / best_bare:.1f} × (at most {MOST:g})"
        )


def _pod(number: int) -> Pod:
    stanza = {"requests": {"cpu": "100m", "memory": "128Mi"}, "limits": {"memory": "256Mi"}}
    return msgspec.convert(
        {
            "metadata": {"name": f"p{number}", "namespace": "n", "uid": f"uid-{number}"},
            "spec": {
                "containers": [
                    {"name": name, "image": "i", "resources": stanza} for name in ("a", "b")
                ]
            },
            "status": {
                "phase": "Running",
                "qosClass": "Burstable",
                "containerStatuses": [
                    {"name": name, "containerID": f"containerd://{number:032x}{name}"}
                    for name in ("a", "b")
                ],
            },
        },
        Pod,
    )


def _tree(pods: list[Pod]) -> Tree:
    config = with_defaults(
        {"memory_reservation_policy": "TieredReservation", "memory_throttling_factor": 0.9}, 38
    )
    settings = Settings(
        Release.of("1.38"),
        0.9,
        "TieredReservation",
        memory_capacity=MEMORY,
        memory_allocatable=MEMORY,
    )
    return plan_node(pods, settings, config, Capacity(cpu=0, memory=MEMORY))


def _create_tree(root: str, tree: Tree) -> list[str]:
    """Lay the tree out as planned; every cgroup has all the files that a plan reads."""
    files = []
    for path, cgroup in tree.cgroups.items():
        os.makedirs(root + path, exist_ok=True)
        for file in PLAN_FILES:
            setting = cgroup.settings.get(file)
            value = as_stored(file, setting.value if setting else None, 4096)
            name = f"{root}{path}/{file}"
            with open(name, "w", encoding="ascii") as opened:
                opened.write((value or DEFAULTS.get(file, "0")) + "\n")
            files.append(name)
    return files


_counted: list[str] = []
_watched: list[str] = []


def _watch(event: str, arguments: tuple[object, ...]) -> None:
    if event == "open" and _watched and str(arguments[0]).rsplit("/", 1)[-1] in PLAN_FILES:
        _counted.append(str(arguments[0]))


def _opens(root: str, work: Callable[[], object]) -> int:
    sys.addaudithook(_watch)
    _watched.append(root)
    work()
    _watched.clear()
    return len(_counted)


def _seconds(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start
