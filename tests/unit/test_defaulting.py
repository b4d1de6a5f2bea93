"""What the API server fills in when a pod is created, and the sentences that explain it."""

import pytest
from tests.builders import Json, box, pod, stanza

from memqos.kube.defaulting import apply_defaults, decoding_defaults, prepare_for_storage
from memqos.kube.explanations import why_defaulted
from memqos.kube.pod import Pod
from memqos.kube.resources import Resources, format_amount
from memqos.kube.shape import Shape, containers_of, shape_of, with_shape
from memqos.kube.validation import validate
from memqos.release import Release

FIXED = Release.of("1.38")
UNFIXED = Release.of("1.38", {"PodLevelResourcesFixDefaulting": False})
HUGE = "hugepages-2Mi"


def pod_level(pod: Pod, release: Release = FIXED) -> tuple[Json, Json] | None:
    """Pod-level requests and limits after defaulting, as Kubernetes prints them."""
    shape = apply_defaults(pod, release)
    if shape.pod is None:
        return None
    return printed(shape.pod.requests), printed(shape.pod.limits)


def printed(amounts: dict[str, int]) -> Json:
    return {name: format_amount(name, amount) for name, amount in amounts.items()}


class TestContainers:
    @pytest.mark.parametrize("release", ["1.22", "1.36", "1.38"])
    def test_a_missing_request_takes_the_limit(self, release: str) -> None:
        some = box("1Gi", "2Gi", cpu=(None, "2"), limits={HUGE: "4Mi"})
        shape = apply_defaults(pod([some], init=[some]), Release.of(release))
        for part in shape.parts:
            assert printed(part.requests) == {"memory": "1Gi", "cpu": "2", HUGE: "4Mi"}
            assert printed(part.limits) == {"memory": "2Gi", "cpu": "2", HUGE: "4Mi"}

    def test_a_request_of_zero_is_a_request(self) -> None:
        (part,) = apply_defaults(pod([box("0", "2Gi")]), FIXED).containers
        assert part.requests == {"memory": 0}

    def test_a_limit_never_takes_the_request(self) -> None:
        (part,) = apply_defaults(pod([box("1Gi")]), FIXED).containers
        assert part.limits == {}

    def test_ephemeral_containers_are_left_alone(self) -> None:
        shape = apply_defaults(pod([box()], ephemeral=[box(None, "1Gi")]), FIXED)
        assert shape.ephemeral_containers[0].requests == {}

    @pytest.mark.parametrize(
        ("text", "milli"), [("1.0001", 1001), ("1u", 1), ("1n", 1), (1.5, 1500)]
    )
    def test_quantities_are_rounded_up_to_thousandths(self, text: object, milli: int) -> None:
        (part,) = apply_defaults(pod([box(None, text)]), FIXED).containers
        assert part.limits == part.requests == {"memory": milli}

    def test_null_is_zero(self) -> None:
        nothing: Json = {"resources": {"limits": {"memory": None}, "requests": None}}
        (part,) = apply_defaults(pod([nothing]), FIXED).containers
        assert part.limits == part.requests == {"memory": 0}


class TestPodLevel:
    @pytest.mark.parametrize("resources", [None, {}, {"requests": {}, "limits": {}}])
    def test_nothing_is_completed_without_pod_level_values(self, resources: Json | None) -> None:
        full = box("1Gi", "2Gi", cpu=("1", "2"))
        expected: tuple[Json, Json] | None = None if resources is None else ({}, {})
        assert pod_level(pod([full], resources=resources)) == expected

    def test_one_value_brings_all_requests_of_the_containers_along(self) -> None:
        some = pod([box("1Gi", cpu=("1", None))] * 2, resources=stanza(None, "8Gi"))
        assert pod_level(some) == ({"cpu": "2", "memory": "2Gi"}, {"memory": "8Gi"})

    def test_and_the_limits_every_container_has(self) -> None:
        some = pod([box("1Gi", "2Gi", cpu=("1", "2"))] * 2, resources=stanza("3Gi"))
        assert pod_level(some) == (
            {"cpu": "2", "memory": "3Gi"},
            {"cpu": "4", "memory": "4Gi"},
        )

    def test_a_request_no_container_makes_is_taken_from_the_pod_limit(self) -> None:
        some = pod([box("1Gi")], resources=stanza(None, "8Gi", cpu=(None, "4")))
        assert pod_level(some) == (
            {"memory": "1Gi", "cpu": "4"},
            {"memory": "8Gi", "cpu": "4"},
        )

    def test_what_is_written_stays(self) -> None:
        full = stanza("4Gi", "8Gi", cpu=("2", "4"))
        some = pod([box("1Gi", "2Gi", cpu=("1", "2"))], resources=full)
        assert pod_level(some) == (full["requests"], full["limits"])

    def test_other_resources_of_containers_stay_theirs(self) -> None:
        other = {"example.com/gpu": "1", "ephemeral-storage": "1Gi"}
        some = pod([box("1Gi", "1Gi", limits=other)], resources=stanza("1Gi", "1Gi"))
        assert pod_level(some) == ({"memory": "1Gi"}, {"memory": "1Gi"})

    def test_init_containers_and_sidecars_count(self) -> None:
        some = pod(
            [box("1Gi", "1Gi")],
            init=[box("2Gi", "2Gi", sidecar=True), box("4Gi", "4Gi")],
            resources=stanza(cpu=("1", None)),
        )
        assert pod_level(some) == ({"cpu": "1", "memory": "6Gi"}, {"memory": "6Gi"})

    def test_overhead_does_not(self) -> None:
        some = pod([box("1Gi")], resources=stanza(None, "8Gi"), overhead={"memory": "1Gi"})
        assert pod_level(some) == ({"memory": "1Gi"}, {"memory": "8Gi"})

    def test_without_the_gate_it_is_dropped(self) -> None:
        some = pod([box("1Gi")], resources=stanza(None, "8Gi"))
        assert pod_level(some, Release.of("1.38", {"PodLevelResources": False})) is None
        for release in ("1.22", "1.31", "1.32", "1.33"):
            assert pod_level(some, Release.of(release)) is None
        for release in ("1.32", "1.33"):
            assert pod_level(some, Release.of(release, {"PodLevelResources": True})) is not None


class TestHugepages:
    """Hugepages cannot be overcommitted: their limits are completed first."""

    def test_limits_of_containers_become_the_limit_and_request_of_the_pod(self) -> None:
        some = pod([box("1Gi", limits={HUGE: "4Mi"})] * 2, resources=stanza("2Gi"))
        for release in (FIXED, UNFIXED):
            assert pod_level(some, release) == ({"memory": "2Gi", HUGE: "8Mi"}, {HUGE: "8Mi"})

    def test_a_pod_level_limit_stays(self) -> None:
        some = pod(
            [box("1Gi", limits={HUGE: "4Mi"})], resources=stanza("2Gi", limits={HUGE: "6Mi"})
        )
        assert pod_level(some) == ({"memory": "2Gi", HUGE: "6Mi"}, {HUGE: "6Mi"})

    def test_a_pod_level_request_keeps_the_limit_open_but_for_the_fix(self) -> None:
        some = pod(
            [box("1Gi", limits={HUGE: "4Mi"})], resources=stanza("2Gi", requests={HUGE: "4Mi"})
        )
        requested = {"memory": "2Gi", HUGE: "4Mi"}
        assert pod_level(some, UNFIXED) == (requested, {})
        assert pod_level(some, FIXED) == (requested, {HUGE: "4Mi"})

    def test_1_32_knew_no_pod_level_hugepages(self) -> None:
        some = pod([box("1Gi", limits={HUGE: "4Mi"})], resources=stanza(None, "2Gi"))
        release = Release.of("1.32", {"PodLevelResources": True})
        assert pod_level(some, release) == ({"memory": "1Gi"}, {"memory": "2Gi"})


class TestBeforeTheFix:
    @pytest.mark.parametrize("release", ["1.34", "1.35", "1.36"])
    def test_releases_before_it_behave_as_without_the_gate(self, release: str) -> None:
        for resources in (stanza("4Gi"), stanza(None, "4Gi"), stanza("4Gi", cpu=(None, "4"))):
            some = pod([box("1Gi", "2Gi", cpu=("1", "2"))], resources=resources)
            assert pod_level(some, Release.of(release)) == pod_level(some, UNFIXED)
            assert pod_level(some, Release.of("1.37")) == pod_level(some, FIXED)

    def test_requests_are_completed_only_where_there_is_a_pod_limit(self) -> None:
        containers = [box("1Gi", cpu=("1", None))]
        assert pod_level(pod(containers, resources=stanza("4Gi")), UNFIXED) == (
            {"memory": "4Gi"},
            {},
        )
        assert pod_level(pod(containers, resources=stanza(None, "4Gi")), UNFIXED) == (
            {"memory": "1Gi", "cpu": "1"},
            {"memory": "4Gi"},
        )

    def test_limits_are_not_completed(self) -> None:
        some = pod([box("1Gi", "2Gi")], resources=stanza("1Gi"))
        assert pod_level(some, UNFIXED) == ({"memory": "1Gi"}, {})

    def test_containers_are_added_up_before_they_are_rounded(self) -> None:
        tiny = pod([box("400u"), box("400u")], resources=stanza(None, "1"))
        assert pod_level(tiny, UNFIXED) == ({"memory": "1m"}, {"memory": "1"})
        assert pod_level(tiny, FIXED) == ({"memory": "2m"}, {"memory": "1"})

    def test_so_that_a_sum_may_fall_short_of_its_parts(self) -> None:
        tiny = pod([box("400u"), box("400u")], resources=stanza(None, "1"))
        refused = validate(tiny, apply_defaults(tiny, UNFIXED), UNFIXED)
        assert [error.field for error in refused] == ["spec.resources.requests[memory]"]
        assert validate(tiny, apply_defaults(tiny, FIXED), FIXED) == []

    def test_the_gate_has_an_older_name(self) -> None:
        older = Release.of("1.38", {"PodLevelResourcesFixUpdateDefaulting": False})
        some = pod([box("1Gi", "2Gi")], resources=stanza("1Gi"))
        assert pod_level(some, older) == pod_level(some, UNFIXED) != pod_level(some, FIXED)


class TestAdmissionComesBetween:
    """Admission may change containers; the pod level is then completed from what it left."""

    def test_the_pod_level_is_completed_after_it(self) -> None:
        some = pod([box("1Gi")], resources=stanza(None, "8Gi"))
        before = decoding_defaults(some, FIXED)
        assert before.pod == Resources({}, {"memory": 8 * 2**30 * 1000})
        assert prepare_for_storage(before, FIXED) == apply_defaults(some, FIXED) != before

    def test_before_the_fix_it_was_completed_before(self) -> None:
        some = pod([box("1Gi")], resources=stanza(None, "8Gi"))
        assert decoding_defaults(some, UNFIXED) == apply_defaults(some, UNFIXED)

    def test_it_is_dropped_after_it(self) -> None:
        off = Release.of("1.38", {"PodLevelResources": False})
        some = pod([box("1Gi")], resources=stanza(None, "8Gi"))
        assert decoding_defaults(some, off).pod is not None
        assert prepare_for_storage(decoding_defaults(some, off), off).pod is None


class TestWrittenBack:
    def test_a_shape_is_written_into_the_pod_it_came_from(self) -> None:
        some = pod(
            [box(None, "2Gi")],
            init=[box(None, "1.5", sidecar=True)],
            resources=stanza(cpu=("1", None)),
            overhead={"memory": "1Mi"},
        )
        shape = apply_defaults(some, FIXED)
        again = with_shape(some, shape)
        assert shape_of(again, FIXED) == shape
        assert again.spec.containers is not None
        assert again.spec.containers[0].resources is not None
        assert again.spec.containers[0].resources.requests == {"memory": "2Gi"}
        assert again.metadata == some.metadata

    def test_a_pod_level_that_was_dropped_stays_away(self) -> None:
        some = pod([box()], resources=stanza("1Gi"))
        shape = apply_defaults(some, Release.of("1.31"))
        assert with_shape(some, shape).spec.resources is None


class TestWhy:
    def sentences(self, pod: Pod, release: Release = FIXED) -> list[str]:
        before: Shape = shape_of(pod, release)
        names = [container.name for container in containers_of(pod)]
        return list(why_defaulted(before, apply_defaults(pod, release), names, release))

    def test_there_is_no_explanation_where_nothing_is_filled_in(self) -> None:
        assert self.sentences(pod([box("1Gi", "2Gi")], resources=stanza("1Gi", "2Gi"))) == []

    def test_a_request_names_its_container_and_its_source(self) -> None:
        some = pod([box(), box(None, "2Gi")], init=[box(cpu=(None, "1"))])
        assert self.sentences(some) == [
            "i0: requests.cpu = 1, defaulted from its limit",
            "c1: requests.memory = 2Gi, defaulted from its limit",
        ]

    def test_pod_level_values_name_theirs(self) -> None:
        some = pod([box("1Gi", "2Gi")], resources=stanza(cpu=(None, "4")))
        assert self.sentences(some) == [
            "pod: requests.memory = 1Gi, the sum of container requests",
            "pod: requests.cpu = 4, defaulted from the pod limit",
            "pod: limits.memory = 2Gi, the sum of container limits",
        ]

    def test_a_limit_may_come_from_the_pod_request(self) -> None:
        assert self.sentences(pod([box("1Gi", "2Gi")], resources=stanza("3Gi"))) == [
            "pod: limits.memory = 3Gi, the pod request, more than the sum of container limits"
        ]

    def test_hugepages_come_from_the_containers(self) -> None:
        some = pod([box("1Gi", "1Gi", limits={HUGE: "4Mi"})], resources=stanza("1Gi", "1Gi"))
        assert self.sentences(some) == [
            f"c0: requests.{HUGE} = 4Mi, defaulted from its limit",
            f"pod: requests.{HUGE} = 4Mi, defaulted from the pod limit",
            f"pod: limits.{HUGE} = 4Mi, the sum of container limits",
        ]

    def test_what_is_dropped_is_explained(self) -> None:
        some = pod([box()], resources=stanza("1Gi"))
        assert self.sentences(some, Release.of("1.31")) == [
            "spec.resources is dropped: the gate PodLevelResources is off"
        ]
