"""Where the scheduler would put a pod, what is short elsewhere, and what it counts."""

from typing import Any

import msgspec
import pytest

from memqos.cluster.fit import Shortage, judge_fit, node_scores
from memqos.cluster.fit_demand import (
    NodeInfo,
    SchedulingDemand,
    node_info,
    occupies_node,
    scheduling_demand,
    scheduling_demands,
)
from memqos.cluster.fit_scores import SchedulerProfile
from memqos.cluster.fit_survey import Scarcity, survey_fit
from memqos.kube.pod import Pod
from memqos.kube.quantity import milli_of
from memqos.kube.shape import shape_of
from memqos.release import Release

R138 = Release.of("1.38")
MI = 1 << 20


def pod(*requests: dict[str, str], status: dict[str, Any] | None = None, **spec: Any) -> Pod:
    containers = [
        {"name": f"c{index}", "resources": {"requests": each}} if each else {"name": f"c{index}"}
        for index, each in enumerate(requests)
    ]
    return msgspec.convert({"spec": {"containers": containers, **spec}, "status": status}, Pod)


def demand(found: Pod, release: Release = R138) -> SchedulingDemand:
    return scheduling_demand(found, shape_of(found, release), release)


def demand_of(**requests: str) -> SchedulingDemand:
    return demand(pod(requests))


def node_with(name: str = "node", *running: SchedulingDemand, **allocatable: str) -> NodeInfo:
    has = {"cpu": "4", "memory": "8Gi", "pods": "110"} | allocatable
    return node_info(name, {each: milli_of(amount) for each, amount in has.items()}, running)


class TestFilter:
    def test_a_shortage_has_what_is_requested_used_and_allocatable(self) -> None:
        verdict = judge_fit(
            demand_of(memory="6Gi"), node_with("node", demand_of(memory="5Gi")), R138
        )
        assert verdict.shortages == (
            Shortage("memory", 6144 * MI, 5120 * MI, 8192 * MI, unresolvable=False),
        )
        assert verdict.shortages[0].lacking == 3072 * MI
        assert verdict.code == "Unschedulable"

    def test_what_is_exactly_free_fits(self) -> None:
        verdict = judge_fit(
            demand_of(memory="3Gi"), node_with("node", demand_of(memory="5Gi")), R138
        )
        assert verdict.code == "Success"

    def test_a_node_too_small_when_empty_cannot_be_helped_by_preemption(self) -> None:
        assert (
            judge_fit(demand_of(memory="9Gi"), node_with(), R138).code
            == "UnschedulableAndUnresolvable"
        )

    def test_until_1_33_the_filter_does_not_separate_nodes_that_are_too_small(self) -> None:
        assert (
            judge_fit(demand_of(memory="9Gi"), node_with(), Release.of("1.33")).code
            == "Unschedulable"
        )

    def test_a_full_node_takes_not_even_a_pod_without_requests(self) -> None:
        verdict = judge_fit(demand(pod({})), node_with("node", demand(pod({})), pods="1"), R138)
        assert [shortage.resource for shortage in verdict.shortages] == ["pods"]

    @pytest.mark.parametrize(("release", "short"), [("1.27", ["cpu"]), ("1.28", [])])
    def test_overcommitted_cpu_refused_pods_without_a_cpu_request_until_1_27(
        self, release: str, short: list[str]
    ) -> None:
        node = node_with("node", demand_of(cpu="5"))
        verdict = judge_fit(demand_of(memory="1Mi"), node, Release.of(release))
        assert [shortage.resource for shortage in verdict.shortages] == short

    def test_ignored_extended_resources_are_not_checked(self) -> None:
        gpu_demand = demand(pod({"example.com/gpu": "1"}))
        assert judge_fit(gpu_demand, node_with(), R138).code == "UnschedulableAndUnresolvable"
        by_name = SchedulerProfile(ignored_resources=frozenset({"example.com/gpu"}))
        by_group = SchedulerProfile(ignored_groups=frozenset({"example.com"}))
        assert judge_fit(gpu_demand, node_with(), R138, by_name).code == "Success"
        assert judge_fit(gpu_demand, node_with(), R138, by_group).code == "Success"


class TestDemand:
    def test_pod_level_requests_replace_the_containers_and_overhead_comes_on_top(self) -> None:
        found = demand(
            pod(
                {"memory": "1Gi", "cpu": "1"},
                resources={"requests": {"memory": "2Gi"}},
                overhead={"memory": "1Mi"},
            )
        )
        assert found.filtered == {"memory": 2049 * MI, "cpu": 1000}
        assert found.charged == found.filtered

    def test_scoring_by_allocation_ignores_the_pod_level(self) -> None:
        found = demand(pod({"memory": "1Gi"}, resources={"requests": {"memory": "2Gi"}}))
        assert found.spread == {"memory": 1024 * MI, "cpu": 100}

    def test_each_container_without_requests_is_assumed_to_need_a_little(self) -> None:
        found = demand(pod({}, {}))
        assert found.filtered == {}
        assert found.charged_non_zero == {"cpu": 200, "memory": 400 * MI}

    def test_with_pod_level_requests_only_a_resource_without_request_is_assumed(self) -> None:
        found = demand(pod({}, {}, resources={"requests": {"memory": "1Gi"}}))
        assert found.charged_non_zero == {"cpu": 200, "memory": 1024 * MI}

    def resized(self, **more: Any) -> Pod:
        reported = {
            "name": "c0",
            "resources": {"requests": {"memory": "3Gi"}},
            "allocatedResources": {"memory": "2Gi"},
        }
        return pod({"memory": "4Gi"}, status={"containerStatuses": [reported], **more})

    def test_a_resized_pod_is_charged_the_most_of_specified_allocated_and_actual(self) -> None:
        assert demand(self.resized()).charged == {"memory": 4096 * MI}

    def test_an_infeasible_resize_is_not_charged(self) -> None:
        infeasible = {"type": "PodResizePending", "status": "True", "reason": "Infeasible"}
        found = self.resized(conditions=[infeasible])
        assert demand(found).charged == {"memory": 3072 * MI}
        assert demand(found, Release.of("1.33")).charged == {"memory": 3072 * MI}
        assert demand(found, Release.of("1.32")).charged == {"memory": 4096 * MI}

    def test_from_1_37_sums_are_compared_instead_of_containers(self) -> None:
        found = pod(
            {"memory": "1Gi"},
            {"memory": "4Gi"},
            status={
                "containerStatuses": [
                    {"name": "c0", "resources": {"requests": {"memory": "3Gi"}}},
                    {"name": "c1", "resources": {"requests": {"memory": "1Gi"}}},
                ]
            },
        )
        assert demand(found, Release.of("1.36")).charged == {"memory": 7168 * MI}
        assert demand(found, Release.of("1.37")).charged == {"memory": 5120 * MI}

    def test_what_is_reported_for_the_pod_counts_for_its_pod_level_request(self) -> None:
        found = pod(
            {"memory": "1Gi"},
            resources={"requests": {"memory": "2Gi"}},
            status={
                "resources": {"requests": {"memory": "5Gi"}},
                "allocatedResources": {"memory": "3Gi"},
            },
        )
        assert demand(found).charged == {"memory": 5120 * MI}
        assert demand(found, Release.of("1.34")).charged == {"memory": 2048 * MI}

    @pytest.mark.parametrize(
        ("container", "whole_pod", "charged"),
        [
            ({}, {}, 2),
            ({"resources": {"requests": {"memory": "3Gi"}}}, {}, 3),
            ({"allocatedResources": {"memory": "3Gi"}}, {}, 4),
            (
                {},
                {
                    "resources": {"requests": {"memory": "3Gi"}},
                    "allocatedResources": {"memory": "3Gi"},
                },
                3,
            ),
        ],
    )
    def test_claims_add_to_what_is_specified_and_granted_not_to_what_cgroups_have(
        self, container: dict[str, Any], whole_pod: dict[str, Any], charged: int
    ) -> None:
        claim = {"resourceClaimName": "a", "mapping": [{"name": "memory", "quantity": "1Gi"}]}
        status = {
            "nodeAllocatableResourceClaimStatuses": [claim],
            "containerStatuses": [{"name": "c0"} | container],
        } | whole_pod
        counting = Release.of("1.38", {"DRANodeAllocatableResources": True})
        found = demand(pod({"memory": "1Gi"}, status=status), counting)
        assert found.charged == {"memory": charged * 1024 * MI}

    def test_pods_that_ended_leave_their_place(self) -> None:
        assert occupies_node(pod({}, status={"phase": "Running"}))
        assert not occupies_node(pod({}, status={"phase": "Failed"}))

    def test_pods_that_are_alike_share_their_demand(self) -> None:
        alike = [pod({"memory": "1Gi"}), pod({"memory": "1Gi"}), self.resized()]
        first, second, third = scheduling_demands(alike, R138)
        assert first is second
        assert third == demand(alike[2])


class TestScores:
    def test_an_empty_node_is_least_allocated_and_a_full_one_most(self) -> None:
        half = demand_of(cpu="2", memory="4Gi")
        assert node_scores(half, node_with(), R138)[:2] == (50, 50)
        assert node_scores(half, node_with("node", half), R138)[:2] == (0, 100)

    def test_weights_shift_the_mean(self) -> None:
        all_memory = demand_of(cpu="1", memory="8Gi")
        heavy = SchedulerProfile(weights=(("cpu", 1), ("memory", 3)))
        assert node_scores(all_memory, node_with(), R138).most_allocated == (25 + 100) // 2
        assert node_scores(all_memory, node_with(), R138, heavy).most_allocated == (25 + 300) // 4
        nothing = SchedulerProfile(weights=(("cpu", 0),))
        assert node_scores(all_memory, node_with(), R138, nothing)[:2] == (0, 0)

    @pytest.mark.parametrize(("release", "score"), [("1.35", 50), ("1.36", 50), ("1.38", 50)])
    def test_a_pod_of_memory_alone_unbalances_an_empty_node(self, release: str, score: int) -> None:
        assert (
            node_scores(demand_of(memory="8Gi"), node_with(), Release.of(release)).balanced == score
        )

    @pytest.mark.parametrize(("release", "score"), [("1.35", 100), ("1.36", 87)])
    def test_from_1_36_the_change_counts_and_not_the_outcome(
        self, release: str, score: int
    ) -> None:
        uneven = node_with("node", demand_of(cpu="2"))
        assert node_scores(demand_of(memory="4Gi"), uneven, Release.of(release)).balanced == score

    def test_from_1_33_a_pod_without_requests_is_not_scored_for_balance(self) -> None:
        nothing = demand(pod({}))
        assert node_scores(nothing, node_with(), R138).balanced is None
        assert node_scores(nothing, node_with(), Release.of("1.32")).balanced == 100

    def test_resources_a_node_lacks_are_not_scored(self) -> None:
        with_gpu = SchedulerProfile(weights=(("cpu", 1), ("memory", 1), ("example.com/gpu", 9)))
        gpu_demand = demand(pod({"cpu": "2", "memory": "4Gi", "example.com/gpu": "1"}))
        assert node_scores(gpu_demand, node_with(), R138, with_gpu)[:2] == (50, 50)


class TestSurvey:
    def test_a_pod_goes_to_the_emptiest_node_it_fits(self) -> None:
        small, large = node_with("small", memory="2Gi"), node_with("large", memory="64Gi", cpu="32")
        (found,) = survey_fit([demand_of(cpu="1", memory="1Gi")], [small, large], R138)
        assert (found.nodes, found.fitting, found.best) == (2, 2, "large")
        assert found.scarce == {}

    def test_where_a_pod_fits_nowhere_the_nearest_miss_is_reported(self) -> None:
        nodes = [
            node_with("a", memory="2Gi"),
            node_with("b", demand_of(memory="6Gi")),
            node_with("c", memory="1Gi"),
        ]
        (found,) = survey_fit([demand_of(memory="3Gi")], nodes, R138)
        assert (found.fitting, found.best, found.scores) == (0, None, None)
        assert found.scarce == {"memory": Scarcity(3, unresolvable=2, lacking=1024 * MI)}

    def test_nodes_without_a_scored_resource_are_judged_by_the_others(self) -> None:
        odd = node_with("odd", cpu="0", memory="64Gi")
        (found,) = survey_fit(
            [demand_of(memory="1Gi")], [odd, node_with("plain", demand_of(cpu="4"))], R138
        )
        assert (found.fitting, found.best) == (2, "odd")

    @pytest.mark.parametrize("release", ["1.32", "1.35", "1.38"])
    def test_no_node_is_liked_better_than_the_best(self, release: str) -> None:
        known = Release.of(release)
        nodes = [
            node_with(f"{cpu}-{memory}", demand_of(cpu=f"{cpu}00m", memory=f"{memory}00Mi"))
            for cpu in range(0, 40, 3)
            for memory in range(0, 80, 7)
        ]
        demands = [
            demand_of(cpu=f"{cpu}m", memory=f"{memory}Mi")
            for cpu in (0, 10, 900, 2500)
            for memory in (0, 30, 1700, 5000)
        ]
        for each, found in zip(demands, survey_fit(demands, nodes, known), strict=True):
            liked = {}
            for node in nodes:
                verdict = judge_fit(each, node, known)
                if verdict.code == "Success":
                    least, _, balanced = verdict.scores
                    liked[node.name] = least + (balanced or 0)
            assert found.fitting == len(liked)
            assert found.best is not None
            assert liked[found.best] == max(liked.values())

    def test_an_empty_cluster_fits_nothing(self) -> None:
        (found,) = survey_fit([demand_of(memory="1Gi")], [], R138)
        assert (found.nodes, found.fitting, found.scarce) == (0, 0, {})
