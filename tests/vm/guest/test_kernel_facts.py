"""What memqos takes for granted about the kernel."""

import resource
import signal
from pathlib import Path

import pytest
from tests.eventually import eventually
from tests.vm.guest.support import MI, ROOT, Cgroup

from memqos.host.inotify import WRITE_EVENTS, Inotify
from memqos.lab.cgroup import CONTROLLERS
from memqos.lab.vm.topology import Topology
from memqos.plan.changes import DEFAULTS, as_stored

MACHINES = {"two-nodes": Topology(nodes=(640, 640), distances=((10, 21), (21, 10)), swap=512)}

PAGE = resource.getpagesize()


def test_every_controller_that_kubernetes_uses_is_there() -> None:
    assert {"memory", *CONTROLLERS} <= set((ROOT / "cgroup.controllers").read_text().split())


def test_a_new_cgroup_has_the_defaults_that_plans_start_from(cgroup: Cgroup) -> None:
    assert {file: cgroup.read(file) for file in DEFAULTS} == DEFAULTS


@pytest.mark.parametrize("file", ["memory.min", "memory.low", "memory.high", "memory.max"])
@pytest.mark.parametrize(
    "value", [0, 1, PAGE - 1, PAGE, 100_000_001, 2**63 - PAGE - 1, 2**63 - PAGE, 2**63 - 1, "max"]
)
def test_the_kernel_stores_what_plans_compare_with(
    file: str, value: int | str, cgroup: Cgroup
) -> None:
    cgroup.write(**{file: value})
    assert cgroup.read(file) == as_stored(file, value, PAGE)


def test_a_write_to_a_limit_is_told_to_whoever_watches_the_cgroup(cgroup: Cgroup) -> None:
    watching = Inotify()
    assert watching.watch(str(cgroup.path), WRITE_EVENTS)
    cgroup.write(memory_max=64 * MI)
    assert {event.name for event in watching.read()} == {"memory.max"}
    watching.close()


def test_a_process_past_memory_max_is_killed(cgroup: Cgroup) -> None:
    cgroup.write(memory_max=64 * MI, memory_swap_max=0)
    workload = cgroup.workload()
    workload.ask(128 * MI)
    eventually("the process is gone", lambda: not workload.alive)
    assert workload.killed_by == signal.SIGKILL
    assert cgroup.events()["oom_kill"] == 1


def test_memory_oom_group_takes_the_others_along(cgroup: Cgroup) -> None:
    cgroup.write(memory_max=96 * MI, memory_swap_max=0, memory_oom_group=1)
    innocent, greedy = cgroup.workload(), cgroup.workload()
    innocent.hold(8 * MI)
    greedy.ask(128 * MI)
    eventually("both are gone", lambda: not greedy.alive and not innocent.alive)
    assert innocent.killed_by == signal.SIGKILL
    assert cgroup.events()["oom_group_kill"] == 1


def test_memory_high_slows_a_process_down_and_never_kills_it(cgroup: Cgroup) -> None:
    cgroup.write(memory_high=64 * MI, memory_swap_max=0)
    workload = cgroup.workload()
    workload.ask(256 * MI)
    eventually("memory.high was met often", lambda: cgroup.events()["high"] > 100)
    assert workload.alive
    assert not workload.answered()
    assert cgroup.number("memory.current") < 128 * MI
    assert cgroup.events()["oom_kill"] == 0


def test_memory_high_lets_a_process_go_on_that_may_swap(cgroup: Cgroup) -> None:
    cgroup.write(memory_high=64 * MI)
    cgroup.workload().hold(128 * MI)
    assert cgroup.number("memory.swap.current") > 56 * MI
    assert cgroup.events()["oom_kill"] == 0


def test_memory_high_takes_page_cache_back_first(cgroup: Cgroup, tmp_path: Path) -> None:
    cgroup.write(memory_high=64 * MI)
    cgroup.cache(tmp_path / "file", 128 * MI)
    assert cgroup.number("memory.current") <= 66 * MI


def test_the_nodes_are_as_far_apart_as_ordered() -> None:
    nodes = sorted(Path("/sys/devices/system/node").glob("node[0-9]*/distance"))
    assert [node.read_text().split() for node in nodes] == [["10", "21"], ["21", "10"]]


def test_cpuset_mems_decides_on_which_node_memory_is(cgroup: Cgroup) -> None:
    cgroup.write(cpuset_mems=1)
    cgroup.workload().hold(32 * MI)
    anonymous = numa_stat(cgroup)["anon"]
    assert anonymous["N1"] > 32 * MI
    assert anonymous["N0"] == 0


def test_a_busy_process_shows_in_its_cgroup_alone(cgroup: Cgroup) -> None:
    busy, idle = cgroup.child("busy"), cgroup.child("idle")
    busy.burn()
    eventually("a tenth of a second is used", lambda: cpu_time(busy) > 100_000)
    assert cpu_time(idle) == 0


def numa_stat(cgroup: Cgroup) -> dict[str, dict[str, int]]:
    """Kind of memory → node → bytes."""
    lines = (line.split() for line in cgroup.read("memory.numa_stat").splitlines())
    return {
        kind: {node: int(size) for node, size in (word.split("=") for word in nodes)}
        for kind, *nodes in lines
    }


def cpu_time(cgroup: Cgroup) -> int:
    return cgroup.counts("cpu.stat")["usage_usec"]
