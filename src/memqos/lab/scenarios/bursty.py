"""Bursty containers: a limit for each of them against one for their pod (KEP-2837)."""

from typing import Final

from memqos.lab.node import PlannedNode, lab_pod, memory_resources
from memqos.lab.processes import RunningProgram
from memqos.lab.scenario import MIB, Figures, Hypothesis, LabMeasure, Scenario, Variant, Workbench
from memqos.lab.waiting import wait_until

_CAPACITY: Final = 256 * MIB
_NAMES: Final = ("one", "two", "three")
_LOW: Final = 4 * MIB
_BURST: Final = 44 * MIB
_TIMES: Final = 2
_POD: Final = 96 * MIB


def _measure(bench: Workbench, variant: Variant) -> Figures:
    each = int(variant.parameters.get("each", 0))
    own = memory_resources(each, each) if each else {}
    whole = None if each else memory_resources(_POD, _POD)
    pod = lab_pod("bursty", dict.fromkeys(_NAMES, own), resources=whole)
    node = PlannedNode(bench, [pod], capacity=_CAPACITY, kubelet=variant.kubelet)
    for name in _NAMES:
        container = node.container("bursty", name)
        container.workload(oom_score_adj=node.oom_score_adj("bursty", name)).hold(_LOW)
    programs: list[RunningProgram] = []
    for name in _NAMES:
        score = node.oom_score_adj("bursty", name)
        container = node.container("bursty", name)
        programs.append(container.program("burst", _BURST, _LOW, _TIMES, oom_score_adj=score))
        if not variant.parameters.get("together"):
            wait_until("the burst has ended", lambda: programs[-1].over)
    wait_until("all bursts have ended", lambda: all(each.over for each in programs))
    bursts = sum(each.steps for each in programs)
    cgroup = node.pod("bursty")
    limit, peak = cgroup.number("memory.max"), cgroup.number("memory.peak")
    return {
        "bursts": bursts,
        "kills": cgroup.kills(),
        "limit": limit,
        "peak": peak,
        "utilisation": peak / limit,
    }


BURSTY: Final = Scenario(
    name="bursty",
    title="Pod-level resources for bursty containers",
    about="Three containers hold 4Mi each; one after the other bursts to 44Mi, twice. They share a "
    "limit of 96Mi, have a third of it each, or have each the 64Mi that a burst takes. Last, all "
    "of them burst at once.",
    source="KEP-2837, graduation criteria: benchmark for bursty workloads",
    memory=_CAPACITY,
    seconds=9,
    variants={
        "thirds": Variant(title="3 × 32Mi", parameters={"each": _POD // 3}),
        "pod": Variant(title="96Mi for the pod"),
        "enough": Variant(title="3 × 64Mi", parameters={"each": 64 * MIB}),
        "together": Variant(title="96Mi for the pod, at once", parameters={"together": True}),
    },
    measures={
        "bursts": LabMeasure("bursts done of 6", charted=True),
        "kills": LabMeasure("kills", charted=True),
        "limit": LabMeasure("limit of the pod", "bytes"),
        "peak": LabMeasure("peak of the pod", "bytes"),
        "utilisation": LabMeasure("peak ÷ limit", "share", charted=True),
    },
    hypotheses=(
        Hypothesis(
            text="Limits of containers that add up to the same kill bursts that fit into the pod.",
            variants=("thirds", "pod"),
            holds=lambda by: (
                float(by["thirds"]["kills"]) > 0
                and not by["pod"]["kills"]
                and by["pod"]["bursts"] == 6
            ),
        ),
        Hypothesis(
            text="Limits that let every burst through leave more of the reserved memory unused "
            "than a limit of the pod does.",
            variants=("pod", "enough"),
            holds=lambda by: (
                by["enough"]["bursts"] == 6
                and float(by["enough"]["utilisation"]) < float(by["pod"]["utilisation"])
            ),
        ),
        Hypothesis(
            text="The price: bursts that come at once, and do not fit into the pod's limit, are "
            "killed.",
            variants=("pod", "together"),
            holds=lambda by: (
                not by["pod"]["kills"]
                and float(by["together"]["kills"]) > 0
                and float(by["together"]["bursts"]) < 6
            ),
        ),
    ),
    measure=_measure,
)
