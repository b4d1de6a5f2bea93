"""Which pods a kubelet kills to admit a critical one.

Guaranteed pods go only for what all others together cannot give, then Burstable ones for what the
BestEffort ones cannot give: kubelet preemption/preemption.go, getPodsToPreempt().
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from memqos.cluster.eviction_order import resource_request
from memqos.cluster.fit_demand import PODS_RESOURCE
from memqos.kube.pod import Pod, QosClass
from memqos.kube.qos import qos_class
from memqos.kube.resources import CPU, MEMORY, whole
from memqos.kube.shape import Shape, is_critical, shape_of
from memqos.release import Release

Needs = Mapping[str, int]
"""Resource → what is missing: thousandths of cpu, whole units of all else."""


class CannotPreempt(NamedTuple):
    """No set of pods gives what is missing."""

    missing: Needs


class _Candidate(NamedTuple):
    pod: Pod
    shape: Shape
    release: Release

    def request(self, resource: str) -> int:
        if resource == PODS_RESOURCE:
            return 1
        amount = resource_request(self.shape, resource, self.release)
        return amount if resource == CPU else whole(amount)

    def gap(self, needs: Needs) -> float:
        """How far the pod alone is from what is missing: 0 where it gives all of it."""
        # Added one by one, as in Go: sum() compensates rounding errors from Python 3.12 on, and
        # a tie is decided by something else.
        distance = 0.0
        for resource, need in needs.items():
            missing = max(need - self.request(resource), 0) / need
            distance += missing * missing
        return distance

    @property
    def size(self) -> tuple[int, int]:
        return self.request(MEMORY), self.request(CPU)


def pods_to_preempt(
    pod: Pod, others: Iterable[Pod], needs: Needs, release: Release
) -> list[Pod] | CannotPreempt:
    """The pods that go so that `pod` gets what it needs."""
    by_class: dict[QosClass, list[_Candidate]] = {}
    for other in others:
        if _may_preempt(pod, other):
            candidate = _Candidate(other, shape_of(other, release), release)
            by_class.setdefault(qos_class(candidate.shape, release), []).append(candidate)
    best_effort = by_class.get("BestEffort", [])
    burstable = by_class.get("Burstable", [])
    guaranteed = by_class.get("Guaranteed", [])
    missing = _subtract(needs, best_effort + burstable + guaranteed)
    if missing:
        return CannotPreempt(missing)
    first = _nearest(guaranteed, _subtract(needs, best_effort + burstable))
    second = _nearest(burstable, _subtract(needs, best_effort + first))
    third = _nearest(best_effort, _subtract(needs, second + first))
    return [candidate.pod for candidate in third + second + first]


def _may_preempt(pod: Pod, other: Pod) -> bool:
    if is_critical(pod) and not is_critical(other):
        return True
    mine, its = pod.spec.priority, other.spec.priority
    return mine is not None and its is not None and mine > its


def _nearest(candidates: Sequence[_Candidate], needs: Needs) -> list[_Candidate]:
    """Pods that give what is needed, each round the one that gives most of what is left.

    Among equals the smaller one goes, and among those the last. The kubelet fills the place of a
    chosen pod with the last one, which decides about later ties.
    """
    remaining, chosen = list(candidates), []
    while needs:
        best, best_gap = 0, remaining[0].gap(needs)
        for index, candidate in enumerate(remaining[1:], 1):
            gap = candidate.gap(needs)
            if gap < best_gap or (gap == best_gap and candidate.size <= remaining[best].size):
                best, best_gap = index, gap
        needs = _subtract(needs, [remaining[best]])
        chosen.append(remaining[best])
        last = remaining.pop()
        if best < len(remaining):
            remaining[best] = last
    return chosen


def _subtract(needs: Needs, candidates: Iterable[_Candidate]) -> Needs:
    candidates = list(candidates)
    left = {
        resource: need - sum([candidate.request(resource) for candidate in candidates])
        for resource, need in needs.items()
    }
    return {resource: need for resource, need in left.items() if need > 0}
