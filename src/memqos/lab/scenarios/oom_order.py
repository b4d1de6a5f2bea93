"""Whom the kernel kills first when a node is out of memory, as predicted and as seen."""

import resource
from typing import Final

from memqos.host.processes import read_processes
from memqos.lab.node import PlannedNode, lab_pod, memory_resources
from memqos.lab.scenario import MIB, Figures, Hypothesis, LabMeasure, Scenario, Variant, Workbench
from memqos.lab.waiting import wait_until
from memqos.plan.oom_kill import kill_order

_CAPACITY: Final = 192 * MIB
_STEP: Final = 4 * MIB
"""Less than any death frees, so that each shortage ends with one."""
_HOG_SCORE: Final = -999
"""Spared longer than any pod."""


def _measure(bench: Workbench, variant: Variant) -> Figures:
    uses: dict[str, int] = {
        name: int(variant.parameters[name]) * MIB
        for name in ("guaranteed", "burstable", "besteffort")
    }
    pods = [
        lab_pod("guaranteed", {"app": memory_resources(80 * MIB, 80 * MIB, cpu=True)}),
        lab_pod("burstable", {"app": memory_resources(32 * MIB)}),
        lab_pod("besteffort", {"app": {}}),
    ]
    node = PlannedNode(bench, pods, capacity=_CAPACITY, kubelet=variant.kubelet)
    holders = {
        name: node.container(name).workload(oom_score_adj=node.oom_score_adj(name)) for name in uses
    }
    for name, holder in holders.items():
        holder.hold(uses[name])
    names = {holder.pid: name for name, holder in holders.items()}
    processes = [each for each in read_processes().processes if each.pid in names]
    order = kill_order(processes, _CAPACITY, resource.getpagesize())
    predicted = [names[kill.victim.process.pid or 0] for kill in order.kills]
    hog = node.cgroup.child("hog").workload(oom_score_adj=_HOG_SCORE)
    died: list[str] = []
    while len(died) < 2 and hog.alive:
        hog.ask(_STEP)
        wait_until("the hog goes on", lambda: hog.answered() or not hog.alive)
        died += [each for each in holders if each not in died and not holders[each].alive]
    return {
        "order": ", ".join(died),
        "predicted": ", ".join(predicted),
        "guaranteed_lives": int(holders["guaranteed"].alive),
        "kills": node.cgroup.kills(),
    }


OOM_ORDER: Final = Scenario(
    name="oom-order",
    title="Order of OOM kills",
    about="Three pods, one of each QoS class, hold anonymous memory on a node of 192Mi, with the "
    "oom_score_adj that Kubernetes gives them; a hog that is spared takes the rest, 4Mi at a time, "
    "until two have died. The prediction is that of memqos rank oom.",
    source="Kubernetes, node out of memory behavior",
    memory=_CAPACITY + 32 * MIB,
    seconds=6,
    variants={
        "usual": Variant(
            title="each of about a size",
            parameters={"guaranteed": 40, "burstable": 40, "besteffort": 32},
        ),
        "large": Variant(
            title="Guaranteed is the largest",
            parameters={"guaranteed": 72, "burstable": 32, "besteffort": 16},
        ),
    },
    measures={
        "order": LabMeasure("died", "text"),
        "predicted": LabMeasure("predicted", "text"),
        "guaranteed_lives": LabMeasure("the Guaranteed pod lives"),
        "kills": LabMeasure("kills"),
    },
    hypotheses=(
        Hypothesis(
            text="The kernel kills in the order that memqos predicts.",
            variants=("usual", "large"),
            holds=lambda by: all(
                str(each["predicted"]).startswith(str(each["order"])) and each["order"]
                for each in by.values()
            ),
        ),
        Hypothesis(
            text="The Guaranteed pod lives, even as the largest.",
            variants=("usual", "large"),
            holds=lambda by: all(each["guaranteed_lives"] for each in by.values()),
        ),
    ),
    measure=_measure,
)
