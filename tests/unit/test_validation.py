"""What the API server refuses about the resources of a new pod, and what a node refuses after."""

from typing import Any

import pytest
from tests.builders import Json, box, pod, stanza

from memqos.errors import InputError
from memqos.kube.defaulting import apply_defaults
from memqos.kube.pod import Pod
from memqos.kube.validation import FieldError, validate
from memqos.release import Release

INVALID = "FieldValueInvalid"
REQUIRED = "FieldValueRequired"
FORBIDDEN = "FieldValueForbidden"
NOT_SUPPORTED = "FieldValueNotSupported"
DUPLICATE = "FieldValueDuplicate"

NEWEST = Release.of("1.38")
ON = {"PodLevelResources": True}


def faults(pod: Pod, release: Release = NEWEST) -> list[tuple[str, str]]:
    """Field and type of every error, in a fixed order."""
    found = validate(pod, apply_defaults(pod, release), release)
    return sorted((error.field, error.type) for error in found)


def of_container(container: Json) -> list[tuple[str, str]]:
    """The same for the stanza of a pod's only container, which fields are relative to."""
    stem = "spec.containers[0].resources"
    found = faults(pod([container]))
    assert all(field.startswith(stem) for field, _ in found)
    return [(field.removeprefix(stem), kind) for field, kind in found]


class TestContainers:
    @pytest.mark.parametrize(
        "container",
        [
            box(),
            box("1Gi", "1Gi"),
            box("0", "0"),
            box("1Gi", cpu=("100m", "2")),
            box(requests={"ephemeral-storage": "1Gi"}),
            box("1Gi", limits={"hugepages-2Mi": "4Mi"}),
            box(limits={"example.com/gpu": "2"}),
            box(requests={"example.com/gpu": "2"}, limits={"example.com/gpu": "2"}),
            box(requests={"kubernetes.io/whatever": "2"}, limits={"kubernetes.io/whatever": "3"}),
        ],
    )
    def test_reasonable_resources_are_taken(self, container: Json) -> None:
        assert of_container(container) == []

    def test_a_request_above_its_limit_is_reported_at_the_requests(self) -> None:
        assert of_container(box("2Gi", "1Gi")) == [(".requests", INVALID)]

    def test_every_resource_is_reported(self) -> None:
        both = box("2Gi", "1Gi", cpu=("2", "1"))
        assert of_container(both) == [(".requests", INVALID), (".requests", INVALID)]

    def test_nothing_may_be_negative(self) -> None:
        assert of_container(box("-1")) == [(".requests[memory]", INVALID)]
        assert of_container(box(None, "-1")) == [
            (".limits[memory]", INVALID),
            (".requests[memory]", INVALID),
        ]

    @pytest.mark.parametrize("name", ["hugepages-2Mi", "example.com/gpu"])
    def test_what_cannot_be_overcommitted_needs_a_limit(self, name: str) -> None:
        assert of_container(box("1Gi", requests={name: "4Mi"})) == [(".limits", REQUIRED)]

    @pytest.mark.parametrize("name", ["hugepages-2Mi", "example.com/gpu"])
    def test_and_a_request_that_equals_it(self, name: str) -> None:
        unequal = box("1Gi", requests={name: "4Mi"}, limits={name: "6Mi"})
        assert of_container(unequal) == [(".requests", INVALID)]

    def test_hugepages_need_cpu_or_memory(self) -> None:
        assert of_container(box(limits={"hugepages-2Mi": "4Mi"})) == [("", FORBIDDEN)]
        assert of_container(box(cpu=("1", None), limits={"hugepages-2Mi": "4Mi"})) == []

    @pytest.mark.parametrize("amount", ["3Mi", "1", "2097153"])
    def test_hugepages_come_in_whole_pages(self, amount: str) -> None:
        assert of_container(box("1Gi", limits={"hugepages-2Mi": amount})) == [
            (".limits[hugepages-2Mi]", INVALID),
            (".requests[hugepages-2Mi]", INVALID),
        ]

    @pytest.mark.parametrize("name", ["hugepages-0", "hugepages-x", "hugepages--2Mi"])
    def test_of_a_size_that_is_one(self, name: str) -> None:
        assert of_container(box("1Gi", limits={name: "2Mi"})) == [
            (f".limits[{name}]", INVALID),
            (f".requests[{name}]", INVALID),
        ]

    def test_devices_are_counted_in_wholes(self) -> None:
        assert of_container(box(limits={"example.com/gpu": "1500m"})) == [
            (".limits[example.com/gpu]", INVALID),
            (".requests[example.com/gpu]", INVALID),
        ]

    @pytest.mark.parametrize(
        ("name", "faults_of_it"),
        [
            ("storage", 1),  # of volumes, not of containers
            ("pods", 1),
            ("requests.memory", 1),
            ("gpu", 2),  # not known at all, so not of containers either
            ("a/b/c", 2),  # no qualified name, so not an extended resource either
            ("UPPER.example/x", 2),
            ("/gpu", 2),
            ("example.com/", 3),
        ],
    )
    def test_a_name_is_a_standard_one_or_belongs_to_a_domain(
        self, name: str, faults_of_it: int
    ) -> None:
        on_both_sides = box(requests={name: "1"}, limits={name: "1"})
        assert of_container(on_both_sides) == (
            [(f".limits[{name}]", INVALID)] * faults_of_it
            + [(f".requests[{name}]", INVALID)] * faults_of_it
        )

    def test_init_containers_and_sidecars_too(self) -> None:
        bad = box("2Gi", "1Gi")
        assert faults(pod([box()], init=[bad, {**bad, "restartPolicy": "Always"}])) == [
            ("spec.initContainers[0].resources.requests", INVALID),
            ("spec.initContainers[1].resources.requests", INVALID),
        ]

    def test_ephemeral_containers_come_later(self) -> None:
        assert faults(pod([box()], ephemeral=[box()])) == [("spec.ephemeralContainers", FORBIDDEN)]


class TestNamesAndImages:
    def test_a_pod_has_a_container(self) -> None:
        assert faults(pod([])) == [("spec.containers", REQUIRED)]
        assert faults(Pod()) == [("spec.containers", REQUIRED)]

    @pytest.mark.parametrize(
        "resources",
        [
            stanza("1Gi"),
            stanza(None, "1Gi"),
            stanza("1Gi", "1Gi"),
            {},
        ],
    )
    def test_whatever_its_pod_level_sets(self, resources: Json) -> None:
        assert faults(pod([], resources=resources)) == [("spec.containers", REQUIRED)]

    def test_every_container_has_a_name_and_an_image(self) -> None:
        nameless: Json = {"name": "", "image": None}
        assert faults(pod([nameless], init=[nameless])) == [
            ("spec.containers[0].image", REQUIRED),
            ("spec.containers[0].name", REQUIRED),
            ("spec.initContainers[0].image", REQUIRED),
            ("spec.initContainers[0].name", REQUIRED),
        ]

    def test_a_name_is_used_once(self) -> None:
        twice = pod([{"name": "a"}, {"name": "a"}])
        assert faults(twice) == [("spec.containers[1].name", DUPLICATE)]

    def test_of_an_init_container_and_a_regular_one_the_init_container_is_at_fault(self) -> None:
        """validateInitContainers(), pkg/apis/core/validation/validation.go."""
        shared = pod([{"name": "a"}, {"name": "b"}], init=[{"name": "b"}, {"name": "c"}])
        assert faults(shared) == [("spec.initContainers[0].name", DUPLICATE)]

    @pytest.mark.parametrize("name", ["My-App", "my_app", "-app", "app-", "my.app", "a" * 64])
    def test_a_name_is_a_dns_label(self, name: str) -> None:
        """validateContainerCommon(), pkg/apis/core/validation/validation.go."""
        named = {"name": name}
        assert faults(pod([named])) == [("spec.containers[0].name", INVALID)]
        assert faults(pod([box()], init=[named])) == [("spec.initContainers[0].name", INVALID)]
        assert faults(pod([{"name": "my-app-2"}])) == []


class TestOverhead:
    def test_it_is_reported_as_if_it_were_limits(self) -> None:
        assert faults(pod([box()], overhead={"memory": "-1", "gpu": "1"})) == [
            ("spec.overhead.limits[gpu]", INVALID),
            ("spec.overhead.limits[gpu]", INVALID),
            ("spec.overhead.limits[memory]", INVALID),
        ]

    def test_it_may_be_anything_a_container_may_have(self) -> None:
        assert faults(pod([box()], overhead={"memory": "1Gi", "cpu": "250m"})) == []


class TestPodLevel:
    def refused(self, resources: Json, *containers: Json, **spec: Any) -> list[tuple[str, str]]:
        return faults(pod(containers or [box()], resources=resources, **spec))

    def test_requests_cover_what_the_containers_request(self) -> None:
        refused = [("spec.resources.requests[memory]", INVALID)]
        assert self.refused(stanza("2Gi"), box("1Gi"), box("1Gi")) == []
        assert self.refused(stanza("2Gi"), box("1Gi"), box("1025Mi")) == refused
        assert self.refused(stanza("2Gi"), box("1Gi"), init=[box("3Gi")]) == refused
        assert self.refused(stanza("2Gi"), box("1Gi"), init=[box("2Gi", sidecar=True)]) == refused

    def test_overhead_need_not_be_covered(self) -> None:
        assert self.refused(stanza("1Gi"), box("1Gi"), overhead={"memory": "1Gi"}) == []

    def test_only_regular_containers_are_compared_with_the_pod_limit(self) -> None:
        resources = stanza("1Gi", "2Gi")
        assert self.refused(resources, box("1Gi", "3Gi"), box("0", "4Gi")) == [
            ("spec.resources.containers[0][memory].limits", INVALID),
            ("spec.resources.containers[1][memory].limits", INVALID),
        ]
        assert self.refused(resources, box(), init=[box("1Gi", "3Gi")]) == []
        assert self.refused(resources, box(), init=[box("1Gi", "3Gi", sidecar=True)]) == []

    def test_limits_together_may_exceed_it(self) -> None:
        assert self.refused(stanza("1Gi", "2Gi"), box("0", "2Gi"), box("0", "2Gi")) == []

    def test_but_not_those_of_hugepages(self) -> None:
        huge = {"hugepages-2Mi": "4Mi"}
        found = self.refused(stanza("1Gi", limits=huge), *[box("1Mi", limits=huge)] * 2)
        assert found == [
            ("spec.resources.limits[hugepages-2Mi]", INVALID),
            ("spec.resources.requests[hugepages-2Mi]", INVALID),
        ]

    def test_a_request_above_its_limit_is_reported_at_the_requests(self) -> None:
        assert self.refused(stanza("2Gi", "1Gi")) == [("spec.resources.requests", INVALID)]

    def test_hugepages_need_cpu_or_memory_and_a_limit(self) -> None:
        huge = {"hugepages-2Mi": "4Mi"}
        assert self.refused(stanza(limits=huge)) == [("spec.resources", FORBIDDEN)]
        assert self.refused(stanza("1Gi", requests=huge)) == [("spec.resources.limits", REQUIRED)]

    @pytest.mark.parametrize("name", ["example.com/gpu", "ephemeral-storage", "storage"])
    def test_only_cpu_memory_and_hugepages_are_for_pods(self, name: str) -> None:
        assert self.refused(stanza("1Gi", limits={name: "1"})) == [
            (f"spec.resources.limits[{name}]", NOT_SUPPORTED)
        ]

    def test_a_name_that_is_none_is_invalid_before_it_is_unsupported(self) -> None:
        assert self.refused(stanza("1Gi", limits={"gpu": "1"})) == [
            ("spec.resources.limits[gpu]", INVALID)
        ]

    def test_hugepages_are_from_1_33_on(self) -> None:
        huge = pod(
            [box()], resources=stanza("1Gi", "1Gi", limits={"hugepages-2Mi": "4Mi"}, requests={})
        )
        assert faults(huge, Release.of("1.33", ON)) == []
        assert faults(huge, Release.of("1.32", ON)) == [
            ("spec.resources.limits[hugepages-2Mi]", NOT_SUPPORTED)
        ]

    @pytest.mark.parametrize("resources", [{}, stanza("1Gi"), stanza("2Gi", "1Gi")])
    def test_windows_has_none_and_nothing_more_is_reported(self, resources: Json) -> None:
        assert self.refused(resources, os={"name": "windows"}) == [("spec.resources", FORBIDDEN)]
        assert faults(pod([box()], os={"name": "windows"})) == []

    def test_without_the_gate_it_is_dropped_not_refused(self) -> None:
        off = Release.of("1.38", {"PodLevelResources": False})
        assert faults(pod([box("2Gi")], resources=stanza("1Gi", "1Mi")), off) == []
        assert faults(pod([box()], resources=stanza("1Gi")), Release.of("1.31")) == []

    def test_nothing_is_reported_of_an_empty_one(self) -> None:
        assert self.refused({}) == []


class TestSentences:
    def test_an_error_reads_as_the_api_server_puts_it(self) -> None:
        written = pod([box("2Gi", "1Gi")])
        (error,) = validate(written, apply_defaults(written, NEWEST), NEWEST)
        assert str(error) == (
            "spec.containers[0].resources.requests: Invalid value: "
            '"2Gi": must be less than or equal to memory limit of 1Gi'
        )

    @pytest.mark.parametrize(
        ("error", "sentence"),
        [
            (
                FieldError("spec.a", "FieldValueForbidden", "not here"),
                "spec.a: Forbidden: not here",
            ),
            (
                FieldError("spec.a", "FieldValueRequired", "is the key"),
                "spec.a: Required value: is the key",
            ),
            (
                FieldError("spec.a", "FieldValueDuplicate", "is taken", "x"),
                'spec.a: Duplicate value: "x": is taken',
            ),
            (
                FieldError("spec.a", "FieldValueNotSupported", "is none", ""),
                'spec.a: Unsupported value: "": is none',
            ),
        ],
    )
    def test_with_a_value_or_without(self, error: FieldError, sentence: str) -> None:
        assert str(error) == sentence

    def test_what_does_not_add_up_is_reported_with_both_numbers(self) -> None:
        written = pod([box("3Gi", "5Gi")], resources=stanza("2Gi", "4Gi"))
        found = validate(written, apply_defaults(written, NEWEST), NEWEST)
        assert {error.message for error in found} == {
            'Invalid value: "5Gi": must be less than or equal to pod limits of 4Gi',
            'Invalid value: "2Gi": must be greater than or equal to aggregate container requests '
            "of 3Gi",
        }


class TestUnreadable:
    """A quantity that cannot be read is no field error: the pod is broken input."""

    @pytest.mark.parametrize(
        ("written", "field"),
        [
            (pod([box(), box("1Gi", "much")]), "spec.containers[1].resources.limits[memory]"),
            (pod([box("much")]), "spec.containers[0].resources.requests[memory]"),
            (pod([box()], init=[box("x")]), "spec.initContainers[0].resources.requests[memory]"),
            (
                pod([box()], ephemeral=[box("x")]),
                "spec.ephemeralContainers[0].resources.requests[memory]",
            ),
            (pod([box()], resources=stanza(cpu=("1", "x"))), "spec.resources.limits[cpu]"),
            (pod([box()], overhead={"memory": "x"}), "spec.overhead[memory]"),
        ],
    )
    def test_it_is_reported_with_its_field_and_a_hint(self, written: Pod, field: str) -> None:
        with pytest.raises(InputError, match="is not a quantity") as refused:
            apply_defaults(written, NEWEST)
        assert refused.value.field == field
        assert refused.value.hint
