"""What the guard goes by, case by case."""

import msgspec
import pytest

from memqos.agent.core.guard import (
    GuardDecision,
    GuardSample,
    GuardState,
    GuardTuning,
    HighBounds,
    decide_step,
    high_at_step,
    setting_when_excluded,
    setting_when_widened,
    would_stall,
)
from memqos.plan.rules import HIGH_EXCLUDED, HIGH_WIDENED

MI = 1 << 20
LIMITS = HighBounds(486 * MI, 512 * MI)
TUNING = GuardTuning()


def sample(
    at: float,
    events: int,
    *,
    full: float | None = 0.6,
    unreclaimable: int = 480 * MI,
    swap_room: int = 0,
) -> GuardSample:
    """A container at its memory.high; `full` is the share of the time in which nothing ran."""
    stalled = None if full is None else int(at * full * 1_000_000)
    current = LIMITS.planned
    return GuardSample(
        at=at,
        high_events=events,
        current=current,
        unreclaimable=unreclaimable,
        swap_room=swap_room,
        full=stalled,
        high=current,
    )


def at_rest(unreclaimable: int, swap_room: int = 0) -> GuardSample:
    """A container of 400 MiB that was never throttled."""
    return GuardSample(
        at=0,
        high_events=0,
        current=400 * MI,
        unreclaimable=unreclaimable * MI,
        swap_room=swap_room * MI,
    )


def decisions(samples: list[GuardSample], limits: HighBounds = LIMITS) -> list[GuardDecision]:
    watch, made = GuardState(), []
    for each in samples:
        watch, decision = decide_step(watch, each, limits, TUNING)
        made.append(decision)
    return made


def test_a_container_stuck_at_memory_high_gets_memory_max_in_four_steps() -> None:
    stuck = [sample(at, at * 475, unreclaimable=512 * MI) for at in range(0, 60, 5)]
    steps = [decision.high for decision in decisions(stuck) if decision.kind == "widen"]
    assert [None if high is None else high / MI for high in steps] == [492.5, 499, 505.5, 512]


@pytest.mark.parametrize(
    ("lacking", "samples"),
    [
        ("events", [sample(at, 0) for at in range(0, 60, 5)]),
        ("stall", [sample(at, at * 475, full=0) for at in range(0, 60, 5)]),
        ("anonymous", [sample(at, at * 475, unreclaimable=100 * MI) for at in range(0, 60, 5)]),
        ("no swap", [sample(at, at * 475, swap_room=400 * MI) for at in range(0, 60, 5)]),
    ],
)
def test_each_of_the_signs_is_needed(lacking: str, samples: list[GuardSample]) -> None:
    assert {decision.kind for decision in decisions(samples)} == {"keep"}, lacking


@pytest.mark.parametrize(
    ("events", "full", "pinned", "widens"),
    [
        (5, 0.3, 450, True),  # five events a second, 30 % of the time, 90 % of 500 Mi
        (4, 0.3, 450, False),
        (5, 0.29, 450, False),
        (5, 0.3, 449, False),
    ],
)
def test_a_sign_is_there_from_the_value_it_is_tuned_to(
    events: int, full: float, pinned: int, widens: bool
) -> None:
    limits = HighBounds(500 * MI, 600 * MI)
    samples = [
        sample(at, at * events, full=full, unreclaimable=pinned * MI) for at in range(0, 20, 5)
    ]
    kinds = {decision.kind for decision in decisions(samples, limits)}
    assert ("widen" in kinds) == widens


def test_without_psi_the_other_signs_decide() -> None:
    stuck = [sample(at, at * 475, full=None) for at in range(0, 20, 5)]
    assert "widen" in {decision.kind for decision in decisions(stuck)}


def test_a_burst_shorter_than_a_period_widens_nothing() -> None:
    burst = [sample(0, 0), sample(4, 2000), sample(8, 2000), sample(12, 2000)]
    assert {decision.kind for decision in decisions(burst)} == {"keep"}


def test_a_container_without_a_limit_ends_with_none() -> None:
    limits = HighBounds(100 * MI, None)
    assert high_at_step(limits, 2, TUNING) == 150 * MI
    assert high_at_step(limits, TUNING.steps, TUNING) is None
    setting = setting_when_widened(GuardDecision("widen", None, 4), limits, TUNING)
    assert setting.value == "max"
    assert setting.because.steps == (
        "planned memory.high = 100Mi, no limit",
        "step 4 of 4",
    )


def test_an_agent_that_starts_again_goes_on_from_the_step_it_finds() -> None:
    high = 499 * MI
    found = GuardSample(at=0, high_events=900, current=high, unreclaimable=high, high=high)
    watch, decision = decide_step(GuardState(), found, LIMITS, TUNING)
    assert (watch.step, decision.high) == (2, 499 * MI)
    other = msgspec.structs.replace(found, high=500 * MI)
    assert decide_step(GuardState(), other, LIMITS, TUNING)[1].high == LIMITS.planned


def test_a_new_limit_moves_the_steps_with_it() -> None:
    watch = GuardState(step=4, last=sample(0, 0), calm_needed=60)
    smaller = HighBounds(300 * MI, 320 * MI)
    assert decide_step(watch, sample(5, 0), smaller, TUNING)[1].high == 320 * MI


def test_a_container_whose_counters_start_again_is_looked_at_afresh() -> None:
    watch = GuardState(step=1, last=sample(10, 5000), stuck_since=5.0, calm_needed=60)
    watch, decision = decide_step(watch, sample(20, 10), LIMITS, TUNING)
    assert decision.kind == "keep"
    assert watch.stuck_since is None


def test_mostly_anonymous_memory_without_swap_can_be_excluded_beforehand() -> None:
    heap = at_rest(380)
    assert would_stall(heap)
    assert not would_stall(at_rest(380, swap_room=MI))
    assert would_stall(at_rest(320))
    assert not would_stall(msgspec.structs.replace(at_rest(320), unreclaimable=320 * MI - 1))
    assert setting_when_excluded(heap).value == "max"
    assert setting_when_excluded(heap).because.steps == (
        "anonymous and shared 380Mi of 400Mi in use, swap 0",
    )
    assert {
        setting_when_excluded(heap).rule,
        setting_when_widened(GuardDecision("keep", MI, 1), LIMITS, TUNING).rule,
    } == {
        HIGH_EXCLUDED,
        HIGH_WIDENED,
    }
