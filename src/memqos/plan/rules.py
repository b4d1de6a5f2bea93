"""Every rule that decides about memory, by its id: each has one text, wherever it is quoted.

Rules of planned values are beside the code that applies them. Here are those of memqos's agent and
of rollback, and those by which the kernel and the kubelet end a container.
"""

from collections.abc import Mapping
from typing import Final

from memqos.plan import changes, container, cpu, cpuset, hugepages, levels, memory, pod, swap, tree
from memqos.plan.setting import Rule
from memqos.units import format_exact_bytes

NEVER_THROTTLED: Final = Rule(
    "memqos/never-throttled",
    "static pods, system-critical pods and memqos itself are never throttled, unless a kubelet "
    "with MemoryQoS on throttles them",
    "memqos",
)
OPTED_OUT: Final = Rule(
    "memqos/opted-out", "the pod's annotation turns its reservation off", "memqos"
)
SUM_OF_RESERVATIONS: Final = Rule(
    "memqos/sum",
    "a cgroup is protected only as far as its ancestors: the sum over its children",
    "memqos",
    lambda amount, pods: (f"sum over {pods} pods = {format_exact_bytes(amount)}",),
)
MIN_NOT_RESERVED: Final = Rule(
    "memqos/left-out",
    "not reserved: the sum of memory.min would exceed minShare of the node's memory",
    "memqos, minShare",
    lambda claim, limit: (
        f"claim = {format_exact_bytes(claim)}",
        f"sum is at most {format_exact_bytes(limit)}",
    ),
)


def _explain_step(planned: int, step: int, steps: int, maximum: int | None) -> tuple[str, ...]:
    top = "no limit" if maximum is None else f"memory.max = {format_exact_bytes(maximum)}"
    return (
        f"planned memory.high = {format_exact_bytes(planned)}, {top}",
        f"step {step} of {steps}",
    )


HIGH_WIDENED: Final = Rule(
    "high/guard",
    "memory.high is raised in steps while a container makes no progress, and lowered again "
    "afterwards",
    "memqos guard",
    _explain_step,
)
HIGH_EXCLUDED: Final = Rule(
    "high/excluded",
    "not throttled: nearly all of its memory is anonymous and there is no swap, "
    "so throttling would only stop it",
    "memqos guard",
    lambda unreclaimable, current: (
        f"anonymous and shared {format_exact_bytes(unreclaimable)} of "
        f"{format_exact_bytes(current)} in use, swap 0",
    ),
)
RESTORE_RULE: Final = Rule("rollback/prior", "the value from before memqos wrote it", "journal")
EVICTION_RANK: Final = Rule(
    "eviction/rank",
    "pods above their memory request are evicted first, then those of lower priority",
    "kubelet",
    differs="the page on QoS classes says that only pods above their request are candidates, "
    "BestEffort before Burstable before Guaranteed; kubelet 1.22–1.38 ranks all pods, evicts those "
    "below their request when no other is left, and does not look at the class",
)
OOM_NODE: Final = Rule(
    "oom/node",
    "the process with the highest score is killed: its memory, plus oom_score_adj thousandths of "
    "the node's memory",
    "kernel, mm/oom_kill.c",
)
MIN_PROTECTS_CACHE: Final = Rule(
    "min/protects-own-cache",
    "a pod at its limit cannot reclaim what its containers' own memory.min protects",
    "kernel, mm/vmscan.c",
)

_MODULES: Final = (changes, container, cpu, cpuset, hugepages, levels, memory, pod, swap, tree)
_WITHOUT_PLAN: Final = (
    NEVER_THROTTLED,
    OPTED_OUT,
    SUM_OF_RESERVATIONS,
    MIN_NOT_RESERVED,
    HIGH_WIDENED,
    HIGH_EXCLUDED,
    RESTORE_RULE,
    EVICTION_RANK,
    OOM_NODE,
    MIN_PROTECTS_CACHE,
)
RULES: Final[Mapping[str, Rule]] = {
    rule.id: rule
    for rule in (*[value for module in _MODULES for value in vars(module).values()], *_WITHOUT_PLAN)
    if isinstance(rule, Rule)
}
"""Those of findings are in `memqos.findings.catalogue`."""
