"""kubepods, burstable and besteffort: the values of the levels above the pods."""

import pytest
from tests.builders import GI, Json, box, node_settings, planned, pod, stanza, written

from memqos.plan.levels import ClassDemand, Levels, Phase, class_demand, plan_levels
from memqos.settings.settings import Policy

BEFORE_POLICIES = [f"1.{minor}" for minor in range(22, 36)]
WITH_POLICIES = ["1.36", "1.37", "1.38"]
POLICIES: list[Policy] = ["None", "TieredReservation", "HardReservation"]
OFF = {"MemoryQoS": False}

SOME = ClassDemand(guaranteed=3 * GI, burstable=2 * GI, burstable_cpu=1500)
ONLY_GUARANTEED = ClassDemand(guaranteed=3 * GI)
NO_PODS = ClassDemand()


def memory_of(levels: Levels) -> tuple[Json, Json, Json]:
    """What kubepods, burstable and besteffort are written of memory."""
    kubepods, burstable, besteffort = [
        {name: value for name, value in written(level).items() if name.startswith("memory.")}
        for level in (levels.kubepods, levels.burstable, levels.besteffort)
    ]
    return kubepods, burstable, besteffort


class TestDemand:
    def test_pods_are_added_up_by_class(self) -> None:
        at = node_settings()
        pods = [
            pod([box("1Gi", "1Gi", cpu=("1", "1"))]),
            pod([box("2Gi", "2Gi", cpu=("4", "4"))]),
            pod([box("1Gi", cpu=("500m", None))], overhead={"memory": "1Gi", "cpu": "250m"}),
            pod([box(cpu=("250m", None))]),
            pod([box()]),
        ]
        assert class_demand(planned(each, at) for each in pods) == ClassDemand(3 * GI, 2 * GI, 1000)

    def test_a_pod_level_request_counts_for_the_pod(self) -> None:
        pods = [pod([box("1Gi")], resources=stanza("5Gi", cpu=("2", None)))]
        assert class_demand(planned(each, node_settings()) for each in pods) == ClassDemand(
            0, 5 * GI, 2000
        )

    def test_best_effort_pods_request_nothing_whatever_their_overhead(self) -> None:
        pods = [pod([box()], overhead={"memory": "1Gi", "cpu": "1"})]
        assert class_demand(planned(each, node_settings()) for each in pods) == NO_PODS

    def test_a_part_of_a_byte_counts_as_a_byte_of_its_pod(self) -> None:
        pods = [pod([box("500m")]), pod([box("500m")])]
        assert class_demand(planned(each, node_settings()) for each in pods) == ClassDemand(0, 2, 0)


class TestBeforePolicies:
    @pytest.mark.parametrize("release", BEFORE_POLICIES)
    @pytest.mark.parametrize("policy", POLICIES)
    def test_every_request_is_covered_with_min(self, release: str, policy: Policy) -> None:
        at = node_settings(release, policy=policy)
        assert memory_of(plan_levels(SOME, at)) == (
            {"memory.min": 5 * GI},
            {"memory.min": 2 * GI},
            {},
        )

    @pytest.mark.parametrize("release", BEFORE_POLICIES)
    def test_nothing_is_written_where_nothing_is_requested(self, release: str) -> None:
        assert memory_of(plan_levels(NO_PODS, node_settings(release))) == ({}, {}, {})
        assert memory_of(plan_levels(ONLY_GUARANTEED, node_settings(release))) == (
            {"memory.min": 3 * GI},
            {},
            {},
        )


class TestNone:
    def test_1_36_takes_min_and_low_back_but_not_low_of_kubepods(self) -> None:
        for demand in (SOME, NO_PODS):
            assert memory_of(plan_levels(demand, node_settings("1.36"))) == (
                {"memory.min": 0},
                {"memory.low": 0},
                {},
            )

    @pytest.mark.parametrize("release", ["1.37", "1.38"])
    @pytest.mark.parametrize("phase", ["start", "steady"])
    def test_from_1_37_on_all_is_taken_back(self, release: str, phase: Phase) -> None:
        levels = plan_levels(SOME, node_settings(release), phase)
        assert memory_of(levels) == (
            {"memory.min": 0, "memory.low": 0},
            {"memory.low": 0},
            {},
        )
        assert levels.kubepods["memory.min"].rule.resets


class TestTiered:
    def test_1_36_covers_all_with_min_and_burstable_with_low(self) -> None:
        at = node_settings("1.36", policy="TieredReservation")
        assert memory_of(plan_levels(SOME, at)) == (
            {"memory.min": 5 * GI},
            {"memory.low": 2 * GI},
            {},
        )

    @pytest.mark.parametrize("release", ["1.37", "1.38"])
    def test_from_1_37_on_kubepods_has_a_low_too(self, release: str) -> None:
        at = node_settings(release, policy="TieredReservation")
        assert memory_of(plan_levels(SOME, at)) == (
            {"memory.min": 5 * GI, "memory.low": 2 * GI},
            {"memory.low": 2 * GI},
            {},
        )

    @pytest.mark.parametrize("release", ["1.37", "1.38"])
    def test_zero_is_written_where_nothing_is_requested(self, release: str) -> None:
        at = node_settings(release, policy="TieredReservation")
        assert memory_of(plan_levels(NO_PODS, at)) == (
            {"memory.min": 0, "memory.low": 0},
            {"memory.low": 0},
            {},
        )

    @pytest.mark.parametrize("release", WITH_POLICIES)
    def test_nothing_is_written_until_pods_are_counted(self, release: str) -> None:
        at = node_settings(release, policy="TieredReservation")
        assert memory_of(plan_levels(SOME, at, "start")) == ({}, {}, {})


class TestHard:
    @pytest.mark.parametrize("release", WITH_POLICIES)
    def test_every_request_is_covered_with_min_and_there_is_no_low(self, release: str) -> None:
        at = node_settings(release, policy="HardReservation")
        assert memory_of(plan_levels(SOME, at)) == (
            {"memory.min": 5 * GI},
            {"memory.min": 2 * GI},
            {},
        )

    @pytest.mark.parametrize("release", WITH_POLICIES)
    def test_nothing_is_written_until_pods_are_counted(self, release: str) -> None:
        at = node_settings(release, policy="HardReservation")
        assert memory_of(plan_levels(SOME, at, "start")) == ({}, {}, {})


class TestGateOff:
    @pytest.mark.parametrize("release", [*BEFORE_POLICIES, "1.36"])
    @pytest.mark.parametrize("policy", POLICIES)
    def test_nothing_is_written_before_1_37(self, release: str, policy: Policy) -> None:
        at = node_settings(release, policy=policy, gates=OFF)
        assert memory_of(plan_levels(SOME, at)) == ({}, {}, {})

    @pytest.mark.parametrize("release", ["1.37", "1.38"])
    @pytest.mark.parametrize("policy", POLICIES)
    def test_all_is_taken_back_from_1_37_on(self, release: str, policy: Policy) -> None:
        at = node_settings(release, policy=policy, gates=OFF)
        assert memory_of(plan_levels(SOME, at)) == (
            {"memory.min": 0, "memory.low": 0},
            {"memory.low": 0},
            {},
        )


class TestCpu:
    def test_burstable_weighs_what_its_pods_request(self) -> None:
        levels = plan_levels(SOME, node_settings())
        assert levels.burstable["cpu.shares"].value == 1536
        assert plan_levels(NO_PODS, node_settings()).burstable["cpu.shares"].value == 2

    def test_best_effort_weighs_the_least_there_is(self) -> None:
        for phase in ("start", "steady"):
            levels = plan_levels(SOME, node_settings(), phase)
            assert levels.besteffort["cpu.shares"].value == 2

    def test_burstable_has_no_weight_until_pods_are_counted(self) -> None:
        assert "cpu.shares" not in plan_levels(SOME, node_settings(), "start").burstable

    def test_one_plan_leaves_no_trace_in_the_next(self) -> None:
        at = node_settings("1.38", gates=OFF)
        plan_levels(SOME, at)
        assert "cpu.shares" not in plan_levels(SOME, at, "start").burstable


class TestWhy:
    def test_the_sum_is_explained_with_its_parts(self) -> None:
        at = node_settings(policy="TieredReservation")
        because = plan_levels(SOME, at).kubepods["memory.min"].because
        assert because.steps == (
            "requests of Guaranteed pods = 3Gi",
            "requests of Burstable pods = 2Gi",
            "together 5Gi",
        )

    @pytest.mark.parametrize("release", ["1.22", "1.27", "1.36", "1.37", "1.38"])
    @pytest.mark.parametrize("policy", POLICIES)
    @pytest.mark.parametrize("on", [True, False])
    @pytest.mark.parametrize("phase", ["start", "steady"])
    def test_every_value_has_a_reason(
        self, release: str, policy: Policy, on: bool, phase: Phase
    ) -> None:
        at = node_settings(release, policy=policy, gates={"MemoryQoS": on})
        for demand in (SOME, NO_PODS):
            levels = plan_levels(demand, at, phase)
            for level in (levels.kubepods, levels.burstable, levels.besteffort):
                for setting in level.values():
                    because = setting.because
                    assert because.rule
                    assert because.text
                    assert because.source
