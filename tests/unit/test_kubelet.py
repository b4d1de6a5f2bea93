"""The kubelet's configuration: what it takes, what it makes of it, what it refuses."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from memqos.cli.replay import node as replay
from memqos.errors import InputError
from memqos.kube.kubelet import KubeletConfiguration, with_defaults
from memqos.kube.kubelet.reading import Reading, kubelet_from, read_kubelet
from memqos.release import NEWEST, OLDEST, Release

CASES = Path(__file__).parents[1] / "conformance" / "cases"


def recorded(area: str) -> Iterator[dict[str, Any]]:
    with (CASES / f"{area}.jsonl").open() as lines:
        yield from map(json.loads, lines)


def read(config: object, minor: int = 38, **gates: bool) -> Reading:
    return read_kubelet(config, Release.of(minor, gates))


def refused(config: object, minor: int = 38, **gates: bool) -> tuple[str | None, list[str]]:
    reading = read(config, minor, **gates)
    return reading.refused_at, [fault.field for fault in reading.faults]


def in_force(config: object, minor: int = 38) -> KubeletConfiguration:
    found = read(config, minor).config
    assert found is not None
    return found


def test_recorded_configurations_are_refused_at_the_stage_and_for_the_fields_recorded() -> None:
    wrong = [
        case["id"]
        for case in recorded("kubelet_config")
        if replay.replay_kubelet_config(case["input"]) != case["expect"]
    ]
    assert wrong == []


def test_recorded_defaults_are_reproduced() -> None:
    wrong = [
        case["id"]
        for case in recorded("defaults")
        if replay.replay_defaults(case["input"]) != case["expect"]
    ]
    assert wrong == []


@pytest.mark.parametrize("minor", range(OLDEST, NEWEST + 1))
def test_an_empty_configuration_is_valid_in_every_release(minor: int) -> None:
    assert refused({}, minor) == (None, [])


@pytest.mark.parametrize(
    ("minor", "factor"), [(22, 0.8), (26, 0.8), (27, 0.9), (36, 0.9), (37, None), (38, None)]
)
def test_the_default_throttling_factor_follows_the_release(
    minor: int, factor: float | None
) -> None:
    assert with_defaults({}, minor).memory_throttling_factor == factor


def test_inodes_of_the_image_filesystem_are_watched_by_default_from_1_30_on() -> None:
    assert "imagefs.inodesFree" not in with_defaults({}, 29).eviction_hard
    assert with_defaults({}, 30).eviction_hard["imagefs.inodesFree"] == "5%"


def test_a_partial_eviction_hard_drops_the_other_defaults_unless_they_are_merged() -> None:
    alone = {"evictionHard": {"memory.available": "1Gi"}}
    assert in_force(alone).eviction_hard == {"memory.available": "1Gi"}
    merged = in_force({**alone, "mergeDefaultEvictionSettings": True}).eviction_hard
    assert merged["memory.available"] == "1Gi"
    assert merged["nodefs.available"] == "10%"


def test_merging_eviction_defaults_does_nothing_before_the_release_that_brought_it() -> None:
    reading = read(
        {"evictionHard": {"memory.available": "1Gi"}, "mergeDefaultEvictionSettings": True}, 32
    )
    assert reading.config is not None
    assert reading.config.eviction_hard == {"memory.available": "1Gi"}
    assert reading.unknown == ("mergeDefaultEvictionSettings",)


def test_an_empty_eviction_hard_watches_nothing() -> None:
    assert in_force({"evictionHard": {}}).eviction_hard == {}
    assert in_force({"evictionHard": None}).eviction_hard != {}


def test_any_negative_pid_limit_is_no_limit() -> None:
    assert in_force({"podPidsLimit": -7}).pod_pids_limit == -1
    assert in_force({"podPidsLimit": 0}).pod_pids_limit == 0


def test_an_unknown_driver_is_cgroupfs_to_the_kubelet() -> None:
    assert in_force({"cgroupDriver": "systemd"}).driver == "systemd"
    assert in_force({"cgroupDriver": "Systemd"}).driver == "cgroupfs"


def test_a_field_of_a_later_release_is_ignored_with_a_note() -> None:
    reading = read({"memoryReservationPolicy": "TieredReservation"}, 35)
    assert reading.faults == ()
    assert [str(note) for note in reading.notes] == [
        "memoryReservationPolicy: ignored by Kubernetes 1.35 – it exists since 1.36"
    ]


def test_a_misspelt_field_is_ignored_with_a_suggestion() -> None:
    (note,) = read({"memoryThrotlingFactor": 0.8}).notes
    assert note.hint == "did you mean memoryThrottlingFactor?"


def test_fields_memqos_does_not_use_are_known_and_typed() -> None:
    assert read({"clusterDNS": ["10.0.0.10"], "maxPods": 110, "logging": {}}).unknown == ()
    assert refused({"maxPods": "110"}) == ("decode", ["maxPods"])
    assert refused({"clusterDNS": "10.0.0.10"}) == ("decode", ["clusterDNS"])


@pytest.mark.parametrize(
    ("config", "field"),
    [
        ([], ""),
        ({"kind": "Pod"}, "kind"),
        ({"apiVersion": "kubelet.config.k8s.io/v1"}, "apiVersion"),
        ({"cgroupsPerQOS": "true"}, "cgroupsPerQOS"),
        ({"podPidsLimit": True}, "podPidsLimit"),
        ({"podPidsLimit": 1 << 63}, "podPidsLimit"),
        ({"podPidsLimit": 1.5}, "podPidsLimit"),
        ({"memoryThrottlingFactor": "0.9"}, "memoryThrottlingFactor"),
        ({"memoryThrottlingFactor": float("inf")}, "memoryThrottlingFactor"),
        ({"kubeReserved": {"memory": 1}}, "kubeReserved[memory]"),
        ({"kubeReserved": ["memory"]}, "kubeReserved"),
        ({"enforceNodeAllocatable": ["pods", 1]}, "enforceNodeAllocatable[1]"),
        ({"featureGates": {"MemoryQoS": "true"}}, "featureGates[MemoryQoS]"),
        ({"cpuCFSQuotaPeriod": 100}, "cpuCFSQuotaPeriod"),
        ({"cpuCFSQuotaPeriod": "100"}, "cpuCFSQuotaPeriod"),
        ({"memorySwap": {"swapBehavior": 1}}, "memorySwap.swapBehavior"),
        ({"reservedMemory": [{"numaNode": 1 << 31}]}, "reservedMemory[0].numaNode"),
        ({"reservedMemory": [{"limits": {"memory": "x"}}]}, "reservedMemory[0].limits[memory]"),
        ({"reservedMemory": [{"limits": {"memory": True}}]}, "reservedMemory[0].limits[memory]"),
    ],
)
def test_a_value_of_the_wrong_type_is_refused_where_it_stands(config: object, field: str) -> None:
    assert refused(config) == ("decode", [field])


def test_null_means_not_set_except_for_a_duration_that_cannot_be_unset() -> None:
    assert in_force({"cpuCFSQuotaPeriod": None, "cgroupRoot": None}) == in_force({})
    assert refused({"evictionPressureTransitionPeriod": None}) == (
        "decode",
        ["evictionPressureTransitionPeriod"],
    )


def test_all_wrong_types_are_reported_at_once() -> None:
    assert refused({"maxPods": "1", "cgroupDriver": 1})[1] == ["maxPods", "cgroupDriver"]


def test_hard_reservation_is_memqos_own_and_the_kubelet_refuses_it() -> None:
    written = {"memoryReservationPolicy": "HardReservation"}
    assert refused(written) == ("validate", ["memoryReservationPolicy"])
    assert kubelet_from(written, Release.of(38)).config.policy == "HardReservation"


def test_disabled_is_read_as_none_with_a_warning() -> None:
    kubelet = kubelet_from({"memoryReservationPolicy": "Disabled"}, Release.of(38))
    assert kubelet.config.policy == "None"
    assert [note.field for note in kubelet.notes] == ["memoryReservationPolicy"]
    assert refused({"memoryReservationPolicy": "Disabled"})[0] == "validate"


def test_tiered_reservation_needs_the_gate_wherever_it_was_set() -> None:
    tiered = {"memoryReservationPolicy": "TieredReservation"}
    assert refused(tiered, 36) == ("validate", ["memoryReservationPolicy"])
    assert refused({**tiered, "featureGates": {"MemoryQoS": True}}, 36) == (None, [])
    assert refused(tiered, 36, MemoryQoS=True) == (None, [])
    assert refused({**tiered, "featureGates": {"MemoryQoS": False}}, 36, MemoryQoS=True)[1] == [
        "memoryReservationPolicy"
    ]


def test_a_factor_without_the_gate_is_refused_from_1_37_on_but_for_the_former_default() -> None:
    off = {"featureGates": {"MemoryQoS": False}}
    assert refused({**off, "memoryThrottlingFactor": 0.8}, 36) == (None, [])
    assert refused({**off, "memoryThrottlingFactor": 0.9}, 37) == (None, [])
    assert refused({**off, "memoryThrottlingFactor": 0.8}, 37)[0] == "validate"
    assert len(refused({**off, "memoryThrottlingFactor": 2}, 38)[1]) == 2


def test_gates_of_the_configuration_are_set_on_the_release() -> None:
    kubelet = kubelet_from({"featureGates": {"MemoryQoS": True}}, Release.of(36))
    assert kubelet.release.is_enabled("MemoryQoS")


@pytest.mark.parametrize(
    ("gates", "minor", "stage"),
    [
        ({"NoSuchGate": True}, 31, "validate"),
        ({"NoSuchGate": True}, 32, "decode"),
        ({"NodeSwap": False}, 38, "decode"),
        ({"PodLevelResources": False}, 34, None),
        ({"PodLevelResources": False}, 38, "decode"),
    ],
)
def test_gates_that_cannot_be_set_so_are_refused(
    gates: dict[str, bool], minor: int, stage: str | None
) -> None:
    assert refused({"featureGates": gates}, minor)[0] == stage


def test_a_gate_left_on_without_what_it_needs_is_named() -> None:
    _, fields = refused({"featureGates": {"PodLevelResources": False}})
    assert "featureGates[InPlacePodLevelResourcesVerticalScaling]" in fields


@pytest.mark.parametrize(
    ("config", "minor", "count"),
    [
        ({"enforceNodeAllocatable": ["none"]}, 30, 1),
        ({"enforceNodeAllocatable": ["none"]}, 31, 0),
        ({"enforceNodeAllocatable": []}, 30, 0),
        ({"enforceNodeAllocatable": ["pods", "pods"]}, 30, 1),
        ({"enforceNodeAllocatable": ["pods", "pods"]}, 31, 2),
    ],
)
def test_without_qos_cgroups_nothing_can_be_enforced(
    config: dict[str, Any], minor: int, count: int
) -> None:
    assert len(refused({"cgroupsPerQOS": False, **config}, minor)[1]) == count


def test_enforcing_cpu_alone_is_known_from_1_32_on() -> None:
    config = {
        "enforceNodeAllocatable": ["kube-reserved-compressible"],
        "kubeReservedCgroup": "/podruntime",
    }
    assert refused(config, 31)[0] == "validate"
    assert refused(config, 32)[0] is None


def test_swap_behaviors_changed_with_1_30_and_need_the_gate() -> None:
    unlimited = {"memorySwap": {"swapBehavior": "UnlimitedSwap"}}
    assert refused(unlimited, 29)[0] == "validate"
    assert refused(unlimited, 29, NodeSwap=True)[0] is None
    assert refused(unlimited, 30)[0] == "validate"
    assert refused({"memorySwap": {"swapBehavior": "NoSwap"}}, 30)[0] is None


@pytest.mark.parametrize(
    ("period", "minor", "gates", "valid"),
    [
        ("10ms", 38, {}, True),
        ("999us", 38, {}, False),
        ("1001ms", 38, {}, False),
        ("10ms", 35, {}, False),
        ("100ms", 35, {}, True),
        ("10us", 25, {"CustomCPUCFSQuotaPeriod": True}, True),
        ("10us", 26, {"CustomCPUCFSQuotaPeriod": True}, False),
    ],
)
def test_the_cpu_period_is_bounded_and_needs_its_gate(
    period: str, minor: int, gates: dict[str, bool], valid: bool
) -> None:
    stage, _ = refused({"cpuCFSQuotaPeriod": period}, minor, **gates)
    assert (stage is None) == valid


@pytest.mark.parametrize(
    ("config", "count"),
    [
        ({"reservedSystemCPUs": "0-3,8"}, 0),
        ({"reservedSystemCPUs": "3-1"}, 1),
        ({"reservedSystemCPUs": "0,,1"}, 1),
        ({"reservedSystemCPUs": "x", "kubeReservedCgroup": "/podruntime"}, 2),
    ],
)
def test_reserved_cpus_are_a_list_and_exclude_reserved_cgroups(
    config: dict[str, Any], count: int
) -> None:
    assert len(refused(config)[1]) == count


def test_topology_needs_its_gate_while_it_can_be_turned_off() -> None:
    config = {"topologyManagerPolicy": "restricted", "featureGates": {"TopologyManager": False}}
    assert refused(config, 26) == ("validate", ["topologyManagerPolicy"])


def test_faults_at_start_are_looked_for_only_in_a_valid_configuration() -> None:
    config = {"kubeReserved": {"memory": "1GB"}, "topologyManagerScope": "node"}
    assert refused(config) == ("validate", ["topologyManagerScope"])
    assert refused({"kubeReserved": {"memory": "1GB"}}) == ("start", ["kubeReserved[memory]"])


def test_an_input_error_names_file_field_and_next_step() -> None:
    with pytest.raises(InputError) as caught:
        kubelet_from({"memoryManagerPolicy": "static"}, Release.of(38), file="kubelet.yaml")
    assert str(caught.value) == (
        "kubelet.yaml: memoryManagerPolicy: 'static' is unknown – did you mean Static?"
    )


def test_an_input_error_counts_what_else_is_wrong() -> None:
    with pytest.raises(InputError, match=r"and 1 more"):
        kubelet_from({"maxPods": "1", "cgroupDriver": 1}, Release.of(38))
