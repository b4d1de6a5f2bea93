"""Whether experiments may run on this computer itself: only where nothing of it can be harmed."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from memqos.errors import LabError
from memqos.host.local_kubelet import KubeletSearch, find_kubelet
from memqos.kernel.file_formats import meminfo_of
from memqos.lab.cgroup import CGROUP_ROOT
from memqos.lab.runner import Selected
from memqos.plan.names import cgroup_names
from memqos.units import format_bytes

_SPARE: Final = 2
"""A computer has at least so many times what an experiment may take."""


def check_computer(
    selection: Sequence[Selected], root: Path = CGROUP_ROOT, proc: Path = Path("/proc")
) -> None:
    """Refuse what is not safe here, or cannot work."""
    if os.geteuid() != 0:
        raise LabError("--here writes cgroups, which takes root", hint="run as root, or in a VM")
    if not (root / "cgroup.controllers").exists():
        raise LabError(
            f"{root} is not cgroup v2", hint="run without --here: in a VM, or boot with cgroup v2"
        )
    needed = ["memory"]
    if any(len(each.scenario.machine.nodes) > 1 for each in selection):
        needed.append("cpuset")
    there = (root / "cgroup.subtree_control").read_text().split()
    for name in needed:
        if name not in there:
            raise LabError(
                f"the root cgroup does not enable the {name} controller for its children",
                hint=f"as root: echo +{name} > {root}/cgroup.subtree_control",
            )
    _refuse_on_node(root, proc)
    unbounded = [each.scenario.name for each in selection if not each.scenario.runs_here]
    if unbounded:
        raise LabError(
            f"{', '.join(unbounded)}: its own memory.max does not bound this",
            hint="run it without --here, in a VM",
        )
    _check_size(selection, proc)


def _refuse_on_node(root: Path, proc: Path) -> None:
    found = find_kubelet(str(proc))
    why = None
    if found.process is not None:
        why = f"a kubelet runs here (process {found.process.pid})"
    elif found != KubeletSearch():
        why = found.why
    names = (cgroup_names(driver).kubepods for driver in ("cgroupfs", "systemd"))
    kubepods = [name for name in names if (root / name[1:]).exists()]
    if why is None and kubepods:
        why = f"{root}{kubepods[0]} exists: this is a node"
    if why is not None:
        raise LabError(f"{why}, and experiments never run beside pods", hint="use a VM")


def _check_size(selection: Sequence[Selected], proc: Path) -> None:
    amounts = meminfo_of((proc / "meminfo").read_text())
    needed = _SPARE * max(each.scenario.memory for each in selection)
    if amounts["MemAvailable"] < needed:
        raise LabError(
            f"{format_bytes(amounts['MemAvailable'])} of memory are available, and "
            f"{format_bytes(needed)} are needed",
            hint="stop other programs, or use a larger computer",
        )
    # Without it such a variant would be measured as one that has none, and a hypothesis refuted.
    swap = max((each.scenario.swap for each in selection if _uses_swap(each)), default=0)
    if amounts.get("SwapFree", 0) < swap:
        raise LabError(
            f"{format_bytes(amounts.get('SwapFree', 0))} of swap are free, and "
            f"{format_bytes(swap)} are needed",
            hint="add swap, name variants without it with --variant, or use a VM",
        )
    nodes = max(len(each.scenario.machine.nodes) for each in selection)
    # None where the kernel is built without NUMA: all memory is of one.
    there = len(list(Path("/sys/devices/system/node").glob("node[0-9]*"))) or 1
    if there < nodes:
        raise LabError(f"this computer has {there} NUMA nodes of {nodes} needed", hint="use a VM")


def _uses_swap(selected: Selected) -> bool:
    variants = selected.scenario.variants
    return any(variants[name].parameters.get("swap") for name in selected.variants)
