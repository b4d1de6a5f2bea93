"""Everything Kubernetes makes of one pod, release by release, and the reason for each value."""

from itertools import product
from typing import Any

import pytest
from tests.builders import (
    GI,
    MI,
    Json,
    box,
    node_settings,
    of_containers,
    planned,
    pod,
    stanza,
    written,
)

from memqos.kube.aggregate import pod_limits, pod_requests
from memqos.kube.defaulting import apply_defaults
from memqos.kube.explanations import why_total
from memqos.kube.oom import Score
from memqos.kube.pod import Pod
from memqos.kube.resources import format_amount
from memqos.kube.shape import shape_key
from memqos.kube.validation import validate
from memqos.plan import semantics as semantics_module
from memqos.plan.cpu import shares_of, weight_of
from memqos.plan.pod import PodPlan, plan_pod
from memqos.plan.semantics import Planner, is_stored, semantics
from memqos.plan.setting import MAX, NEEDS_NODE, FileSettings, FileValue, Setting
from memqos.release import Release
from memqos.settings.settings import Policy, Settings
from memqos.units import format_exact_bytes

ALL_RELEASES = [f"1.{minor}" for minor in range(22, 39)]
HUGE = "hugepages-2Mi"
NEWEST = Release.of("1.38")


def pod_max(pod: Pod, release: str) -> FileValue:
    return planned(pod, node_settings(release)).settings["memory.max"].value


class TestTotals:
    """What a pod requests and may use: its containers together, the pod level, overhead."""

    def totals(self, containers: list[Json], **spec: Any) -> tuple[Json, Json]:
        shape = apply_defaults(pod(containers, **spec), NEWEST)
        requests, limits = pod_requests(shape, NEWEST), pod_limits(shape, NEWEST)
        return (
            {name: format_amount(name, amount) for name, amount in requests.items()},
            {name: format_amount(name, amount) for name, amount in limits.items()},
        )

    def test_containers_are_added_up_resource_by_resource(self) -> None:
        assert self.totals([box("1Gi", "2Gi"), box("1Gi", cpu=("1", "2"))]) == (
            {"memory": "2Gi", "cpu": "1"},
            {"memory": "2Gi", "cpu": "2"},
        )

    def test_an_init_container_counts_where_it_needs_more_than_what_runs_later(self) -> None:
        assert self.totals([box("1Gi")], init=[box("3Gi"), box("2Gi")])[0] == {"memory": "3Gi"}
        assert self.totals([box("4Gi")], init=[box("3Gi"), box("2Gi")])[0] == {"memory": "4Gi"}

    def test_sidecars_run_beside_everything_that_starts_after_them(self) -> None:
        sidecar = box("1Gi", sidecar=True)
        assert self.totals([box("1Gi")], init=[sidecar, sidecar])[0] == {"memory": "3Gi"}
        assert self.totals([box("1Gi")], init=[sidecar, box("3Gi")])[0] == {"memory": "4Gi"}
        assert self.totals([box("1Gi")], init=[box("3Gi"), sidecar])[0] == {"memory": "3Gi"}
        assert self.totals([box("1Gi")], init=[sidecar, box("3Gi"), sidecar])[0] == {
            "memory": "4Gi"
        }

    def test_the_peak_is_found_for_each_resource_on_its_own(self) -> None:
        found = self.totals(
            [box("4Gi", cpu=("1", None))], init=[box("1Gi", cpu=("4", None)), box("2Gi")]
        )
        assert found[0] == {"cpu": "4", "memory": "4Gi"}

    def test_ephemeral_containers_never_count(self) -> None:
        assert self.totals([box("1Gi")], ephemeral=[box("9Gi", "9Gi")]) == ({"memory": "1Gi"}, {})

    def test_a_pod_level_value_replaces_that_resource_alone(self) -> None:
        huge = {HUGE: "4Mi"}
        containers = [box("1Gi", "1Gi", cpu=("1", "1"), limits={**huge, "example.com/gpu": "1"})]
        requests, limits = self.totals(containers, resources=stanza("2Gi", "4Gi"))
        rest = {"cpu": "1", HUGE: "4Mi", "example.com/gpu": "1"}
        assert requests == {"memory": "2Gi", **rest}
        assert limits == {"memory": "4Gi", **rest}

    def test_overhead_adds_to_requests_always(self) -> None:
        found = self.totals([box("1Gi")], overhead={"memory": "1Gi", "cpu": "250m"})
        assert found == ({"memory": "2Gi", "cpu": "250m"}, {})

    def test_and_to_limits_that_are_not_zero(self) -> None:
        overhead = {"memory": "1Gi", "cpu": "1"}
        assert self.totals([box("1Gi", "2Gi")], overhead=overhead)[1] == {"memory": "3Gi"}
        assert self.totals([box("0", "0")], overhead=overhead)[1] == {"memory": "0"}
        assert self.totals([box()], resources=stanza(None, "2Gi"), overhead=overhead)[1] == {
            "memory": "3Gi"
        }

    def test_overhead_can_be_excluded(self) -> None:
        shape = apply_defaults(pod([box("1Gi")], overhead={"memory": "1Gi"}), NEWEST)
        assert pod_requests(shape, NEWEST, overhead=False) == {"memory": GI * 1000}

    @pytest.mark.parametrize(
        ("written", "resource", "side", "reason"),
        [
            (
                pod([box("1Gi"), box("2Gi")]),
                "memory",
                "requests",
                "1Gi + 2Gi, containers and sidecars together",
            ),
            (
                pod([box("1Gi")], init=[box("2Gi", sidecar=True)]),
                "memory",
                "requests",
                "1Gi + 2Gi, containers and sidecars together",
            ),
            (
                pod([box("1Gi")], init=[box("1Gi", sidecar=True), box("4Gi")]),
                "memory",
                "requests",
                "5Gi, the peak of an init container and the sidecars before it, "
                "more than 1Gi + 1Gi later",
            ),
            (
                pod([box("1Gi")], resources=stanza("2Gi"), overhead={"memory": "1Mi"}),
                "memory",
                "requests",
                "the pod-level value; overhead 1Mi on top",
            ),
            (
                pod([box("1Gi", "2Gi")], overhead={"memory": "1Mi"}),
                "memory",
                "limits",
                "2Gi, containers and sidecars together; overhead 1Mi on top",
            ),
            (
                pod([box()], overhead={"cpu": "250m"}),
                "cpu",
                "requests",
                "nothing, containers and sidecars together; overhead 250m on top",
            ),
            (pod([box()]), "cpu", "requests", "nothing, containers and sidecars together"),
            pytest.param(
                pod([box("0", "0")], overhead={"memory": "1Mi"}),
                "memory",
                "limits",
                "nothing, containers and sidecars together",
            ),
        ],
    )
    def test_a_total_is_reported_with_its_parts(
        self, written: Pod, resource: str, side: str, reason: str
    ) -> None:
        shape = apply_defaults(written, NEWEST)
        total = {"requests": pod_requests, "limits": pod_limits}[side](shape, NEWEST)
        assert why_total(shape, total, resource, side, NEWEST) == reason


class TestMemoryMax:
    @pytest.mark.parametrize("release", ALL_RELEASES)
    def test_a_container_is_killed_past_its_limit(self, release: str) -> None:
        plan = planned(
            pod([box("1Gi", "2Gi"), box("1Gi")], init=[box(None, "3Gi")]), node_settings(release)
        )
        assert of_containers(plan, "memory.max") == [3 * GI, 2 * GI, MAX]

    @pytest.mark.parametrize("release", ALL_RELEASES)
    def test_a_pod_is_limited_where_every_container_is(self, release: str) -> None:
        assert pod_max(pod([box("1Gi", "2Gi"), box("1Gi", "3Gi")]), release) == 5 * GI
        assert pod_max(pod([box("1Gi", "2Gi"), box("1Gi")]), release) is None
        assert pod_max(pod([box("1Gi", "2Gi"), box("0", "0")]), release) is None

    @pytest.mark.parametrize("release", ALL_RELEASES)
    def test_overhead_widens_the_limit(self, release: str) -> None:
        limited = pod([box("1Gi", "2Gi")], overhead={"memory": "1Gi"})
        assert pod_max(limited, release) == 3 * GI

    @pytest.mark.parametrize("release", ALL_RELEASES)
    def test_a_best_effort_pod_is_never_limited(self, release: str) -> None:
        plan = planned(pod([box()], overhead={"memory": "1Gi", "cpu": "1"}), node_settings(release))
        assert {"memory.max", "cpu.max"}.isdisjoint(written(plan.settings))
        assert plan.settings["cpu.shares"].value == 2
        of_class = plan_pod(
            apply_defaults(pod([box("1Gi", "1Gi")]), NEWEST), node_settings(release), "BestEffort"
        )
        assert of_class.settings["memory.max"].value is None

    @pytest.mark.parametrize("release", ALL_RELEASES)
    def test_a_guaranteed_pod_always_is(self, release: str) -> None:
        assert pod_max(pod([box("1Gi", "1Gi", cpu=("1", "1"))]), release) == GI

    @pytest.mark.parametrize("release", ALL_RELEASES)
    def test_init_containers_count_from_1_23_on(self, release: str) -> None:
        unlimited_at_first = pod([box("1Gi", "2Gi")], init=[box("1Gi")])
        expected = 2 * GI if release == "1.22" else None
        assert pod_max(unlimited_at_first, release) == expected

    def test_an_init_container_was_as_limited_as_the_sidecars_before_it_until_1_37(self) -> None:
        sidecar = box("1Gi", "1Gi", sidecar=True)
        later = pod([box("1Gi", "2Gi")], init=[sidecar, box("1Gi")])
        earlier = pod([box("1Gi", "2Gi")], init=[box("1Gi"), sidecar])
        beside = pod([box("1Gi", "2Gi")], init=[sidecar, box("1Gi", sidecar=True)])
        for release in ALL_RELEASES[7:15]:
            assert pod_max(later, release) == 3 * GI
            assert pod_max(beside, release) == 3 * GI
            assert pod_max(earlier, release) is None
        for release in ("1.37", "1.38"):
            assert pod_max(later, release) is None
            assert pod_max(beside, release) is None
            assert pod_max(earlier, release) is None

    @pytest.mark.parametrize("release", ALL_RELEASES[10:])
    def test_a_pod_level_limit_suffices_and_reaches_the_containers(self, release: str) -> None:
        at = node_settings(release, gates={"PodLevelResources": True})
        plan = planned(pod([box(), box("1Gi", "2Gi")], resources=stanza("2Gi", "4Gi")), at)
        assert plan.settings["memory.max"].value == 4 * GI
        assert of_containers(plan, "memory.max") == [4 * GI, 2 * GI]

    def test_overhead_does_not_reach_the_containers(self) -> None:
        limited = pod([box()], resources=stanza("2Gi", "4Gi"), overhead={"memory": "1Gi"})
        plan = planned(limited, node_settings())
        assert plan.settings["memory.max"].value == 5 * GI
        assert of_containers(plan, "memory.max") == [4 * GI]

    def test_a_pod_level_limit_of_zero_is_none(self) -> None:
        plan = planned(pod([box()], resources=stanza("0", "0", cpu=("1", None))), node_settings())
        assert plan.settings["memory.max"].value is None
        assert of_containers(plan, "memory.max") == [MAX]


class TestOomGroup:
    def test_processes_die_together_from_1_28_on(self) -> None:
        found = [
            of_containers(planned(pod([box()]), node_settings(release)), "memory.oom.group")[0]
            for release in ALL_RELEASES
        ]
        assert found == [None] * 6 + [1] * 11

    def test_unless_configured_otherwise_since_1_32(self) -> None:
        found = [
            of_containers(
                planned(pod([box()]), node_settings(release, single_process_oom_kill=True)),
                "memory.oom.group",
            )[0]
            for release in ALL_RELEASES
        ]
        assert found == [None] * 6 + [1] * 4 + [None] * 7

    def test_whether_memory_qos_is_on_or_not(self) -> None:
        plan = planned(pod([box()]), node_settings(gates={"MemoryQoS": False}))
        assert of_containers(plan, "memory.oom.group") == [1]


class TestCpu:
    @pytest.mark.parametrize(
        ("milli", "shares"), [(0, 2), (1, 2), (2, 2), (3, 3), (1000, 1024), (10**9, 262_144)]
    )
    def test_shares_are_1024_for_a_core(self, milli: int, shares: int) -> None:
        assert shares_of(milli) == shares

    @pytest.mark.parametrize(("shares", "weight"), [(0, 0), (2, 1), (1024, 39), (262_144, 10_000)])
    def test_weights_run_from_1_to_10000(self, shares: int, weight: int) -> None:
        assert weight_of(shares) == weight

    def test_time_is_limited_by_period_and_at_least_a_millisecond(self) -> None:
        plan = planned(
            pod([box(cpu=("1m", "1500m")), box(cpu=("1m", "5m")), box()]), node_settings()
        )
        assert of_containers(plan, "cpu.max") == ["150000 100000", "1000 100000", "max 100000"]

    def test_a_pod_is_limited_where_every_container_is(self) -> None:
        plan = planned(pod([box(cpu=("1", "2")), box(cpu=("1", "2"))]), node_settings())
        assert plan.settings["cpu.max"].value == "400000 100000"
        assert plan.settings["cpu.shares"].value == 2048
        half = planned(pod([box(cpu=("1", "2")), box()]), node_settings())
        assert half.settings["cpu.max"].value is None

    def test_a_pod_level_limit_suffices_and_reaches_the_containers(self) -> None:
        plan = planned(
            pod([box(), box(cpu=("500m", "1"))], resources=stanza(cpu=("1", "2"))), node_settings()
        )
        assert plan.settings["cpu.max"].value == "200000 100000"
        assert of_containers(plan, "cpu.max") == ["200000 100000", "100000 100000"]
        assert of_containers(plan, "cpu.shares") == [2048, 512]

    def test_a_kubelet_that_does_not_enforce_limits_writes_none(self) -> None:
        at = Settings(release=NEWEST, factor=None, cpu_quota=False)
        plan = planned(pod([box("1Gi", "1Gi", cpu=("1", "1"))]), at)
        assert plan.settings["cpu.max"].value == "max 100000"
        assert of_containers(plan, "cpu.max") == ["max 100000"]

    def test_a_period_of_its_own(self) -> None:
        at = Settings(release=NEWEST, factor=None, cpu_period=10_000)
        assert of_containers(planned(pod([box(cpu=("1", "2"))]), at), "cpu.max") == ["20000 10000"]

    def test_a_request_of_zero_took_the_limit_before_1_26(self) -> None:
        zero = pod([box(cpu=("0", "1"))])
        found = [
            of_containers(planned(zero, node_settings(r)), "cpu.shares")[0] for r in ALL_RELEASES
        ]
        assert found == [1024] * 4 + [2] * 13


class TestHugepages:
    def test_a_container_has_its_own_limit_and_none_of_other_sizes(self) -> None:
        plan = planned(pod([box("1Gi", limits={HUGE: "4Mi"}), box()]), node_settings())
        assert of_containers(plan, "hugetlb.2MB.max") == [4 * MI, 0]
        assert of_containers(plan, "hugetlb.1GB.max") == [0, 0]

    def test_else_that_of_the_pod_from_1_34_on(self) -> None:
        shared = pod(
            [box("1Gi", limits={HUGE: "4Mi"}), box()],
            resources=stanza("1Gi", "1Gi", limits={HUGE: "8Mi"}),
        )
        gates = {"PodLevelResources": True}
        for release, expected in (("1.33", 0), ("1.34", 8 * MI), ("1.38", 8 * MI)):
            plan = planned(shared, node_settings(release, gates=gates))
            assert of_containers(plan, "hugetlb.2MB.max") == [4 * MI, expected]
            assert plan.settings["hugetlb.2MB.max"].value == 8 * MI

    def test_a_pod_has_what_it_requests_and_says_nothing_of_other_sizes(self) -> None:
        plan = planned(pod([box("1Gi", limits={HUGE: "4Mi"})] * 2), node_settings())
        huge = {name: value for name, value in written(plan.settings).items() if "huge" in name}
        assert huge == {"hugetlb.2MB.max": 8 * MI}

    @pytest.mark.parametrize("release", ALL_RELEASES)
    def test_init_containers_count_for_the_pod_from_1_23_on(self, release: str) -> None:
        more_at_first = pod(
            [box("1Gi", limits={HUGE: "4Mi"})], init=[box("1Gi", limits={HUGE: "6Mi"})]
        )
        plan = planned(more_at_first, node_settings(release))
        expected = 4 * MI if release == "1.22" else 6 * MI
        assert plan.settings["hugetlb.2MB.max"].value == expected


class TestValidity:
    def test_an_invalid_pod_has_errors_and_no_plan(self) -> None:
        found = semantics(pod([box("2Gi", "1Gi")]), node_settings())
        assert [error.field for error in found.errors] == ["spec.containers[0].resources.requests"]
        assert found.plan is None

    def test_faults_of_names_and_of_resources_are_reported_together(self) -> None:
        found = semantics(pod([{**box("2Gi", "1Gi"), "image": ""}]), node_settings())
        assert [error.field for error in found.errors] == [
            "spec.containers[0].image",
            "spec.containers[0].resources.requests",
        ]
        assert found.plan is None

    @pytest.mark.parametrize("resources", [stanza(None, "1Gi"), stanza("1Gi", "2Gi")])
    def test_a_pod_without_containers_is_refused_not_planned(self, resources: Json) -> None:
        found = semantics(pod([], resources=resources), node_settings(capacity=10 * GI))
        assert [error.field for error in found.errors] == ["spec.containers"]
        assert found.plan is None

    def test_a_number_of_any_length_is_refused_or_planned(self) -> None:
        found = semantics(pod([box(1 << 64)]), node_settings())
        assert (found.plan is None) == bool(found.errors)

    @pytest.mark.parametrize("release", ["1.26", "1.36", "1.38"])
    def test_an_absurd_limit_is_planned_all_the_same(self, release: str) -> None:
        found = semantics(pod([box("1", "1e900")]), node_settings(release))
        assert (found.plan is None) == bool(found.errors)

    @pytest.mark.parametrize("release", ["1.27", "1.36", "1.38"])
    def test_so_is_an_absurd_request(self, release: str) -> None:
        found = semantics(pod([box("1e900")]), node_settings(release, allocatable=10 * GI))
        assert (found.plan is None) == bool(found.errors)

    def test_and_explained(self) -> None:
        found = semantics(pod([box("1", "1e900")]), node_settings())
        if found.plan is not None:
            assert found.plan.settings["memory.max"].because.steps


class TestPlanner:
    PODS = (
        pod([box("1Gi", "2Gi")]),
        pod([box("1Gi")], init=[box("1Gi", "2Gi", sidecar=True)]),
        pod([box("1Gi")], init=[box("1Gi", "2Gi")]),
        pod([box("1Gi")], resources={}),
        pod([box("1Gi")], resources=stanza("2Gi")),
        pod([box("1Gi")], overhead={"memory": "1Gi"}),
        pod([box("1Gi")], ephemeral=[box()]),
        pod([box("1Gi")], os={"name": "windows"}),
        pod([box("1Gi")], resources={}, os={"name": "windows"}),
        pod([box("1Gi")], qos_class="Guaranteed"),
        pod([box("1Gi")], priorityClassName="system-node-critical"),
        pod([{**box("1Gi"), "name": ""}]),
        pod([box("2Gi", "1Gi")]),
        pod([box("1Gi")]),
        pod([box()]),
    )

    def test_what_is_remembered_is_what_would_be_worked_out(self) -> None:
        at = node_settings(capacity=10 * GI, allocatable=9 * GI)
        planner = Planner(at)
        for _ in range(2):
            for each in self.PODS:
                shape = apply_defaults(each, at.release)
                found = planner.semantics(each)
                assert found.shape == shape
                assert list(found.errors) == validate(each, shape, at.release)
                assert found == semantics(each, at)

    def test_pods_of_one_workload_are_worked_out_once(self) -> None:
        planner = Planner(node_settings())
        first, second = pod([box("1Gi")], hostname="a"), pod([box("1Gi")], hostname="b")
        assert planner.semantics(first) is planner.semantics(second)

    def test_whatever_their_containers_are_called(self) -> None:
        planner = Planner(node_settings())
        renamed = pod([{**box("1Gi"), "name": "other"}])
        assert planner.semantics(pod([box("1Gi")])) is planner.semantics(renamed)

    def test_every_pod_above_has_a_shape_of_its_own_but_for_names(self) -> None:
        assert len({shape_key(each) for each in self.PODS}) == len(self.PODS) - 1

    def test_it_starts_afresh_before_it_holds_too_much(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(semantics_module, "REMEMBERED", 2)
        planner = Planner(node_settings())
        many = [pod([box(number)]) for number in range(1, 6)]
        found = [planner.semantics(each) for each in many]
        assert planner.semantics(many[-1]) is found[-1]
        again = planner.semantics(many[0])
        assert again == found[0]
        assert again is not found[0]


class TestStored:
    """A pod that a cluster has stored was defaulted and accepted when it was created."""

    def test_it_is_not_defaulted_again(self) -> None:
        as_new = pod([box(None, "2Gi")], resources=stanza(None, "4Gi"))
        as_held = pod([box(None, "2Gi")], resources=stanza(None, "4Gi"), uid="1", status={})
        assert planned(as_new, node_settings()).requests == {"memory": 2 * GI * 1000}
        assert planned(as_held, node_settings()).requests == {}

    def test_it_is_not_refused_again(self) -> None:
        held = pod([box("1Gi")], ephemeral=[box()], uid="1", status={})
        assert [part.role for part in planned(held, node_settings()).containers] == [
            "regular",
            "ephemeral",
        ]
        assert semantics(pod([box("1Gi")], ephemeral=[box()]), node_settings()).plan is None

    def test_it_takes_both_a_uid_and_a_status(self) -> None:
        for new in (pod([box()], uid="1"), pod([box()], status={}), pod([box()])):
            assert not is_stored(new)
        assert is_stored(pod([box()], uid="1", status={}))

    def test_one_without_containers_has_a_plan_without_any(self) -> None:
        at = node_settings(capacity=10 * GI)
        shared = pod([], resources=stanza("1Gi", "2Gi"), uid="1", status={})
        assert planned(shared, at).containers == ()
        alone = pod([], init=[box("1Gi", sidecar=True)], uid="1", status={})
        assert of_containers(planned(alone, at), "oom_score_adj") == [900]

    def test_its_class_is_the_one_it_was_given(self) -> None:
        held = pod([box("1Gi")], uid="1", qos_class="Guaranteed")
        assert planned(held, node_settings()).qos == "Guaranteed"

    def test_what_its_status_reports_is_planned(self) -> None:
        status = {"containerStatuses": [{"name": "c0", "resources": stanza("1Gi", "2Gi")}]}
        resizing = pod([box("3Gi", "4Gi")], uid="1", status=status)
        plan = planned(resizing, node_settings(policy="HardReservation"))
        assert of_containers(plan, "memory.min") == [GI]
        assert of_containers(plan, "memory.max") == [2 * GI]
        assert plan.settings["memory.max"].value == 2 * GI

    def test_a_planner_remembers_none_of_them(self) -> None:
        planner = Planner(node_settings())
        for limit in ("1Gi", "2Gi"):
            status = {"containerStatuses": [{"name": "c0", "resources": stanza("1Mi", limit)}]}
            found = planner.semantics(pod([box("1Mi", "4Gi")], uid="1", status=status)).plan
            assert found is not None
            assert of_containers(found, "memory.max") == [{"1Gi": GI, "2Gi": 2 * GI}[limit]]


class TestWithoutANode:
    """What needs the node's memory is marked so, never guessed; nothing else does."""

    @pytest.mark.parametrize("release", ALL_RELEASES)
    def test_only_scores_and_throttling_without_a_limit_need_one(self, release: str) -> None:
        some = pod([box("1Gi"), box("1Gi", "2Gi"), box()])
        without = planned(some, node_settings(release, policy="TieredReservation"))
        with_one = planned(
            some,
            node_settings(
                release, policy="TieredReservation", capacity=20 * GI, allocatable=10 * GI
            ),
        )
        for before, after in zip(all_settings(without), all_settings(with_one), strict=True):
            for name, setting in before.items():
                if setting.value == NEEDS_NODE:
                    assert name in ("memory.high", "oom_score_adj")
                    assert isinstance(after[name].value, int)
                else:
                    assert setting.value == after[name].value
        assert of_containers(without, "oom_score_adj") == [NEEDS_NODE] * 3
        assert without.containers[0].settings["memory.high"].value == NEEDS_NODE
        assert without.containers[1].settings["memory.high"].value != NEEDS_NODE

    def test_one_fact_does_not_stand_for_the_other(self) -> None:
        some = pod([box("1Gi")])
        capacity_alone = planned(some, node_settings(capacity=10 * GI)).containers[0].settings
        assert capacity_alone["memory.high"].value == NEEDS_NODE
        assert capacity_alone["oom_score_adj"].value == 900
        allocatable_alone = planned(some, node_settings(allocatable=10 * GI)).containers[0].settings
        assert allocatable_alone["oom_score_adj"].value == NEEDS_NODE
        assert isinstance(allocatable_alone["memory.high"].value, int)


class TestEphemeral:
    """Ephemeral containers join a running pod: cgroups of their own, no part in the pod's."""

    def test_they_are_planned_last_and_change_nothing_for_the_pod(self) -> None:
        at = node_settings(policy="TieredReservation", capacity=10 * GI, allocatable=10 * GI)
        without = planned(pod([box("1Gi", "2Gi")]), at)
        shape = apply_defaults(pod([box("1Gi", "2Gi")], ephemeral=[box()]), at.release)
        plan = plan_pod(shape, at, "Burstable")
        assert plan.settings == without.settings
        assert plan.containers[:1] == without.containers
        assert [container.role for container in plan.containers] == ["regular", "ephemeral"]
        added = written(plan.containers[1].settings)
        assert (added["memory.min"], added["memory.low"]) == (0, 0)
        assert added["memory.max"] == MAX
        assert added["oom_score_adj"] == 999

    def test_a_pod_level_limit_holds_for_them_too(self) -> None:
        at = node_settings()
        some = pod([box()], ephemeral=[box()], resources=stanza("1Gi", "2Gi"))
        plan = plan_pod(apply_defaults(some, at.release), at, "Burstable")
        assert of_containers(plan, "memory.max") == [2 * GI, 2 * GI]


PODS = [
    pod([box()]),
    pod([box("1Gi", "1Gi", cpu=("1", "1"))]),
    pod([box("1Gi", "2Gi"), box("100M", cpu=("10m", "20m")), box("1", "4097")]),
    pod([box("20Gi")]),
    pod(
        [box("1Gi", "2Gi", limits={HUGE: "4Mi"})],
        init=[box("3Gi"), box("1Gi", sidecar=True), box(sidecar=True)],
        overhead={"memory": "120Mi", "cpu": "250m"},
    ),
    pod([box(), box("1Gi", "2Gi")], resources=stanza("4Gi", "8Gi")),
    pod([box(), box("1Gi")], init=[box(sidecar=True)], resources=stanza("4Gi")),
    pod([box()], resources=stanza("1Gi", "1Gi", cpu=("1", "1"))),
    pod([box("1Gi")], priorityClassName="system-node-critical"),
]
POLICIES: list[Policy] = ["None", "TieredReservation", "HardReservation"]


def all_settings(plan: PodPlan) -> list[FileSettings]:
    return [plan.settings, *[container.settings for container in plan.containers]]


def mentions(text: str, given: object) -> bool:
    """Whether a derivation shows what its rule was given."""
    match given:
        case Score():
            return mentions(text, given.request) and (
                not given.share or mentions(text, given.share)
            )
        case float():
            return f"{given:g}" in text
        case int():
            return format_exact_bytes(given) in text or str(given) in text
        case _:
            return str(given) in text


class TestReasons:
    @pytest.mark.parametrize("release", ALL_RELEASES)
    @pytest.mark.parametrize("on", [True, False])
    def test_every_value_has_a_reason_that_shows_what_it_is_made_of(
        self, release: str, on: bool
    ) -> None:
        nodes: list[Json] = [{}, {"capacity": 16 * GI, "allocatable": 15 * GI}]
        for each, policy, node, factor in product(PODS, POLICIES, nodes, (None, 0.9)):
            at = node_settings(
                release, gates={"MemoryQoS": on}, policy=policy, factor=factor, **node
            )
            for settings in all_settings(planned(each, at)):
                for setting in settings.values():
                    because = setting.because
                    assert because.rule == setting.rule.id
                    assert because.text
                    assert because.source
                    text = "; ".join(because.steps)
                    assert all(mentions(text, given) for given in setting.inputs)

    def test_a_reason_is_put_into_words_only_when_asked_for(self) -> None:
        setting = (
            planned(pod([box("1Gi", "2Gi")]), node_settings()).containers[0].settings["memory.high"]
        )
        assert setting.inputs == (GI, 2 * GI, "limit", 0.9, 4096)
        assert setting.because.steps == (
            "request = 1Gi, limit = 2Gi, factor = 0.9",
            "request + factor × (limit − request) = 2,040,109,466",
            "rounded down to a page of 4096 bytes",
        )

    def test_a_score_is_reported_with_its_share_and_the_smallest_container(self) -> None:
        some = pod([box("2Gi")], init=[box("1Gi", sidecar=True)], resources=stanza("5Gi"))
        plan = planned(some, node_settings(capacity=10 * GI))
        sidecar = plan.containers[0].settings["oom_score_adj"]
        assert sidecar.because.steps == (
            "request = 1Gi, capacity = 10Gi",
            "a sidecar counts as much as the smallest regular container: 2Gi",
            "share of the rest of the pod-level request = 1Gi",
            "1000 − 1000 × 3,221,225,472 / 10,737,418,240, between 3 and 999",
        )
        assert sidecar.value == 700

    def test_nothing_written_has_a_reason_too(self) -> None:
        setting: Setting = (
            planned(pod([box("1Gi", "1Gi")]), node_settings()).containers[0].settings["memory.high"]
        )
        assert setting.value is None
        assert setting.because.rule == "high/request-is-limit"

    @pytest.mark.parametrize(
        ("amount", "text"),
        [
            (0, "0"),
            (1023, "1,023"),
            (1024, "1Ki"),
            (GI, "1Gi"),
            (1536 * MI, "1536Mi"),
            (1 << 40, "1Ti"),
            (2_040_109_465, "2,040,109,465 (1.900Gi)"),
            (-1, "-1"),
        ],
    )
    def test_bytes_are_reported_exactly(self, amount: int, text: str) -> None:
        assert format_exact_bytes(amount) == text
