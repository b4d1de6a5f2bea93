"""oom_score_adj: which containers the kernel kills first when the node has no memory left."""

from typing import Any

import pytest
from tests.builders import GI, Json, box, node_settings, of_containers, planned, pod, stanza

from memqos.kube.defaulting import apply_defaults
from memqos.kube.oom import Score, oom_scores
from memqos.plan.pod import plan_pod
from memqos.plan.setting import NEEDS_NODE, FileValue

CAPACITY = 1000 * GI
ALL_RELEASES = [f"1.{minor}" for minor in range(22, 39)]
WITH_SHARES = ALL_RELEASES[10:]
POD_LEVEL = {"PodLevelResources": True}


def scores(containers: list[Json], release: str = "1.38", **spec: Any) -> list[FileValue]:
    gates = POD_LEVEL if release in WITH_SHARES else None
    written = pod(containers, **spec)
    return of_containers(
        planned(written, node_settings(release, gates=gates, capacity=CAPACITY)), "oom_score_adj"
    )


class TestExamplesOfTheProposal:
    """A node of 1000Gi. The proposal says 1000 where the kubelet says 999: see below."""

    def test_a_pod_level_request_is_shared_among_containers_that_request_nothing(self) -> None:
        three = [box(cpu=("100m", None)), box(), box()]
        assert scores(three) == [999, 999, 999]
        assert scores(three, resources=stanza("180Gi")) == [940, 940, 940]

    def test_what_is_left_of_a_pod_level_request_is_shared_among_all(self) -> None:
        three = [box("50Gi"), box("100Gi"), box()]
        assert scores(three) == [950, 900, 999]
        assert scores(three, resources=stanza("180Gi")) == [940, 890, 990]

    @pytest.mark.parametrize("release", WITH_SHARES)
    def test_as_long_as_there_is_a_pod_level(self, release: str) -> None:
        three = [box("50Gi"), box("100Gi"), box()]
        assert scores(three, release, resources=stanza("180Gi")) == [940, 890, 990]

    @pytest.mark.parametrize("release", ALL_RELEASES[:10])
    def test_before_there_was_one_it_is_dropped(self, release: str) -> None:
        three = [box("50Gi"), box("100Gi"), box()]
        assert scores(three, release, resources=stanza("180Gi")) == [950, 900, 999]


class TestClasses:
    @pytest.mark.parametrize("release", ALL_RELEASES)
    def test_guaranteed_containers_are_killed_last(self, release: str) -> None:
        assert scores([box("1Gi", "1Gi", cpu=("1", "1"))] * 2, release) == [-997, -997]

    @pytest.mark.parametrize("release", ALL_RELEASES)
    def test_best_effort_containers_are_killed_first(self, release: str) -> None:
        assert scores([box(), box()], release) == [1000, 1000]

    @pytest.mark.parametrize("release", ALL_RELEASES)
    def test_burstable_containers_by_their_share_of_the_node(self, release: str) -> None:
        assert scores([box("250Gi"), box("500Gi", "900Gi")], release) == [750, 500]

    def test_never_as_late_as_guaranteed_ones(self) -> None:
        assert scores([box("998Gi"), box("997Gi"), box("2000Gi")]) == [3, 3, 3]
        assert scores([box("996Gi")]) == [4]

    def test_never_as_early_as_best_effort_ones(self) -> None:
        assert scores([box("1"), box("1Gi")]) == [999, 999]
        assert scores([box("2Gi")]) == [998]

    def test_a_fraction_of_a_thousandth_is_dropped(self) -> None:
        assert scores([box("2047Mi"), box("2048Mi"), box("3071Mi")]) == [999, 998, 998]


class TestCritical:
    """A pod of class system-node-critical is killed as late as a Guaranteed one."""

    @pytest.mark.parametrize(
        "spec",
        [
            {"priorityClassName": "system-node-critical"},
            {"priorityClassName": "system-node-critical", "priority": 2_000_001_000},
            {"priorityClassName": "system-node-critical", "priority": 2_000_000_000},
            {
                "priorityClassName": "system-node-critical",
                "priority": 0,
                "annotations": {"kubernetes.io/config.source": "file"},
            },
            {
                "priorityClassName": "system-node-critical",
                "priority": 0,
                "annotations": {"kubernetes.io/config.mirror": "hash"},
            },
        ],
    )
    @pytest.mark.parametrize("container", [box("1Gi"), box()], ids=["Burstable", "BestEffort"])
    def test_whatever_its_qos_class(self, container: Json, spec: Json) -> None:
        assert scores([container], **spec) == [-997]

    @pytest.mark.parametrize(
        "spec",
        [
            {"priorityClassName": "system-cluster-critical", "priority": 2_000_000_000},
            {"priority": 2_000_001_000},
            {"priorityClassName": "system-node-critical", "priority": 1_999_999_999},
            {
                "priorityClassName": "system-node-critical",
                "priority": 0,
                "annotations": {"kubernetes.io/config.source": "api"},
            },
        ],
    )
    def test_but_no_other(self, spec: Json) -> None:
        assert scores([box("100Gi")], **spec) == [900]

    @pytest.mark.parametrize(
        "container",
        [
            box("1Gi"),
            box(),
        ],
    )
    def test_and_the_reason_says_so(self, container: Json) -> None:
        critical = pod([container], priorityClassName="system-node-critical")
        setting = planned(critical, node_settings(capacity=CAPACITY)).containers[0].settings
        assert setting["oom_score_adj"].because.steps == ("system-node-critical",)


class TestSidecars:
    def test_a_sidecar_dies_no_earlier_than_the_smallest_container(self) -> None:
        sidecar = box("10Gi", sidecar=True)
        assert scores([box("300Gi"), box("200Gi")], init=[sidecar]) == [800, 700, 800]

    def test_nor_later_than_its_own_request_allows(self) -> None:
        sidecar = box("400Gi", sidecar=True)
        assert scores([box("300Gi"), box("200Gi")], init=[sidecar]) == [600, 700, 800]

    def test_a_plain_init_container_is_on_its_own(self) -> None:
        assert scores([box("300Gi")], init=[box("10Gi")]) == [990, 700]
        beside = [box("10Gi"), box("10Gi", sidecar=True)]
        assert scores([box("300Gi")], init=beside) == [990, 700, 700]

    @pytest.mark.parametrize("release", ["1.29", "1.30", "1.31"])
    def test_so_is_a_sidecar_before_1_32(self, release: str) -> None:
        sidecar = box("10Gi", sidecar=True)
        assert scores([box("300Gi")], release, init=[sidecar]) == [990, 700]

    def test_both_sides_have_their_share_of_the_pod_level_request(self) -> None:
        sidecar = box("10Gi", sidecar=True)
        found = scores([box("190Gi")], init=[sidecar], resources=stanza("400Gi"))
        assert found == [1000 - 190 - 100, 1000 - 190 - 100]


class TestShare:
    def test_it_is_counted_by_init_and_regular_containers(self) -> None:
        found = scores([box(), box()], init=[box(), box(sidecar=True)], resources=stanza("400Gi"))
        assert found == [900, 900, 900, 900]

    def test_an_ephemeral_container_has_one_but_does_not_count(self) -> None:
        at = node_settings(capacity=CAPACITY)
        shape = apply_defaults(
            pod([box()], ephemeral=[box()], resources=stanza("100Gi")), at.release
        )
        plan = plan_pod(shape, at, "Burstable")
        assert of_containers(plan, "oom_score_adj") == [900, 900]

    def test_overhead_is_not_shared(self) -> None:
        found = scores([box()], resources=stanza("100Gi"), overhead={"memory": "100Gi"})
        assert found == [900]

    def test_a_pod_level_limit_shares_the_request_it_becomes(self) -> None:
        assert scores([box(), box()], resources=stanza(None, "200Gi")) == [900, 900]

    def test_pod_level_cpu_shares_nothing(self) -> None:
        assert scores([box("100Gi"), box()], resources=stanza(cpu=("1", None))) == [900, 999]

    def test_what_init_containers_need_at_their_peak_is_not_left_over(self) -> None:
        found = scores([box("100Gi")], init=[box("300Gi")], resources=stanza("400Gi"))
        assert found == [1000 - 300 - 50, 1000 - 100 - 50]

    def test_without_the_gate_nothing_is_shared(self) -> None:
        without = node_settings(gates={"PodLevelResources": False}, capacity=CAPACITY)
        plan = planned(pod([box("100Gi")], resources=stanza("400Gi")), without)
        assert of_containers(plan, "oom_score_adj") == [900]


class TestWithoutANode:
    @pytest.mark.parametrize("release", ALL_RELEASES)
    def test_only_a_burstable_score_needs_one(self, release: str) -> None:
        at = node_settings(release)
        assert of_containers(planned(pod([box("1Gi")]), at), "oom_score_adj") == [NEEDS_NODE]
        assert of_containers(planned(pod([box()]), at), "oom_score_adj") == [1000]
        guaranteed = pod([box("1Gi", "1Gi", cpu=("1", "1"))])
        assert of_containers(planned(guaranteed, at), "oom_score_adj") == [-997]
        critical = pod([box("1Gi")], priorityClassName="system-node-critical")
        assert of_containers(planned(critical, at), "oom_score_adj") == [-997]

    def test_what_it_is_computed_from_is_known_all_the_same(self) -> None:
        at = node_settings()
        written = pod([box("1Gi")], init=[box(sidecar=True)], resources=stanza("5Gi"))
        found = oom_scores(apply_defaults(written, at.release), at.release, "Burstable", None)
        assert found == [
            Score(None, request=0, share=2 * GI, smallest_regular=GI),
            Score(None, request=GI, share=2 * GI),
        ]
