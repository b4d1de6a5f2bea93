"""How long it takes to find the nodes that fit pods, and how that grows with either."""

import time
from collections.abc import Iterator, Sequence

from bench import cluster
from memqos.cluster.fit_demand import NodeInfo, scheduling_demands
from memqos.cluster.fit_survey import survey_fit
from memqos.kube.pod import Pod
from memqos.release import Release

PODS, NODES = 1_000, 5_000
ROUNDS = 3
LINEAR = 2.0
"""What doubling may cost."""


def report() -> Iterator[str]:
    """Seconds of one processor, the best of several rounds in turns, and how they grow."""
    release = Release.of()
    pods, nodes = cluster.pods(2 * PODS), cluster.nodes(2 * NODES, release)
    sizes = {
        "both": (pods[:PODS], nodes[:NODES]),
        "twice the pods": (pods, nodes[:NODES]),
        "twice the nodes": (pods[:PODS], nodes),
    }
    best = dict.fromkeys(sizes, float("inf"))
    for _ in range(ROUNDS):
        for name, size in sizes.items():
            best[name] = min(best[name], _seconds(*size, release))
    base = best.pop("both")
    pairs = PODS * NODES
    yield (
        f"{PODS:,} pods on {NODES:,} nodes     {base:6.2f} s  {base / pairs * 1e9:5.0f} ns a pair"
    )
    for name, seconds in best.items():
        growth = f"{seconds / base:5.2f} ×  (linear is {LINEAR:g})"
        yield f"{name:<26} {seconds:6.2f} s  {growth}"


def _seconds(pods: Sequence[Pod], nodes: Sequence[NodeInfo], release: Release) -> float:
    start = time.process_time()
    for _ in survey_fit(scheduling_demands(pods, release), nodes, release):
        pass
    return time.process_time() - start
