"""memory.high: the tables of KEP-2570, and who is throttled in which release."""

from typing import Any

import pytest
from tests.builders import GI, MI, Json, box, node_settings, of_containers, planned, pod, stanza

from memqos.kube.defaulting import apply_defaults
from memqos.plan.pod import plan_pod
from memqos.plan.setting import MAX, NEEDS_NODE, FileValue

ALL_RELEASES = [f"1.{minor}" for minor in range(22, 39)]
SINCE_1_27 = ALL_RELEASES[5:]
BEFORE_1_37 = ALL_RELEASES[:15]

NOT_WRITTEN = None
POD_LEVEL = {"PodLevelResources": True}
OFF = {"MemoryQoS": False}


def high_of(container: Json, release: str, factor: float | None = 0.9, **node: Any) -> FileValue:
    """memory.high of a pod's only container."""
    plan = planned(pod([container]), node_settings(release, factor=factor, **node))
    return plan.containers[0].settings["memory.high"].value


class TestTablesOfTheProposal:
    @pytest.mark.parametrize(
        ("request_mi", "high_mi"),
        [
            (0, 900),
            (100, 910),
            (200, 920),
            (300, 930),
            (400, 940),
            (500, 950),
            (600, 960),
            (700, 970),
            (800, 980),
            (900, 990),
        ],
    )
    @pytest.mark.parametrize("release", SINCE_1_27)
    def test_a_limit_of_1000_at_factor_0_9(
        self, request_mi: int, high_mi: int, release: str
    ) -> None:
        container = box(f"{request_mi}Mi", "1000Mi")
        assert high_of(container, release, page_size=MI) == high_mi * MI

    @pytest.mark.parametrize("release", ALL_RELEASES)
    def test_request_1000_of_limit_1000_needs_no_throttling(self, release: str) -> None:
        assert high_of(box("1000Mi", "1000Mi"), release, page_size=MI) is NOT_WRITTEN

    @pytest.mark.parametrize(
        ("request_mi", "factor", "in_1_22", "in_1_27"),
        [
            (500, 0.6, 600, 800),
            (800, 0.6, NOT_WRITTEN, 920),
            (1000, 0.6, NOT_WRITTEN, NOT_WRITTEN),
            (500, 0.8, 800, 900),
            (850, 0.8, NOT_WRITTEN, 970),
            (500, 0.4, NOT_WRITTEN, 700),
        ],
    )
    def test_the_formulas_of_1_22_and_1_27_compared(
        self, request_mi: int, factor: float, in_1_22: int | None, in_1_27: int | None
    ) -> None:
        container = box(f"{request_mi}Mi", "1000Mi")
        for releases, expected in ((ALL_RELEASES[:5], in_1_22), (SINCE_1_27, in_1_27)):
            value = None if expected is None else expected * MI
            for release in releases:
                assert high_of(container, release, factor, page_size=MI) == value


class TestRounding:
    def test_down_to_a_page_from_1_27_on(self) -> None:
        container = box("10M", "100M")
        assert high_of(container, "1.27") == 91_000_000 // 4096 * 4096
        assert high_of(container, "1.27", page_size=65536) == 91_000_000 // 65536 * 65536

    def test_down_to_a_byte_before(self) -> None:
        assert high_of(box("10M", "99999999"), "1.26", 0.8) == 79_999_999

    def test_in_double_precision_as_the_kubelet_computes(self) -> None:
        # 0.7 × 90 pages is 63 pages, but in doubles a hair less: the kubelet writes 62.
        assert high_of(box(0, 90 * 4096), "1.38", 0.7) == 62 * 4096
        assert high_of(box(4096, 91 * 4096), "1.38", 0.7) == 63 * 4096

    def test_a_page_that_ends_at_the_request_is_too_little(self) -> None:
        assert high_of(box(4096, 8191), "1.38", 0.9) is NOT_WRITTEN
        assert high_of(box(4095, 8191), "1.38", 0.9) == 4096

    def test_a_factor_of_one_throttles_at_the_limit(self) -> None:
        assert high_of(box("1Mi", "2Mi"), "1.38", 1.0) == 2 * MI


class TestWithoutALimit:
    @pytest.mark.parametrize("release", ALL_RELEASES)
    def test_what_the_node_has_to_give_is_the_limit(self, release: str) -> None:
        expected = 9 * GI if release in ALL_RELEASES[:5] else 9.1 * GI // 4096 * 4096
        assert high_of(box("1Gi"), release, allocatable=10 * GI) == expected

    @pytest.mark.parametrize("release", ALL_RELEASES)
    def test_without_a_node_it_needs_one(self, release: str) -> None:
        assert high_of(box("1Gi"), release) == NEEDS_NODE

    @pytest.mark.parametrize("release", ALL_RELEASES)
    def test_a_limit_needs_no_node(self, release: str) -> None:
        assert isinstance(high_of(box("1Gi", "2Gi"), release), int)

    @pytest.mark.parametrize("release", ALL_RELEASES)
    def test_a_node_with_nothing_allocatable_throttles_no_container(self, release: str) -> None:
        assert high_of(box("1Gi"), release, allocatable=0) is NOT_WRITTEN

    @pytest.mark.parametrize("release", ALL_RELEASES)
    def test_a_request_above_what_the_node_has_throttles_no_container(self, release: str) -> None:
        assert high_of(box("20Gi"), release, allocatable=10 * GI) is NOT_WRITTEN


class TestNeitherRequestNorLimit:
    """A BestEffort container, or one without memory in a Burstable pod."""

    @pytest.mark.parametrize("container", [box(), box(cpu=("1", None)), box("0", "0")])
    def test_it_is_throttled_but_from_1_27_to_1_36(self, container: Json) -> None:
        found = [high_of(container, release, allocatable=10 * GI) for release in ALL_RELEASES]
        assert found == [9 * GI] * 5 + [NOT_WRITTEN] * 10 + [9 * GI] * 2

    def test_and_needs_a_node_just_then(self) -> None:
        found = [high_of(box(), release) for release in ALL_RELEASES]
        assert found == [NEEDS_NODE] * 5 + [NOT_WRITTEN] * 10 + [NEEDS_NODE] * 2


class TestNoFactor:
    @pytest.mark.parametrize("release", ALL_RELEASES)
    def test_no_factor_means_no_throttling(self, release: str) -> None:
        for container in (box("1Gi", "2Gi"), box("1Gi"), box()):
            assert high_of(container, release, None, allocatable=10 * GI) is NOT_WRITTEN


class TestGuaranteed:
    @pytest.mark.parametrize("release", ALL_RELEASES)
    @pytest.mark.parametrize("factor", [0.1, 0.9, 1.0])
    def test_a_guaranteed_pod_is_never_throttled(self, release: str, factor: float) -> None:
        guaranteed = pod([box("1Gi", "1Gi", cpu=("1", "1")), box(None, "2Gi", cpu=(None, "1"))])
        plan = planned(guaranteed, node_settings(release, factor=factor, allocatable=100 * GI))
        assert plan.qos == "Guaranteed"
        assert of_containers(plan, "memory.high") == [NOT_WRITTEN] * 2
        assert plan.settings["memory.high"].value is NOT_WRITTEN

    def test_one_by_pod_level_values_only_as_a_whole(self) -> None:
        """A container that may use more than it requests is throttled in any pod."""
        guaranteed = pod(
            [box("1Gi", "2Gi"), box("1Gi"), box()],
            resources=stanza("4Gi", "4Gi", cpu=("2", "2")),
        )
        plan = planned(guaranteed, node_settings("1.38", factor=0.5, allocatable=10 * GI))
        assert plan.qos == "Guaranteed"
        assert of_containers(plan, "memory.high") == [1536 * MI, NOT_WRITTEN, NOT_WRITTEN]
        assert plan.settings["memory.high"].value is NOT_WRITTEN


class TestPodLevel:
    def test_a_container_without_a_limit_measures_itself_by_the_node_until_1_37(self) -> None:
        limited = pod([box("1Gi")], resources=stanza("2Gi", "4Gi"))
        for release in ("1.34", "1.35", "1.36"):
            plan = planned(limited, node_settings(release, factor=0.5, allocatable=11 * GI))
            assert of_containers(plan, "memory.high") == [6 * GI]
        for release in ("1.37", "1.38"):
            plan = planned(limited, node_settings(release, factor=0.5, allocatable=11 * GI))
            assert of_containers(plan, "memory.high") == [NOT_WRITTEN]

    def test_a_pod_level_request_alone_leaves_the_node_as_the_measure(self) -> None:
        plan = planned(
            pod([box("1Gi")], resources=stanza("2Gi")),
            node_settings("1.38", factor=0.5, allocatable=11 * GI),
        )
        assert of_containers(plan, "memory.high") == [6 * GI]

    @pytest.mark.parametrize("release", ALL_RELEASES[10:])
    def test_the_pod_itself_is_throttled_from_1_37_on(self, release: str) -> None:
        limited = pod([box("1Gi", "2Gi")], resources=stanza("2Gi", "4Gi"))
        plan = planned(limited, node_settings(release, factor=0.5, gates=POD_LEVEL))
        expected = 3 * GI if release in ("1.37", "1.38") else NOT_WRITTEN
        assert plan.settings["memory.high"].value == expected
        assert of_containers(plan, "memory.high") == [1536 * MI]

    def test_a_pod_without_pod_level_resources_is_not(self) -> None:
        nothing: list[Json | None] = [None, {}, {"requests": {}, "limits": {}}]
        for resources in nothing:
            plan = planned(pod([box("1Gi", "2Gi")], resources=resources), node_settings())
            assert plan.settings["memory.high"].value is NOT_WRITTEN

    def test_a_pod_that_is_not_limited_as_a_whole_is_not(self) -> None:
        for containers in ([box("1Gi")], [box("1Gi", "8Gi"), box()]):
            at = node_settings(allocatable=10 * GI)
            plan = planned(pod(containers, resources=stanza("2Gi")), at)
            assert plan.settings["memory.high"].value is NOT_WRITTEN

    def test_a_pod_whose_request_is_its_limit_is_not(self) -> None:
        plan = planned(pod([box()], resources=stanza("2Gi", "2Gi")), node_settings())
        assert plan.settings["memory.high"].value is NOT_WRITTEN
        assert plan.settings["memory.high"].because.rule == "high/request-is-limit"

    def test_pod_level_cpu_alone_lets_the_containers_memory_count(self) -> None:
        plan = planned(
            pod([box("1Gi", "2Gi"), box("1Gi", "4Gi")], resources=stanza(cpu=("2", None))),
            node_settings(factor=0.5),
        )
        assert plan.settings["memory.high"].value == 4 * GI

    def test_overhead_counts_on_both_sides(self) -> None:
        plan = planned(
            pod([box()], resources=stanza("2Gi", "4Gi"), overhead={"memory": "1Gi"}),
            node_settings(factor=0.5),
        )
        assert plan.settings["memory.high"].value == 4 * GI

    def test_no_factor_means_no_throttling(self) -> None:
        plan = planned(pod([box()], resources=stanza("2Gi", "4Gi")), node_settings(factor=None))
        assert plan.settings["memory.high"].value is NOT_WRITTEN


class TestGateOff:
    @pytest.mark.parametrize("release", BEFORE_1_37)
    def test_nothing_is_written_before_1_37(self, release: str) -> None:
        plan = planned(
            pod([box("1Gi", "2Gi")]), node_settings(release, gates=OFF, policy="TieredReservation")
        )
        for settings in (plan.settings, plan.containers[0].settings):
            for name in ("memory.min", "memory.low", "memory.high"):
                assert settings[name].value is NOT_WRITTEN

    @pytest.mark.parametrize("release", ["1.37", "1.38"])
    def test_throttling_of_containers_is_taken_back_from_1_37_on(self, release: str) -> None:
        plan = planned(
            pod([box("1Gi", "2Gi"), box()], resources=stanza("2Gi", "4Gi")),
            node_settings(release, gates=OFF, policy="TieredReservation"),
        )
        assert of_containers(plan, "memory.high") == [MAX, MAX]
        assert plan.containers[0].settings["memory.high"].rule.resets
        assert plan.settings["memory.high"].value is NOT_WRITTEN
        for settings in (plan.settings, plan.containers[0].settings):
            assert settings["memory.min"].value is NOT_WRITTEN
            assert settings["memory.low"].value is NOT_WRITTEN


class TestSidecarsAndInitContainers:
    @pytest.mark.parametrize("release", SINCE_1_27)
    def test_every_container_is_throttled_by_its_own_request_and_limit(self, release: str) -> None:
        plan = planned(
            pod(
                [box("1Gi", "3Gi")],
                init=[box("1Gi", "5Gi"), box("1Gi", "7Gi", sidecar=True)],
            ),
            node_settings(release, factor=0.5),
        )
        assert of_containers(plan, "memory.high") == [3 * GI, 4 * GI, 2 * GI]

    def test_an_ephemeral_container_has_no_limit_of_its_own(self) -> None:
        at = node_settings("1.38", factor=0.5, allocatable=10 * GI)
        shape = apply_defaults(pod([box("1Gi", "3Gi")], ephemeral=[box()]), at.release)
        assert of_containers(plan_pod(shape, at, "Burstable"), "memory.high") == [2 * GI, 5 * GI]
