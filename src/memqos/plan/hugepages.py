"""hugetlb.*.max: planned because it shares the cgroups, compared and never written."""

from functools import lru_cache
from typing import Final

from memqos.kube.quantity import whole
from memqos.kube.resources import CPU, MEMORY, Amounts, hugepage_file_size, is_hugepages, storable
from memqos.kube.shape import Shape
from memqos.plan.setting import FileSettings, Rule, Setting
from memqos.release import Since
from memqos.units import format_exact_bytes

PageLimits = dict[str, int]
"""Page size as cgroup files spell it → bytes."""

HUGE: Final = Rule(
    "hugetlb/limit",
    "huge pages up to the limit, none without one",
    "kubelet",
    lambda limit: (f"limit = {format_exact_bytes(limit)}",),
)
_WITHOUT_HUGEPAGES: Final = frozenset({CPU, MEMORY})


@lru_cache(maxsize=64)
def none_of(page_sizes: tuple[str, ...]) -> FileSettings:
    """No huge pages of these sizes. The result is shared: copy it to add to it."""
    nothing = Setting(0, HUGE, (0,))
    return {f"hugetlb.{page}.max": nothing for page in page_sizes}


def by_page_size(amounts: Amounts) -> PageLimits:
    """The hugepage entries of a resource list."""
    result: PageLimits = {}
    if amounts.keys() <= _WITHOUT_HUGEPAGES:
        return result
    for name, amount in amounts.items():
        if is_hugepages(name):
            page = hugepage_file_size(name)
            if page is not None:
                result[page] = result.get(page, 0) + storable(whole(amount))
    return result


def _own(limits: Amounts, pod_limits: Amounts) -> PageLimits:
    return by_page_size(limits)


def _own_else_pods(limits: Amounts, pod_limits: Amounts) -> PageLimits:
    own = by_page_size(limits)
    return {**by_page_size(pod_limits), **own} if pod_limits else own


# GetHugepageLimitsFromResources(), kuberuntime_container_linux.go: pod-level limits since 1.34.
OF_CONTAINER: Final = Since({22: _own, 34: _own_else_pods})


def _sum_of_regular(shape: Shape, requests: Amounts) -> PageLimits:
    result: PageLimits = {}
    for part in shape.containers:
        for page, amount in by_page_size(part.requests).items():
            result[page] = result.get(page, 0) + amount
    return result


def _page_limits(shape: Shape, requests: Amounts) -> PageLimits:
    return by_page_size(requests)


# ResourceConfigForPod(), kubelet cm/helpers_linux.go: init containers count since 1.23.
OF_POD: Final = Since({22: _sum_of_regular, 23: _page_limits})
