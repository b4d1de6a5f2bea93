"""A memory-sensitive service beside a hog: memory.min, memory.low, none (KEP-2570, story 1)."""

import time
from statistics import median
from typing import Final

from memqos.kernel.file_formats import stall_of
from memqos.lab.cgroup import ScratchCgroup
from memqos.lab.node import PlannedNode, lab_pod, memory_resources
from memqos.lab.scenario import MIB, Figures, Hypothesis, LabMeasure, Scenario, Variant, Workbench
from memqos.lab.throttled import file_on_disk, sparse_file
from memqos.lab.waiting import wait_until

_CAPACITY: Final = 176 * MIB
_REQUEST: Final = 80 * MIB
_FILE: Final = 48 * MIB
_ALLOCATION: Final = 4 * MIB
_NEIGHBOUR: Final = 48 * MIB
_HOG: Final = 96 * MIB
_PAUSE: Final = 100
"""Milliseconds between two laps of the neighbour."""
_LAPS: Final = 4
"""Of the service, alone and beside the hog, at least."""
_HOG_LAPS: Final = 2


def _measure(bench: Workbench, variant: Variant) -> Figures:
    guaranteed = bool(variant.parameters.get("guaranteed"))
    limit = _REQUEST if guaranteed else _CAPACITY
    pods = [
        lab_pod("service", {"app": memory_resources(_REQUEST, limit, cpu=guaranteed)}),
        lab_pod("neighbour", {"app": {}}),
        lab_pod("hog", {"app": {}}),
    ]
    node = PlannedNode(
        bench,
        pods,
        capacity=_CAPACITY,
        kubelet=variant.kubelet,
    )
    container, hog = node.container("service"), node.container("hog")
    other = bench.folder / "neighbour"
    with file_on_disk(bench.folder / "service", _FILE) as file, sparse_file(other, _NEIGHBOUR):
        score = node.oom_score_adj("service")
        service = container.program("serve", file, _ALLOCATION, 0, oom_score_adj=score)
        score = node.oom_score_adj("neighbour")
        neighbour = node.container("neighbour").program(
            "read", other, 0, _PAUSE, oom_score_adj=score
        )
        wait_until("the service runs", lambda: service.steps > _LAPS or service.over)
        wait_until("the neighbour runs", lambda: neighbour.steps >= 2 or neighbour.over)
        before = container.counts("memory.stat")
        done, least = service.steps, before["file"]
        start, waited = time.monotonic(), _waited(container)
        score = node.oom_score_adj("hog")
        hogging = hog.program("churn", _HOG, 8 * MIB, MIB, 0, oom_score_adj=score)
        while not service.over and (service.steps < done + _LAPS or hogging.steps < _HOG_LAPS):
            if hogging.over:
                break
            least = min(least, container.counts("memory.stat")["file"])
            time.sleep(0.05)
        after = container.counts("memory.stat")
        waiting = (_waited(container) - waited) / (time.monotonic() - start)
        figures = service.figures
    result: Figures = {
        "least": least,
        "kept": least / before["file"],
        "refaults": after["workingset_refault_file"] - before["workingset_refault_file"],
        "waiting": waiting,
        "kills": node.pod("service").kills(),
        "hog_kills": node.pod("hog").kills(),
    }
    # The first lap fills the page cache.
    alone, beside = figures[1:done], figures[done:]
    if alone and beside:
        result["allocation"] = _slowdown(alone, beside, 0)
        result["reading"] = _slowdown(alone, beside, 1)
    return result


def _waited(cgroup: ScratchCgroup) -> float:
    return stall_of(cgroup.read("memory.pressure")).some.total / 1e6


def _slowdown(alone: list[tuple[int, ...]], beside: list[tuple[int, ...]], which: int) -> float:
    """How many times as long a lap takes beside the hog."""
    return median(each[which] for each in beside) / median(each[which] for each in alone)


PROTECTION: Final = Scenario(
    name="protection",
    title="Protection of a memory-sensitive service",
    about="On a node of 176Mi a service that requests 80Mi reads a file of 48Mi through the page "
    "cache and takes and returns 4Mi, lap by lap. A BestEffort neighbour reads 48Mi as well. A "
    "BestEffort hog takes and returns 96Mi. Latencies are those beside the hog, as multiples of "
    "those before it came.",
    source="KEP-2570, user story 1",
    memory=_CAPACITY + 32 * MIB,
    seconds=9,
    variants={
        "none": Variant(title="policy None"),
        "low": Variant(
            title="memory.low (Tiered, Burstable)",
            kubelet={"memoryReservationPolicy": "TieredReservation"},
        ),
        "min": Variant(
            title="memory.min (Tiered, Guaranteed)",
            kubelet={"memoryReservationPolicy": "TieredReservation"},
            parameters={"guaranteed": True},
        ),
    },
    measures={
        "least": LabMeasure("least page cache of the service", "bytes"),
        "kept": LabMeasure("page cache kept at least", "share", charted=True),
        "refaults": LabMeasure("pages read again (refaults)", charted=True),
        "waiting": LabMeasure("waiting for memory (PSI some)", "share", charted=True),
        "allocation": LabMeasure("allocation latency, times as long", "ratio", charted=True),
        "reading": LabMeasure("read latency, times as long", "ratio", charted=True),
        "kills": LabMeasure("kills of the service"),
        "hog_kills": LabMeasure("kills of the hog"),
    },
    hypotheses=(
        Hypothesis(
            text="Without protection the service loses page cache to the hog, and reads more than "
            "1,000 pages again.",
            variants=("none",),
            holds=lambda by: float(by["none"]["refaults"]) > 1000,
        ),
        Hypothesis(
            text="memory.low keeps at least 90 % of it.",
            variants=("low",),
            holds=lambda by: float(by["low"]["kept"]) >= 0.9,
        ),
        Hypothesis(
            text="memory.min keeps at least 90 % of it.",
            variants=("min",),
            holds=lambda by: float(by["min"]["kept"]) >= 0.9,
        ),
        Hypothesis(
            text="A protected service has less than a tenth of the refaults.",
            variants=("none", "low", "min"),
            holds=lambda by: (
                max(float(by[each]["refaults"]) for each in ("low", "min"))
                < 0.1 * float(by["none"]["refaults"])
            ),
        ),
        Hypothesis(
            text="A protected service waits for memory less than half as long (PSI some).",
            variants=("none", "low", "min"),
            holds=lambda by: (
                max(float(by[each]["waiting"]) for each in ("low", "min"))
                < 0.5 * float(by["none"]["waiting"])
            ),
        ),
        # Where two processors are emulated, whoever waits for one takes longer than any reclaim.
        Hypothesis(
            text="Beside the hog a protected service's reading slows down less than that of an "
            "unprotected one.",
            variants=("none", "low", "min"),
            holds=lambda by: (
                max(float(by[each].get("reading", 0)) for each in ("low", "min"))
                < float(by["none"].get("reading", 0))
            ),
            untestable={"emulated": "an emulated machine cannot tell"},
        ),
    ),
    measure=_measure,
)
