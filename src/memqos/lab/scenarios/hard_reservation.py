"""HardReservation on a real kernel: a Burstable pod's request is held, if need be by a kill."""

from typing import Final

from memqos.lab.node import PlannedNode, lab_pod, memory_resources
from memqos.lab.scenario import MIB, Figures, Hypothesis, LabMeasure, Scenario, Variant, Workbench
from memqos.lab.waiting import wait_until

_CAPACITY: Final = 128 * MIB
_REQUEST: Final = 72 * MIB
_CACHE: Final = 56 * MIB
_HOG: Final = 88 * MIB


def _measure(bench: Workbench, variant: Variant) -> Figures:
    pods = [lab_pod("app", {"app": memory_resources(_REQUEST)}), lab_pod("hog", {"app": {}})]
    node = PlannedNode(bench, pods, capacity=_CAPACITY, kubelet=variant.kubelet)
    container = node.container("app")
    data = bench.folder / "data"
    container.cache(data, _CACHE)
    before = container.number("memory.current")
    hog = node.container("hog").workload(oom_score_adj=node.oom_score_adj("hog"))
    hog.ask(_HOG)
    wait_until("the hog has its memory or is killed", lambda: hog.answered() or not hog.alive)
    kept = container.number("memory.current")
    data.unlink()
    return {
        "min": container.number("memory.min"),
        "low": container.number("memory.low"),
        "kept": kept / before,
        "low_events": container.events()["low"],
        "hog_lives": int(hog.alive),
        "kills": node.cgroup.kills(),
    }


HARD_RESERVATION: Final = Scenario(
    name="hard-reservation",
    title="HardReservation on a real kernel",
    about="On a node of 128Mi a Burstable pod that requests 72Mi has 56Mi of page cache. A "
    "BestEffort hog wants 88Mi, more than is left.",
    source="Kubernetes 1.36, memoryReservationPolicy",
    memory=_CAPACITY + 32 * MIB,
    seconds=4,
    variants={
        "none": Variant(title="None", kubelet={"memoryReservationPolicy": "None"}),
        "tiered": Variant(
            title="TieredReservation", kubelet={"memoryReservationPolicy": "TieredReservation"}
        ),
        "hard": Variant(
            title="HardReservation", kubelet={"memoryReservationPolicy": "HardReservation"}
        ),
    },
    measures={
        "min": LabMeasure("memory.min", "bytes"),
        "low": LabMeasure("memory.low", "bytes"),
        "kept": LabMeasure("memory kept", "share", charted=True),
        "low_events": LabMeasure("low events"),
        "hog_lives": LabMeasure("the hog got its memory"),
        "kills": LabMeasure("kills", charted=True),
    },
    hypotheses=(
        Hypothesis(
            text="memory.low gives way: under TieredReservation the hog gets its memory and "
            "nothing is killed.",
            variants=("tiered",),
            holds=lambda by: bool(by["tiered"]["hog_lives"]) and not by["tiered"]["kills"],
        ),
        Hypothesis(
            text="memory.min does not: under HardReservation the pod keeps 90 % and the hog is "
            "killed.",
            variants=("hard",),
            holds=lambda by: float(by["hard"]["kept"]) >= 0.9 and not by["hard"]["hog_lives"],
        ),
    ),
    measure=_measure,
)
