"""`memqos status`: one screen about a node, its exit code, and data for scripts."""

from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.commands import memqos
from tests.fakes.busy_node import BusyNode, agent_answering, state_of

from memqos.converge import live_node
from memqos.converge.node_sources import SnapshotNode
from memqos.errors import Unreachable
from memqos.monitor.instant import NodeInstant

FAST = ("--seconds", "0.1")
SNAPSHOT = "tests/nodes/k138-none.json"


def test_without_an_agent_it_says_so(tmp_path: Path) -> None:
    node = BusyNode(tmp_path, 2)
    done = memqos("status", *FAST, *node.options)
    assert done.code == 0
    assert "agent        none answers on this node" in done.out
    assert "throttled    none" in done.out
    assert "problems     none" in done.out


def test_with_an_agent_that_has_converged(tmp_path: Path) -> None:
    node = BusyNode(tmp_path, 2)
    state = state_of(podSource="the kubelet's PodsAPI at /run/pods-api.sock")
    with agent_answering(node.socket, state):
        done = memqos("status", *FAST, "--agent", node.socket, *node.options)
    assert done.code == 0
    assert "agent        keeps the planned values in place" in done.out
    assert "pod source   the kubelet's PodsAPI at /run/pods-api.sock\n" in done.out
    assert "converged    yes, since " in done.out
    assert "(1 min 30 s)" in done.out


def test_what_is_wrong_is_named_and_is_the_exit_code(tmp_path: Path) -> None:
    node = BusyNode(tmp_path, 2)
    state = state_of(converged=False, failing="the disk is full")
    with agent_answering(node.socket, state):
        done = memqos("status", *FAST, "--agent", node.socket, *node.options)
    assert done.code == 2
    assert "problems     the agent's last pass failed: the disk is full" in done.out
    assert "converged    no" in done.out


def test_an_agent_that_does_not_make_sense_is_a_problem(tmp_path: Path) -> None:
    node = BusyNode(tmp_path, 2)
    with agent_answering(node.socket, {"mode": 7}):
        done = memqos("status", *FAST, "--agent", node.socket, *node.options)
    assert done.code == 2
    assert "problems the agent's state cannot be read: " in " ".join(done.out.split())
    assert "note: the agent" not in done.out


def test_a_node_without_a_plan_is_a_problem_unless_an_agent_answers(tmp_path: Path) -> None:
    node = BusyNode(tmp_path, 2)
    kubelet = tmp_path / "kubelet.yaml"
    kubelet.write_text("memoryThrottlingFactor: much\n")
    options = (*FAST, *node.options, "--kubelet", str(kubelet))
    done = memqos("status", *options)
    assert done.code == 2
    assert "problems no plan: " in " ".join(done.out.split())
    with agent_answering(node.socket, state_of()):
        done = memqos("status", *options, "--agent", node.socket)
    assert done.code == 0
    assert "note: no plan: " in " ".join(done.out.split())


def test_pods_of_a_snapshot_count_without_readings_of_their_memory() -> None:
    done = memqos("status", *FAST, "--snapshot", "tests/nodes/numa.json")
    assert "pods         8 pods\n" in done.out
    assert "no memory usage of containers" in done.out


def test_one_reading_does_not_show_who_is_throttled() -> None:
    for file in ("tests/nodes/k134-on.json", "tests/nodes/numa.json"):
        done = memqos("status", *FAST, "--snapshot", file)
        assert "throttled    unknown: one reading cannot show it" in done.out
        data = memqos("status", *FAST, "--snapshot", file, "-o", "json").data
        assert (data["throttled"], data["throttlingKnown"]) == ([], False)


def test_a_runtime_with_another_plugin_of_the_same_values_is_wrong(tmp_path: Path) -> None:
    node = BusyNode(tmp_path, 2)
    nri = {"mode": "on", "runtime": "containerd 2.1.9", "problem": None, "contested": True}
    with agent_answering(node.socket, state_of(nri=nri)):
        done = memqos("status", *FAST, "--agent", node.socket, *node.options)
    assert done.code == 2
    assert "problems     another NRI plugin sets the same values" in done.out


def test_what_was_done_in_the_last_hour_is_in_the_records() -> None:
    place = ("--play", "examples/records", "--from", "2026-03-02T10:30:00Z")
    done = memqos("status", *FAST, *place)
    assert done.code == 0
    assert "last hour    10:25:00 shop/api-1 api: resized in place" in done.out


def test_of_records_it_tells_the_end_unless_a_time_is_given() -> None:
    """At the first record nothing has happened yet."""
    play = ("status", "--play", "examples/records")
    assert "10:35:06 shop/report-28 c0: evicted by the kubelet" in memqos(*play).out
    start = memqos(*play, "--from", "2026-03-02T10:00:00Z")
    assert "last hour    nothing is recorded" in start.out


def test_watched_yaml_is_a_document_a_screen(monkeypatch: pytest.MonkeyPatch) -> None:
    pauses = iter([None, None])

    def pause(_: float) -> None:
        if next(pauses, "end") is not None:
            raise KeyboardInterrupt

    monkeypatch.setattr("memqos.cli.status.time.sleep", pause)
    done = memqos("status", "--watch", "-o", "yaml", "--snapshot", SNAPSHOT)
    assert done.code == 130
    documents = list(yaml.safe_load_all(done.out))
    assert [each["origin"] for each in documents] == [SNAPSHOT, SNAPSHOT]


def test_watching_goes_on_when_a_reading_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    pauses = iter([None, None, None])

    def pause(_: float) -> None:
        if next(pauses, "end") is not None:
            raise KeyboardInterrupt

    readings = iter([None, None, Unreachable("the API server is away"), None])
    read = SnapshotNode.read

    def read_or_fail(source: SnapshotNode, *arguments: Any) -> NodeInstant:
        fault = next(readings)
        if fault is not None:
            raise fault
        return read(source, *arguments)

    monkeypatch.setattr("memqos.cli.status.time.sleep", pause)
    monkeypatch.setattr(SnapshotNode, "read", read_or_fail)
    done = memqos("status", "--watch", "-o", "yaml", "--snapshot", SNAPSHOT)
    assert done.code == 130
    assert "the API server is away" in done.err
    assert len(list(yaml.safe_load_all(done.out))) == 2


def test_data_for_scripts(tmp_path: Path) -> None:
    node = BusyNode(tmp_path, 2)
    with agent_answering(node.socket, state_of()):
        options = ("--agent", node.socket, *node.options)
        data = memqos("status", *FAST, "-o", "json", *options).data
    assert data["mode"] == "enforce"
    assert data["converged"] is True
    assert data["containers"] == 4
    assert data["problems"] == []


def test_a_snapshot_is_judged_by_the_configuration_that_is_given(tmp_path: Path) -> None:
    kubelet = tmp_path / "kubelet.yaml"
    kubelet.write_text(
        "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n"
        "featureGates: {MemoryQoS: false}\n"
    )
    done = memqos("status", *FAST, "--snapshot", SNAPSHOT, "--kubelet", str(kubelet))
    assert f"MemoryQoS off: kubelet configuration {kubelet} " in " ".join(done.out.split())


@pytest.mark.parametrize("command", ["status", "plan", "doctor"])
def test_a_snapshot_has_its_own_pods(command: str) -> None:
    done = memqos(command, "--snapshot", SNAPSHOT, "--pods", "examples/one.yaml")
    assert done.code == 64
    assert f"{SNAPSHOT} has its own pods: remove --pods, --context and --node-name" in done.err


def test_what_the_kubelet_runs_with_is_read_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    node = BusyNode(tmp_path, 2)

    def turn_off(_seconds: float) -> None:
        node.kubelet_file.write_text(
            "kind: KubeletConfiguration\ncgroupDriver: cgroupfs\nfeatureGates: {MemoryQoS: false}\n"
        )

    monkeypatch.setattr("memqos.cli.status.time.sleep", turn_off)
    monkeypatch.setattr(live_node, "RESYNC", 0)
    assert "MemoryQoS    on" in memqos("status", *FAST, *node.options).out
    (tmp_path / "other").mkdir()
    node = BusyNode(tmp_path / "other", 2)
    monkeypatch.setattr(live_node, "SETTINGS", 0)
    assert "MemoryQoS    off" in memqos("status", *FAST, *node.options).out
