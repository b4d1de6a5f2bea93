"""One pass of an agent: ask, look, judge, write, take in. It may block, and runs off the loop."""

import time
from collections.abc import Callable
from typing import Protocol

from memqos.agent.core.desires import Desires
from memqos.agent.core.guarding import Guard
from memqos.agent.core.reconciler import Reconciler
from memqos.agent.hand import Hand
from memqos.errors import MemqosError


class Clock(Protocol):
    """Seconds that only go forward."""

    def __call__(self) -> float: ...


def started(hand: Hand, now: float, guard: Guard | None = None) -> Reconciler:
    """The core for this machine; raises where the machine cannot be planned."""
    ground = hand.ground()
    core = Reconciler(Desires(hand.configuration, ground, hand.own_cgroup()), now, guard)
    for note in ground.notes:
        core.tally.say("info", note)
    if not ground.terms.release.enabled("MemoryQoS"):
        core.tally.say(
            "warning",
            "MemoryQoS is off here, so nothing is protected and nothing throttled: "
            "gates in the configuration turns it on",
        )
    return core


def follow(core: Reconciler, hand: Hand, now: float) -> None:
    """Work under what the hand's configuration and the machine say now."""
    core.follow(Desires(hand.configuration, hand.ground(), hand.own_cgroup()), now)


def run_pass(
    core: Reconciler, hand: Hand, clock: Clock, random: Callable[[], float] = lambda: 0.5
) -> bool:
    """Do what is due; whether it was about the whole node, pods included.

    Where it raises, what was to be looked at has not been: the whole node has to be.
    """
    begun = time.perf_counter()
    now = clock()
    due = core.take(now, random())
    complete = due.whole
    if due.whole:
        hand.seek_owners()
        complete = _regrounded(core, hand, now)
    if due.asks:
        try:
            core.accept(hand.pods(), now)
        except MemqosError as error:
            core.tally.fail("source", error)
            complete = False
    if core.bindings is not None:
        core.heard(hand.checkpoint(), now)
    steps = core.judge(hand.look(core.scope(now)), now)
    results, moved = hand.write(steps, core.tally) if steps else ([], [])
    core.settle(results, moved, clock())
    trigger = "resync" if due.whole else "event"
    core.tally.reconcile_seconds[trigger].observe(time.perf_counter() - begun)
    return complete


def _regrounded(core: Reconciler, hand: Hand, now: float) -> bool:
    try:
        ground = hand.ground()
        if ground != core.desires.ground:
            core.follow(Desires(hand.configuration, ground, hand.own_cgroup()), now)
            core.tally.say("info", "the node's own configuration has changed")
            core.take(now)
    except MemqosError as error:
        core.tally.fail("configuration", error)
        return False
    return True
