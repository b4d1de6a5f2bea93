"""`memqos numa checkpoint`: a state file is judged, repaired and compared, never lost."""

import json
import os
import stat
from pathlib import Path
from typing import Any

import pytest
from tests.unit.test_numa_command import KUBELET, MACHINE, NODE, ROOT, STATE, memqos

from memqos.numa.checkpoint import LoadedCheckpoint, encode_checkpoint, read_checkpoint
from memqos.numa.machine_state import MemoryBlock
from memqos.release import Release

POOLS = {"PodLevelResourceManagers": True}


def text() -> str:
    return (ROOT / STATE).read_text()


def in_format(minor: int, gates: dict[str, bool] | None = None) -> str:
    loaded = read_checkpoint(text())
    assert isinstance(loaded, LoadedCheckpoint)
    return encode_checkpoint(loaded.state, Release.of(minor, gates or {}))


def machine(tmp_path: Path, *, node: int = 0, memory: str = "60Gi") -> str:
    """The example's machine after one of its nodes has changed."""
    file = tmp_path / "machine.yaml"
    old = f"id: {node}, memory: 64Gi"
    file.write_text((ROOT / MACHINE).read_text().replace(old, f"id: {node}, memory: {memory}"))
    return str(file)


def saved(tmp_path: Path, content: str) -> str:
    file = tmp_path / "state"
    file.write_text(content)
    return str(file)


def verify(file: str, *arguments: str) -> dict[str, Any]:
    done = memqos("checkpoint", "verify", file, *arguments, "-o", "json")
    assert done.stderr == ""
    data: dict[str, Any] = json.loads(done.stdout)
    assert done.returncode == (0 if data["usable"] else 2)
    return data


@pytest.mark.parametrize("minor", [35, 37])
def test_a_sound_file_is_usable_whatever_its_format(minor: int, tmp_path: Path) -> None:
    file = saved(tmp_path, in_format(minor))
    found = verify(file, "--machine", MACHINE, "--kubelet", KUBELET)
    assert found["verdict"] == "usable"
    assert found["version"] == ("v1" if minor == 35 else "v3")
    assert all(each["holds"] for each in found["checksums"])


def test_the_recorded_nodes_own_state_is_usable_on_it(tmp_path: Path) -> None:
    state = json.loads((ROOT / NODE).read_text())["memory_manager_state"]
    assert verify(saved(tmp_path, state), "--machine", NODE)["usable"]


def test_the_verdict_and_the_next_step_fit_the_terminal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    file = saved(tmp_path, '{"policyName":"","machineState":{},"checksum":0}')
    lines = memqos("checkpoint", "verify", file).stdout.splitlines()
    assert lines[-1].endswith("admits its pods again")
    # Only the name of the file may be longer.
    assert max(len(line) for line in lines if file not in line) <= 60


def test_a_changed_byte_is_found_by_the_checksum(tmp_path: Path) -> None:
    found = verify(saved(tmp_path, text().replace("34359738368", "34359738369")))
    assert found["verdict"] == "corrupt"
    (checksum,) = found["checksums"]
    assert checksum["stored"] == 3086269076
    assert checksum["computed"] != checksum["stored"]
    assert "checksum is 3086269076" in found["why"][0]


def test_in_the_third_format_the_checksum_of_the_data_decides(tmp_path: Path) -> None:
    v3 = json.loads(in_format(37))
    older = verify(saved(tmp_path, json.dumps(v3 | {"checksum": 1})))
    assert older["usable"]
    assert "kubelets before 1.37" in older["notes"][0]
    newer = verify(saved(tmp_path, json.dumps(v3 | {"dataChecksum": 1})))
    assert newer["verdict"] == "corrupt"
    assert newer["checksums"][0]["field"] == "dataChecksum"


def test_drift_says_which_node_which_total_and_by_how_much(tmp_path: Path) -> None:
    found = verify(STATE, "--machine", machine(tmp_path))
    assert found["verdict"] == "drifted"
    assert found["why"][0] == "node 0 memory total: state 64Gi, machine 60Gi (−4Gi)"
    assert found["differences"][0] == {
        "node": 0,
        "field": "total",
        "stored": 64 << 30,
        "found": 60 << 30,
        "resource": "memory",
    }


def test_another_reservation_is_drift_too() -> None:
    found = verify(STATE, "--reserved", "0:memory=1Gi;1:memory=1Gi;2:memory=1Gi;3:memory=2Gi")
    assert found["why"][0] == "node 3 memory systemReserved: state 1Gi, machine 2Gi (+1Gi)"


def test_another_policy_is_reported() -> None:
    found = verify(STATE, "--kubelet", "examples/node/kubelet.yaml")
    assert found["verdict"] == "refused"
    assert found["why"] == ["the state is of policy Static, the kubelet's is None"]


BROKEN: dict[str, tuple[str, str, str]] = {
    "truncated": (text()[:700], "unreadable", "truncated after 700 bytes"),
    "empty": ("", "unreadable", "truncated after 0 bytes"),
    "trailing garbage": (
        text() + "garbage",
        "unreadable",
        "trailing characters at byte",
    ),
    "no object": ("[1]", "unreadable", "Expected object, got array"),
    "wrong types": (
        text().replace('"policyName":"Static"', '"policyName":5'),
        "unreadable",
        "Expected str, got int",
    ),
    "a negative size": (text().replace('"free":0', '"free":-1', 1), "unreadable", "int >= 0"),
    "no policy": ("{}", "refused", "there is no policy ''"),
    "holders without nodes": (
        '{"policyName":"Static","machineState":{},"entries":{"u":{"c":[]}},"checksum":0}',
        "refused",
        "has assignments, but no NUMA nodes",
    ),
}


@pytest.mark.parametrize("fault", BROKEN)
def test_a_broken_file_gets_a_clear_verdict_and_stays_as_it_is(fault: str, tmp_path: Path) -> None:
    content, verdict, says = BROKEN[fault]
    file = saved(tmp_path, content)
    found = verify(file)
    assert found["verdict"] == verdict
    assert says in " ".join(found["why"])
    for command in (["checkpoint", "verify", file], ["show", "--state", file]):
        assert "Traceback" not in memqos(*command).stderr
    memqos("checkpoint", "repair", file)
    assert Path(file).read_text() == content


def test_a_file_of_the_future_is_judged_by_what_is_known(tmp_path: Path) -> None:
    future = json.dumps(json.loads(text()) | {"version": "v9", "shards": []})
    found = verify(saved(tmp_path, future))
    assert found["usable"]
    assert found["notes"] == ["unknown fields: version, shards"]


def test_what_is_no_text_is_refused(tmp_path: Path) -> None:
    (tmp_path / "state").write_bytes(b"\xff\xfe\x00")
    done = memqos("checkpoint", "verify", str(tmp_path / "state"))
    assert done.returncode == 1
    assert "not UTF-8" in done.stderr


# repair


def repair(file: str, *arguments: str) -> str:
    done = memqos("checkpoint", "repair", file, *arguments)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("minor", [35, 37])
def test_after_a_change_of_memory_the_kubelet_starts_over_the_repaired_file(
    minor: int, tmp_path: Path
) -> None:
    file, changed = saved(tmp_path, in_format(minor)), machine(tmp_path)
    assert "4 pods kept" in repair(file, "--machine", changed)
    found = verify(f"{file}.repaired", "--machine", changed)
    assert found["usable"]
    assert found["version"] == ("v1" if minor == 35 else "v3")
    assert Path(file).read_text() == in_format(minor)
    assert stat.S_IMODE(os.stat(f"{file}.repaired").st_mode) == 0o600


def test_nothing_is_written_over_without_force(tmp_path: Path) -> None:
    file, changed = saved(tmp_path, text()), machine(tmp_path)
    repair(file, "--machine", changed)
    before = Path(f"{file}.repaired").read_text()
    again = memqos("checkpoint", "repair", file, "--machine", changed)
    assert again.returncode == 1
    assert "is there already" in again.stderr
    assert Path(file).read_text() == text()
    repair(file, "--machine", changed, "--force")
    assert Path(file).read_text() == before
    assert sorted(os.listdir(tmp_path)) == ["machine.yaml", "state", "state.repaired"]


def test_pods_whose_memory_is_gone_are_excluded(tmp_path: Path) -> None:
    file, changed = saved(tmp_path, text()), machine(tmp_path, node=2, memory="32Gi")
    message = repair(file, "--machine", changed)
    assert "3 pods kept" in message
    assert "pod 6b1f0a52-0c3e-4f1d-9a77-1d2f3a4b5c03 is dropped" in message
    assert verify(f"{file}.repaired", "--machine", changed)["usable"]


def test_garbage_after_the_end_is_cut_off(tmp_path: Path) -> None:
    file = saved(tmp_path, text() + "}}")
    repair(file)
    assert Path(f"{file}.repaired").read_text() == text()


def test_a_changed_byte_is_taken_as_it_is_and_the_node_map_made_again(tmp_path: Path) -> None:
    file = saved(tmp_path, text().replace('"free":20401094656', '"free":20401094657'))
    assert "no checksum matches" in repair(file)
    assert Path(f"{file}.repaired").read_text() == text()


def test_the_part_whose_checksum_holds_is_believed(tmp_path: Path) -> None:
    v3 = json.loads(in_format(37))
    broken = json.dumps(v3 | {"data": v3["data"].replace("34359738368", "34359738369")})
    file = saved(tmp_path, broken)
    assert "the fields for older kubelets are used" in repair(file)
    assert Path(f"{file}.repaired").read_text() == in_format(37)


def test_a_release_can_be_asked_for(tmp_path: Path) -> None:
    file = saved(tmp_path, text() + " x")
    repair(file, "--release", "1.37")
    assert verify(f"{file}.repaired")["version"] == "v3"


def test_a_sound_file_is_left_alone(tmp_path: Path) -> None:
    file = saved(tmp_path, text())
    assert "nothing to repair" in repair(file)
    assert os.listdir(tmp_path) == ["state"]


@pytest.mark.parametrize("content", [text()[:500], "[]", "{}", ""])
def test_what_cannot_be_repaired_is_reported_with_the_next_step(
    content: str, tmp_path: Path
) -> None:
    done = memqos("checkpoint", "repair", saved(tmp_path, content))
    assert done.returncode == 1
    assert "it cannot be repaired: remove it" in done.stderr
    assert os.listdir(tmp_path) == ["state"]


def test_pools_survive_a_repair(tmp_path: Path) -> None:
    uid = "6b1f0a52-0c3e-4f1d-9a77-1d2f3a4b5c04"
    plain = read_checkpoint(text())
    assert isinstance(plain, LoadedCheckpoint)
    state = plain.state.with_pool(uid, (MemoryBlock("memory", (3,), 32 << 30),))
    file = saved(tmp_path, encode_checkpoint(state, Release.of(37, POOLS)))
    changed = machine(tmp_path)
    assert not verify(file, "--machine", changed)["usable"]
    repair(file, "--machine", changed)
    again = read_checkpoint(Path(f"{file}.repaired").read_text())
    assert isinstance(again, LoadedCheckpoint)
    assert again.state.pools == state.pools
    assert verify(f"{file}.repaired", "--machine", changed)["usable"]


# diff


def test_the_same_state_in_two_formats_does_not_differ(tmp_path: Path) -> None:
    done = memqos("checkpoint", "diff", STATE, saved(tmp_path, in_format(37)))
    assert done.returncode == 0
    assert done.stdout == "both files have the same content\n"


def test_differences_are_reported_value_by_value(tmp_path: Path) -> None:
    file, changed = saved(tmp_path, text()), machine(tmp_path, node=2, memory="32Gi")
    repair(file, "--machine", changed)
    done = memqos("checkpoint", "diff", file, f"{file}.repaired")
    assert done.returncode == 2
    rows = [line.split() for line in done.stdout.splitlines()]
    assert ["node", "2", "memory", "total", "64Gi", "32Gi", "−32Gi"] in rows
    assert ["node", "2", "assignments", "1", "0"] in rows
    gone = "pod 6b1f0a52-0c3e-4f1d-9a77-1d2f3a4b5c03 container opensearch memory on 2 48Gi –"
    assert gone.split() in rows
    data = json.loads(memqos("checkpoint", "diff", file, f"{file}.repaired", "-o", "json").stdout)
    assert not data["same"]


def test_a_corrupt_file_is_compared_as_far_as_it_can_be_read(tmp_path: Path) -> None:
    file = saved(tmp_path, text().replace("34359738368", "34359738369"))
    done = memqos("checkpoint", "diff", STATE, file)
    assert done.returncode == 2
    assert "no kubelet accepts this file" in done.stderr
    assert "node 3 memory" in done.stdout
    assert memqos("checkpoint", "diff", STATE, saved(tmp_path, text()[:99])).returncode == 1
