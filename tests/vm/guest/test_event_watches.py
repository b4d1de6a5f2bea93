"""The kernel tells by itself that it has counted an event of a cgroup, once for each time asked."""

from collections.abc import Iterator

import pytest
from tests.eventually import eventually
from tests.vm.guest.processes import watches
from tests.vm.guest.support import MI, ROOT, Cgroup

from memqos.agent.watches import EventWatches
from memqos.lab.vm.topology import Topology

MACHINES = {"small": Topology(nodes=(512,))}

LIMIT = 48 * MI


@pytest.fixture
def event_watches() -> Iterator[EventWatches]:
    made = EventWatches(str(ROOT))
    yield made
    made.close()


def identity(cgroup: Cgroup) -> int:
    return cgroup.path.stat().st_ino


def go_off(event_watches: EventWatches, cgroup: Cgroup) -> None:
    def has_gone_off() -> bool:
        event_watches.read_changes()
        return not event_watches.is_quiet(cgroup.name, identity(cgroup))

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
    event: str, files: dict[str, int], event_watches: EventWatches, cgroup: Cgroup
) -> None:
    container, other = cgroup.child("container"), cgroup.child("other")
    container.write(**files, memory_swap_max=0)
    workload = container.workload()
    workload.hold(8 * MI)
    for each in (container, other):
        event_watches.watch(each.name, identity(each))
    event_watches.read_changes()
    assert event_watches.is_quiet(container.name, identity(container))
    workload.ask(96 * MI)
    eventually("it is counted", lambda: container.events()[event] > 0)
    go_off(event_watches, container)
    assert event_watches.is_quiet(other.name, identity(other))


def test_a_storm_of_events_costs_one_notice_and_the_next_is_reported_again(
    event_watches: EventWatches, cgroup: Cgroup
) -> None:
    container = cgroup.child("container", memory_high=LIMIT, memory_swap_max=0)
    event_watches.watch(container.name, identity(container))
    workload = container.workload()
    workload.ask(96 * MI)
    eventually("there is a storm", lambda: container.events()["high"] > 50)
    assert watches() == 0
    go_off(event_watches, container)
    event_watches.watch(container.name, identity(container))
    seen = container.events()["high"]
    eventually("it goes on", lambda: container.events()["high"] > seen)
    go_off(event_watches, container)


def test_a_cgroup_made_again_under_its_name_is_another(
    event_watches: EventWatches, cgroup: Cgroup
) -> None:
    container = cgroup.child("container")
    event_watches.watch(container.name, identity(container))
    before = identity(container)
    cgroup.forget(container)
    container.remove()
    anew = cgroup.child("container", memory_high=LIMIT, memory_swap_max=0)
    event_watches.read_changes()
    assert identity(anew) != before
    assert not event_watches.is_quiet(anew.name, identity(anew))
    event_watches.watch(anew.name, identity(anew))
    assert watches() == 1
    anew.workload().ask(96 * MI)
    go_off(event_watches, anew)


def test_nothing_is_left_of_a_cgroup_that_is_gone(
    event_watches: EventWatches, cgroup: Cgroup
) -> None:
    container = cgroup.child("container")
    event_watches.watch(container.name, identity(container))
    assert watches() == 1
    cgroup.forget(container)
    container.remove()
    event_watches.keep_only(())
    assert watches() == 0
