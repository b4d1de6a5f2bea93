"""Resizing a pod in place: what may change, and what that makes of the pod."""

from typing import Any

import msgspec
import pytest
from tests.builders import GI, MI, Json, box, pod, stanza

from memqos.cluster.resize import Resize, resize_pod
from memqos.kube.defaulting import apply_defaults
from memqos.kube.pod import Pod, PodStatus
from memqos.kube.resources import Resources
from memqos.kube.shape import with_shape
from memqos.release import Release

NEWEST = Release.of("1.38")
NO_POD_LEVEL_RESIZE = Release.of("1.38", {"InPlacePodLevelResourcesVerticalScaling": False})
UNFIXED = Release.of("1.38", {"PodLevelResourcesFixDefaulting": False})
MILLI_GI = GI * 1000
MILLI_MI = MI * 1000


def stored(found: Pod, release: Release = NEWEST, **status: Any) -> Pod:
    """The pod as the API server keeps it."""
    kept = with_shape(found, apply_defaults(found, release))
    return msgspec.structs.replace(kept, status=msgspec.convert(status, PodStatus))


def resized(
    old: Pod, new: Pod, release: Release = NEWEST, *, drops_pod_level: bool = False, **status: Any
) -> Resize:
    """Sends `new` in the place of a stored `old`; a pod level it does not name stays."""
    before = stored(old, release, **status)
    if new.spec.resources is None and not drops_pod_level:
        new = with_spec(new, resources=before.spec.resources)
    return resize_pod(before, new, release)


def with_spec(found: Pod, **changes: Any) -> Pod:
    return msgspec.structs.replace(found, spec=msgspec.structs.replace(found.spec, **changes))


def faults(result: Resize) -> list[tuple[str, str]]:
    return [(error.field, error.type.removeprefix("FieldValue")) for error in result.errors]


def test_memory_of_a_container_may_grow_and_shrink() -> None:
    result = resized(pod([box("1Gi", "2Gi")]), pod([box("512Mi", "4Gi")]))
    assert result.valid
    assert result.before.containers[0].limits == {"memory": 2 * MILLI_GI}
    assert result.after.containers[0].limits == {"memory": 4 * MILLI_GI}


def test_a_missing_request_takes_the_new_limit() -> None:
    result = resized(pod([box("1Gi", "2Gi")]), pod([box(limit="4Gi")]))
    assert result.after.containers[0].requests == {"memory": 4 * MILLI_GI}


def test_entries_may_be_added_but_never_removed() -> None:
    small, large = pod([box("1Gi")]), pod([box("1Gi", "2Gi", cpu=("1", "2"))])
    assert resized(small, large).valid
    assert faults(resized(large, small)) == [
        ("spec.containers[0].resources.limits", "Forbidden"),
        ("spec.containers[0].resources.requests", "Forbidden"),
    ]


def test_only_cpu_and_memory_change() -> None:
    pages = {"hugepages-2Mi": "4Mi"}
    result = resized(
        pod([box("1Gi", "2Gi")]), pod([box("1Gi", "2Gi", requests=pages, limits=pages)])
    )
    assert faults(result) == [("spec", "Forbidden")]


def test_the_class_may_not_change() -> None:
    result = resized(
        pod([box("1Gi", "1Gi", cpu=("1", "1"))]), pod([box("1Gi", "2Gi", cpu=("1", "1"))])
    )
    assert faults(result) == [("spec", "Invalid")]
    assert (result.class_before, result.class_after) == ("Guaranteed", "Burstable")
    (error,) = result.errors
    assert error.value == "Burstable"
    assert "Guaranteed" in error.detail


def test_the_class_that_was_stored_counts_not_the_one_it_would_get_today() -> None:
    result = resized(pod([box("1Gi", "2Gi")]), pod([box("1Gi", "3Gi")]), qosClass="Guaranteed")
    assert faults(result) == [("spec", "Invalid")]


def test_a_new_value_that_would_be_invalid_in_a_new_pod_is_invalid() -> None:
    result = resized(pod([box("1Gi", "2Gi")]), pod([box("3Gi", "2Gi")]))
    assert faults(result) == [("spec.containers[0].resources.requests", "Invalid")]


def test_containers_do_not_come_go_or_change_their_names() -> None:
    one, two = pod([box("1Gi")]), pod([box("1Gi"), box("1Gi")])
    assert faults(resized(one, two)) == [("spec.containers", "Forbidden")]
    swapped = with_spec(two, containers=tuple(reversed(two.spec.containers or ())))
    assert faults(resized(two, swapped)) == [
        ("spec.containers[0].name", "Forbidden"),
        ("spec.containers[1].name", "Forbidden"),
    ]
    assert faults(resized(one, pod([box("1Gi")], init=[box()]))) == [
        ("spec.initContainers", "Forbidden")
    ]


def test_all_else_in_what_is_sent_is_ignored() -> None:
    result = resized(pod([box("1Gi")]), pod([box("2Gi")], overhead={"memory": "1Gi"}))
    assert result.valid
    assert result.after.overhead == {}


def test_ephemeral_containers_added_since_do_not_stop_a_resize() -> None:
    assert resized(pod([box("1Gi")], ephemeral=[box()]), pod([box("2Gi")], ephemeral=[box()])).valid


@pytest.mark.parametrize(
    ("old", "reason"),
    [
        (pod([box("1Gi")], annotations={"kubernetes.io/config.mirror": "x"}), "static"),
        (pod([box("1Gi")], os={"name": "windows"}), "Windows"),
    ],
)
def test_some_pods_cannot_be_resized_whatever_is_sent(old: Pod, reason: str) -> None:
    result = resized(old, pod([box("2Gi", "1Gi")]))
    assert faults(result) == [("[]", "Forbidden")]
    assert reason in result.errors[0].detail


@pytest.mark.parametrize(("resources", "supported"), [({}, True), (None, False)])
def test_a_kubelet_that_can_resize_reports_resources(
    resources: Json | None, supported: bool
) -> None:
    running: Json = {"name": "c0", "state": {"running": {}}, "resources": resources}
    result = resized(pod([box("1Gi")]), pod([box("2Gi")]), containerStatuses=[running])
    assert result.valid is supported


def test_nothing_is_known_of_a_kubelet_that_runs_nothing_yet() -> None:
    waiting = {"name": "c0", "state": {"waiting": {}}}
    assert resized(pod([box("1Gi")]), pod([box("2Gi")]), containerStatuses=[waiting]).valid


def test_a_restart_policy_for_resizes_cannot_be_changed_by_a_resize() -> None:
    policy = {"resizePolicy": [{"resourceName": "memory", "restartPolicy": "RestartContainer"}]}
    assert resized(pod([box("1Gi") | policy]), pod([box("2Gi") | policy])).valid
    assert faults(resized(pod([box("1Gi")]), pod([box("2Gi") | policy]))) == [("spec", "Forbidden")]


# Init containers


def with_init(*init: Json) -> Pod:
    return pod([box("1Gi")], init=init)


@pytest.mark.parametrize(
    ("version", "sidecar", "expected"),
    [
        ("1.35", True, []),
        ("1.35", False, [("spec", "Forbidden")]),
        ("1.36", False, []),
        ("1.38", False, []),
    ],
)
def test_sidecars_may_be_resized_and_later_all_init_containers(
    version: str, sidecar: bool, expected: list[tuple[str, str]]
) -> None:
    release = Release.of(version)
    old, new = with_init(box("1Gi", sidecar=sidecar)), with_init(box("2Gi", sidecar=sidecar))
    assert faults(resized(old, new, release)) == expected


@pytest.mark.parametrize(
    ("version", "field"), [("1.35", "spec"), ("1.38", "spec.initContainers[0]")]
)
def test_more_than_cpu_and_memory_of_a_sidecar_is_refused(version: str, field: str) -> None:
    gpu = {"example.com/gpu": "1"}
    old = with_init(box("1Gi", sidecar=True))
    new = with_init(box("1Gi", sidecar=True, requests=gpu, limits=gpu))
    assert faults(resized(old, new, Release.of(version))) == [(field, "Forbidden")]


def test_an_init_container_that_would_restart_cannot_be_resized() -> None:
    policy = {"resizePolicy": [{"resourceName": "memory", "restartPolicy": "RestartContainer"}]}
    old, new = with_init(box("1Gi") | policy), with_init(box("2Gi") | policy)
    assert faults(resized(old, new)) == [("spec.initContainers[0]", "Forbidden")]
    assert resized(old, old).valid


def test_what_an_init_container_has_cannot_be_removed_either() -> None:
    result = resized(with_init(box("1Gi", "2Gi")), with_init(box("1Gi")))
    assert faults(result) == [("spec.initContainers[0].resources.limits", "Forbidden")]


# The pod level


def test_pod_level_memory_may_be_resized() -> None:
    result = resized(
        pod([box("1Gi")], resources=stanza("2Gi", "4Gi")),
        pod([box("1Gi")], resources=stanza("3Gi", "6Gi")),
    )
    assert result.valid
    assert result.after.pod == Resources({"memory": 3 * MILLI_GI}, {"memory": 6 * MILLI_GI})


def test_a_pod_level_may_be_added_and_is_completed_as_at_creation() -> None:
    result = resized(pod([box("1Gi")]), pod([box("1Gi")], resources=stanza(limit="4Gi")))
    assert result.valid
    assert result.after.pod == Resources({"memory": MILLI_GI}, {"memory": 4 * MILLI_GI})


def test_a_client_that_drops_the_pod_level_keeps_it() -> None:
    old = pod([box("1Gi")], resources=stanza("2Gi", "4Gi"))
    result = resized(old, pod([box("2Gi")]), drops_pod_level=True)
    assert result.valid
    assert result.after.pod == result.before.pod


def test_before_the_fix_dropping_the_pod_level_was_refused() -> None:
    old = pod([box("1Gi")], resources=stanza("2Gi", "4Gi"))
    result = resized(old, pod([box("1Gi")]), UNFIXED, drops_pod_level=True)
    assert faults(result) == [("spec.resources", "Forbidden")]


def test_emptying_the_pod_level_is_removing_what_is_in_it() -> None:
    old = pod([box("1Gi")], resources=stanza("2Gi", "4Gi"))
    assert faults(resized(old, pod([box("1Gi")], resources={}))) == [
        ("spec.resources.limits", "Forbidden"),
        ("spec.resources.requests", "Forbidden"),
    ]


def test_adding_an_empty_pod_level_is_a_change_of_its_own() -> None:
    assert faults(resized(pod([box("1Gi")]), pod([box("1Gi")], resources={}))) == [
        ("spec", "Forbidden")
    ]


def test_that_change_is_reported_only_where_nothing_else_is_wrong() -> None:
    result = resized(pod([box("1Gi", "2Gi")]), pod([box("3Gi", "2Gi")], resources={}))
    assert faults(result) == [("spec.containers[0].resources.requests", "Invalid")]


def test_an_empty_pod_level_may_be_filled() -> None:
    result = resized(pod([box("1Gi")], resources={}), pod([box("1Gi")], resources=stanza("2Gi")))
    assert result.valid


def test_only_cpu_and_memory_of_the_pod_level_change() -> None:
    pages = {"hugepages-2Mi": "4Mi"}
    result = resized(
        pod([box("1Gi")], resources=stanza("2Gi", "4Gi")),
        pod([box("1Gi")], resources=stanza("2Gi", "4Gi", requests=pages, limits=pages)),
    )
    assert faults(result) == [("spec", "Forbidden")]


def test_completed_pod_level_values_are_sticky() -> None:
    old = pod([box("1Gi")], resources=stanza(limit="4Gi"))
    assert faults(resized(old, pod([box("2Gi")]))) == [
        ("spec.resources.requests[memory]", "Invalid")
    ]


def test_without_the_gate_a_pod_level_that_is_sent_is_not_even_read() -> None:
    result = resized(
        pod([box("1Gi")]), pod([box("2Gi")], resources=stanza("4Gi")), NO_POD_LEVEL_RESIZE
    )
    assert result.valid
    assert result.after.pod is None


def test_where_containers_come_or_go_all_that_is_sent_is_looked_at() -> None:
    sent = pod([box("1Gi"), box("1Gi")], resources=stanza("4Gi"))
    result = resized(pod([box("1Gi")]), sent, NO_POD_LEVEL_RESIZE)
    assert faults(result) == [("[]", "Forbidden")]
    assert result.after.pod == Resources({"memory": 4 * MILLI_GI}, {})


def test_without_the_gate_a_pod_with_pod_level_resources_stays_as_it_is() -> None:
    old = pod([box("1Gi")], resources=stanza("2Gi", "4Gi"))
    assert faults(resized(old, pod([box("512Mi")]), NO_POD_LEVEL_RESIZE)) == [("[]", "Forbidden")]


def test_without_the_gate_completing_the_shared_pod_level_shows_in_both_pods() -> None:
    old = pod([box("1Gi")], resources=stanza("2Gi", "4Gi"))
    new = pod([box("1Gi", requests={"cpu": "1"})])
    result = resized(old, new, NO_POD_LEVEL_RESIZE)
    assert result.before.pod == result.after.pod
    assert result.before.pod is not None
    assert result.before.pod.requests["cpu"] == 1000


def test_a_pod_level_that_outlived_its_gate_is_kept_and_blocks_the_resize() -> None:
    old = stored(pod([box("1Gi")], resources=stanza("2Gi", "4Gi")))
    release = Release.of("1.38", {"PodLevelResources": False})
    result = resize_pod(old, pod([box("2Gi")]), release)
    assert result.after.pod == result.before.pod
    assert ("[]", "Forbidden") in faults(result)


# Releases


def alpha(version: str, **gates: bool) -> Release:
    return Release.of(version, {"InPlacePodVerticalScaling": True, **gates})


@pytest.mark.parametrize("version", ["1.32", "1.33", "1.34"])
def test_at_first_pods_with_pod_level_resources_could_not_be_resized(version: str) -> None:
    release = alpha(version, PodLevelResources=True)
    old = pod([box("1Gi", "2Gi")], resources=stanza("2Gi", "4Gi"))
    result = resized(old, pod([box("3Gi", "2Gi")]), release)
    assert faults(result) == [("[]", "Forbidden")]
    assert "pod-level" in result.errors[0].detail


def test_in_1_35_other_faults_are_reported_beside_it() -> None:
    release = Release.of("1.35")
    old = pod([box("1Gi", "2Gi")], resources=stanza("2Gi", "4Gi"))
    assert len(resized(old, pod([box("3Gi", "2Gi")]), release).errors) > 1


def test_there_is_no_resize_before_1_32_and_none_without_its_gate() -> None:
    old, new = pod([box("1Gi")]), pod([box("2Gi")])
    assert faults(resized(old, new, alpha("1.31"))) == [("[]", "Forbidden")]
    assert faults(resized(old, new, Release.of("1.32"))) == [("[]", "Forbidden")]
    assert resized(old, new, alpha("1.32")).valid


def test_1_32_looks_at_regular_containers_alone() -> None:
    result = resized(
        with_init(box("1Gi", sidecar=True)), with_init(box("2Gi", sidecar=True)), alpha("1.32")
    )
    assert result.valid
    assert result.after == result.before


@pytest.mark.parametrize(("old_limit", "new_limit"), [("2Gi", "1Gi"), (None, "1Gi")])
def test_1_33_alone_would_not_lower_a_memory_limit_under_a_running_container(
    old_limit: str | None, new_limit: str
) -> None:
    old, new = pod([box("1Gi", old_limit)]), pod([box("1Gi", new_limit)])
    assert faults(resized(old, new, Release.of("1.33"))) == [
        ("spec.containers[0].resources.limits[memory]", "Forbidden")
    ]
    assert resized(old, new, Release.of("1.34")).valid
    restart = {"resizePolicy": [{"resourceName": "memory", "restartPolicy": "RestartContainer"}]}
    restarting = pod([box("1Gi", old_limit) | restart]), pod([box("1Gi", new_limit) | restart])
    assert resized(*restarting, Release.of("1.33")).valid
