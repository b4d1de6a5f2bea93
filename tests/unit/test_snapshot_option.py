"""Every command that looks at a node looks at a snapshot of one just as well."""

import json
from pathlib import Path
from typing import Any

import pytest
from tests.commands import memqos

from memqos.cli.main import WRONG_USAGE

NODES = Path(__file__).parents[1] / "nodes"
POD = "examples/one.yaml"
READING = {
    "explain": ("explain",),
    "explain of a pod": ("explain", POD),
    "plan": ("plan",),
    "doctor": ("doctor",),
    "fit": ("fit", POD),
    "rank eviction": ("rank", "eviction"),
    "rank oom": ("rank", "oom"),
    "resize": ("resize", POD, POD),
    "numa show": ("numa", "show"),
    "numa admit": ("numa", "admit", POD),
    "numa reserve": ("numa", "reserve"),
    "numa check": ("numa", "check"),
    "numa checkpoint verify": ("numa", "checkpoint", "verify"),
}
commands = pytest.mark.parametrize("command", READING.values(), ids=READING)


def recorded(name: str = "numa") -> dict[str, Any]:
    node: dict[str, Any] = json.loads((NODES / f"{name}.json").read_text())
    return node


def saved(folder: Path, node: dict[str, Any]) -> str:
    file = folder / "node.json"
    file.write_text(json.dumps(node))
    return str(file)


@commands
@pytest.mark.parametrize("name", ["cgroupfs", "systemd", "numa"])
def test_a_recorded_node_is_answered_in_data(command: tuple[str, ...], name: str) -> None:
    done = memqos(*command, "--snapshot", str(NODES / f"{name}.json"), "-o", "json")
    assert done.code in (0, 2)
    assert json.loads(done.out)


@commands
def test_a_form_that_is_yet_to_come_is_refused(command: tuple[str, ...], tmp_path: Path) -> None:
    file = saved(tmp_path, {**recorded(), "version": 2})
    done = memqos(*command, "--snapshot", file)
    assert done.code == 1
    assert "has format 2, and this memqos supports up to 1" in done.err


@commands
def test_a_node_of_which_little_is_known_is_no_crash(
    command: tuple[str, ...], tmp_path: Path
) -> None:
    node = {**recorded(), "kubelet_configuration": "", "memory_manager_state": None, "kubelet": ""}
    file = saved(tmp_path, node)
    done = memqos(*command, "--snapshot", file)
    assert done.code != 1 or f"{file}: " in done.err


@pytest.mark.parametrize("command", [("plan",), ("doctor",), ("status",), ("top", "--once")])
@pytest.mark.parametrize("usage", ["", "x\n", "max\n"])
def test_a_usage_that_is_no_number_is_as_if_unknown(
    command: tuple[str, ...], usage: str, tmp_path: Path
) -> None:
    """A reading can be cut short, and a snapshot be edited by hand."""
    node = recorded("k138-none")
    node["cgroups"]["/kubepods.slice"]["memory.current"] = usage
    done = memqos(*command, "--snapshot", saved(tmp_path, node))
    assert done.code in (0, 2), done.err


@pytest.mark.parametrize("command", sorted(READING.keys() - {"fit"}))
def test_a_folder_is_refused(command: str, tmp_path: Path) -> None:
    for name in ("a.json", "b.json"):
        (tmp_path / name).write_text("{}")
    done = memqos(*READING[command], "--snapshot", str(tmp_path))
    assert done.code == 1
    assert done.err == f"memqos: {tmp_path}: this is a folder, but one file is expected\n"


class TestExplain:
    def test_goes_by_the_nodes_own_terms(self) -> None:
        done = memqos("explain", POD, "--snapshot", str(NODES / "cgroupfs.json"), "-o", "json")
        terms = json.loads(done.out)["terms"]
        assert terms["policy"] == "TieredReservation"
        assert terms["release"] == "1.38"
        assert terms["memory_capacity"] == 2994788 << 10

    def test_goes_by_what_is_said_beside_it_first(self, tmp_path: Path) -> None:
        kubelet = tmp_path / "kubelet.yaml"
        kubelet.write_text("kind: KubeletConfiguration\nmemoryThrottlingFactor: 0.5\n")
        done = memqos(
            *("explain", POD, "--snapshot", str(NODES / "cgroupfs.json"), "-o", "json"),
            *("--kubelet", str(kubelet), "--release", "1.36", "--capacity", "8Gi"),
        )
        terms = json.loads(done.out)["terms"]
        assert (terms["factor"], terms["release"]) == (0.5, "1.36")
        assert terms["memory_capacity"] == 8 << 30

    def test_shows_the_nodes_pods_where_no_others_are_named(self) -> None:
        done = memqos("explain", "--snapshot", str(NODES / "cgroupfs.json"), "-o", "json")
        assert len(json.loads(done.out)["pods"]) == len(recorded("cgroupfs")["pods"]["items"])

    def test_asks_what_is_to_be_explained(self) -> None:
        done = memqos("explain")
        assert done.code == WRONG_USAGE
        assert "no pods given" in done.err

    def test_takes_a_node_or_a_snapshot_not_both(self) -> None:
        done = memqos("explain", POD, "--node", "x", "--snapshot", str(NODES / "numa.json"))
        assert done.code == WRONG_USAGE

    def test_rounds_to_the_nodes_pages(self, tmp_path: Path) -> None:
        file = saved(tmp_path, {**recorded("cgroupfs"), "page_size": 65536})
        done = memqos("explain", POD, "--snapshot", file, "-o", "json")
        assert json.loads(done.out)["terms"]["page_size"] == 65536


class TestFit:
    def test_takes_nodes_or_a_snapshot_not_both(self) -> None:
        snapshot = ("--snapshot", str(NODES / "numa.json"))
        for options in ((), ("--nodes", "examples/cluster/nodes.yaml", *snapshot)):
            assert memqos("fit", POD, *options).code == WRONG_USAGE


class TestCheckpointVerify:
    def test_judges_the_state_on_its_own_machine(self) -> None:
        file = str(NODES / "numa.json")
        done = memqos("numa", "checkpoint", "verify", "--snapshot", file, "-o", "json")
        data = json.loads(done.out)
        assert (data["verdict"], data["against"]) == ("usable", file)

    def test_finds_a_machine_that_has_changed_since(self, tmp_path: Path) -> None:
        node = recorded()
        numa = node["numa"]["node0"]
        numa["meminfo"] = numa["meminfo"].replace("MemTotal:        1", "MemTotal:        2")
        file = saved(tmp_path, node)
        done = memqos("numa", "checkpoint", "verify", "--snapshot", file, "-o", "json")
        assert (done.code, json.loads(done.out)["verdict"]) == (2, "drifted")

    def test_is_reported_one_state_at_a_time(self) -> None:
        snapshot = ("--snapshot", str(NODES / "numa.json"))
        assert memqos("numa", "checkpoint", "verify", POD, *snapshot).code == WRONG_USAGE
