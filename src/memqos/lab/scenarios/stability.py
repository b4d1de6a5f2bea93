"""Is a node stable while the sum of memory.min nears its memory? (KEP-2570, Beta and story 2)."""

import resource
import time
from collections.abc import Mapping
from math import inf
from pathlib import Path
from statistics import median
from typing import Final

from memqos.lab.cgroup import ScratchCgroup
from memqos.lab.node import RESERVED_CGROUP, PlannedNode, lab_pod, memory_resources
from memqos.lab.processes import RunningProgram
from memqos.lab.scenario import MIB, Figures, Hypothesis, LabMeasure, Scenario, Variant, Workbench
from memqos.lab.throttled import seconds_asleep
from memqos.lab.waiting import wait_until

_CAPACITY: Final = 192 * MIB
_RESERVED: Final = 32 * MIB
_PODS: Final = 4
_LOAD: Final = 0.95
"""What the pods take of the node's memory: as much where less of it is protected."""
_OWN: Final = 8 * MIB
"""What a process of a pod takes besides its page cache."""
_KUBELET_FILE: Final = 12 * MIB
_KUBELET_MEMORY: Final = 2 * MIB
_HOG: Final = 64 * MIB
_LAPS: Final = 4
"""Of the kubelet's stand-in before the node is pressed."""
_PAUSE: Final = 300
"""Milliseconds between two laps of a pod: it is memory that is short, not processors."""
_ATTEMPTS: Final = 3
"""Of the hog to have its memory."""
_LONGEST: Final = 20.0
"""Seconds that this may take."""


def _pods(variant: Variant) -> tuple[dict[str, int], bool]:
    """The requests of the pods by name, and whether they are Guaranteed."""
    share = float(variant.parameters["share"])
    reserved = _RESERVED if variant.parameters.get("reserved") else 0
    each = int((_CAPACITY * share - reserved) / _PODS)
    return {f"pod{number}": each for number in range(_PODS)}, not variant.parameters.get("burst")


def _reservation(variant: Variant) -> dict[str, object]:
    """Fields of the kubelet's configuration that reserve memory for its own cgroup."""
    name = variant.parameters.get("reserved")
    if name is None:
        return {}
    return {
        f"{name}Reserved": {"memory": str(_RESERVED)},
        f"{name}ReservedCgroup": RESERVED_CGROUP,
        "enforceNodeAllocatable": ["pods", f"{name}-reserved"],
    }


def _measure(bench: Workbench, variant: Variant) -> Figures:
    requests, guaranteed = _pods(variant)
    pods = [
        lab_pod(name, {"app": memory_resources(size, size if guaranteed else 0, cpu=guaranteed)})
        for name, size in requests.items()
    ]
    node = PlannedNode(
        bench,
        [*pods, lab_pod("rest", {"app": {}}), lab_pod("hog", {"app": {}})],
        capacity=_CAPACITY,
        kubelet={**variant.kubelet, **_reservation(variant)},
        budget=variant.parameters.get("budget"),
    )
    kubelet_file = bench.folder / "kubelet"
    _make_sparse(kubelet_file, _KUBELET_FILE)
    standin = node.reserved.program("serve", kubelet_file, _KUBELET_MEMORY, 0, oom_score_adj=-999)
    wait_until("the kubelet runs", lambda: standin.steps >= _LAPS or standin.over)
    running: dict[str, RunningProgram] = {}
    rest = int(_CAPACITY * _LOAD) - sum(requests.values())
    for name, size in {**requests, "rest": rest}.items():
        if size <= _OWN:
            continue
        file = bench.folder / name
        _make_sparse(file, size - _OWN)
        score = node.oom_score_adj(name)
        running[name] = node.container(name).program("read", file, 0, _PAUSE, oom_score_adj=score)
    wait_until("pods run", lambda: all(each.steps or each.over for each in running.values()))
    return _watch(node, standin, running)


def _watch(
    node: PlannedNode, standin: RunningProgram, running: dict[str, RunningProgram]
) -> Figures:
    """Press until the hog has had its laps or deaths; it is started again after each death."""
    hog, score = node.container("hog"), node.oom_score_adj("hog")
    before = _refaults(node.reserved)
    stalled = seconds_asleep(node.cgroup)
    done, pod_steps = standin.steps, sum(each.steps for each in running.values())
    start = time.monotonic()
    hogs: list[RunningProgram] = []
    while (passed := time.monotonic() - start) < _LONGEST and _attempts(hogs) < _ATTEMPTS:
        if not hogs or hogs[-1].over:
            hogs.append(hog.program("churn", _HOG, MIB, MIB, 0, oom_score_adj=score))
        time.sleep(0.05)
    laps = [sum(figures) for figures in standin.figures]
    beside = laps[done:]
    refaults = _refaults(node.reserved) - before
    again = refaults * resource.getpagesize() / _KUBELET_FILE
    figures: Figures = {
        "progress": len(beside) / passed,
        "pod_progress": (sum(each.steps for each in running.values()) - pod_steps) / passed,
        "refaults": refaults,
        "stalled": (seconds_asleep(node.cgroup) - stalled) / passed,
        "kills": sum(node.pod(name).kills() for name in running),
        "kubelet_kills": node.reserved.events()["oom_kill"],
        "hog_kills": node.pod("hog").kills(),
        "hangs": int(not beside),
        "min": _promised(node) / node.capacity,
        "watched": passed,
    }
    if beside:
        figures["again"] = again / len(beside)
        figures["slowdown"] = median(beside) / median(laps[1:done])
    return figures


def _promised(node: PlannedNode) -> int:
    """The sum of memory.min: that of pods, and what is reserved."""
    return node.cgroup.number("kubepods/memory.min") + node.reserved.number("memory.min")


def _attempts(hogs: list[RunningProgram]) -> int:
    """Laps and deaths of the hog."""
    return sum(each.steps + each.over for each in hogs)


def _refaults(cgroup: ScratchCgroup) -> int:
    return cgroup.counts("memory.stat")["workingset_refault_file"]


def _make_sparse(file: Path, size: int) -> None:
    with file.open("wb") as sparse:
        sparse.truncate(size)


def _again(by: Mapping[str, Figures], variant: str) -> float:
    """How much of its file the kubelet reads again, a lap; one that stands still, without end."""
    return float(by[variant].get("again", inf))


def _pays(by: Mapping[str, Figures], variant: str) -> bool:
    """Whether the kubelet reads a tenth of its file again, a lap, because of memory.min."""
    return _again(by, variant) >= _again(by, "none-95") + 0.1


_TIERED: Final = {"memoryReservationPolicy": "TieredReservation"}
_HARD: Final = {"memoryReservationPolicy": "HardReservation"}

STABILITY: Final = Scenario(
    name="stability",
    title="Stability near the node's memory",
    about="On a node of 192Mi four pods keep reading page cache of about their requests; a "
    "BestEffort pod reads as much as makes it 95 % of the node in all. A hog takes and returns "
    "64Mi, and a stand-in of the kubelet reads 12Mi and takes 2Mi, lap by lap. The percentage is "
    "the sum of memory.min, of what is reserved too, of the node's memory. The node is watched for "
    f"{_ATTEMPTS} laps or deaths of the hog, {_LONGEST:.0f} s at most. In the lab a node is a "
    "cgroup with a memory.max.",
    source="KEP-2570, graduation criteria for Beta and user story 2",
    memory=_CAPACITY + 32 * MIB,
    seconds=_LONGEST + 10,
    variants={
        "none-95": Variant(
            title="None, requests of 95 %",
            kubelet={"memoryReservationPolicy": "None"},
            parameters={"share": 0.95},
        ),
        "tiered-50": Variant(title="Tiered 50 %", kubelet=_TIERED, parameters={"share": 0.5}),
        "tiered-80": Variant(title="Tiered 80 %", kubelet=_TIERED, parameters={"share": 0.8}),
        "tiered-95": Variant(title="Tiered 95 %", kubelet=_TIERED, parameters={"share": 0.95}),
        "tiered-100": Variant(title="Tiered 100 %", kubelet=_TIERED, parameters={"share": 1.0}),
        "tiered-110": Variant(title="Tiered 110 %", kubelet=_TIERED, parameters={"share": 1.1}),
        "hard-95": Variant(
            title="Hard 95 %, Burstable",
            kubelet=_HARD,
            parameters={"share": 0.95, "burst": True},
        ),
        "kube-reserved-95": Variant(
            title="95 %, kube-reserved",
            kubelet=_TIERED,
            parameters={"share": 0.95, "reserved": "kube"},
        ),
        "system-reserved-95": Variant(
            title="95 %, system-reserved",
            kubelet=_TIERED,
            parameters={"share": 0.95, "reserved": "system"},
        ),
        "tiered-110-budget": Variant(
            title="110 %, budget 80 %",
            kubelet=_TIERED,
            parameters={"share": 1.1, "budget": 0.8},
        ),
    },
    measures={
        "min": LabMeasure("sum of memory.min, of the node", "share"),
        "progress": LabMeasure("laps of the kubelet a second", "ratio"),
        "slowdown": LabMeasure("its lap, times as long as before", "ratio", charted=True),
        "pod_progress": LabMeasure("laps of the pods a second", "ratio"),
        "refaults": LabMeasure("refaults of the kubelet"),
        "again": LabMeasure("of its file read again, a lap", "share", charted=True),
        "stalled": LabMeasure("all of the node stalled (PSI full)", "share", charted=True),
        "kills": LabMeasure("kills of pods", charted=True),
        "kubelet_kills": LabMeasure("kills of the kubelet"),
        "hog_kills": LabMeasure("kills of the hog"),
        "hangs": LabMeasure("the kubelet stood still"),
        "watched": LabMeasure("watched", "seconds"),
    },
    hypotheses=(
        Hypothesis(
            text="Up to 80 % of memory.min the kubelet pays nothing for it: it reads less than a "
            "tenth of its file again, a lap, more than without memory.min.",
            variants=("none-95", "tiered-50", "tiered-80"),
            holds=lambda by: all(not _pays(by, each) for each in ("tiered-50", "tiered-80")),
        ),
        Hypothesis(
            text="At 95 % an unprotected kubelet pays for what pods are promised, whether by "
            "TieredReservation or by HardReservation: a tenth of its file and more.",
            variants=("none-95", "tiered-95", "hard-95"),
            holds=lambda by: all(_pays(by, each) for each in ("tiered-95", "hard-95")),
        ),
        Hypothesis(
            text="With kube-reserved or system-reserved enforced at the same sum it reads less "
            "than a tenth of what it reads again otherwise.",
            variants=("tiered-95", "kube-reserved-95", "system-reserved-95"),
            holds=lambda by: (
                max(_again(by, each) for each in ("kube-reserved-95", "system-reserved-95"))
                < 0.1 * _again(by, "tiered-95")
            ),
        ),
        Hypothesis(
            text="At 95 % and at 100 % the kubelet never stands still, and is not killed.",
            variants=("tiered-95", "tiered-100"),
            holds=lambda by: (
                not any(
                    by[each]["hangs"] or by[each]["kubelet_kills"]
                    for each in ("tiered-95", "tiered-100")
                )
            ),
        ),
        Hypothesis(
            text="At 110 % the kernel kills pods; within the agent's budget of 80 % it kills none, "
            "and the kubelet goes on.",
            variants=("tiered-110", "tiered-110-budget"),
            holds=lambda by: (
                float(by["tiered-110"]["kills"]) > 0
                and not any(
                    by["tiered-110-budget"][each] for each in ("kills", "kubelet_kills", "hangs")
                )
            ),
        ),
    ),
    measure=_measure,
)
