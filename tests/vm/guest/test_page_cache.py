"""Where protection is claimed decides whether a Guaranteed pod can reclaim its own page cache."""

from pathlib import Path

import pytest
from tests.vm.guest.support import MI, Cgroup

from memqos.lab.node import protection_is_recursive
from memqos.lab.scenario import Workbench
from memqos.lab.scenarios.page_cache import (
    CACHE_LIMIT,
    PLACEMENT_VARIANTS,
    PageCacheRun,
    read_in_guaranteed_pod,
)
from memqos.lab.vm.topology import Topology

MACHINES = {
    "recursive": Topology(nodes=(512,)),
    "not-recursive": Topology(nodes=(512,), recursive_protection=False),
}

TIMES = 2
TOLERANCE = 4 * MI

_measured: dict[str, PageCacheRun] = {}
"""Once is enough for all that is said about a placement."""


@pytest.fixture
def figures(request: pytest.FixtureRequest, cgroup: Cgroup, tmp_path: Path) -> PageCacheRun:
    name = request.param
    if name not in _measured:
        bench = Workbench(cgroup, tmp_path, [])
        _measured[name] = read_in_guaranteed_pod(bench, PLACEMENT_VARIANTS[name], TIMES)
    return _measured[name]


@pytest.mark.parametrize("figures", ["containers"], indirect=True)
def test_claimed_by_containers_page_cache_turns_into_kills(figures: PageCacheRun) -> None:
    assert figures.read < TIMES
    assert figures.kills > 0
    assert figures.at_own_limit == CACHE_LIMIT


@pytest.mark.parametrize("figures", ["none", "pods", "margin"], indirect=True)
def test_claimed_otherwise_a_pod_reclaims_its_own_page_cache(figures: PageCacheRun) -> None:
    assert figures.read == TIMES
    assert figures.kills == 0
    assert figures.scanned > 0


@pytest.mark.parametrize("figures", ["pods", "margin"], indirect=True)
def test_others_are_held_off_as_far_as_predicted(figures: PageCacheRun) -> None:
    held = min(figures.before, figures.node_short)
    assert figures.kept > held - TOLERANCE


@pytest.mark.skipif(protection_is_recursive(), reason="with memory_recursiveprot it does")
@pytest.mark.parametrize("figures", ["pods"], indirect=True)
def test_without_memory_recursiveprot_a_pods_claim_does_not_reach_its_containers(
    figures: PageCacheRun,
) -> None:
    assert figures.node_short == 0
    assert figures.kept < figures.before - TOLERANCE
