"""`memqos why` on an agent's records, on a folder of them, and on a snapshot."""

import json
import os
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree as ET

import msgspec
import pytest
from tests.commands import ROOT, memqos
from tests.fakes import recording

from memqos.converge.snapshots import add_records as carrying
from memqos.converge.snapshots import encode_snapshot
from memqos.host.record_files import RecordWriter
from memqos.manifests.snapshot import read_snapshot
from memqos.plan.rules import HIGH_WIDENED
from memqos.record.format import KillRecord, LevelRecord, subject_of

MI = 1 << 20
RECORDS = "examples/records"


def why(*arguments: str, records: str = RECORDS) -> tuple[int, str, str]:
    return memqos("why", *arguments, "--records", records)


def test_the_example_is_what_an_agent_would_have_kept(tmp_path: Path) -> None:
    recording.write_example(str(tmp_path / "records"))
    made = {file.name: file.read_bytes() for file in (tmp_path / "records").iterdir()}
    kept = {file.name: file.read_bytes() for file in (ROOT / RECORDS).iterdir()}
    assert made == kept


def test_a_pod_is_asked_for_with_or_without_its_kind() -> None:
    assert why("pod/db-0", "-n", "shop") == why("db-0", "-n", "shop")


def test_the_story_is_reported_with_rules_and_what_prevents_it() -> None:
    code, out, _ = why("pod/db-0", "-n", "shop")
    assert code == 0
    assert "rule min/protects-own-cache" in out
    assert "what would have prevented it" in out


def test_json_holds_the_whole_story() -> None:
    done = memqos("why", "api-1", "api", "-n", "shop", "--records", RECORDS, "-o", "json")
    (container,) = done.data["containers"]
    assert [chapter["kind"] for chapter in container["chapters"]] == [
        "changed",
        "changed",
        "throttled",
        "guarded",
        "killed",
        "resized",
    ]


def test_yaml_says_the_same() -> None:
    import yaml

    code, out, _ = why("api-1", "-n", "shop", "-o", "yaml")
    assert code == 0
    assert yaml.safe_load(out) == json.loads(why("api-1", "-n", "shop", "-o", "json")[1])


def test_a_timeline_is_drawn() -> None:
    code, out, _ = why("api-1", "-n", "shop", "-o", "svg")
    assert code == 0
    words = [text.text for text in ET.fromstring(out).iter() if text.text]
    assert {"killed", "guarded", "resized"} <= set(words)


def test_a_pod_that_is_not_known_brings_one_to_mind() -> None:
    code, _, err = why("api-2", "-n", "shop")
    assert code == 1
    assert "no information about pod shop/api-2" in err
    assert "did you mean shop/api-1?" in err


def test_a_container_that_is_not_there_is_answered_with_those_that_are() -> None:
    code, _, err = why("api-1", "web", "-n", "shop")
    assert code == 1
    assert "it has api" in err


def test_without_records_it_is_said_who_keeps_them(tmp_path: Path) -> None:
    code, _, err = why("api-1", records=str(tmp_path / "none"))
    assert code == 1
    assert "memqos agent writes them" in err


def test_a_folder_without_records_is_no_sign_of_health(tmp_path: Path) -> None:
    code, out, err = memqos("why", "--records", str(tmp_path))
    assert (code, out) == (1, "")
    assert "there are no records here" in err


def test_a_file_of_records_that_may_not_be_read_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "a.records"
    file.touch()

    def refused(path: str, _flags: int) -> int:
        raise PermissionError(13, "Permission denied", path) if path == str(file) else OSError

    monkeypatch.setattr("memqos.host.durable.os.open", refused)
    code, out, err = memqos("why", "--records", str(tmp_path))
    assert (code, out) == (1, "")
    assert f"{file}: permission denied – run as root" in err


def test_records_that_may_not_be_read_are_no_riddle(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(_folder: str) -> None:
        raise PermissionError

    monkeypatch.setattr("memqos.cli.why_files.read_recordings", refused)
    code, _, err = why("api-1", records=str(tmp_path))
    assert code == 1
    assert "run as root" in err


def test_telling_a_story_takes_no_event_loop() -> None:
    script = (
        "import sys; from memqos.cli.main import cli; "
        f"cli.main(['why', 'api-1', '-n', 'shop', '--records', '{RECORDS}'], "
        "standalone_mode=False); "
        "sys.exit('asyncio' in sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", script],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
        capture_output=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr


def test_the_last_of_several_pods_of_one_name_is_reported(tmp_path: Path) -> None:
    from memqos.record.format import EvictionRecord, Subject

    recorder = RecordWriter(str(tmp_path))
    recorder.add(
        Subject(0, "default", "web", "uid-1", "app"), EvictionRecord(1000, "Evicted", "one")
    )
    recorder.add(
        Subject(0, "default", "web", "uid-2", "app"), EvictionRecord(2000, "Evicted", "another")
    )
    recorder.flush()
    _, out, err = why("web", records=str(tmp_path))
    assert "· another" in out
    assert "· one" not in out
    assert "2 pods had this name" in err


# Snapshots


def snapshot(folder: Path) -> str:
    """A recorded node, with the counters and the status of a container that had a bad time."""
    data = msgspec.json.decode((ROOT / "tests/nodes/cgroupfs.json").read_bytes())
    pod = next(
        each
        for each in data["pods"]["items"]
        if each["status"].get("containerStatuses") and each["status"].get("qosClass") == "Burstable"
    )
    status = pod["status"]["containerStatuses"][0]
    status["lastState"] = {
        "terminated": {
            "reason": "OOMKilled",
            "exitCode": 137,
            "finishedAt": "2026-03-02T10:00:00Z",
        }
    }
    container = status["containerID"].partition("://")[2]
    path = next(path for path in data["cgroups"] if path.endswith(container))
    data["cgroups"][path] |= {
        "memory.current": "104857600",
        "memory.stat": "anon 90000000\nfile 4096\nshmem 0",
        "memory.events": "low 0\nhigh 4242\nmax 0\noom 1\noom_kill 2\noom_group_kill 1",
        "memory.pressure": "full avg10=0.00 avg60=0.00 avg300=31.00 total=5",
    }
    data["taken_at"] = "2026-03-02T10:05:00Z"
    (folder / "node.json").write_bytes(msgspec.json.encode(data))
    (folder / "name").write_text(f"{pod['metadata']['namespace']} {pod['metadata']['name']}")
    return str(folder / "node.json")


def test_a_snapshot_tells_what_one_look_can_tell(tmp_path: Path) -> None:
    file = snapshot(tmp_path)
    namespace, name = (tmp_path / "name").read_text().split()
    done = memqos("why", f"pod/{name}", "-n", namespace, "--snapshot", file)
    assert done.code == 0
    assert "4,242 high events since its cgroup was created" in done.out
    at_ten = done.out.partition("10:00:00  ")[2].partition("\n\n")[0]
    assert at_ten.startswith(
        "OOM-killed by the kernel\n  · the kubelet saw it end: OOMKilled, exit code 137\n"
    )
    # The reading of the snapshot is from after that kill.
    assert "in use" not in at_ten
    assert "OOM-killed by the kernel: 1 process\n" in done.out
    assert "since its cgroup was created; one reading cannot show when" in done.out
    assert "just before" not in done.out
    assert "a snapshot is one reading" in done.out
    data = memqos("why", name, "-n", namespace, "--snapshot", file, "-o", "json").data
    assert data["containers"][0]["pod"] == name


def test_the_deaths_of_a_snapshot_are_those_that_its_pods_report(tmp_path: Path) -> None:
    file = snapshot(tmp_path)
    namespace, name = (tmp_path / "name").read_text().split()
    done = memqos("why", "--snapshot", file)
    assert done.out.splitlines()[1].startswith(f"2026-03-02 10:00:00  {namespace}/{name} c0")
    assert f"memqos why pod/{name} -n {namespace} --snapshot {file}" in done.out
    (death,) = memqos("why", "-n", namespace, "--snapshot", file, "-o", "json").data["deaths"]
    assert (death["namespace"], death["pod"], death["oomKilled"]) == (namespace, name, True)
    assert (
        "no container in namespace shop has died"
        in memqos("why", "-n", "shop", "--snapshot", file).out
    )


def test_a_death_that_is_recorded_and_reported_is_one(tmp_path: Path) -> None:
    file = snapshot(tmp_path)
    data = msgspec.json.decode(Path(file).read_bytes())
    names = (tmp_path / "name").read_text().split()
    for pod in data["pods"]["items"]:
        if [pod["metadata"]["namespace"], pod["metadata"]["name"]] == names:
            pod["metadata"] |= {"namespace": "shop", "name": "api-1"}
            (status,) = pod["status"]["containerStatuses"]
            status["name"] = pod["spec"]["containers"][0]["name"] = "api"
            status["lastState"]["terminated"]["finishedAt"] = "2026-03-02T10:12:53Z"
    Path(file).write_bytes(msgspec.json.encode(data))
    with_records(file, RECORDS)
    assert memqos("why", "-n", "shop", "--snapshot", file).out.count("OOM-killed") == 2


@pytest.mark.parametrize("version", ["v1.25.3", "v1.36.0"])
def test_the_rule_is_that_of_explain(tmp_path: Path, version: str) -> None:
    file = snapshot(tmp_path)
    namespace, name = (tmp_path / "name").read_text().split()
    data = msgspec.json.decode(Path(file).read_bytes())
    data["kubelet"] = version
    data["kubelet_configuration"] += "featureGates: {MemoryQoS: true}\n"
    Path(file).write_bytes(msgspec.json.encode(data))
    (container,) = memqos("why", name, "-n", namespace, "--snapshot", file, "-o", "json").data[
        "containers"
    ]
    (throttled,) = [each for each in container["chapters"] if each["kind"] == "throttled"]
    pods = memqos("explain", "--snapshot", file, "--why", "-o", "json").data["pods"]
    (pod,) = [each for each in pods if each["name"] == f"pod/{name}"]
    because = pod["containers"][0]["values"]["memory.high"]["because"]
    assert (throttled["rule"], throttled["because"]) == (because["rule"], because["says"])
    assert throttled["rule"].endswith("share-of-limit" if version == "v1.25.3" else "above-request")


def test_the_rule_of_a_pod_that_an_agent_manages_is_the_agents(tmp_path: Path) -> None:
    file = snapshot(tmp_path)
    namespace, name = (tmp_path / "name").read_text().split()
    data = msgspec.json.decode(Path(file).read_bytes())
    path = next(
        path
        for path, files in data["cgroups"].items()
        if "high 4242" in files.get("memory.events", "")
    )
    high = data["cgroups"][path]["memory.high"]
    planned = {"desired": high, "rule": HIGH_WIDENED.id, "because": HIGH_WIDENED.text}
    cgroup = {"path": path, "container": "c0", "files": {"memory.high": planned}}
    data["agent"] = {
        "version": "1",
        "mode": "enforce",
        "release": "1.36",
        "policy": "None",
        "pods": [{"pod": f"{namespace}/{name}", "mode": "enforce", "cgroups": [cgroup]}],
    }
    Path(file).write_bytes(msgspec.json.encode(data))
    done = memqos("why", name, "c0", "-n", namespace, "--snapshot", file)
    assert f"rule {HIGH_WIDENED.id}: " in done.out
    assert "the plan is" not in done.out


def test_a_snapshot_without_the_pod_or_for_a_timeline_is_refused(tmp_path: Path) -> None:
    file = snapshot(tmp_path)
    assert "no information about pod" in memqos("why", "nobody", "--snapshot", file).err
    namespace, name = (tmp_path / "name").read_text().split()
    asked = ("why", name, "-n", namespace, "--snapshot", file, "-o", "svg")
    assert "a timeline needs two" in memqos(*asked).err


def with_records(file: str, records: str) -> None:
    held = read_snapshot(Path(file).read_bytes(), file)
    Path(file).write_bytes(encode_snapshot(carrying(held, records)))


def test_a_snapshot_with_records_tells_the_story_of_a_pod_that_is_gone(tmp_path: Path) -> None:
    file = snapshot(tmp_path)
    with_records(file, RECORDS)
    from_snapshot = memqos("why", "pod/api-1", "-n", "shop", "--snapshot", file)
    assert from_snapshot.code == 0
    assert from_snapshot.out == memqos("why", "pod/api-1", "-n", "shop", "--records", RECORDS).out
    drawn = memqos("why", "api-1", "-n", "shop", "--snapshot", file, "-o", "svg")
    assert drawn.out.startswith("<svg")
    assert "did you mean shop/api-1?" in memqos("why", "api", "-n", "shop", "--snapshot", file).err


def test_records_of_a_pod_that_runs_end_with_the_look_of_the_snapshot(tmp_path: Path) -> None:
    file = snapshot(tmp_path)
    namespace, name = (tmp_path / "name").read_text().split()
    node = read_snapshot(Path(file).read_bytes(), file)
    (pod,) = [each for each in node.running if each.metadata.name == name]
    assert pod.status is not None
    container = (pod.status.container_statuses or ())[0].name
    recorder = RecordWriter(str(tmp_path / "records"))
    ten = 1_772_445_600_000
    kill = KillRecord(ten - 2000, comm="java", pid=7, constraint="memcg", usage=MI, limit=MI)
    recorder.add(subject_of(pod, container), LevelRecord(ten - 60_000, current=MI), kill)
    recorder.flush()
    with_records(file, str(tmp_path / "records"))
    asked = ("why", name, container, "-n", namespace, "--snapshot", file)
    (container,) = memqos(*asked, "-o", "json").data["containers"]
    # What the status calls OOMKilled is the kill that is recorded.
    assert [chapter["what"] for chapter in container["chapters"]] == [
        "OOM-killed by the kernel: java (pid 7), because the container's memory limit was reached"
    ]
    assert (container["until"], container["notes"]) == ("2026-03-02T10:05:00.000Z", [])
    assert memqos(*asked, "-o", "svg").out.startswith("<svg")


def test_records_in_a_snapshot_that_make_no_sense_are_skipped(tmp_path: Path) -> None:
    file = snapshot(tmp_path)
    namespace, name = (tmp_path / "name").read_text().split()
    data = msgspec.json.decode(Path(file).read_bytes())
    data["records"] = {"a.records": "no base64!", "b.records": "AAAA", "../c": "", "": "é"}
    Path(file).write_bytes(msgspec.json.encode(data))
    done = memqos("why", name, "-n", namespace, "--snapshot", file)
    assert done.code == 0
    assert "a snapshot is one reading" in done.out


class TestAPodToWhichNothingHappened:
    NODE = "tests/nodes/systemd.json"

    def test_has_no_time_in_1970(self) -> None:
        done = memqos("why", "p7-node1", "c0", "--snapshot", self.NODE)
        assert done.out.splitlines() == [
            "default/p7-node1 c0 · Burstable",
            "nothing was recorded",
            "nothing happened",
            "note: a snapshot is one reading: memqos agent records what happens over time",
        ]
        (container,) = memqos("why", "p7-node1", "c0", "--snapshot", self.NODE, "-o", "json").data[
            "containers"
        ]
        assert (container["since"], container["until"]) == (None, None)


def test_without_a_pod_the_deaths_in_the_records_are_listed() -> None:
    done = memqos("why", "--records", "examples/records")
    assert done.code == 0
    first, *rows = done.out.splitlines()
    assert first.split("  ")[0] == "when (UTC)"
    assert [row.split()[2] for row in rows[:3]] == ["shop/report-28", "shop/db-0", "shop/api-1"]
    assert rows[-1].startswith("memqos why pod/report-28 -n shop --records examples/records  shows")
    data = memqos("why", "--records", "examples/records", "-n", "shop", "-o", "json").data
    assert [each["oomKilled"] for each in data["deaths"]] == [False, True, True]
    assert [each["usage"] for each in data["deaths"]][1:] == [1 << 30, 512 << 20]
    other = memqos("why", "--records", "examples/records", "-n", "other")
    assert other.out == "no container in namespace other has died, as far as the records show\n"
