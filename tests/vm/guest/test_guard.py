"""Containers past their memory.high: the plain kernel, upstream's values, and the guard."""

from pathlib import Path

import pytest
from tests.vm.guest.pods import SETTINGS, Outcome, Setting_, burstable, file_of, watched
from tests.vm.guest.support import MI, Cgroup
from tests.vm.harness.topology import Topology

MACHINES = {"small": Topology(nodes=(512,))}

LIMIT = 160 * MI
HIGH = 64 * MI
ENOUGH = 400
"""High events after which a program that has not got anywhere is said to be throttled still."""


def run(cgroup: Cgroup, setting: Setting_, *program: object, patience: int = ENOUGH) -> Outcome:
    container = burstable(cgroup, setting, LIMIT, HIGH).container

    def gives_up() -> bool:
        return setting == "upstream" and container.events()["high"] > patience

    return watched(container, setting, HIGH, container.program(*program), gives_up)


@pytest.mark.parametrize("setting", SETTINGS)
def test_steady_growth_within_the_limit_ends_well_but_for_upstreams_values(
    setting: Setting_, cgroup: Cgroup
) -> None:
    outcome = run(cgroup, setting, "grow", 128 * MI, MI)
    assert outcome.kills == 0
    assert outcome.end == ("still throttled" if setting == "upstream" else "finished")
    assert (outcome.guard_steps > 0) is (setting == "memqos")


@pytest.mark.parametrize("setting", SETTINGS)
def test_a_leak_is_killed_but_for_upstreams_values(setting: Setting_, cgroup: Cgroup) -> None:
    outcome = run(cgroup, setting, "leak", MI)
    assert outcome.end == ("still throttled" if setting == "upstream" else "killed")
    assert (outcome.kills > 0) is (setting != "upstream")
    if setting == "memqos":
        assert outcome.highest == LIMIT
        assert outcome.guard_steps == 4


@pytest.mark.parametrize("setting", SETTINGS)
def test_bursts_within_the_limit_end_well_but_for_upstreams_values(
    setting: Setting_, cgroup: Cgroup
) -> None:
    outcome = run(cgroup, setting, "burst", 120 * MI, 24 * MI, 4)
    assert outcome.kills == 0
    assert outcome.end == ("still throttled" if setting == "upstream" else "finished")


@pytest.mark.parametrize("setting", SETTINGS)
def test_reading_through_the_page_cache_ends_well_always_and_moves_no_guard(
    setting: Setting_, cgroup: Cgroup, tmp_path: Path
) -> None:
    with file_of(tmp_path, 192 * MI) as file:
        outcome = run(cgroup, setting, "read", file, 3, patience=100_000)
    assert (outcome.end, outcome.kills, outcome.guard_steps) == ("finished", 0, 0)
