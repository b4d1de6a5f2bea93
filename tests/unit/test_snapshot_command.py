"""`memqos snapshot` as a person or a script meets it."""

import base64
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.commands import memqos_at_terminal
from tests.fakes.kubelet import fake_kubelet
from tests.fakes.machine import put_tree

from memqos.converge.snapshots import add_records, encode_snapshot
from memqos.host.record_files import RecordWriter
from memqos.host.snapshots import load_snapshot
from memqos.record.format import LevelRecord, PressureRecord, Subject, record_file_name

ROOT = Path(__file__).parents[2]
NODES = ROOT / "tests" / "nodes"
PODS = str(NODES / "systemd.json")


def memqos(*arguments: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-m", "memqos.cli.main", "snapshot", *arguments],
        capture_output=True,
        text=True,
        cwd=ROOT,
        check=False,
    )


def test_a_snapshot_goes_to_a_file_for_its_owner_alone(tmp_path: Path) -> None:
    file = tmp_path / "node.json"
    done = memqos("--pods", PODS, "--out", str(file))
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(f"{file}: 12 pods and ")
    assert file.stat().st_mode & 0o777 == 0o600
    assert os.listdir(tmp_path) == ["node.json"]


def test_or_to_standard_output_its_notes_apart() -> None:
    done = memqos("--pods", PODS)
    data = json.loads(done.stdout)
    assert len(data["pods"]["items"]) == 12
    assert done.stderr.splitlines() == [f"note: {note}" for note in data["notes"]]


def test_any_folder_can_be_the_cgroup_root(tmp_path: Path) -> None:
    node = json.loads(Path(PODS).read_text())
    tree = put_tree(tmp_path / "cgroup", node["cgroups"])
    data = json.loads(memqos("--pods", PODS, "--cgroup-root", f"{tree}/").stdout)
    assert data["cgroups"] == node["cgroups"]
    assert data["driver"] == "systemd"


def test_an_earlier_snapshot_is_replaced_whole_or_not_at_all(tmp_path: Path) -> None:
    file = tmp_path / "node.json"
    file.write_text("earlier")
    file.chmod(0o644)
    assert memqos("--pods", f"{tmp_path}/none", "--out", str(file)).returncode == 1
    assert file.read_text() == "earlier"
    assert memqos("--pods", PODS, "--out", str(file)).returncode == 0
    assert json.loads(file.read_text())["version"] == 1
    assert file.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("place", ["", "none/node.json"])
def test_where_it_cannot_be_written_is_said(tmp_path: Path, place: str) -> None:
    done = memqos("--pods", PODS, "--out", str(tmp_path / place))
    assert done.returncode == 1
    assert str(tmp_path / place) in done.stderr
    assert os.listdir(tmp_path) == []


def test_a_kubelet_is_asked_for_its_pods() -> None:
    pods = json.loads(Path(PODS).read_text())["pods"]
    with fake_kubelet({"/pods": pods, "/metrics": b""}) as kubelet:
        done = memqos("--pods", kubelet.url)
    assert len(json.loads(done.stdout)["pods"]["items"]) == 12


def test_the_kubelets_configuration_may_be_given(tmp_path: Path) -> None:
    file = tmp_path / "kubelet.yaml"
    file.write_text("kind: KubeletConfiguration\ncgroupDriver: systemd\nlogging: {}\n")
    data = json.loads(memqos("--pods", PODS, "--kubelet", str(file)).stdout)
    assert "cgroupDriver: systemd" in data["kubelet_configuration"]
    assert any(note.endswith("of no use here: logging") for note in data["notes"])
    assert memqos("--pods", PODS, "--kubelet", f"{tmp_path}/none").returncode == 1


def test_what_a_snapshot_leaves_out_on_purpose_is_listed_in_it_and_reported_once(
    tmp_path: Path,
) -> None:
    """A real kubelet's configuration has some sixty-five such fields."""
    kubelet, file = tmp_path / "kubelet.yaml", tmp_path / "node.json"
    fields = [f"field{number}" for number in range(65)]
    kubelet.write_text("kind: KubeletConfiguration\n" + "".join(f"{each}: 1\n" for each in fields))
    tree = put_tree(tmp_path / "cgroup", json.loads(Path(PODS).read_text())["cgroups"])
    taken = memqos(
        *("--pods", PODS, "--kubelet", str(kubelet), "--out", str(file), "--cgroup-root", str(tree))
    )
    lines = [line for line in taken.stderr.splitlines() if "of no use here" in line]
    assert [line.rpartition(": ")[2] for line in lines] == ["65 fields, listed in the file's notes"]
    notes = json.loads(file.read_text())["notes"]
    assert any(note.endswith(", ".join(fields)) for note in notes)
    for command in ("plan", "doctor"):
        done = subprocess.run(
            [sys.executable, "-m", "memqos.cli.main", command, "--snapshot", str(file)],
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode in (0, 2), done.stderr
        assert "of no use here" not in done.stdout + done.stderr


@pytest.mark.parametrize(
    "options",
    [
        ["--pods", PODS, "--token-file", "token"],
        ["--ca-file", "ca.crt"],
        ["--pods", "https://127.0.0.1", "--client-key", "key"],
    ],
)
def test_credentials_are_for_a_kubelet(options: list[str]) -> None:
    assert memqos(*options).returncode == 64


def test_other_commands_read_it(tmp_path: Path) -> None:
    file = tmp_path / "node.json"
    memqos("--pods", PODS, "--out", str(file), "--without-images")
    done = subprocess.run(
        [sys.executable, "-m", "memqos.cli.main", "explain", str(file), "-o", "json"],
        capture_output=True,
        check=False,
    )
    assert done.returncode == 0
    assert len(json.loads(done.stdout)["pods"]) == 12


def test_a_terminal_is_shown_what_goes_on() -> None:
    code, shown = memqos_at_terminal("snapshot", "--pods", PODS)
    assert code == 0
    assert "\r\033[Kreading processes …" in shown


RECORDS = str(ROOT / "examples" / "records")


def test_the_agents_records_are_in_it_unless_they_are_excluded() -> None:
    held = json.loads(memqos("--pods", PODS, "--records", RECORDS).stdout)["records"]
    assert sorted(held) == sorted(os.listdir(RECORDS))
    for file, text in held.items():
        assert base64.b64decode(text) == (Path(RECORDS) / file).read_bytes()
    without = memqos("--pods", PODS, "--records", RECORDS, "--without-records")
    assert json.loads(without.stdout)["records"] == {}


def test_records_that_are_asked_for_and_missing_are_refused(tmp_path: Path) -> None:
    done = memqos("--pods", PODS, "--records", f"{tmp_path}/none")
    assert done.returncode == 1
    assert "there are no records here" in done.stderr


def test_records_take_no_more_than_their_share_and_the_latest_come_first(tmp_path: Path) -> None:
    recorder = RecordWriter(str(tmp_path))
    for number in range(20):
        recorder.add(
            Subject(0, "a", f"p{number}", "u", "c"), *[LevelRecord(at) for at in range(100)]
        )
    recorder.add(Subject(0), PressureRecord(1))
    recorder.flush()
    names = [record_file_name(Subject(0, "a", f"p{number}", "u", "c")) for number in range(20)]
    for age, name in enumerate(names):
        os.utime(tmp_path / f"{name}.records", (1e9 - age, 1e9 - age))
    os.utime(tmp_path / "node.records", (1, 1))
    node = load_snapshot(PODS)
    size = (tmp_path / f"{names[0]}.records").stat().st_size
    held = add_records(node, str(tmp_path), most=5 * size)
    assert set(held.records) == {"node.records", *[f"{name}.records" for name in names[:4]]}
    assert held.notes[-1] == "records: the newest 5 of 21"
    assert len(encode_snapshot(held)) - len(encode_snapshot(node)) < 5 * size * 1.4 + 1000


def test_records_of_others_are_noted_and_the_rest_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(path: str) -> None:
        raise PermissionError(13, "Permission denied", path)

    monkeypatch.setattr(os, "scandir", refused)
    held = add_records(load_snapshot(PODS), str(tmp_path))
    assert held.records == {}
    assert held.notes[-1].startswith("no records: ")
