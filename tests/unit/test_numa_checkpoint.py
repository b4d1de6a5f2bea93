"""The kubelet's state file is read in every format, verified, and written as the kubelet does."""

import json

import pytest

from memqos.numa.checkpoint import (
    LoadedCheckpoint,
    UnreadableCheckpoint,
    encode_checkpoint,
    fnv1a32,
    read_checkpoint,
)
from memqos.numa.machine_state import MemoryBlock, MemoryManagerState, MemoryTable, NumaNodeState
from memqos.release import Release

BLOCK = MemoryBlock("memory", (0, 10), 6)
STATE = MemoryManagerState(
    policy="Static",
    nodes={
        i: NumaNodeState(1, {"memory": MemoryTable(9, 1, 8, 3, 5)}, (0, 10)) for i in (0, 2, 10)
    },
    assignments={"uid": {"c0": (BLOCK,), "c1": ()}},
    pools={"uid": (BLOCK,)},
)
WITHOUT_POOLS = MemoryManagerState(STATE.policy, STATE.nodes, STATE.assignments)
POOLS = {"PodLevelResourceManagers": True}


@pytest.mark.parametrize(
    ("text", "value"), [("", 0x811C9DC5), ("a", 0xE40C292C), ("foobar", 0xBF9CF968)]
)
def test_the_checksum_is_fnv1a(text: str, value: int) -> None:
    assert fnv1a32(text) == value


@pytest.mark.parametrize(
    ("release", "version", "state"),
    [
        (Release.of("1.22"), "v1", WITHOUT_POOLS),
        (Release.of("1.36"), "v1", WITHOUT_POOLS),
        (Release.of("1.36", POOLS), "v2", STATE),
        (Release.of("1.37"), "v3", WITHOUT_POOLS),
        (Release.of("1.38", POOLS), "v3", STATE),
    ],
)
def test_what_a_release_writes_is_read_back(
    release: Release, version: str, state: MemoryManagerState
) -> None:
    loaded = read_checkpoint(encode_checkpoint(STATE, release))
    assert loaded == LoadedCheckpoint(state, version)  # type: ignore[arg-type]


def test_nodes_are_written_in_the_order_of_their_names_as_text() -> None:
    written = json.loads(encode_checkpoint(STATE, Release.of("1.38")))
    assert list(written["machineState"]) == ["0", "10", "2"]
    assert list(written) == [
        "policyName", "machineState", "entries", "checksum", "data", "dataChecksum",
    ]  # fmt: skip


def test_a_changed_file_is_corrupt_with_the_checksum_it_should_have() -> None:
    file = json.loads(encode_checkpoint(STATE, Release.of("1.38")))
    file["data"] = file["data"].replace('"size":6', '"size":7')
    found = read_checkpoint(json.dumps(file))
    assert isinstance(found, UnreadableCheckpoint)
    assert found.kind == "checkpoint_corrupt"
    assert found.stored == file["dataChecksum"]
    assert found.computed == fnv1a32("(string)" + file["data"])
    file["dataChecksum"] = found.computed
    assert isinstance(read_checkpoint(json.dumps(file)), LoadedCheckpoint)


def test_what_is_written_around_the_data_does_not_count() -> None:
    file = json.loads(encode_checkpoint(STATE, Release.of("1.38")))
    file |= {"policyName": "Other", "entries": {}, "checksum": 1, "unknown": True}
    assert read_checkpoint(json.dumps(file, indent=2)) == LoadedCheckpoint(WITHOUT_POOLS, "v3")


def test_a_broken_v3_file_is_not_taken_for_an_older_one() -> None:
    file = json.loads(encode_checkpoint(STATE, Release.of("1.38")))
    found = read_checkpoint(json.dumps(file | {"data": ""}))
    assert isinstance(found, UnreadableCheckpoint)
    assert found.kind == "checkpoint_invalid_json"


def test_a_file_from_before_there_were_checksums_is_taken_at_its_word() -> None:
    file = json.loads(encode_checkpoint(STATE, Release.of("1.22")))
    assert read_checkpoint(json.dumps(file | {"checksum": 0})) == LoadedCheckpoint(
        WITHOUT_POOLS, "v1"
    )
    wrong = read_checkpoint(json.dumps(file | {"checksum": 1}))
    assert isinstance(wrong, UnreadableCheckpoint)
    assert wrong.kind == "checkpoint_corrupt"


@pytest.mark.parametrize("text", ["", "{", "[]", '{"machineState":{"x":{}}}', '{"checksum":"a"}'])
def test_what_is_not_the_json_of_a_state_is_named_so(text: str) -> None:
    found = read_checkpoint(text)
    assert isinstance(found, UnreadableCheckpoint)
    assert found.kind == "checkpoint_invalid_json"
    assert found.detail
