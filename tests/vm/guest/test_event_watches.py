"""The kernel tells by itself that it has counted an event of a cgroup, once for each time asked."""

from collections.abc import Iterator

import pytest
from tests.eventually import eventually
from tests.vm.guest.processes import watches
from tests.vm.guest.support import MI, ROOT, Cgroup
from tests.vm.harness.topology import Topology

from memqos.agent.watches import EventWatches

MACHINES = {"small": Topology(nodes=(512,))}

LIMIT = 48 * MI


@pytest.fixture
def alarms() -> Iterator[EventWatches]:
    made = EventWatches(str(ROOT))
    yield made
    made.close()


def identity(cgroup: Cgroup) -> int:
    return cgroup.path.stat().st_ino


def go_off(alarms: EventWatches, cgroup: Cgroup) -> None:
    def has_gone_off() -> bool:
        alarms.read_changes()
        return not alarms.is_quiet(cgroup.name, identity(cgroup))

    eventually("the kernel has told", has_gone_off)


@pytest.mark.parametrize(
    ("event", "files"),
    [
        ("high", {"memory_high": LIMIT}),
        ("max", {"memory_max": LIMIT}),
        ("oom_kill", {"memory_max": LIMIT}),
    ],
)
def test_events_set_an_alarm_off(
    event: str, files: dict[str, int], alarms: EventWatches, cgroup: Cgroup
) -> None:
    container, other = cgroup.child("container"), cgroup.child("other")
    container.write(**files, memory_swap_max=0)
    workload = container.workload()
    workload.hold(8 * MI)
    for each in (container, other):
        alarms.watch(each.name, identity(each))
    alarms.read_changes()
    assert alarms.is_quiet(container.name, identity(container))
    workload.ask(96 * MI)
    eventually("it is counted", lambda: container.events()[event] > 0)
    go_off(alarms, container)
    assert alarms.is_quiet(other.name, identity(other))


def test_a_storm_of_events_costs_one_notice_and_the_next_is_told_of_again(
    alarms: EventWatches, cgroup: Cgroup
) -> None:
    container = cgroup.child("container", memory_high=LIMIT, memory_swap_max=0)
    alarms.watch(container.name, identity(container))
    workload = container.workload()
    workload.ask(96 * MI)
    eventually("there is a storm", lambda: container.events()["high"] > 50)
    assert watches() == 0
    go_off(alarms, container)
    alarms.watch(container.name, identity(container))
    seen = container.events()["high"]
    eventually("it goes on", lambda: container.events()["high"] > seen)
    go_off(alarms, container)


def test_a_cgroup_made_anew_under_its_name_is_another(alarms: EventWatches, cgroup: Cgroup) -> None:
    container = cgroup.child("container")
    alarms.watch(container.name, identity(container))
    before = identity(container)
    cgroup.forget(container)
    container.remove()
    anew = cgroup.child("container", memory_high=LIMIT, memory_swap_max=0)
    alarms.read_changes()
    assert identity(anew) != before
    assert not alarms.is_quiet(anew.name, identity(anew))
    alarms.watch(anew.name, identity(anew))
    assert watches() == 1
    anew.workload().ask(96 * MI)
    go_off(alarms, anew)


def test_nothing_is_left_of_a_cgroup_that_is_gone(alarms: EventWatches, cgroup: Cgroup) -> None:
    container = cgroup.child("container")
    alarms.watch(container.name, identity(container))
    assert watches() == 1
    cgroup.forget(container)
    container.remove()
    alarms.keep_only(())
    assert watches() == 0
