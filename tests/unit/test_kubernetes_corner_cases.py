"""What released Kubernetes does in corners that no document describes, each rule with its source.

The sources are files of kubernetes/kubernetes.
"""

import math
from itertools import product
from random import Random
from typing import Any

import msgspec
import pytest
from tests.builders import GI, MI, box, node_settings, planned, pod, stanza
from tests.commands import memqos

from memqos.cli.replay.admission import replay_limitrange
from memqos.cli.replay.node import replay_kubelet_config, replay_node_cgroups, replay_node_eras
from memqos.cli.replay.pods import replay_pod_semantics
from memqos.cluster.eviction_order import PodMemoryUsage, offending_usage
from memqos.cluster.resize import resize_pod
from memqos.errors import InputError
from memqos.kube.defaulting import apply_defaults
from memqos.kube.kubelet.reading import read_kubelet
from memqos.kube.kubelet.thresholds import read_thresholds
from memqos.kube.pod import Pod
from memqos.kube.quantity import MAX_INT64, Quantity, int64_value, wrap_int64
from memqos.kube.shape import with_shape
from memqos.kube.validation import validate
from memqos.numa.hints import Hint, ResourceHints
from memqos.numa.masks import mask_of, nodes_of
from memqos.numa.topology_manager import MergeContext, merge_hints
from memqos.plan.levels import ClassDemand, class_demand, plan_levels
from memqos.release import Release

NEWEST = Release.of("1.38")
TIERED = {"memory_reservation_policy": "TieredReservation", "memory_throttling_factor": 0.9}
NODE = {"memory_capacity": 16 * GI, "memory_allocatable": 16 * GI}


def requesting(memory: str, *, containers: int = 1, limit: str | None = None) -> Any:
    resources: Any = {"requests": {"cpu": "1", "memory": memory}}
    if limit is not None:
        resources["limits"] = {"cpu": "1", "memory": limit}
    names = [f"c{index}" for index in range(containers)]
    return {
        "metadata": {"name": "p"},
        "spec": {"containers": [{"name": n, "image": "i", "resources": resources} for n in names]},
    }


class TestSumsPastInt64:
    """Quantity.Value(), apimachinery resource/quantity.go; getQoSMemoryRequests(), kubelet
    cm/qos_container_manager_linux.go."""

    @pytest.mark.parametrize(
        ("amount", "value"),
        [
            (MAX_INT64, MAX_INT64),
            (1 << 63, -(1 << 63)),
            (2 * MAX_INT64, -2),
            (3 * MAX_INT64, MAX_INT64 - 2),
            (10**19, 0),
            (10**64, 0),
        ],
    )
    def test_an_amount_past_int64_keeps_its_lowest_bits_or_nothing(
        self, amount: int, value: int
    ) -> None:
        assert int64_value(amount) == value

    def test_a_sum_of_requests_wraps_to_a_negative_number_in_the_kubelet(self) -> None:
        pods = [requesting("8Ei"), requesting("8Ei", limit="8Ei")]
        levels = replay_node_cgroups({"pods": pods, "kubelet": TIERED, "node": NODE})
        assert levels["after_update"]["root"]["unified"] == {
            "memory.min": "-2",
            "memory.low": str(MAX_INT64),
        }

    def test_until_1_35_only_a_positive_sum_was_written(self) -> None:
        gates = {"MemoryQoS": True}
        case = {"release": "1.30", "gates": gates, "kubelet": TIERED, "node": NODE}
        two, three = [requesting("8Ei")] * 2, [requesting("8Ei")] * 3
        assert replay_node_eras({**case, "pods": two})["root"] == {}
        assert replay_node_eras({**case, "pods": three})["root"] == {
            "memory.min": str(MAX_INT64 - 2)
        }

    def test_a_pod_is_not_protected_by_a_negative_sum_but_limited_by_it(self) -> None:
        case = {"pod": requesting("8Ei", containers=2, limit="8Ei"), "kubelet": TIERED}
        answer = replay_pod_semantics({**case, "node": NODE})
        assert answer["requests"]["memory"] == str(2 * MAX_INT64)
        assert answer["pod_cgroup"]["unified"] == {}
        assert answer["pod_cgroup"]["memory_max"] == -2

    @pytest.mark.parametrize("release", ["1.30", "1.36", "1.38"])
    def test_memqos_writes_no_such_sum_and_says_why(self, release: str) -> None:
        settings = node_settings(release, policy="TieredReservation")
        levels = plan_levels(ClassDemand(guaranteed=MAX_INT64, burstable=1), settings)
        found = levels.kubepods["memory.min"]
        assert found.value is None
        assert found.because.rule == "level/overflow"
        assert found.because.steps == (
            "requests = 9,223,372,036,854,775,808 bytes, the maximum is 9,223,372,036,854,775,807",
            "the kubelet's sum is -9,223,372,036,854,775,808",
        )

    def test_pods_that_fit_are_counted_beside_one_that_does_not(self) -> None:
        settings = node_settings("1.38", policy="TieredReservation")
        plans = [planned(pod([box(amount)]), settings) for amount in ("1e19", "1Gi")]
        assert class_demand(plans).burstable == GI

    def test_explain_names_the_overflow_of_a_sum(self, tmp_path: Any) -> None:
        file = tmp_path / "pod.json"
        found = {"apiVersion": "v1", "kind": "Pod"} | requesting("8Ei", containers=2)
        file.write_bytes(msgspec.json.encode(found))
        assert "1.845e19 of memory exceeds 2⁶³ − 1" in memqos("explain", str(file)).out


class TestOomScoreOfHugeRequests:
    """GetContainerOOMScoreAdjust(), kubelet qos/policy.go: 1000 * request is an int64."""

    @pytest.mark.parametrize(
        ("request_", "score"),
        [("8Ei", 999), ("4Ei", 999), ("16Gi", 3), ("15Gi", 63), ("1", 999), ("8Pi", 3)],
    )
    def test_the_product_wraps(self, request_: str, score: int) -> None:
        case = {"pod": requesting(request_), "kubelet": TIERED, "node": NODE}
        assert replay_pod_semantics(case)["oom_score_adj"] == {"c0": score}

    def test_the_score_is_that_of_plain_numbers_below_the_overflow(self) -> None:
        for weight in (0, 1, GI, MAX_INT64 // 1000):
            assert wrap_int64(1000 * weight) == 1000 * weight


class TestClaims:
    """validatePodResources(), validateResourceClaimNames(), pkg/apis/core/validation."""

    @staticmethod
    def errors(spec: Any, release: Release = NEWEST) -> list[tuple[str, str]]:
        found = msgspec.convert(requesting("1Gi") | {"spec": spec}, Pod)
        shape = apply_defaults(found, release)
        return [(error.field, error.type) for error in validate(found, shape, release)]

    @staticmethod
    def spec(*, pod_level: Any = None, container: Any = None, claims: Any = None) -> Any:
        resources: Any = {"requests": {"memory": "1Gi"}}
        spec: Any = {
            "containers": [
                {"name": "c", "image": "i", "resources": resources | {"claims": container}}
            ],
            "resourceClaims": claims,
        }
        if pod_level is not None:
            spec["resources"] = resources | {"claims": pod_level}
        return spec

    def test_the_pod_level_has_no_claims_and_an_unknown_one_is_not_found(self) -> None:
        assert self.errors(self.spec(pod_level=[{"name": "gpu"}])) == [
            ("spec.resources.claims", "FieldValueForbidden"),
            ("spec.resources.claims[0]", "FieldValueNotFound"),
        ]

    def test_a_known_claim_is_forbidden_there_all_the_same_even_an_empty_list(self) -> None:
        forbidden = [("spec.resources.claims", "FieldValueForbidden")]
        known = self.spec(pod_level=[{"name": "gpu"}], claims=[{"name": "gpu"}])
        assert self.errors(known) == forbidden
        assert self.errors(self.spec(pod_level=[])) == forbidden

    def test_without_the_gate_the_stanza_is_dropped_with_its_claims(self) -> None:
        off = Release.of("1.38", {"PodLevelResources": False})
        assert self.errors(self.spec(pod_level=[{"name": "gpu"}]), off) == []

    @pytest.mark.parametrize(
        ("claims", "expected"),
        [
            ([{"name": "gpu"}], []),
            ([{"name": "nic"}], [("[0]", "FieldValueNotFound")]),
            ([{"name": ""}], [("[0]", "FieldValueRequired")]),
            ([{"name": "gpu"}] * 2, [("[1]", "FieldValueDuplicate")]),
            ([{"name": "gpu", "request": "a"}, {"name": "gpu", "request": "b"}], []),
            (
                [{"name": "gpu", "request": "a"}, {"name": "gpu"}],
                [("[1]", "FieldValueDuplicate")],
            ),
            ([{"name": "gpu", "request": "A"}], [("[0].request", "FieldValueInvalid")]),
        ],
    )
    def test_a_container_uses_claims_of_its_pod_once(self, claims: Any, expected: Any) -> None:
        field = "spec.containers[0].resources.claims"
        found = self.errors(self.spec(container=claims, claims=[{"name": "gpu"}]))
        assert found == [(field + place, kind) for place, kind in expected]


class TestSpacesOfQuantities:
    """Quantity.UnmarshalJSON() trims with strings.TrimSpace() what stands between the quotes."""

    @pytest.mark.parametrize("space", [" ", "\u00a0", "\u0085", "\u2003", "\u3000", " \u00a0 "])
    def test_white_space_of_unicode_is_trimmed_in_json_and_refused_bare(self, space: str) -> None:
        assert Quantity.parse(f"1Gi{space}") == Quantity.parse(f"{space}1Gi") == Quantity.of(GI)
        with pytest.raises(InputError):
            Quantity.parse_bare(f"1Gi{space}")

    @pytest.mark.parametrize("space", ["\t", "\n", "\u2028", "\u200b", "\ufeff"])
    def test_what_json_escapes_and_what_is_no_space_is_refused(self, space: str) -> None:
        with pytest.raises(InputError):
            Quantity.parse(f"1Gi{space}")


class TestEvictionThresholds:
    """parseThresholdStatement(), kubelet eviction/helpers.go; run(), cmd/kubelet/app/server.go."""

    @pytest.mark.parametrize("text", ["NaN%", "nan%", "NAN%%"])
    def test_no_comparison_refuses_a_percentage_that_is_no_number(self, text: str) -> None:
        (threshold,) = read_thresholds({"memory.available": text}).thresholds
        assert threshold.value.percentage is not None
        assert math.isnan(threshold.value.percentage)
        assert threshold.limit(16 * GI).value == -MAX_INT64 - 1, "never met"

    @pytest.mark.parametrize(
        ("text", "problem"),
        [
            ("%", "percentage_parse"),
            ("+NaN%", "percentage_parse"),
            ("Inf%", "percentage_above_100"),
            ("-infinity%", "percentage_below_0"),
            ("infinit%", "percentage_parse"),
        ],
    )
    def test_what_is_refused_beside_it(self, text: str, problem: str) -> None:
        (fault,) = read_thresholds({"memory.available": text}).faults
        assert fault.problem == problem

    def test_a_minimum_reclaim_may_be_no_number_either(self) -> None:
        reclaim = {"memory.available": "NaN%"}
        assert not read_thresholds({"memory.available": "5%"}, None, None, reclaim).faults

    def test_a_kubelet_that_cannot_read_evictionhard_does_not_come_to_evictionsoft(self) -> None:
        config = {
            "evictionHard": {"memory.available": "%"},
            "evictionSoft": {"memory.available": "500Mi"},
        }
        assert replay_kubelet_config({"config": config}) == {
            "valid": False,
            "stage": "start",
            "error_count": 1,
            "mentions": ["evictionHard"],
        }
        accepted = {"evictionHard": {"memory.available": "NaN%"}}
        assert replay_kubelet_config({"config": accepted})["valid"]


class TestTopologyOptions:
    """NewManager(), NewPolicyOptions() and NewNUMAInfo(), kubelet cm/topologymanager."""

    @staticmethod
    def config(policy: str, value: str) -> Any:
        options = {"prefer-closest-numa-nodes": value}
        return {"topologyManagerPolicy": policy, "topologyManagerPolicyOptions": options}

    @pytest.mark.parametrize("value", ["true", "maybe", ""])
    @pytest.mark.parametrize("policy", ["best-effort", "restricted", "single-numa-node"])
    def test_without_distances_a_kubelet_does_not_start_with_the_option(
        self, policy: str, value: str
    ) -> None:
        assert replay_kubelet_config({"config": self.config(policy, value)}) == {
            "valid": False,
            "stage": "start",
            "error_count": 1,
            "mentions": ["topologyManagerPolicyOptions"],
        }

    @pytest.mark.parametrize("value", ["true", "maybe"])
    def test_policy_none_does_not_read_its_options(self, value: str) -> None:
        assert replay_kubelet_config({"config": self.config("none", value)})["valid"]

    def test_a_value_that_is_no_bool_is_refused_on_any_machine(self) -> None:
        (fault,) = read_kubelet(self.config("best-effort", "maybe"), NEWEST).faults
        assert str(fault) == (
            "topologyManagerPolicyOptions[prefer-closest-numa-nodes]: 'maybe' is neither true nor "
            "false"
        )
        assert read_kubelet(self.config("best-effort", "true"), NEWEST).faults == ()


class TestFineCpuInLimitRanges:
    """SetDefaults_ResourceList(), pkg/apis/core/v1/defaults.go, rounds up to thousandths; the
    plugin by itself (limitranger/admission.go) compares MilliValue() of exact sums."""

    @staticmethod
    def replay(mode: str, **bounds: Any) -> Any:
        found = requesting("1Gi", containers=2)
        for container in found["spec"]["containers"]:
            container["resources"] = {"requests": {"cpu": "400u"}, "limits": {"cpu": "400u"}}
        limits = {"metadata": {"name": "r"}, "spec": {"limits": [{"type": "Pod", **bounds}]}}
        return replay_limitrange({"mode": mode, "pod": found, "limit_ranges": [limits]})

    def test_a_pod_as_written_keeps_its_millionths(self) -> None:
        answer = self.replay("raw", max={"cpu": "1m"})
        assert answer["mutated"]["containers"][0]["requests"] == {"cpu": "400u"}
        assert answer["pod_requests"] == {"cpu": "800u"}
        assert not answer["denied"]

    def test_what_the_api_server_stores_is_rounded_before_it_is_added(self) -> None:
        answer = self.replay("apiserver", max={"cpu": "1m"})
        assert answer["pod_requests"] == {"cpu": "2m"}
        assert [(v["actual"], v["enforced"]) for v in answer["violations"]] == [("2m", "1m")]

    def test_a_violation_names_the_amounts_as_they_were_written(self) -> None:
        answer = self.replay("raw", min={"cpu": "1500u"})
        assert [(v["which"], v["actual"], v["enforced"]) for v in answer["violations"]] == [
            ("request", "800u", "1500u")
        ]

    def test_less_than_a_thousandth_apart_is_equal(self) -> None:
        assert not self.replay("raw", min={"cpu": "900u"})["denied"]


class TestEvictionMessages:
    """evictionMessage(), kubelet eviction/helpers.go."""

    POD = pod([box("1Gi")], resources=stanza("2Gi"))

    @pytest.mark.parametrize(
        ("usage", "containers", "of_pod"),
        [
            (PodMemoryUsage(3 * GI, {"c0": 2 * GI}), [("c0", 2 * GI)], 3 * GI),
            (PodMemoryUsage(3 * GI), [], 3 * GI),
            (PodMemoryUsage(3 * GI, {"c0": None}), [], 3 * GI),
            (PodMemoryUsage(None, {"c0": 2 * GI}), [("c0", 2 * GI)], None),
            (PodMemoryUsage(0, {"c0": 0}), [], 0),
        ],
    )
    def test_the_pod_is_named_by_statistics_of_its_own(
        self, usage: PodMemoryUsage, containers: Any, of_pod: int | None
    ) -> None:
        assert offending_usage(self.POD, usage, NEWEST) == (containers, of_pod)


class TestClassOfAStoredPod:
    """podResizeStrategy.PrepareForUpdate() and dropNonResizeUpdates(), pkg/registry/core/pod."""

    def test_completing_the_new_pod_level_completes_the_stored_one_and_its_class(self) -> None:
        """While pod-level resources cannot be resized, both pods share one stanza."""
        release = Release.of("1.38", {"InPlacePodLevelResourcesVerticalScaling": False})
        found = pod([box()], resources=stanza(cpu=("1", "1")))
        old = with_shape(found, apply_defaults(found, release))
        new = msgspec.structs.replace(old, spec=pod([box("1Gi", "1Gi")]).spec)
        result = resize_pod(old, new, release)
        assert (result.class_before, result.class_after) == ("Guaranteed", "Guaranteed")
        assert result.before.pod == result.after.pod


class TestAsymmetricDistances:
    """NUMADistances.CalculateAverageFor() and NUMAInfo.Closest(), kubelet cm/topologymanager."""

    def test_the_mean_over_ordered_pairs_decides_between_masks_of_one_size(self) -> None:
        random = Random(17)
        nodes = range(4)
        pairs = [mask_of(pair) for pair in product(nodes, nodes) if pair[0] < pair[1]]
        for _ in range(200):
            distances = {
                a: {b: 10 if a == b else random.choice((11, 20, 31)) for b in nodes} for a in nodes
            }

            def mean(mask: int, distances: Any = distances) -> float:
                members = nodes_of(mask)
                total = sum(int(distances[a][b]) for a in members for b in members)
                return total / len(members) ** 2

            offered = tuple(Hint(mask, True) for mask in random.sample(pairs, 4))
            context = MergeContext(mask_of(nodes), distances)
            merged = merge_hints([ResourceHints("devices", "gpu", offered)], context)
            best = min([hint.mask or 0 for hint in offered], key=lambda mask: (mean(mask), mask))
            assert merged == Hint(best, True)


def test_the_replay_of_recorded_numbers_stays_plain_below_the_overflow() -> None:
    case = {"pod": requesting("512Mi", limit="1Gi"), "kubelet": TIERED, "node": NODE}
    unified = replay_pod_semantics(case)["container_cgroups"]["c0"]["unified"]
    assert unified["memory.low"] == str(512 * MI)
