"""The guard, whatever a container does and however irregularly it is looked at."""

from typing import NamedTuple

from hypothesis import given
from hypothesis import strategies as st

from memqos.agent.core.guard import (
    GuardDecision,
    GuardSample,
    GuardState,
    GuardTuning,
    HighBounds,
    decide_step,
    high_at_step,
)

MI = 1 << 20
PAGE = 4096
SECOND = 1_000_000

tunings = st.builds(
    GuardTuning,
    period=st.floats(1, 30),
    steps=st.integers(1, 8),
    calm=st.floats(30, 300),
)
intervals = st.floats(0.5, 10)


@st.composite
def bounds(draw: st.DrawFn) -> HighBounds:
    planned = draw(st.integers(1, 4096)) * MI
    top = draw(st.none() | st.integers(1, 8192).map(lambda more: planned + more * PAGE))
    return HighBounds(planned, top)


@st.composite
def any_samples(draw: st.DrawFn) -> list[GuardSample]:
    """Readings without rhyme or reason, counters that start anew among them."""
    at, samples = 0.0, []
    for _ in range(draw(st.integers(1, 40))):
        at += draw(st.floats(0.01, 100))
        samples.append(
            GuardSample(
                at=at,
                high_events=draw(st.integers(0, 10_000)),
                current=draw(st.integers(0, 8192)) * MI,
                unreclaimable=draw(st.integers(0, 8192)) * MI,
                swap_room=draw(st.sampled_from([0, 64 * MI])),
                full=draw(st.none() | st.integers(0, 100 * SECOND)),
            )
        )
    return samples


class Moment(NamedTuple):
    at: float
    decision: GuardDecision


def judged(samples: list[GuardSample], limits: HighBounds, tuning: GuardTuning) -> list[Moment]:
    watch, moments = GuardState(), []
    for sample in samples:
        watch, decision = decide_step(watch, sample, limits, tuning)
        moments.append(Moment(sample.at, decision))
    return moments


@given(any_samples(), bounds(), tunings)
def test_memory_high_stays_between_the_plan_and_memory_max(
    samples: list[GuardSample], limits: HighBounds, tuning: GuardTuning
) -> None:
    for _, decision in judged(samples, limits, tuning):
        if decision.high is None:
            assert limits.max is None
            assert decision.step == tuning.steps
        else:
            assert limits.planned <= decision.high
            assert limits.max is None or decision.high <= limits.max


@given(any_samples(), bounds(), tunings)
def test_steps_go_one_by_one_and_are_a_period_apart(
    samples: list[GuardSample], limits: HighBounds, tuning: GuardTuning
) -> None:
    step, moved_at = 0, None
    for at, decision in judged(samples, limits, tuning):
        difference = {"keep": 0, "widen": 1, "narrow": -1}[decision.kind]
        assert decision.step == step + difference
        assert decision.high == high_at_step(limits, decision.step, tuning)
        if difference:
            assert moved_at is None or at - moved_at >= tuning.period
            moved_at, step = at, decision.step


@given(any_samples(), bounds(), tunings)
def test_a_step_up_is_kept_until_all_was_calm_for_long_enough(
    samples: list[GuardSample], limits: HighBounds, tuning: GuardTuning
) -> None:
    last_move = None
    for at, decision in judged(samples, limits, tuning):
        if decision.kind == "narrow":
            assert last_move is not None
            assert at - last_move >= tuning.calm
        if decision.kind != "keep":
            last_move = at


class Container:
    """A process that wants so much anonymous memory, and is throttled past memory.high."""

    def __init__(self, limits: HighBounds, tuning: GuardTuning) -> None:
        self.limits, self.tuning = limits, tuning
        self.watch = GuardState()
        self.high: int | None = limits.planned
        self.at, self.events, self.full = 0.0, 0, 0
        self.moves: list[Moment] = []

    def lives(self, seconds: float, wants: int, swap_room: int = 0) -> bool:
        """Whether it had what it wants all the time."""
        self.at += seconds
        stuck = self.high is not None and wants > self.high
        if stuck:
            self.events += int(seconds * 8) + 1
            self.full += int(seconds * 0.6 * SECOND)
        holds = min(wants, self.high) if self.high is not None else wants
        sample = GuardSample(
            at=self.at,
            high_events=self.events,
            current=holds,
            unreclaimable=holds,
            swap_room=swap_room,
            full=self.full,
            high=self.high,
        )
        self.watch, decision = decide_step(self.watch, sample, self.limits, self.tuning)
        self.high = decision.high
        if decision.kind != "keep":
            self.moves.append(Moment(self.at, decision))
        return not stuck


@st.composite
def stuck_containers(draw: st.DrawFn) -> tuple[HighBounds, int]:
    """Bounds, and more than the planned memory.high but not more than memory.max."""
    limits = draw(bounds())
    top = limits.max or 4 * limits.planned
    return limits, draw(st.integers(limits.planned + 1, top))


def longest_wait(tuning: GuardTuning, interval: float) -> float:
    """Seconds after which a container that cannot progress has memory.max, if sampled so often."""
    return tuning.steps * (tuning.period + 2 * interval) + interval


@given(stuck_containers(), tunings, intervals)
def test_who_cannot_progress_does_so_within_a_bounded_time(
    stuck: tuple[HighBounds, int], tuning: GuardTuning, interval: float
) -> None:
    limits, wants = stuck
    container = Container(limits, tuning)
    container.lives(interval, limits.planned // 2)
    progresses = False
    end = container.at + longest_wait(tuning, interval)
    while container.at + interval <= end:
        progresses = container.lives(interval, wants)
    assert progresses or container.lives(interval, wants)


@given(stuck_containers(), tunings, intervals)
def test_memory_high_comes_back_when_the_pressure_is_gone(
    stuck: tuple[HighBounds, int], tuning: GuardTuning, interval: float
) -> None:
    limits, wants = stuck
    container = Container(limits, tuning)
    for _ in range(int(2 * longest_wait(tuning, interval) / interval) + 2):
        container.lives(interval, wants)
    assert container.high != limits.planned
    for _ in range(int(tuning.steps * (tuning.calm + tuning.period + 3 * interval) / interval) + 2):
        container.lives(interval, limits.planned // 2)
    assert container.high == limits.planned


@given(stuck_containers(), tunings, st.lists(st.booleans(), min_size=20, max_size=200), intervals)
def test_a_container_that_comes_and_goes_does_not_make_memory_high_swing(
    stuck: tuple[HighBounds, int],
    tuning: GuardTuning,
    wanting: list[bool],
    interval: float,
) -> None:
    limits, wants = stuck
    container = Container(limits, tuning)
    for wants_much in wanting:
        container.lives(interval, wants if wants_much else limits.planned // 2)
    swings = [
        later.at - earlier.at
        for earlier, later in zip(container.moves, container.moves[1:], strict=False)
        if (earlier.decision.kind, later.decision.kind) == ("widen", "narrow")
    ]
    assert all(swing >= tuning.calm for swing in swings)


@given(stuck_containers(), tunings, intervals)
def test_a_container_with_swap_to_spare_is_left_to_the_kernel(
    stuck: tuple[HighBounds, int], tuning: GuardTuning, interval: float
) -> None:
    limits, wants = stuck
    container = Container(limits, tuning)
    for _ in range(50):
        container.lives(interval, wants, swap_room=2 * wants)
    assert container.moves == []
