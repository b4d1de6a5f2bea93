"""Which pods the kubelet evicts under memory pressure, when, and with how much grace."""

from typing import Any

import msgspec
import pytest

from memqos.cli.replay.pressure import tie_groups
from memqos.cluster.eviction_loop import (
    EvictionSettings,
    EvictionState,
    EvictionStep,
    evict_once,
)
from memqos.cluster.eviction_order import (
    PodMemoryUsage,
    RankedPod,
    eviction_order,
    first_evictable,
    memory_request,
    offending_usage,
)
from memqos.cluster.eviction_signals import SignalObservation, node_conditions, threshold_readings
from memqos.kube.duration import SECOND
from memqos.kube.kubelet.thresholds import MEMORY_AVAILABLE, Threshold, read_thresholds
from memqos.kube.pod import Pod
from memqos.kube.shape import shape_of
from memqos.release import Release

R138 = Release.of("1.38")
MI = 1 << 20
CAPACITY = 8192 * MI


def pod(
    name: str,
    request: str | None = None,
    *,
    priority: int | None = None,
    annotations: dict[str, str] | None = None,
    **spec: Any,
) -> Pod:
    resources = {"requests": {"memory": request}} if request else {}
    whole = {
        "metadata": {"name": name, "annotations": annotations},
        "spec": {
            "containers": [{"name": "main", "resources": resources}],
            "priority": priority,
            **spec,
        },
    }
    return msgspec.convert(whole, Pod)


def using(mebibytes: int | None) -> PodMemoryUsage:
    return PodMemoryUsage(None if mebibytes is None else mebibytes * MI)


def names(order: list[RankedPod]) -> list[str | None]:
    return [ranked.pod.metadata.name for ranked in order]


class TestOrder:
    def test_each_place_is_decided_by_the_first_key_that_differs(self) -> None:
        order = eviction_order(
            [
                (pod("within", "100Mi"), using(50)),
                (pod("much over", "100Mi"), using(300)),
                (pod("important", "100Mi", priority=7), using(900)),
                (pod("unknown", "100Mi", priority=9), None),
                (pod("little over", "100Mi"), using(200)),
                (pod("twin", "100Mi"), using(200)),
            ],
            R138,
        )
        assert [(ranked.pod.metadata.name, ranked.ahead_by) for ranked in order] == [
            ("unknown", "no stats"),
            ("much over", "excess"),
            ("little over", "input order"),
            ("twin", "priority"),
            ("important", "over request"),
            ("within", None),
        ]
        assert [names(group) for group in tie_groups(order)][2] == ["little over", "twin"]

    def test_using_exactly_the_request_is_not_using_more(self) -> None:
        (ranked,) = eviction_order([(pod("even", "100Mi"), using(100))], R138)
        assert ranked.over_request is False
        assert ranked.excess == 0

    def test_the_qos_class_is_no_key(self) -> None:
        best_effort, burstable = pod("best effort"), pod("burstable", "100Mi")
        order = eviction_order([(best_effort, using(10)), (burstable, using(111))], R138)
        assert names(order) == ["burstable", "best effort"]

    def test_statistics_without_a_number_count_as_no_usage(self) -> None:
        (ranked,) = eviction_order([(pod("new", "1Mi"), using(None))], R138)
        assert ranked.usage == 0
        assert ranked.excess == -MI

    @pytest.mark.parametrize(
        "critical",
        [
            pod("critical", priority=2_000_000_000),
            pod("critical", annotations={"kubernetes.io/config.source": "file"}),
            pod("critical", annotations={"kubernetes.io/config.mirror": "x"}),
        ],
    )
    def test_a_critical_pod_keeps_its_place_but_does_not_go(self, critical: Pod) -> None:
        order = eviction_order([(pod("other", "100Mi"), using(1)), (critical, using(900))], R138)
        assert names(order) == ["critical", "other"]
        first = first_evictable(order)
        assert first is not None
        assert first.pod.metadata.name == "other"

    def test_no_pod_is_evicted_where_all_are_critical(self) -> None:
        order = eviction_order([(pod("only", priority=2_000_001_000), using(1))], R138)
        assert first_evictable(order) is None


class TestRequest:
    def request(self, release: str, **spec: Any) -> int:
        known = Release.of(release)
        return memory_request(shape_of(pod("p", **spec), known), known) // 1000

    def test_overhead_counts_only_on_top_of_a_request(self) -> None:
        assert self.request("1.38", overhead={"memory": "10Mi"}) == 0
        assert self.request("1.38", request="1Mi", overhead={"memory": "10Mi"}) == 11 * MI

    def test_any_pod_level_value_discards_what_containers_request(self) -> None:
        limited = {"resources": {"limits": {"cpu": "1"}}}
        assert self.request("1.38", request="5Mi", **limited) == 0
        with_pod_level = {"resources": {"requests": {"memory": "7Mi"}}}
        assert self.request("1.38", request="5Mi", **with_pod_level) == 7 * MI

    def test_until_1_33_the_pod_level_is_not_looked_at(self) -> None:
        with_pod_level = {"resources": {"requests": {"memory": "7Mi"}}}
        assert self.request("1.33", request="5Mi", **with_pod_level) == 5 * MI

    @pytest.mark.parametrize(("release", "mebibytes"), [("1.33", 5), ("1.34", 8)])
    def test_sidecars_are_summed_from_1_34(self, release: str, mebibytes: int) -> None:
        sidecar = {
            "name": "proxy",
            "restartPolicy": "Always",
            "resources": {"requests": {"memory": "3Mi"}},
        }
        assert self.request(release, request="5Mi", initContainers=[sidecar]) == mebibytes * MI


class TestBlame:
    def test_containers_over_their_own_request_are_named(self) -> None:
        usage = PodMemoryUsage(30 * MI, {"main": 20 * MI, "unknown": 99 * MI})
        blamed = offending_usage(pod("p", "10Mi"), usage, R138)
        assert blamed is not None
        assert blamed.containers == [("main", 20 * MI)]
        assert blamed.pod is None

    def test_a_pod_with_a_pod_level_request_is_named_from_1_34(self) -> None:
        with_pod_level = pod("p", "10Mi", resources={"requests": {"memory": "50Mi"}})
        usage = PodMemoryUsage(30 * MI, {})
        new, old = (
            offending_usage(with_pod_level, usage, R138),
            offending_usage(with_pod_level, usage, Release.of("1.33")),
        )
        assert new is not None
        assert new.pod == 30 * MI
        assert old is not None
        assert old.pod is None

    def test_no_usage_is_named_without_statistics(self) -> None:
        assert offending_usage(pod("p"), None, R138) is None


def thresholds(
    hard: str | None = None,
    soft: str | None = None,
    *,
    grace: str = "1m",
    reclaim: str | None = None,
    enforced: tuple[str, ...] = (),
) -> tuple[Threshold, ...]:
    def one(value: str | None) -> dict[str, str]:
        return {} if value is None else {MEMORY_AVAILABLE: value}

    grace_periods = one(grace if soft else None)
    return read_thresholds(one(hard), one(soft), grace_periods, one(reclaim), enforced).thresholds


class TestThresholds:
    @pytest.mark.parametrize(("available", "met"), [(99, True), (100, False), (101, False)])
    def test_a_threshold_is_met_strictly_below_it(self, available: int, met: bool) -> None:
        seen = {MEMORY_AVAILABLE: SignalObservation(available * MI, CAPACITY)}
        (reading,) = threshold_readings(thresholds("100Mi"), seen)
        assert reading.met is met

    def test_reclaiming_goes_on_past_the_threshold(self) -> None:
        seen = {MEMORY_AVAILABLE: SignalObservation(120 * MI, CAPACITY)}
        (reading,) = threshold_readings(thresholds("100Mi", reclaim="50Mi"), seen)
        assert not reading.met
        assert reading.met_until_reclaimed

    def test_what_pods_may_use_together_has_the_hard_threshold_too(self) -> None:
        seen = {"allocatableMemory.available": SignalObservation(1, CAPACITY)}
        found = threshold_readings(thresholds("100Mi", "200Mi", enforced=("pods",)), seen)
        met = [reading.threshold for reading in found if reading.met]
        assert [threshold.signal for threshold in met] == ["allocatableMemory.available"]
        assert node_conditions(met) == ["MemoryPressure"]

    def test_a_signal_that_was_not_observed_meets_nothing(self) -> None:
        (reading,) = threshold_readings(thresholds("100Mi"), {})
        assert not reading.met
        assert not reading.met_until_reclaimed


class Node:
    """A kubelet with its pods, stepped by seconds."""

    def __init__(self, settings: EvictionSettings, *pods: Pod, release: Release = R138) -> None:
        self.settings = settings
        self.pods = list(pods)
        self.release = release
        self.state = EvictionState()

    def step(self, seconds: int, available: int, *, measured: int | None = None) -> EvictionStep:
        at = (seconds if measured is None else measured) * SECOND
        seen = {MEMORY_AVAILABLE: SignalObservation(available * MI, CAPACITY, at)}
        running = [(each, using(500)) for each in self.pods]
        step, self.state = evict_once(
            self.state, seconds * SECOND, seen, running, self.settings, self.release
        )
        if step.evicted is not None:
            self.pods.remove(step.evicted.pod)
        return step


def settings(found: tuple[Threshold, ...], *, most: int = 10, stays: int = 300) -> EvictionSettings:
    return EvictionSettings(found, stays * SECOND, most)


class TestLoop:
    def test_a_hard_threshold_evicts_at_once_and_one_pod_a_step(self) -> None:
        node = Node(settings(thresholds("1Gi")), pod("a"), pod("b", priority=1))
        first, second, third = [node.step(at, 100) for at in (0, 10, 20)]
        assert [step.evicted and step.evicted.pod.metadata.name for step in (first, second)] == [
            "a",
            "b",
        ]
        assert third.evicted is None
        assert third.reclaiming is not None

    def test_a_soft_threshold_waits_out_its_grace_period(self) -> None:
        node = Node(settings(thresholds(None, "1Gi")), pod("a"))
        early = node.step(0, 100)
        assert early.evicted is None
        assert early.conditions == ("MemoryPressure",)
        assert [threshold.hard for threshold in early.waiting] == [False]
        assert node.step(59, 100).evicted is None
        assert node.step(60, 100).evicted is not None

    def test_a_relief_starts_the_grace_period_again(self) -> None:
        node = Node(settings(thresholds(None, "1Gi")), pod("a"))
        for at, available in ((0, 100), (50, 2000), (60, 100), (119, 100)):
            assert node.step(at, available).evicted is None
        assert node.step(120, 100).evicted is not None

    def test_the_condition_outlasts_the_pressure_by_the_transition_period(self) -> None:
        node = Node(settings(thresholds("1Gi"), stays=30))
        assert node.step(0, 100).conditions == ("MemoryPressure",)
        assert node.step(29, 4000).conditions == ("MemoryPressure",)
        assert node.step(30, 4000).conditions == ()

    def test_without_a_transition_period_the_condition_is_never_reported(self) -> None:
        assert Node(settings(thresholds("1Gi"), stays=0)).step(0, 100).conditions == ()

    def test_evicting_goes_on_until_the_minimum_is_reclaimed(self) -> None:
        node = Node(settings(thresholds("1Gi", reclaim="1Gi")), pod("a"), pod("b"), pod("c"))
        assert node.step(0, 100).evicted is not None
        assert node.step(10, 1500).evicted is not None
        assert node.step(20, 2048).evicted is None
        assert node.step(30, 1500).evicted is None

    def test_statistics_already_acted_upon_evict_no_one_else(self) -> None:
        node = Node(settings(thresholds("1Gi")), pod("a"), pod("b"))
        assert node.step(0, 100, measured=0).evicted is not None
        stale = node.step(10, 100, measured=0)
        assert stale.evicted is None
        assert stale.met

    def test_of_two_thresholds_met_at_once_the_soft_one_decides(self) -> None:
        node = Node(settings(thresholds("1Gi", "2Gi", grace="5s")), pod("a"))
        node.step(0, 1500)
        step = node.step(5, 100)
        assert len(step.met) == 2
        assert step.reclaiming is not None
        assert not step.reclaiming.hard

    def test_a_hard_threshold_that_is_still_reclaimed_decides_over_a_soft_one(self) -> None:
        found = thresholds("1Gi", "2Gi", grace="5s", reclaim="512Mi")
        node = Node(settings(found), pod("a"), pod("b"))
        node.step(0, 100)
        step = node.step(5, 1200)
        assert len(step.met) == 2
        assert step.reclaiming is not None
        assert step.reclaiming.hard

    @pytest.mark.parametrize(
        ("release", "hard", "soft"), [("1.30", 0, 10), ("1.31", 1, 10), ("1.32", 1, 5)]
    )
    def test_grace_given_to_the_pod_by_release(self, release: str, hard: int, soft: int) -> None:
        short = pod("a", terminationGracePeriodSeconds=5)
        by_hard = Node(settings(thresholds("1Gi")), short, release=Release.of(release))
        by_soft = Node(
            settings(thresholds(None, "1Gi", grace="1s")), short, release=Release.of(release)
        )
        by_soft.step(0, 100)
        assert by_hard.step(1, 100).grace_period == hard
        assert by_soft.step(1, 100).grace_period == soft

    def test_pressure_on_disks_is_reported_but_evicts_no_one_here(self) -> None:
        found = read_thresholds({"nodefs.available": "10%"}).thresholds
        seen = {"nodefs.available": SignalObservation(1, 100)}
        step, _ = evict_once(EvictionState(), 0, seen, [(pod("a"), None)], settings(found), R138)
        assert step.conditions == ("DiskPressure",)
        assert step.evicted is None
