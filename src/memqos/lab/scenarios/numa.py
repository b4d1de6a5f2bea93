"""Memory near a processor against memory far from it, by cpuset.mems."""

from statistics import median
from typing import Final

from memqos.lab.node import PlannedNode, lab_pod, memory_resources
from memqos.lab.scenario import MIB, Figures, Hypothesis, LabMeasure, Scenario, Variant, Workbench
from memqos.lab.vm.topology import Topology
from memqos.lab.waiting import wait_until

_CAPACITY: Final = 128 * MIB
_SIZE: Final = 48 * MIB
_LAPS: Final = 5


def _measure(bench: Workbench, variant: Variant) -> Figures:
    pod = lab_pod("pinned", {"app": memory_resources(_CAPACITY, _CAPACITY, cpu=True)})
    node = PlannedNode(bench, [pod], capacity=_CAPACITY, kubelet=variant.kubelet)
    container, chosen = node.container("pinned"), int(variant.parameters["node"])
    # Processor 0 is of node 0.
    container.write(cpuset_cpus=0, cpuset_mems=chosen)
    # It goes on as its memory is counted, and ends with its cgroup.
    program = container.program("stay", _SIZE, MIB, 0)
    wait_until("the memory was touched", lambda: program.steps >= _LAPS or program.over)
    nodes = container.by_node("memory.numa_stat", "anon")
    return {
        "on_node": nodes.get(chosen, 0) / max(sum(nodes.values()), 1),
        "lap": median(took for (took,) in program.figures) / 1e6,
    }


NUMA: Final = Scenario(
    name="numa",
    title="Local and remote memory",
    about="A Guaranteed container on processor 0 touches 48Mi again and again, bound by "
    "cpuset.mems to its own node or to the other one.",
    source="KEP-1769, Memory Manager",
    memory=_CAPACITY + 32 * MIB,
    machine=Topology(nodes=(256, 256), distances=((10, 20), (20, 10))),
    seconds=4,
    variants={
        "local": Variant(title="its own node", parameters={"node": 0}),
        "remote": Variant(title="the other node", parameters={"node": 1}),
    },
    measures={
        "on_node": LabMeasure("memory on the chosen node", "share", charted=True),
        "lap": LabMeasure("a lap", "seconds", charted=True),
    },
    hypotheses=(
        Hypothesis(
            text="cpuset.mems decides where memory is: 99 % of it and more.",
            variants=("local", "remote"),
            holds=lambda by: min(float(each["on_node"]) for each in by.values()) >= 0.99,
        ),
        Hypothesis(
            text="Remote memory takes longer to touch.",
            variants=("local", "remote"),
            holds=lambda by: float(by["remote"]["lap"]) > float(by["local"]["lap"]),
            # QEMU does not bind the machine's nodes to those of the computer.
            untestable=dict.fromkeys(
                ("emulated", "kvm"), "all memory of a virtual machine is equally fast"
            ),
        ),
    ),
    measure=_measure,
)
