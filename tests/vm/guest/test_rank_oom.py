"""The process that `memqos rank oom` names first is the one the kernel kills."""

import json
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from tests.eventually import eventually
from tests.vm.guest.support import MI, Cgroup, Workload, killed_in_order

from memqos.cli.rank_oom import command
from memqos.kernel.file_formats import memory_of
from memqos.lab.vm.topology import Topology

pytestmark = pytest.mark.usefixtures("spared")

MACHINES = {"small": Topology(nodes=(512,)), "swapping": Topology(nodes=(512,), swap=64)}

NEVER = -1000
STEP = 4 * MI
"""Less than any death frees, so that each shortage ends with one."""
NEARLY = 64 * MI

# oom_score_adj and MiB of each process. A hundred points are some 50 MiB here.
ROUNDS = {
    "the largest": {"a": (0, 40), "b": (0, 90), "c": (0, 60)},
    "a small one with a high score": {"large": (0, 100), "small": (450, 16)},
    "a large one, whatever the score of a small one": {"large": (0, 150), "small": (150, 16)},
    "the one that is not excused": {"excused": (-150, 100), "plain": (0, 60)},
    "the least negative": {"guaranteed": (-997, 100), "system": (-500, 30)},
    "by the scores that kubelets set": {
        "guaranteed": (-997, 80),
        "burstable": (800, 60),
        "burstable-2": (900, 40),
        "sandbox": (-998, 1),
    },
    "besteffort, though it is smaller": {"burstable": (850, 50), "besteffort": (1000, 24)},
}


@pytest.mark.parametrize("round", ROUNDS)
def test_the_first_of_the_ranking_is_killed(round: str, cgroup: Cgroup) -> None:
    workloads = {
        name: _holding(cgroup.child(name), score, size)
        for name, (score, size) in ROUNDS[round].items()
    }
    ranked = _ranked(cgroup)
    assert set(ranked) == workloads.keys()
    _run_out_of_memory(cgroup, workloads)
    assert killed_in_order(workloads)[0] == ranked[0]


def test_the_rest_of_the_ranking_follows_in_its_order(cgroup: Cgroup) -> None:
    sizes = {"first": (300, 30), "second": (0, 110), "third": (0, 60), "last": (-900, 60)}
    workloads = {name: _holding(cgroup.child(name), *size) for name, size in sizes.items()}
    ranked = _ranked(cgroup)
    assert set(ranked) == workloads.keys()
    hog = _hog(cgroup)
    while len(killed_in_order(workloads)) < 3:
        _take(hog)
    assert killed_in_order(workloads) == ranked[:3]


def test_a_cgroup_with_oom_group_dies_as_the_ranking_says(cgroup: Cgroup) -> None:
    container = cgroup.child("container", memory_oom_group=1)
    workloads = {
        "main": _holding(container, 500, 30),
        "helper": _holding(container, -900, 5),
        "other": _holding(cgroup.child("other"), 0, 100),
    }
    first, *_ = _of(cgroup)
    along = [each for each in _of(cgroup) if each["place"] == first["place"]]
    assert [each["cgroup"] for each in along] == [container.name] * 2
    _run_out_of_memory(cgroup, workloads)
    eventually("the helper is dead", lambda: not workloads["helper"].alive)
    assert set(killed_in_order(workloads)[:2]) == {"main", "helper"}


def _holding(cgroup: Cgroup, oom_score_adj: int, size: int) -> Workload:
    workload = cgroup.workload(oom_score_adj=oom_score_adj)
    workload.hold(size * MI)
    return workload


def _of(cgroup: Cgroup) -> list[dict[str, Any]]:
    """The ranking, as far as it is about processes of the test."""
    with redirect_stdout(StringIO()) as printed:
        command.main(["-o", "json"], "oom", standalone_mode=False)
    data = json.loads(printed.getvalue())
    assert data["notes"] == []
    killed = [each for each in data["processes"] if "place" in each]
    found = [each for each in killed if str(each["cgroup"]).startswith(f"{cgroup.name}/")]
    # Whatever else runs in the machine comes later than the first of the test.
    assert killed[0] == found[0]
    return found


def _ranked(cgroup: Cgroup) -> list[str]:
    return [str(each["cgroup"]).rpartition("/")[2] for each in _of(cgroup)]


def _run_out_of_memory(cgroup: Cgroup, workloads: dict[str, Workload]) -> None:
    hog = _hog(cgroup)
    while all(workload.alive for workload in workloads.values()):
        _take(hog)


def _hog(cgroup: Cgroup) -> Workload:
    """A process that is never killed, and has taken nearly all there is."""
    hog = cgroup.child("hog").workload(oom_score_adj=NEVER)
    available = memory_of(Path("/proc/meminfo").read_text(), "MemAvailable")
    hog.hold(max(STEP, available - NEARLY))
    return hog


def _take(hog: Workload) -> None:
    hog.ask(STEP)
    eventually("the hog goes on", hog.answered)
