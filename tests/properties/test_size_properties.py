"""Whatever a history holds, sizing it is bounded and total."""

from hypothesis import example, given
from hypothesis import strategies as st

from memqos.size.history import MAX_SLOTS, ContainerHistory, SeriesHistory, SeriesName
from memqos.size.recommendation import SizeOptions, recommend
from memqos.size.replay import Replay, ReplayLevels

TIMES = st.floats(allow_nan=True, allow_infinity=True) | st.floats(0, 2e9)
VALUES = st.floats(allow_nan=True, allow_infinity=True) | st.floats(0, 1e12)
SAMPLES = st.lists(st.tuples(TIMES, VALUES), max_size=60)
USABLE = st.lists(st.tuples(st.floats(0, 2e9), st.floats(1e5, 1e12)), min_size=5, max_size=60)


def history_of(samples: list[tuple[float, float]], parts: int = 1) -> SeriesHistory:
    found = SeriesHistory()
    size = max(1, len(samples) // parts)
    for start in range(0, len(samples), size):
        chunk = samples[start : start + size]
        found.add([at for at, _ in chunk], [value for _, value in chunk], None)
    return found


@given(SAMPLES)
def test_any_samples_are_sized_or_refused_with_a_reason(
    samples: list[tuple[float, float]],
) -> None:
    history = history_of(samples)
    assert len(history.slots.peaks) <= MAX_SLOTS
    found = recommend(ContainerHistory(SeriesName("a"), {"usage": history}), SizeOptions())
    assert found.reasons
    assert (found.request is None) == (found.limit is None) == (found.risk is None)
    if found.limit is not None and found.request is not None:
        assert 0 < found.request <= found.limit


@given(USABLE)
def test_the_largest_value_is_in_some_slot(samples: list[tuple[float, float]]) -> None:
    history = history_of(samples)
    assert max(history.slots.peaks) == max(value for _, value in samples)
    assert history.count == len(samples)


@given(SAMPLES, st.floats(0, 2e9))
@example([(0.0, 0.0), (60.0, 0.0), (0.0, 0.0), (61.0, 0.0), (1.0, 0.0)], 60.0)
def test_what_comes_after_until_changes_nothing(
    samples: list[tuple[float, float]], until: float
) -> None:
    known = [each for each in samples if not until < each[0] < 1 << 40]
    whole, cut = SeriesHistory(), SeriesHistory()
    for history, used in ((whole, samples), (cut, known)):
        history.add([at for at, _ in used], [value for _, value in used], until)
    answers = [
        recommend(ContainerHistory(SeriesName("a"), {"usage": each}), SizeOptions())
        for each in (whole, cut)
    ]
    assert answers[0] == answers[1]


@given(USABLE, st.integers(1, 10))
def test_batches_do_not_matter(samples: list[tuple[float, float]], parts: int) -> None:
    samples = sorted(samples)
    whole, cut = history_of(samples), history_of(samples, parts)
    assert (whole.slots.first, whole.slots.width) == (cut.slots.first, cut.slots.width)
    assert whole.slots.peaks == cut.slots.peaks


@given(USABLE)
def test_a_recommendation_is_never_below_an_aged_peak(
    samples: list[tuple[float, float]],
) -> None:
    history = history_of(samples)
    found = recommend(ContainerHistory(SeriesName("a"), {"usage": history}), SizeOptions())
    assert found.need is not None
    assert found.need.aged_peak >= 0.69 * found.need.peak
    assert (found.limit or 0) >= found.need.aged_peak


@given(SAMPLES, st.integers(0, 10**12), st.integers(0, 10**12))
def test_a_replay_counts_no_more_time_than_there_is(
    samples: list[tuple[float, float]], high: int, limit: int
) -> None:
    usable = sorted((at, value) for at, value in samples if 0 <= at < 2e9)
    replay = Replay(ReplayLevels(high=high, max=limit))
    replay.add([at for at, _ in usable], [value for _, value in usable])
    found = replay.result()
    assert found.throttled.seconds + found.killed.seconds <= found.seconds + 1e-3
