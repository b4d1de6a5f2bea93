"""Whom a kubelet evicts first, by memqos's own eviction loop on usage that the kernel counts."""

import time
from typing import Final

from memqos.cluster.eviction_loop import EvictionSettings, EvictionState, evict_once
from memqos.cluster.eviction_order import PodMemoryUsage, RankedPod
from memqos.cluster.eviction_signals import SignalObservation, pods_observation, working_set
from memqos.kube.kubelet.thresholds import ALLOCATABLE_MEMORY, read_thresholds
from memqos.kube.pod import Pod
from memqos.lab.cgroup import ScratchCgroup
from memqos.lab.node import PlannedNode, lab_pod, memory_resources
from memqos.lab.scenario import MIB, Figures, Hypothesis, LabMeasure, Scenario, Variant, Workbench
from memqos.lab.waiting import wait_until

_CAPACITY: Final = 224 * MIB
_THRESHOLD: Final = 32 * MIB
_STEP: Final = 4 * MIB
_FILES: Final = ("memory.max", "memory.current", "memory.stat")
_USES: Final = {"over": 40, "best": 32, "under": 24, "exact": 32}
"""MiB that each pod holds."""


def _pods() -> list[Pod]:
    return [
        lab_pod("over", {"app": memory_resources(16 * MIB)}, priority=1000),
        lab_pod("best", {"app": {}}, priority=2000),
        lab_pod("under", {"app": memory_resources(64 * MIB)}, priority=1000),
        lab_pod("exact", {"app": memory_resources(48 * MIB, 48 * MIB, cpu=True)}),
        # The one that grows, above all others in priority.
        lab_pod("grower", {"app": memory_resources(MIB)}, priority=5000),
    ]


def _measure(bench: Workbench, variant: Variant) -> Figures:
    kubelet = {**variant.kubelet, "evictionHard": {"memory.available": str(_THRESHOLD)}}
    node = PlannedNode(bench, _pods(), capacity=_CAPACITY, kubelet=kubelet)
    for name, size in _USES.items():
        score = node.oom_score_adj(name)
        node.container(name).workload(oom_score_adj=score).hold(size * MIB)
    grower = node.container("grower").workload(oom_score_adj=node.oom_score_adj("grower"))
    kubepods = node.cgroup.path / "kubepods"
    config, release = node.settings.config, node.settings.settings.release
    thresholds = read_thresholds(
        config.eviction_hard, enforced=config.enforce_node_allocatable
    ).thresholds
    settings = EvictionSettings(thresholds)
    running, state = dict(node.pods), EvictionState()
    evicted: list[str] = []
    predicted: list[str] = []
    least = _CAPACITY
    while len(evicted) < 3 and grower.alive:
        observation = pods_observation(
            {file: (kubepods / file).read_text().strip() for file in _FILES}
        )
        assert observation is not None
        now = time.monotonic_ns()
        seen = {ALLOCATABLE_MEMORY: SignalObservation(*observation[:2], now)}
        least = min(least, observation.available)
        usages = [(pod, _usage(node.pod(name))) for name, pod in running.items()]
        step, state = evict_once(state, now, seen, usages, settings, release)
        if step.evicted is None:
            grower.ask(_STEP)
            wait_until("it has grown", lambda: grower.answered() or not grower.alive)
            continue
        predicted = predicted or [_name(each) for each in step.order]
        name = _name(step.evicted)
        evicted.append(name)
        del running[name]
        node.pod(name).kill()
    return {
        "order": ", ".join(evicted),
        "predicted": ", ".join(predicted),
        "least": least,
        "kills": node.cgroup.kills(),
    }


def _usage(cgroup: ScratchCgroup) -> PodMemoryUsage:
    return PodMemoryUsage(working_set({file: cgroup.read(file) for file in _FILES}))


def _name(ranked: RankedPod) -> str:
    return ranked.pod.metadata.name or ""


EVICTION_ORDER: Final = Scenario(
    name="eviction-order",
    title="Order of evictions",
    about="Four pods hold memory on a node of 224Mi while a fifth one grows, 4Mi at a time. "
    "memqos's eviction loop watches what is available of the memory for pods, and evicts below "
    "32Mi, three times.",
    source="Kubernetes, node-pressure eviction",
    memory=_CAPACITY + 32 * MIB,
    seconds=8,
    variants={"evictions": Variant(title="evictionHard 32Mi")},
    measures={
        "order": LabMeasure("evicted", "text"),
        "predicted": LabMeasure("predicted at the first", "text"),
        "least": LabMeasure("least memory available", "bytes"),
        "kills": LabMeasure("kills by the kernel"),
    },
    hypotheses=(
        Hypothesis(
            text="Pods go in the order that was predicted at the first eviction.",
            variants=("evictions",),
            holds=lambda by: (
                bool(by["evictions"]["order"])
                and str(by["evictions"]["predicted"]).startswith(str(by["evictions"]["order"]))
            ),
        ),
        Hypothesis(
            text="The QoS class is no key: a Burstable pod above its request goes before a "
            "BestEffort pod of higher priority.",
            variants=("evictions",),
            holds=lambda by: str(by["evictions"]["order"]).startswith("over, best"),
        ),
        Hypothesis(
            text="Evictions come before the kernel has to kill.",
            variants=("evictions",),
            holds=lambda by: not by["evictions"]["kills"],
        ),
    ),
    measure=_measure,
)
