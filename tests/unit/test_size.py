"""Histories in bounded memory, needs, recommendations and replays, as values."""

import math

import pytest

from memqos.cluster.fit_demand import NodeInfo, node_info
from memqos.kube.pod import Container, ObjectMeta, Pod, PodSpec, ResourceRequirements
from memqos.release import Release
from memqos.size.consequences import MemorySize, workload_of
from memqos.size.history import (
    MAX_SLOTS,
    ContainerHistory,
    HistoryTable,
    PeakSlots,
    SampleBatch,
    SeriesHistory,
    SeriesName,
    SeriesQuantity,
    sum_of_slots,
)
from memqos.size.need import need_of
from memqos.size.recommendation import (
    Recommendation,
    SizeOptions,
    recommend,
    recommend_for_pod,
)
from memqos.size.replay import Replay, ReplayLevels, ReplayResult
from memqos.size.risk import estimated_risk
from memqos.size.savings import cluster_savings

MIB = 1 << 20
DAY = 86_400
NAME = SeriesName("shop/web-0/app", "shop", "web-0", "app")


def history(
    values: list[float], step: float = 300.0, start: float = 0.0, until: float | None = None
) -> SeriesHistory:
    found = SeriesHistory()
    found.add([start + step * index for index in range(len(values))], values, until)
    return found


def container(usage: SeriesHistory, **more: SeriesHistory) -> ContainerHistory:
    quantities: dict[SeriesQuantity, SeriesHistory] = {"usage": usage}
    for quantity in ("anon", "limit", "stalls", "kills", "refaults"):
        if quantity in more:
            quantities[quantity] = more[quantity]
    return ContainerHistory(NAME, quantities)


def counter(values: list[float]) -> SeriesHistory:
    found = SeriesHistory()
    found.add_counter([float(index) for index in range(len(values))], values, None)
    return found


def sized(values: list[float], **options: float) -> Recommendation:
    return recommend(container(history(values)), SizeOptions(guaranteed=True, **options))


STEADY = [200.0 * MIB] * (3 * DAY // 300)


def test_a_month_of_samples_takes_no_more_slots_than_a_day() -> None:
    found = history([float(index % 7) for index in range(8640)])
    assert len(found.slots.peaks) <= MAX_SLOTS
    assert found.count == 8640
    assert max(found.slots.peaks) == 6


def test_no_peak_is_lost_when_slots_are_merged() -> None:
    values = [1.0] * 5000
    values[1234] = 99.0
    found = history(values)
    at, peak = max(found.slots.filled(), key=lambda each: each[1])
    assert peak == 99
    assert at <= 1234 * 300 < at + found.slots.width


def test_samples_after_until_are_not_used() -> None:
    found = history([1.0, 2.0, 50.0], until=300)
    assert (found.count, max(found.slots.peaks)) == (2, 2)


def test_what_is_no_amount_of_memory_is_counted_and_skipped() -> None:
    found = SeriesHistory()
    found.add([0, 1, 2, 3, 4], [5.0, math.nan, -1.0, math.inf, 6.0], None)
    assert found.faults.invalid == 3
    assert (found.count, found.mean) == (2, 5.5)


def test_a_clock_that_is_set_back_is_noted_and_its_peaks_count() -> None:
    found = SeriesHistory()
    found.add([1000, 1060, 900, 1120], [1.0, 1.0, 9.0, 1.0], None)
    assert found.faults.backward == 1
    assert (found.start, found.latest) == (900, 1120)
    assert max(found.slots.peaks) == 9


def test_of_two_values_for_one_time_the_larger_counts() -> None:
    found = SeriesHistory()
    found.add([60, 60, 120], [5.0, 7.0, 1.0], None)
    assert found.faults.duplicate == 1
    assert max(found.slots.peaks) == 7


def test_times_in_milliseconds_are_refused() -> None:
    found = history([1.0, 1.0], start=1_772_445_600_000.0)
    assert (found.count, found.faults.unplaced) == (0, 2)


def test_a_counter_that_resets_goes_on_from_zero() -> None:
    assert counter([10, 12, 1, 3]).rises == 5


def test_the_margin_shrinks_as_the_history_grows() -> None:
    hour, week = [need_of(history([200.0 * MIB] * count).slots) for count in (12, 2016)]
    assert week.level < hour.level
    assert week.peak == hour.peak


def test_the_margin_of_the_first_day_hardly_shrinks() -> None:
    hour, half_a_day, two_days = [
        need_of(history([200.0 * MIB] * count).slots).margin for count in (12, 144, 576)
    ]
    assert half_a_day > 0.75 * hour
    assert two_days < 0.5 * hour


def test_gaps_tell_nothing() -> None:
    known, gapped = SeriesHistory(), SeriesHistory()
    hours = [300.0 * index for index in range(24)]
    known.add(hours, [200.0 * MIB] * 24, None)
    gapped.add([*hours[:12], *(at + 7 * DAY for at in hours[12:])], [200.0 * MIB] * 24, None)
    usual, after_gap = [
        recommend(container(each), SizeOptions(guaranteed=True)) for each in (known, gapped)
    ]
    assert after_gap.sureness == "low"
    assert after_gap.limit == pytest.approx(usual.limit, rel=0.05)
    assert after_gap.risk == pytest.approx(usual.risk, rel=0.2)
    assert "1.9 h of history: shorter than a day, whose peaks may differ" in usual.notes
    assert any("there are gaps of up to 167 h 15 min" in note for note in after_gap.notes)


def test_a_small_container_gets_a_minimum_until_a_day_is_known() -> None:
    new, known = sized([20.0 * MIB] * 100), sized([20.0 * MIB] * 400)
    assert new.limit == 128 * MIB
    assert "+ 61Mi: the least for a history shorter than a day" in new.reasons
    assert known.limit is not None
    assert known.limit < 60 * MIB


def test_a_leak_is_given_more_than_a_steady_level() -> None:
    rising = [(100 + 100 * index / 864) * MIB for index in range(864)]
    leak, steady = need_of(history(rising).slots), need_of(history(STEADY).slots)
    assert leak.growth == "growing"
    assert leak.slope == pytest.approx(100 * MIB / 3, rel=0.1)
    assert leak.level > steady.level
    assert steady.growth == "none"


def test_a_rise_that_slows_down_is_a_warm_up() -> None:
    rising = [(300 - 200 * math.exp(-index / 400)) * MIB for index in range(864)]
    assert need_of(history(rising).slots).growth == "warm-up"


def test_only_a_leak_is_projected_to_the_limit() -> None:
    leak = [(100 + 100 * index / 864) * MIB for index in range(864)]
    warm_up = [(300 - 200 * math.exp(-index / 400)) * MIB for index in range(864)]
    nights = [(300.0 if index % 288 >= 144 else 100.0) * MIB for index in range(5 * 288)]
    creeping = [200e6 + 300 * index for index in range(864)]
    days = sized(leak).days_to_limit
    assert days is not None
    assert 0 < days < 3
    assert [sized(each).days_to_limit for each in (warm_up, nights, creeping)] == [None] * 3


def test_an_old_peak_that_never_came_back_counts_less() -> None:
    old, new = [STEADY.copy() for _ in range(2)]
    old[5], new[-5] = 1000.0 * MIB, 1000.0 * MIB
    assert need_of(history(old).slots).aged_peak < 850 * MIB
    assert need_of(history(new).slots).aged_peak == 1000 * MIB


def test_a_guaranteed_container_requests_its_limit_in_whole_mebibytes() -> None:
    found = sized(STEADY)
    assert found.request == found.limit
    assert found.limit is not None
    assert found.limit % MIB == 0
    assert 200 * MIB < found.limit < 250 * MIB


def test_without_guaranteed_a_rare_peak_is_limited_and_not_requested() -> None:
    spiky = [(100.0 if index % 200 else 400.0) * MIB for index in range(864)]
    found = recommend(container(history(spiky)), SizeOptions())
    assert found.request is not None
    assert found.limit is not None
    assert found.limit > 400 * MIB
    assert found.request <= found.limit


@pytest.mark.parametrize(
    ("values", "why"),
    [
        ([], "no sample"),
        ([5.0 * MIB], "1 sample: too few"),
        ([0.0] * 50, "usage is 0"),
        ([512.0] * 50, "must be in bytes"),
        ([math.nan] * 50, "no sample"),
    ],
)
def test_nothing_is_recommended_out_of_nothing(values: list[float], why: str) -> None:
    found = sized(values)
    assert (found.request, found.limit, found.sureness) == (None, None, "none")
    assert why in found.reasons[0]


def test_a_history_shorter_than_a_day_is_said_and_not_sure() -> None:
    found = sized([100.0 * MIB] * 100)
    assert found.sureness == "low"
    assert any("shorter than a day" in note for note in found.notes)


def test_mixed_units_are_said() -> None:
    found = sized([200.0] * 400 + [200.0 * MIB] * 400)
    assert any("are units mixed?" in note for note in found.notes)
    assert found.sureness == "low"


def test_less_risk_costs_more_memory() -> None:
    low, high = sized(STEADY, risk=0.004), sized(STEADY, risk=0.2)
    assert low.limit is not None
    assert high.limit is not None
    assert low.limit > high.limit
    assert low.risk is not None
    assert low.risk <= 0.004


def test_a_slack_is_kept_to() -> None:
    found = sized(STEADY, slack=0.06)
    assert found.slack is not None
    assert found.slack <= 0.06


def test_a_risk_that_no_margin_reaches_is_said() -> None:
    assert "no margin brings the risk down" in " ".join(sized(STEADY[:20], risk=0.0).reasons)


def test_more_margin_is_less_risk() -> None:
    slots = history(STEADY).slots
    risks = [estimated_risk(slots, scale) for scale in (0.0, 0.5, 1.0, 2.0, 4.0)]
    assert risks == sorted(risks, reverse=True)


def test_kills_at_the_limit_raise_it() -> None:
    limits = history([200.0 * MIB] * len(STEADY))
    found = recommend(
        container(history(STEADY), limit=limits, kills=counter([0, 2])), SizeOptions()
    )
    assert found.limit == 250 * MIB
    assert any("2 kills" in reason for reason in found.reasons)


def test_idle_cache_is_not_mistaken_for_need() -> None:
    usage, anon = history([900.0 * MIB] * 900), history([200.0 * MIB] * 900)
    idle = recommend(container(usage, anon=anon, stalls=counter([0, 0])), SizeOptions())
    busy = recommend(container(usage, anon=anon, refaults=counter([0, 900])), SizeOptions())
    unknown = recommend(container(usage, anon=anon), SizeOptions())
    assert idle.decides == "anonymous memory"
    assert busy.decides == unknown.decides == "working set"
    assert (idle.limit or 0) < (busy.limit or 0)


def test_containers_that_peak_in_turns_need_less_together() -> None:
    day = [500.0 * MIB] * 100 + [50.0 * MIB] * 188
    night = day[144:] + day[:144]
    parts = [container(history(each * 4)) for each in (day, night)]
    found = recommend_for_pod(parts, SizeOptions(guaranteed=True))
    assert found is not None
    own = [recommend(each, SizeOptions(guaranteed=True)).limit or 0 for each in parts]
    assert 550 * MIB < found[1] < 0.8 * sum(own)
    assert recommend_for_pod([parts[0], parts[0]], SizeOptions(guaranteed=True)) is None


def test_a_pod_as_a_whole_is_as_careful_as_its_containers() -> None:
    day = [500.0 * MIB] * 100 + [50.0 * MIB] * 188
    parts = [container(history(each * 4)) for each in (day, day[144:] + day[:144])]
    tight, usual, careful = [
        recommend_for_pod(parts, each)
        for each in (SizeOptions(slack=0.0), SizeOptions(), SizeOptions(risk=0.0))
    ]
    assert tight is not None
    assert usual is not None
    assert careful is not None
    assert tight[1] < usual[1] < careful[1]


def test_slots_far_apart_are_summed_in_bounded_memory() -> None:
    early, late = PeakSlots(), PeakSlots()
    early.raise_to(0, 1.0)
    late.raise_to(1.7e9, 2.0)
    assert len(sum_of_slots([early, late]).peaks) <= MAX_SLOTS + 1


def test_series_may_come_mixed() -> None:
    table = HistoryTable()
    other = SeriesName("b")
    for at in range(10):
        for name in (NAME, other):
            table.add(SampleBatch(name, "usage", [float(at)], [1.0]))
    assert [each.need.count for each in table.containers.values()] == [10, 10]


@pytest.mark.parametrize(
    ("pod", "workload"),
    [
        ("web-7d9cd48999-8jknx", "web"),
        ("db-0", "db"),
        ("collector-9wsbr", "collector"),
        ("report-29012460-x7bvq", "report"),
        ("migration-20260302-x7bvq", "migration-20260302"),
        ("plain", "plain"),
        ("web-server", "web-server"),
    ],
)
def test_a_pod_shows_its_workload(pod: str, workload: str) -> None:
    assert workload_of(pod) == workload


def test_a_size_is_spelled_as_kubernetes_does() -> None:
    assert MemorySize(5, None).resources.requests == {"memory": "5"}
    assert MemorySize(5, None).resources.limits is None


def replayed(values: list[float], levels: ReplayLevels, step: float = 60.0) -> ReplayResult:
    replay = Replay(levels)
    replay.add([step * index for index in range(len(values))], values)
    return replay.result()


def test_a_replay_counts_time_above_high_and_times_above_max() -> None:
    values = [10.0, 60.0, 60.0, 10.0, 110.0, 110.0, 60.0, 120.0, 10.0]
    found = replayed(values, ReplayLevels(high=50, max=100, protected=20))
    assert found.seconds == 540
    assert (found.throttled.seconds, found.throttled.count) == (180, 2)
    assert (found.killed.seconds, found.killed.count) == (180, 2)
    assert found.protected == 180
    assert found.killed.episodes[0].peak == 110


def test_a_kill_is_of_one_day_however_long_usage_stays_above_the_limit() -> None:
    found = replayed([110.0] * 30, ReplayLevels(high=50, max=100), step=3600.0)
    assert (found.days, found.killed.count, found.killed.days) == (2, 1, 1)


def test_nothing_is_said_of_a_gap() -> None:
    replay = Replay(ReplayLevels(high=50))
    replay.add([0, 60, 120, 50_000, 50_060], [60.0] * 5)
    found = replay.result()
    assert found.seconds == 300
    assert found.throttled.count == 2


def test_without_levels_nothing_happens() -> None:
    found = replayed([1e12] * 5, ReplayLevels())
    assert (found.throttled.count, found.killed.count) == (0, 0)


def a_node(name: str, memory: int) -> NodeInfo:
    return node_info(name, {"memory": memory * 1000, "cpu": 8000, "pods": 110_000}, ())


def a_pod(name: str, request: int, node: str | None = None) -> Pod:
    resources = ResourceRequirements(requests={"memory": str(request), "cpu": "100m"})
    container = Container(name="app", image="any", resources=resources)
    return Pod(
        metadata=ObjectMeta(name=name, namespace="shop"),
        spec=PodSpec(containers=(container,), node_name=node),
    )


def test_smaller_requests_take_fewer_nodes() -> None:
    table = HistoryTable()
    for replica in range(6):
        name = SeriesName(f"shop/web-{replica}/app", "shop", f"web-{replica}", "app")
        times = [300.0 * index for index in range(900)]
        table.add(SampleBatch(name, "usage", times, [200.0 * MIB] * 900))
    pods = [a_pod(f"web-{replica}", 1024 * MIB) for replica in range(6)]
    nodes = [a_node(f"n{index}", 2048 * MIB) for index in range(3)]
    found = cluster_savings(pods, nodes, table, SizeOptions(), Release.of("1.36"))
    (web,) = found.workloads
    assert (web.workload, web.pods, web.requested) == ("web", 6, 1024 * MIB)
    assert web.gain == 6 * (1024 * MIB - web.recommended)
    assert (found.nodes_now, found.nodes_then) == (3, 1)


def test_a_pod_that_stays_on_its_node_needs_no_other() -> None:
    nodes = [a_node(f"n{index}", 2048 * MIB) for index in range(3)]
    daemons = [a_pod(f"agent-{each.name}", 1024 * MIB, each.name) for each in nodes]
    pods = [*daemons, a_pod("web-0", 1000 * MIB), a_pod("web-1", 1000 * MIB)]

    def nodes_now(staying: list[Pod]) -> int | None:
        release = Release.of("1.36")
        found = cluster_savings(pods, nodes, HistoryTable(), SizeOptions(), release, staying)
        return found.nodes_now

    assert nodes_now([]) == 3
    assert nodes_now(daemons) == 2


def test_pods_without_history_stay_as_they_are() -> None:
    pods = [a_pod("db-0", 1024 * MIB)]
    found = cluster_savings(
        pods, [a_node("n", 512 * MIB)], HistoryTable(), SizeOptions(), Release.of("1.36")
    )
    assert (found.workloads, found.unsized, found.nodes_now) == ((), 1, None)
