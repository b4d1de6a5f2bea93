"""A Guaranteed pod that lives on its page cache, by where protection is claimed (#137880)."""

from typing import Final

import msgspec

from memqos.lab.node import PlannedNode, lab_pod, memory_resources
from memqos.lab.scenario import MIB, Figures, Hypothesis, LabMeasure, Scenario, Variant, Workbench
from memqos.lab.throttled import sparse_file
from memqos.lab.waiting import wait_until

CACHE_LIMIT: Final = 32 * MIB
_FILE: Final = CACHE_LIMIT * 5 // 4
_SLACK: Final = 12 * MIB
_CAPACITY: Final = 192 * MIB
_TIMES: Final = 4


class PageCacheRun(msgspec.Struct, frozen=True, kw_only=True):
    """What became of the pod's own reading, and of its cache when the node ran short."""

    read: int
    """How often the file was read, of the times it should have been."""
    kills: int
    scanned: int
    refaults: int
    at_own_limit: int
    """Bytes of the container that are protected while its pod is at its limit, as predicted."""
    node_short: int
    """The same while the node is short of memory."""
    before: int
    kept: int
    """Of the container's memory, before and after the node was short of it."""


def read_in_guaranteed_pod(bench: Workbench, variant: Variant, times: int) -> PageCacheRun:
    """Let the pod read a file larger than its limit, then have the node run short."""
    pods = [
        lab_pod("reader", {"app": memory_resources(CACHE_LIMIT, CACHE_LIMIT, cpu=True)}),
        lab_pod("other", {"app": {}}),
        lab_pod("hog", {"app": {}}),
    ]
    node = PlannedNode(
        bench,
        pods,
        capacity=_CAPACITY,
        kubelet=variant.kubelet,
        placement=variant.placement,
    )
    pod, container = node.pod("reader"), node.container("reader")
    pod.child("pause").idle()
    other = bench.folder / "other"
    with sparse_file(bench.folder / "data", _FILE) as file, sparse_file(other, CACHE_LIMIT):
        program = container.program("read", file, times)
        wait_until("the program has ended", lambda: program.over)
        statistics = container.counts("memory.stat")
        read, kills = program.steps, pod.kills()
        node.container("other").run("cat", str(other))
        before = container.number("memory.current")
        path = node.container_path("reader")
        at_own_limit = node.effective_min(path, target=path.rpartition("/")[0])
        node_short = node.effective_min(path)
        _run_short(node, keep=CACHE_LIMIT + _SLACK)
        kept = container.number("memory.current")
    return PageCacheRun(
        read=read,
        kills=kills,
        scanned=statistics["pgscan"],
        refaults=statistics["workingset_refault_file"],
        at_own_limit=at_own_limit,
        node_short=node_short,
        before=before,
        kept=kept,
    )


def _run_short(node: PlannedNode, keep: int) -> None:
    """Have a hog take all of the node's memory but so much of what others hold."""
    hog = node.container("hog").workload()
    hog.hold(1)
    node.cgroup.write(memory_max=node.cgroup.number("memory.current") + _SLACK)
    hog.ask(node.cgroup.number("memory.max") - keep)
    wait_until("the hog has what it wants", lambda: hog.answered() or not hog.alive)


def _measure(bench: Workbench, variant: Variant) -> Figures:
    run = read_in_guaranteed_pod(bench, variant, _TIMES)
    return {
        "read": run.read,
        "kills": run.kills,
        "scanned": run.scanned,
        "at_own_limit": run.at_own_limit,
        "node_short": run.node_short,
        "before": run.before,
        "kept": run.kept / run.before if run.before else 0.0,
    }


_TIERED: Final = {"memoryReservationPolicy": "TieredReservation"}
PLACEMENT_VARIANTS: Final = {
    "none": Variant(title="no protection"),
    "containers": Variant(title="containers, as Kubernetes", kubelet=_TIERED),
    "pods": Variant(title="pods", kubelet=_TIERED, placement="pods"),
    "margin": Variant(title="margin", kubelet=_TIERED, placement="margin"),
}

PAGE_CACHE: Final = Scenario(
    name="page-cache",
    title="Page cache of Guaranteed pods",
    about=f"A Guaranteed pod of 32Mi reads a file of 40Mi, {_TIMES} times; then a hog takes all of "
    "the node's memory but 44Mi of what the pod and an unprotected neighbour with 32Mi of page "
    "cache hold.",
    source="kubernetes#137880",
    memory=_CAPACITY + 32 * MIB,
    seconds=8,
    variants=PLACEMENT_VARIANTS,
    measures={
        "read": LabMeasure(f"read of {_TIMES}", charted=True),
        "kills": LabMeasure("kills", charted=True),
        "scanned": LabMeasure("pages scanned for reclaim"),
        "at_own_limit": LabMeasure("protected at the pod's own limit, predicted", "bytes"),
        "node_short": LabMeasure("protected from other pods, predicted", "bytes"),
        "before": LabMeasure("memory before", "bytes"),
        "kept": LabMeasure("kept as the node ran short", "share", charted=True),
    },
    hypotheses=(
        Hypothesis(
            text="Claimed by containers, as Kubernetes does, page cache turns into kills.",
            variants=("containers",),
            holds=lambda by: float(by["containers"]["kills"]) > 0,
        ),
        Hypothesis(
            text="Claimed by the pod, or with a margin, the file is read every time and nothing "
            "is killed.",
            variants=("pods", "margin"),
            holds=lambda by: all(
                by[each]["read"] == _TIMES and not by[each]["kills"] for each in ("pods", "margin")
            ),
        ),
        Hypothesis(
            text="Both keep 90 % of the pod's memory from others, where an unprotected pod does "
            "not.",
            variants=("none", "pods", "margin"),
            holds=lambda by: (
                min(float(by[each]["kept"]) for each in ("pods", "margin"))
                >= 0.9
                > float(by["none"]["kept"])
            ),
        ),
    ),
    measure=_measure,
)
