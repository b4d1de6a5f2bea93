"""Requests as autoscalers see them."""

import msgspec
import pytest
from tests.builders import GI, box, pod, stanza

from memqos.cluster.autoscaling import (
    UnknownRequest,
    cluster_autoscaler_requests,
    hpa_request,
)
from memqos.kube.pod import ObjectMeta, Pod
from memqos.release import Release

NEWEST = Release.of("1.38")
MILLI_GI = GI * 1000


def named(name: str, found: Pod) -> Pod:
    return msgspec.structs.replace(found, metadata=ObjectMeta(name=name))


def memory_of(found: Pod, version: str = "1.38", container: str = "") -> int | UnknownRequest:
    return hpa_request(found, "memory", Release.of(version), container)


def test_containers_and_sidecars_are_summed_without_init_containers_or_overhead() -> None:
    found = pod(
        [box("1Gi"), box("2Gi")],
        init=[box("8Gi"), box("1Gi", sidecar=True)],
        overhead={"memory": "1Gi"},
    )
    assert memory_of(found) == 4 * MILLI_GI


def test_pod_level_requests_stand_for_the_pod_with_its_overhead() -> None:
    found = pod([box("1Gi")], resources=stanza("4Gi"), overhead={"memory": "1Gi"})
    assert memory_of(found) == 5 * MILLI_GI


def test_with_pod_level_requests_for_cpu_memory_is_what_init_containers_need() -> None:
    found = pod([box("1Gi")], init=[box("8Gi")], resources=stanza(cpu=("1", None)))
    assert memory_of(found) == 8 * MILLI_GI


def test_pod_level_limits_alone_change_nothing() -> None:
    found = pod([box("1Gi")], resources=stanza(limit="4Gi"), overhead={"memory": "1Gi"})
    assert memory_of(found) == MILLI_GI


def test_a_container_without_a_request_makes_the_pod_unknown() -> None:
    assert memory_of(pod([box("1Gi"), box()])) == UnknownRequest(
        "missing_container_request", "pod", "memory", "c1"
    )


def test_pod_level_requests_without_the_resource_make_the_pod_unknown() -> None:
    found = pod([box()], resources=stanza(cpu=("1", None)))
    assert memory_of(found) == UnknownRequest("missing_pod_level_request", "pod", "memory")


def test_a_named_container_counts_itself_whatever_the_pod_level_requests() -> None:
    found = pod([box("1Gi"), box()], init=[box("2Gi", sidecar=True)], resources=stanza("8Gi"))
    assert memory_of(found, container="c0") == MILLI_GI
    assert memory_of(found, container="i0") == 2 * MILLI_GI
    assert memory_of(found, container="c1") == UnknownRequest(
        "missing_container_request", "pod", "memory", "c1"
    )


def test_an_init_container_cannot_be_named() -> None:
    found = pod([box("1Gi")], init=[box("2Gi")])
    assert memory_of(found, container="i0") == UnknownRequest(
        "container_not_found", "pod", "memory", "i0"
    )


@pytest.mark.parametrize(("version", "expected"), [("1.28", 1), ("1.29", 3)])
def test_sidecars_count_since_1_29(version: str, expected: int) -> None:
    found = pod([box("1Gi")], init=[box("2Gi", sidecar=True)])
    assert memory_of(found, version) == expected * MILLI_GI


def test_pod_level_requests_count_since_1_34() -> None:
    found = pod([box("1Gi")], resources=stanza("4Gi"))
    older = Release.of("1.33", {"PodLevelResources": True})
    assert hpa_request(found, "memory", older) == MILLI_GI
    assert memory_of(found, "1.34") == 4 * MILLI_GI


@pytest.mark.parametrize("version", ["1.22", "1.34"])
def test_until_1_35_a_container_that_does_not_exist_requested_nothing(version: str) -> None:
    assert memory_of(pod([box("1Gi")]), version, "typo") == 0


def test_the_cluster_autoscaler_sees_the_whole_pod() -> None:
    found = pod(
        [box("1Gi")], init=[box("8Gi")], resources=stanza(cpu=("2", None)), overhead={"cpu": "1"}
    )
    assert cluster_autoscaler_requests(found, NEWEST) == {"memory": 8 * MILLI_GI, "cpu": 3000}


def test_before_1_33_the_cluster_autoscaler_added_no_node_for_a_pod_level_request() -> None:
    found = pod([box()], resources=stanza("4Gi"))
    gates = {"PodLevelResources": True}
    assert cluster_autoscaler_requests(found, Release.of("1.32", gates)) == {}
    assert cluster_autoscaler_requests(found, Release.of("1.33", gates)) == {"memory": 4 * MILLI_GI}
