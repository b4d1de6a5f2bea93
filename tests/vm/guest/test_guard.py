"""Containers past their memory.high: the plain kernel, upstream's values, and the guard."""

from pathlib import Path

import pytest
from tests.builders import oom_reports
from tests.eventually import PATIENCE, eventually
from tests.vm.guest.pods import SETTINGS, Setting_, burstable, watched
from tests.vm.guest.support import MI, Cgroup

from memqos.agent.core.guard import GuardTuning
from memqos.host.kmsg import KernelLog
from memqos.kernel.oom_report import OomReport
from memqos.lab.throttled import ThrottledRun, sparse_file
from memqos.lab.vm.topology import Topology
from memqos.record.readings import kill_record

MACHINES = {"small": Topology(nodes=(512,))}

LIMIT = 112 * MI
HIGH = 48 * MI
ENOUGH = 80
"""High events after which a program that has not got anywhere is said to be throttled still."""


def run(
    cgroup: Cgroup, setting: Setting_, *program: object, patience: int = ENOUGH
) -> ThrottledRun:
    container = burstable(cgroup, setting, LIMIT, HIGH).container

    def gives_up() -> bool:
        return setting == "upstream" and container.events()["high"] > patience

    # However long a busy machine has nothing to show, no step is taken back meanwhile.
    tuning = GuardTuning(period=1.0, calm=PATIENCE)
    return watched(container, setting, HIGH, container.program(*program), gives_up, tuning)


@pytest.mark.parametrize("setting", SETTINGS)
def test_steady_growth_within_the_limit_ends_well_but_for_upstreams_values(
    setting: Setting_, cgroup: Cgroup
) -> None:
    outcome = run(cgroup, setting, "grow", 96 * MI, MI)
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
    outcome = run(cgroup, setting, "burst", 90 * MI, 16 * MI, 3)
    assert outcome.kills == 0
    assert outcome.end == ("still throttled" if setting == "upstream" else "finished")


@pytest.mark.parametrize("setting", SETTINGS)
def test_reading_through_the_page_cache_ends_well_always_and_moves_no_guard(
    setting: Setting_, cgroup: Cgroup, tmp_path: Path
) -> None:
    with sparse_file(tmp_path / "data", 96 * MI) as file:
        outcome = run(cgroup, setting, "read", file, 2, patience=100_000)
    assert (outcome.end, outcome.kills, outcome.guard_steps) == ("finished", 0, 0)


def test_the_kernels_own_report_of_a_kill_is_understood(cgroup: Cgroup) -> None:
    log = KernelLog()
    container = burstable(cgroup, "plain", LIMIT, HIGH).container
    helper = container.workload(oom_score_adj=-500)
    helper.hold(MI)
    program = container.program("leak", MI)
    eventually("the leak has ended", lambda: program.killed)
    reports: list[OomReport] = []

    def has_signalled() -> bool:
        reports.extend(oom_reports(log.records()))
        return bool(reports)

    eventually("the kernel tells", has_signalled)
    log.close()
    (report,) = reports
    assert report.complete
    assert report.constraint == "memcg"
    assert report.task_cgroup == container.name
    assert report.oom_cgroup in (container.name, container.name.rpartition("/")[0])
    assert report.together == container.name
    assert len(report.victims) == 2
    assert report.memory is not None
    assert report.memory.limit == LIMIT
    found = kill_record(report, 0, 1 << 30, 4096)
    assert (found.rank, found.candidates) == (1, len(report.tasks))
    assert found.pid == program.pid
