"""One pass of an agent: ask, look, judge, write, take in. It may block, and runs off the loop."""

import time
from collections.abc import Callable, Sequence
from typing import Protocol

from memqos.agent.core.desires import Desires
from memqos.agent.core.guarding import Guard
from memqos.agent.core.reconciler import Reconciler
from memqos.agent.hand import Hand
from memqos.agent.pod_source import silence_of
from memqos.agent.tally import Tally
from memqos.converge.planning import Ground
from memqos.converge.sources import faults_of
from memqos.errors import MemqosError


class Clock(Protocol):
    """Seconds that only go forward."""

    def __call__(self) -> float: ...


def started(hand: Hand, now: float, guard: Guard | None = None) -> Reconciler:
    """The core for this machine; raises where the machine cannot be planned."""
    ground = hand.ground()
    core = Reconciler(Desires(hand.configuration, ground, hand.own_cgroup()), now, guard)
    _tell_of(ground, None, core.tally)
    if hand.configuration.mode == "observe" and (values := hand.left_behind()):
        core.tally.say(
            "warning",
            "values of memqos are in place here: memqos rollback gives them back",
            values=values,
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
    pods = None
    if due.asks:
        # Before anything else: what the cluster says of the node comes with its pods.
        try:
            pods = hand.pods()
            faults: Sequence[MemqosError] = faults_of(hand.source)
        except MemqosError as error:
            faults = [error]
        for fault in faults:
            core.tally.fail("source", fault)
            complete = False
    if due.whole:
        for missed in (hand.seek_owners(), silence_of(hand.source)):
            if missed is not None:
                core.tally.fail("source", missed)
    if due.whole or due.asks:
        complete &= _regrounded(core, hand, now)
    if pods is not None:
        core.accept(pods, now)
    if core.bindings is not None:
        core.heard(hand.checkpoint(), now)
    steps = core.judge(hand.look(core.scope(now)), now)
    _give_back(core, hand, clock, whole=due.whole)
    results, moved = hand.write(steps, core.tally) if steps else ([], [])
    core.settle(results, moved, clock())
    trigger = "resync" if due.whole else "event"
    core.tally.reconcile_seconds[trigger].observe(time.perf_counter() - begun)
    return complete


def _give_back(core: Reconciler, hand: Hand, clock: Clock, *, whole: bool) -> None:
    owed = core.returns(hand.debts, clock())
    if owed:
        core.given_back(hand.give_back(owed, core.tally), owed, clock())
    elif whole and not core.owes:
        hand.let_go()


def _regrounded(core: Reconciler, hand: Hand, now: float) -> bool:
    try:
        ground, before = hand.ground(), core.desires.ground
        for severity, note in hand.taken_notes():
            core.tally.say(severity, note)
        if ground != before:
            core.follow(Desires(hand.configuration, ground, hand.own_cgroup()), now)
            core.tally.say("info", "the node's own configuration has changed")
            _tell_of(ground, before, core.tally)
            core.take(now)
    except MemqosError as error:
        core.tally.fail("configuration", error)
        return False
    return True


def _tell_of(ground: Ground, before: Ground | None, tally: Tally) -> None:
    """What is worth knowing of what plans rest on, as far as it was not so before."""
    for note in ground.notes:
        if before is None or note not in before.notes:
            tally.say("info", note)
    was_on = before is None or before.terms.release.enabled("MemoryQoS")
    if was_on and not ground.terms.release.enabled("MemoryQoS"):
        tally.say(
            "warning",
            "MemoryQoS is off here, so nothing is protected and nothing throttled: "
            "gates in the configuration turns it on",
        )
