"""What a node has left for pods, and the cgroups that enforce it."""

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from memqos.cli.replay import node as replay
from memqos.errors import InputError
from memqos.kube.kubelet import KubeletConfiguration, with_defaults
from memqos.kube.node import (
    Capacity,
    Node,
    NodeCgroup,
    allocatable,
    before_eviction,
    capacity_of,
    node_cgroups,
)
from memqos.release import Release

CASES = Path(__file__).parents[1] / "conformance" / "cases"
MI, GI = 1 << 20, 1 << 30
MACHINE = Capacity(cpu=4000, memory=8 * GI, pids=4_194_304)
ON = Release.of(38, {"MemoryQoS": True})
OFF = Release.of(38, {"MemoryQoS": False})


def config(**written: Any) -> KubeletConfiguration:
    return with_defaults({"eviction_hard": {}, **written}, 38)


def cgroups(release: Release = ON, **written: Any) -> list[NodeCgroup]:
    return [*node_cgroups(MACHINE, config(**written), release).cgroups]


def test_recorded_nodes_have_left_what_was_recorded() -> None:
    with (CASES / "node_allocatable.jsonl").open() as lines:
        cases = [*map(json.loads, lines)]
    wrong = [
        case["id"]
        for case in cases
        if replay.replay_node_allocatable(case["input"]) != case["expect"]
    ]
    assert wrong == []


def test_the_eviction_threshold_is_not_offered_but_may_be_used() -> None:
    left = allocatable(
        MACHINE,
        config(eviction_hard={"memory.available": "1Gi"}, kube_reserved={"memory": "1Gi"}),
        ON,
    )
    assert left.published_memory == 6 * GI
    assert left.enforced_memory == 7 * GI


def test_hugepages_are_not_offered_as_memory() -> None:
    machine = msgspec.structs.replace(MACHINE, hugepages={"hugepages-2Mi": 3 * GI})
    left = allocatable(machine, config(), ON)
    assert left.published_memory == 5 * GI
    assert left.enforced_memory == 8 * GI
    assert left.published["hugepages-2Mi"].value == 3 * GI


def test_nothing_is_less_than_nothing() -> None:
    machine = msgspec.structs.replace(MACHINE, hugepages={"hugepages-1Gi": 9 * GI})
    left = allocatable(machine, config(system_reserved={"cpu": "5"}), ON)
    assert left.published_memory == 0
    assert left.enforced["cpu"].value == 0


def test_reserving_more_than_the_capacity_is_reported_by_resource() -> None:
    left = allocatable(MACHINE, config(kube_reserved={"memory": "9Gi", "cpu": "4"}), ON)
    assert [(over.resource, over.reserved.value) for over in left.over_reserved] == [
        ("memory", 9 * GI)
    ]


def test_reserved_cpus_take_the_place_of_any_amount_of_cpu() -> None:
    left = allocatable(
        MACHINE,
        config(reserved_system_cpus="0,2-3", kube_reserved={"cpu": "2"}, system_reserved={}),
        ON,
    )
    assert left.enforced["cpu"].value == 1


@pytest.mark.parametrize(("minor", "milli"), [(36, 3998), (37, 3997)])
def test_reserved_cpu_is_rounded_to_the_nearest_thousandth_from_1_37_on(
    minor: int, milli: int
) -> None:
    release = Release.of(minor)
    found = node_cgroups(MACHINE, config(kube_reserved={"cpu": "2.6m"}), release).cgroups
    assert found[0].cpu == milli


def test_kubepods_is_limited_to_what_is_left_only_where_pods_are_enforced() -> None:
    reserved = {"memory": "1Gi", "pid": "1000"}
    (enforced,) = cgroups(kube_reserved=reserved)
    assert (enforced.memory_max, enforced.pids_max) == (7 * GI, 4_193_304)
    (free,) = cgroups(kube_reserved=reserved, enforce_node_allocatable=("none",))
    assert (free.memory_max, free.pids_max) == (8 * GI, 4_194_304)


def test_enforced_reservations_are_protected_while_memory_qos_is_on() -> None:
    enforced: dict[str, Any] = {
        "enforce_node_allocatable": ("pods", "kube-reserved"),
        "kube_reserved": {"memory": "512Mi"},
        "kube_reserved_cgroup": "/podruntime",
    }
    assert cgroups(ON, **enforced)[1].memory_min == 512 * MI
    assert cgroups(OFF, **enforced)[1].memory_min is None
    assert cgroups(OFF, **enforced)[1].memory_max == 512 * MI


def test_a_compressible_reservation_is_neither_limited_nor_protected() -> None:
    reserved = cgroups(
        enforce_node_allocatable=("pods", "system-reserved-compressible"),
        system_reserved={"cpu": "500m", "memory": "512Mi"},
        system_reserved_cgroup="/system",
    )[1]
    assert reserved == NodeCgroup(kind="system-reserved", name="/system", cpu=500)


def test_turning_memory_qos_off_takes_protection_back_from_1_37_on() -> None:
    assert (cgroups(OFF)[0].memory_min, cgroups(OFF)[0].memory_low) == (0, 0)
    assert cgroups(ON)[0].memory_min is None
    assert cgroups(Release.of(36))[0].memory_min is None


def test_enforcing_a_reservation_of_nothing_fails_and_ends_it_there() -> None:
    found = node_cgroups(
        MACHINE,
        config(
            enforce_node_allocatable=("pods", "kube-reserved", "system-reserved"),
            kube_reserved={"memory": "1Gi"},
        ),
        ON,
    )
    assert found.failed == "system-reserved"
    assert [cgroup.kind for cgroup in found.cgroups] == ["kubepods"]


def test_without_qos_cgroups_there_is_no_kubepods() -> None:
    assert cgroups(cgroups_per_qos=False, enforce_node_allocatable=("none",)) == []


def test_a_node_has_its_capacity() -> None:
    node = msgspec.convert(
        {
            "metadata": {"name": "worker-1"},
            "status": {
                "capacity": {
                    "cpu": "4",
                    "memory": "16377420Ki",
                    "hugepages-2Mi": "64Mi",
                    "pods": "110",
                },
                "nodeInfo": {"kubeletVersion": "v1.36.4"},
            },
        },
        Node,
    )
    assert capacity_of(node) == Capacity(4000, 16_770_478_080, {"hugepages-2Mi": 64 * MI})
    assert node.status.node_info is not None
    assert node.status.node_info.kubelet_version == "v1.36.4"


@pytest.mark.parametrize(
    ("status", "field"),
    [
        ({}, "status.capacity"),
        ({"capacity": {"cpu": "4"}}, "status.capacity"),
        ({"capacity": {"memory": "16GB"}}, "status.capacity[memory]"),
    ],
)
def test_a_node_without_capacity_is_refused(status: dict[str, Any], field: str) -> None:
    with pytest.raises(InputError) as caught:
        capacity_of(msgspec.convert({"status": status}, Node))
    assert caught.value.field == field


@given(
    st.integers(1, 64 * GI),
    st.integers(0, 4 * GI),
    st.one_of(st.integers(0, 4 * GI).map(str), st.integers(0, 50).map("{}%".format)),
    st.integers(0, 1024).map((2 * MI).__mul__),
)
def test_what_memory_high_counts_is_derived_from_the_nodes_allocatable(
    memory: int, reserved: int, threshold: str, huge: int
) -> None:
    capacity = Capacity(cpu=4000, memory=memory, hugepages={"hugepages-2Mi": huge})
    written = config(
        kube_reserved={"memory": str(reserved)}, eviction_hard={"memory.available": threshold}
    )
    left = allocatable(capacity, written, ON)
    if left.published_memory:  # a reservation beyond the capacity does not show in it
        found = before_eviction(capacity, left.published_memory, written)
        assert found == left.enforced_memory
