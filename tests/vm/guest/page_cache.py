"""A Guaranteed pod that lives on its page cache, with its protection claimed here or there."""

import resource
from pathlib import Path
from typing import NamedTuple

from tests.builders import box, node_settings, planned, pod
from tests.eventually import eventually
from tests.vm.guest.support import MI, Cgroup, protection_is_recursive

from memqos.plan.effective import Claim, effective
from memqos.plan.setting import FileSettings
from memqos.settings.settings import Placement

LIMIT = 32 * MI
FILE = LIMIT * 5 // 4
SLACK = 12 * MI
PLACEMENTS: dict[str, Placement | None] = {
    "no protection": None,
    "containers": "containers",
    "pods": "pods",
    "margin": "margin",
}


class Figures(NamedTuple):
    """What became of the pod's own reading, and of its cache when the node ran short."""

    read: int
    """How often the file was read, of the times it should have been."""
    kills: int
    scanned: int
    refaults: int
    at_own_limit: int
    """Bytes of the container that the kernel holds off a pod at its limit, as predicted."""
    node_short: int
    """And off a node that is short of memory."""
    before: int
    kept: int
    """Of the container's memory, before and after the node was short of it."""


def measured(root: Cgroup, placement: Placement | None, folder: Path, times: int) -> Figures:
    """Make the pod and see."""
    node = root.child("node")
    other = node.child("other")
    pod_files, container_files = _files(placement)
    kubepods = node.child("kubepods", memory_min=pod_files["memory_min"])
    pod_ = kubepods.child("pod", memory_max=LIMIT, **pod_files)
    pod_.child("pause").idle()
    container = pod_.child("container", memory_max=LIMIT, memory_oom_group=1, **container_files)
    data = folder / "data"
    with data.open("wb") as sparse:
        sparse.truncate(FILE)
    program = container.program("read", data, times)
    eventually("the program has ended", lambda: program.over)
    statistics = container.counts("memory.stat")
    read, kills = program.steps, pod_.events()["oom_kill"]
    other.cache(folder / "other", LIMIT)
    before = container.number("memory.current")
    at_own_limit, node_short = _bytes_in(node, "/kubepods/pod"), _bytes_in(node, "/")
    _run_short(node, keep=LIMIT + SLACK)
    return Figures(
        read,
        kills,
        statistics["pgscan"],
        statistics["workingset_refault_file"],
        at_own_limit,
        node_short,
        before,
        container.number("memory.current"),
    )


def _files(placement: Placement | None) -> tuple[dict[str, int], dict[str, int]]:
    """What the plan writes to a Guaranteed pod's cgroup and to its container's."""
    if placement is None:
        return {"memory_min": 0}, {"memory_min": 0}
    at = node_settings("1.38", policy="TieredReservation", placement=placement)
    plan = planned(pod([box(str(LIMIT), str(LIMIT), cpu=("1", "1"))]), at)
    return _minimum(plan.settings), _minimum(plan.containers[0].settings)


def _minimum(settings: FileSettings) -> dict[str, int]:
    value = settings["memory.min"].value
    assert isinstance(value, int)
    return {"memory_min": value}


def _bytes_in(node: Cgroup, target: str) -> int:
    """What of the container's memory the kernel holds off when the target is short."""
    paths = ("kubepods", "kubepods/pod", "kubepods/pod/pause", "kubepods/pod/container", "other")
    claims = {
        f"/{path}": Claim(
            node.number(f"{path}/memory.min"), 0, node.number(f"{path}/memory.current")
        )
        for path in paths
    }
    found = effective(
        claims,
        recursive=protection_is_recursive(),
        page_size=resource.getpagesize(),
        target=target,
    )
    return found["/kubepods/pod/container"].min.effective


def _run_short(node: Cgroup, keep: int) -> None:
    """Have a hog take all of the node's memory but so much of what others hold."""
    hog = node.child("hog").workload()
    hog.hold(1)
    node.write(memory_max=node.number("memory.current") + SLACK)
    hog.ask(node.number("memory.max") - keep)
    eventually("the hog has what it wants", lambda: hog.answered() or not hog.alive)
