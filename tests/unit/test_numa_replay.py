"""What Kubernetes was recorded to decide about NUMA nodes is what memqos decides."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from memqos.cli.conformance import case_differences
from memqos.cli.replay import numa
from memqos.numa.checkpoint import LoadedCheckpoint, encode_checkpoint, read_checkpoint
from memqos.release import Release

CASES = Path(__file__).parents[1] / "conformance" / "cases"
RECORDED = {
    "topology_merge": 500,
    "topology_config": 60,
    "memory_manager": 324,
    "reserved_memory": 150,
    "memory_state_checkpoint": 80,
}


def cases(area: str) -> Iterator[dict[str, Any]]:
    for line in (CASES / f"{area}.jsonl").read_text().splitlines():
        yield json.loads(line)


@pytest.mark.parametrize("area", sorted(RECORDED))
def test_every_recorded_decision_is_decided_alike(area: str) -> None:
    replay = getattr(numa, f"replay_{area}")
    different, replayed = {}, 0
    for case in cases(area):
        replayed += 1
        expect, actual = case["expect"], replay(case["input"])
        # The hashed text is an explanation, which only some cases were recorded with.
        if "legacy_hash_input" not in expect:
            actual.pop("legacy_hash_input", None)
        found = case_differences(area, expect, actual)
        if found:
            different[case["id"]] = [str(difference) for difference in found]
    assert replayed == RECORDED[area]
    assert different == {}


def test_a_state_file_is_written_to_the_letter_as_the_kubelet_wrote_it() -> None:
    compared = 0
    for case in cases("memory_state_checkpoint"):
        if "legacy_hash_input" not in case["expect"]:
            continue
        text = case["input"]["file"]
        loaded = read_checkpoint(text)
        assert isinstance(loaded, LoadedCheckpoint)
        assert (
            encode_checkpoint(loaded.state, Release.of("1.38", case["input"]["feature_gates"]))
            == text
        )
        compared += 1
    assert compared == 40


def test_a_machine_that_a_restart_changes_stays_changed() -> None:
    nodes: list[dict[str, Any]] = [
        {"id": each, "memory": 16 << 30, "hugepages": {}} for each in (0, 1)
    ]
    pod = {
        "metadata": {"name": "web", "namespace": "default", "uid": "web"},
        "spec": {"containers": [{"name": "c", "image": "i"}]},
    }
    answer = numa.replay_memory_manager(
        {
            "machine": {"numa": nodes},
            "policy": "None",
            "reserved_memory": [],
            "topology": {"policy": "restricted", "scope": "pod"},
            "steps": [
                {"op": "restart", "machine": {"numa": nodes[:1]}},
                {"op": "restart"},
                {"op": "admit", "pod": pod},
            ],
        }
    )
    assert answer["steps"][2]["affinity"] == {"c": {"nodes": [0], "preferred": True}}


def test_a_restart_without_one_of_the_nodes_is_refused_by_its_state() -> None:
    gib = 1 << 30
    rows = [[10, 12, 30], [12, 10, 11], [40, 11, 10]]
    nodes = [
        {"id": index, "memory": 4 * gib, "hugepages": {}, "distances": row}
        for index, row in enumerate(rows)
    ]
    found = numa.replay_memory_manager(
        {
            "machine": {"numa": nodes},
            "policy": "Static",
            "topology": {
                "policy": "best-effort",
                "scope": "container",
                "policy_options": {"prefer-closest-numa-nodes": True},
            },
            "reserved_memory": [{"numa_node": 0, "limits": {"memory": "1Gi"}}],
            "steps": [{"op": "restart", "machine": {"numa": [nodes[0], nodes[2]]}}],
        }
    )
    assert [step.get("error_kind") for step in found["steps"]] == ["machine_state_mismatch"]


def test_a_reservation_without_limits_reserves_nothing() -> None:
    case = {
        "numa_nodes": [0, 1],
        "node_allocatable_reservation": {"memory": "1Gi"},
        "reserved_memory": [
            {"numa_node": 0, "limits": {"memory": "1Gi"}},
            {"numa_node": 1, "limits": None},
        ],
    }
    reserved = numa.replay_reserved_memory(case)["system_reserved"]
    assert reserved == {"0": {"memory": 1 << 30}, "1": {}}
