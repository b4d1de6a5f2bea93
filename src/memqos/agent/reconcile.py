"""One pass of an agent: ask, look, judge, write, take in. It may block, and runs off the loop.

It does not wait for a kubelet: that is asked by a thread of its own, and a pass takes in its
answers.
"""

import time
from collections.abc import Callable, Sequence
from typing import Protocol

from memqos.agent.core.guarding import Guard
from memqos.agent.core.pod_intent import Desires
from memqos.agent.core.reconciler import Reconciler
from memqos.agent.hand import Hand
from memqos.agent.pod_source import StillAsking, has_answer, is_missed, silence_of
from memqos.agent.settings_source import AWAITED
from memqos.converge.sources import faults_of
from memqos.errors import MemqosError
from memqos.kube.pod import Pod


class Clock(Protocol):
    """Seconds that only go forward."""

    def __call__(self) -> float: ...


def started(hand: Hand, now: float, guard: Guard | None = None) -> Reconciler:
    """The core for this machine; raises where the machine cannot be planned."""
    core = Reconciler(Desires(hand.configuration, hand.ground(), hand.own_cgroup()), now, guard)
    if hand.configuration.mode == "observe" and (values := hand.left_behind()):
        core.tally.say(
            "warning",
            "values of memqos are in place here: memqos rollback gives them back",
            values=values,
        )
    return core


def follow(core: Reconciler, hand: Hand, now: float) -> None:
    """Work under what the hand's configuration and the machine say now."""
    desires = Desires(hand.configuration, hand.ground(), hand.own_cgroup())
    if hand.is_asked:
        core.note_question()
    core.follow(desires, now)


def take_answer(core: Reconciler, hand: Hand, now: float) -> None:
    """The kubelet has answered: have a pass take it in, of the whole node if that lacked pods."""
    core.schedule.take_answer(now)
    if is_missed(hand.source) and has_answer(hand.source):
        core.resync(now)


def run_pass(
    core: Reconciler, hand: Hand, clock: Clock, random: Callable[[], float] = lambda: 0.5
) -> bool:
    """Do what is due; whether it was about the whole node, pods included.

    Where it raises, what was to be looked at has not been: the whole node has to be.
    """
    begun = time.perf_counter()
    now = clock()
    due = core.take(now, random())
    complete = not is_missed(hand.source)
    pods = None
    if due.asks or has_answer(hand.source):
        # Before anything else: what the cluster says of the node comes with its pods.
        pods, complete = _ask_for_pods(core, hand)
    if due.whole:
        for missed in (hand.seek_owners(), silence_of(hand.source)):
            if missed is not None:
                core.tally.fail("source", missed)
    is_ground_due = hand.is_ground_due()
    if due.confirms and not (core.foreign.is_asked and hand.is_asking):
        hand.refresh()
    if due.whole or due.asks or due.confirms or is_ground_due:
        is_grounded = _regrounded(core, hand, now)
        complete &= is_grounded
        core.confirm(now, answered=is_grounded and hand.is_fresh)
        is_confirmed = is_grounded and hand.is_fresh and core.foreign.unconfirmed is None
        _settle_with_kubelet(core, hand, now, answered=is_confirmed)
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
    return complete and core.is_whole and core.aims.is_told


def _ask_for_pods(core: Reconciler, hand: Hand) -> tuple[list[Pod] | None, bool]:
    """The pods as far as the source tells them, and whether it tells all of them."""
    pods = None
    try:
        pods = hand.pods()
        faults: Sequence[MemqosError] = faults_of(hand.source)
    except StillAsking:
        return None, not is_missed(hand.source)
    except MemqosError as error:
        faults = [error]
    for fault in faults:
        core.tally.fail("source", fault)
    return pods, not faults


def _settle_with_kubelet(core: Reconciler, hand: Hand, now: float, *, answered: bool) -> None:
    """Forget what was in files that the kubelet keeps itself, once it has said that it does."""
    kept = core.aims.kubelet_keeps
    if not any(key[:2] in kept for key in hand.debts):
        return
    if answered:
        hand.settle_with_kubelet(kept)
    else:
        core.doubt_kubelet(now)


def _give_back(core: Reconciler, hand: Hand, clock: Clock, *, whole: bool) -> None:
    owed = core.returns(hand.debts, clock())
    if owed:
        core.given_back(hand.give_back(owed, core.tally), owed, clock())
    elif whole and not core.owes:
        hand.let_go()


def _regrounded(core: Reconciler, hand: Hand, now: float) -> bool:
    try:
        ground, before = hand.ground(), core.desires.ground
        if hand.is_asked:
            core.note_question()
        if ground != before:
            # Before it is followed: what it says is as of now.
            core.confirm(now, answered=hand.is_fresh)
            core.follow(Desires(hand.configuration, ground, hand.own_cgroup()), now)
            if before.doubt != AWAITED:
                core.tally.say("info", "the node's own configuration has changed")
            core.take(now)
        for severity, note in hand.taken_notes():
            core.tally.say(severity, note)
    except MemqosError as error:
        core.tally.fail("configuration", error)
        return False
    return True
