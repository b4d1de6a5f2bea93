"""`memqos plan`: a node held against what Kubernetes would have it be."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from tests.fakes.machine import put_tree

from memqos.cli.main import cli
from memqos.converge.node_plan import PlanOptions, plan_observation
from memqos.converge.observation import observe_snapshot
from memqos.errors import InputError
from memqos.host.owner_discovery import OwnerEndpoints
from memqos.kernel.machine import Machine
from memqos.manifests.snapshot import read_snapshot
from memqos.settings.facts import RawKubeletConfig, facts_of_machine
from memqos.settings.resolver import resolve

ROOT = Path(__file__).parents[2]
NODES = ROOT / "tests" / "nodes"
RECORDED = sorted(path.stem for path in NODES.glob("*.json"))


def memqos(*arguments: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-m", "memqos.cli.main", *arguments],
        capture_output=True,
        text=True,
        cwd=ROOT,
        check=False,
    )


def recorded(name: str) -> dict[str, Any]:
    node: dict[str, Any] = json.loads((NODES / f"{name}.json").read_text())
    return node


def changed(node: dict[str, Any]) -> list[tuple[str, str]]:
    observation = observe_snapshot(read_snapshot(json.dumps(node).encode(), "node"), "node")
    plan = plan_observation(observation, PlanOptions())
    return [(change.path, change.file) for change in plan.comparison.changes]


@pytest.mark.parametrize("name", RECORDED)
def test_a_node_kept_by_a_real_kubelet_is_converged(name: str) -> None:
    done = memqos("plan", "--snapshot", f"tests/nodes/{name}.json")
    assert done.returncode == 0
    assert done.stdout.endswith("converged: nothing to change\n")


def test_a_gate_that_is_asked_for_holds_though_the_kubelet_has_it_off(tmp_path: Path) -> None:
    """Whoever lets memqos do what a kubelet could do as well turns it off there."""
    kubelet = tmp_path / "kubelet.yaml"
    kubelet.write_text(
        "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n"
        "cgroupDriver: cgroupfs\nfeatureGates: {MemoryQoS: false}\n"
    )
    on = ["--gate", "MemoryQoS=true", "--release", "1.38", "--policy", "TieredReservation"]
    tree = ["--cgroup-root", "examples/tree/cgroup", "--pods", "examples/tree/pods.yaml"]
    planned = memqos("plan", *tree, "--kubelet", str(kubelet), *on)
    assert planned.stdout.endswith(" to set\n")
    explained = memqos(
        "explain", "examples/one.yaml", "--kubelet", str(kubelet), *on[:4], "-o", "json"
    )
    assert json.loads(explained.stdout)["terms"]["gates"]["MemoryQoS"] is True


def test_an_older_kubelets_configuration_is_read_by_its_own_rules() -> None:
    """The rules of a newer release may be wanted on a node whose kubelet it is not."""
    file = RawKubeletConfig(
        "config.yaml",
        b"apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n"
        b"cgroupDriver: systemd\nfeatureGates: {CSIMigration: true, NodeSwap: false}\n",
    )
    machine = Machine(meminfo="MemTotal: 4194304 kB\n", kubelet="v1.26.1")
    found = resolve(
        facts_of_machine(machine, file, None),
        PlanOptions(release="1.38", gates={"MemoryQoS": True}),
    )
    assert (str(found.settings.release), found.config.driver) == ("1.38", "systemd")
    assert dict(found.settings.release.gates)["MemoryQoS"] is True
    assert any("v1.26.1: 1.38 refuses it" in note for note in found.notes)
    unknown = Machine(meminfo="MemTotal: 4194304 kB\n")
    with pytest.raises(InputError, match="CSIMigration"):
        resolve(facts_of_machine(unknown, file, None), PlanOptions(release="1.38"))


@pytest.mark.parametrize("name", RECORDED)
def test_after_altering_any_value_exactly_that_one_shows_up(name: str) -> None:
    node = recorded(name)
    altered = 0
    for path, files in node["cgroups"].items():
        if not path.startswith("/kubepods"):
            continue
        for file in ("memory.min", "memory.low", "memory.high"):
            if file not in files:
                continue
            kept = files[file]
            files[file] = "1048576\n" if kept.strip() != "1048576" else "2097152\n"
            assert changed(node) == [(path, file)]
            files[file] = kept
            altered += 1
    assert altered > 60


@pytest.mark.parametrize(
    "file", ["memory.max", "memory.swap.max", "cpu.max", "memory.oom.group", "cpu.weight"]
)
def test_what_is_not_memqoss_is_shown_apart_and_changes_nothing(file: str) -> None:
    node = recorded("systemd")
    path = next(
        path
        for path, files in node["cgroups"].items()
        if path.endswith(".scope")
        and "kubepods-burstable" in path
        and files["memory.oom.group"].strip() == "1"
    )
    node["cgroups"][path][file] = "77 100000\n" if file == "cpu.max" else "77\n"
    observation = observe_snapshot(read_snapshot(json.dumps(node).encode(), "node"), "node")
    plan = plan_observation(observation, PlanOptions(release="1.38"))
    assert plan.comparison.changes == ()
    assert [(change.path, change.file) for change in plan.comparison.unmanaged] == [(path, file)]


def test_a_value_that_is_set_changed_or_taken_back_is_reported_as_such(tmp_path: Path) -> None:
    node = recorded("cgroupfs")
    burstable = node["cgroups"]["/kubepods/burstable"]
    planned = burstable["memory.low"].strip()
    file = tmp_path / "node.json"
    for content, kind in (("0", "+"), ("4096", "~")):
        burstable["memory.low"] = content
        file.write_text(json.dumps(node))
        done = memqos("plan", "--snapshot", str(file), "--release", "1.38", "-o", "json")
        assert done.returncode == 2
        (change,) = json.loads(done.stdout)["changes"]
        assert (change["kind"], change["old"], change["new"]) == (kind, content, planned)
        assert change["because"]["rule"] == "level/low-burstable"
    burstable["memory.low"] = planned
    burstable["memory.high"] = "4096"
    file.write_text(json.dumps(node))
    done = memqos("plan", "--snapshot", str(file), "--release", "1.38", "--why")
    assert "-  /kubepods/burstable  memory.high" in done.stdout
    assert "1 to reset" in done.stdout


def test_a_policy_is_planned_as_asked() -> None:
    done = memqos(
        "plan", "--snapshot", "tests/nodes/cgroupfs.json", "--policy", "None", "-o", "json"
    )
    assert done.returncode == 2
    changes = json.loads(done.stdout)["changes"]
    assert all(change["new"] == "0" for change in changes)
    assert {change["kind"] for change in changes} == {"-"}


def test_protection_is_lowered_from_the_leaves_and_raised_from_the_root() -> None:
    done = memqos(
        "plan", "--snapshot", "tests/nodes/cgroupfs.json", "--policy", "None", "-o", "json"
    )
    depths = [change["path"].count("/") for change in json.loads(done.stdout)["changes"]]
    assert depths == sorted(depths, reverse=True)
    node = recorded("cgroupfs")
    for path, files in node["cgroups"].items():
        if path.startswith("/kubepods"):
            files["memory.min"] = files["memory.low"] = "0"
    depths = [path.count("/") for path, _ in changed(node)]
    assert depths == sorted(depths)


def test_pod_cgroups_that_no_known_pod_has_are_shown_as_such(tmp_path: Path) -> None:
    node = recorded("systemd")
    forgotten = node["pods"]["items"].pop()
    uid = forgotten["metadata"]["uid"].replace("-", "_")
    (path,) = [path for path in node["cgroups"] if path.endswith(f"pod{uid}.slice")]
    file = tmp_path / "node.json"
    file.write_text(json.dumps(node))
    done = memqos("plan", "--snapshot", str(file), "--release", "1.38")
    (line,) = [line for line in done.stderr.splitlines() if line.startswith("unknown: ")]
    assert line.startswith(f"unknown: pod cgroups that belong to no known pod: 1 ({path}) – ")
    done = memqos("plan", "--snapshot", str(file), "--release", "1.38", "-o", "json")
    data = json.loads(done.stdout)
    assert data["unknown"] == [path]
    assert not any(change["path"].startswith(path) for change in data["changes"])


def test_a_node_whose_pods_are_all_known_has_no_unknown_cgroups() -> None:
    done = memqos("plan", "--snapshot", "tests/nodes/systemd.json", "-o", "json")
    assert json.loads(done.stdout)["unknown"] == []


def test_a_plan_without_pods_is_not_saved(tmp_path: Path) -> None:
    done = memqos("plan", "--out", str(tmp_path / "plan.json"))
    assert done.returncode == 64
    assert "--pods" in done.stderr


def test_a_file_that_is_no_snapshot_is_refused() -> None:
    done = memqos("plan", "--snapshot", "examples/one.yaml")
    assert done.returncode == 1
    assert "not a snapshot" in done.stderr


def test_a_plan_of_a_snapshot_is_not_saved() -> None:
    done = memqos("plan", "--snapshot", "tests/nodes/numa.json", "--out", "x")
    assert done.returncode == 64


class TestAContainerOfCrun:
    """The recorded node, had crun run one of its containers: all values are one level down."""

    VALUES = ("memory.min", "memory.low", "memory.high", "memory.max", "memory.oom.group")

    @pytest.fixture
    def node(self) -> dict[str, Any]:
        return recorded("systemd")

    @pytest.fixture
    def scope(self, node: dict[str, Any]) -> str:
        scope = next(
            path
            for path, files in node["cgroups"].items()
            if path.endswith(".scope") and files["memory.low"].strip() != "0"
        )
        files = node["cgroups"][scope]
        node["cgroups"][f"{scope}/container"] = {file: files[file] for file in self.VALUES}
        defaults = ("0", "0", "max", "max", "0")
        files |= {file: f"{value}\n" for file, value in zip(self.VALUES, defaults, strict=True)}
        return str(scope)

    def test_is_protected_only_once_its_scope_is_too(
        self, node: dict[str, Any], scope: str
    ) -> None:
        assert {file for path, file in changed(node) if path == scope} >= {"memory.low"}
        assert {path for path, _ in changed(node)} == {scope}

    def test_has_no_fault_in_what_crun_does_not_write_to_the_scope(
        self, node: dict[str, Any], scope: str
    ) -> None:
        observation = observe_snapshot(read_snapshot(json.dumps(node).encode(), "node"), "node")
        assert plan_observation(observation, PlanOptions(release="1.38")).comparison.unmanaged == ()

    def test_has_its_values_planned_where_its_processes_are(
        self, node: dict[str, Any], scope: str
    ) -> None:
        node["cgroups"][f"{scope}/container"]["memory.low"] = "0\n"
        node["cgroups"][f"{scope}/container"]["memory.max"] = "4096\n"
        assert (f"{scope}/container", "memory.low") in changed(node)
        observation = observe_snapshot(read_snapshot(json.dumps(node).encode(), "node"), "node")
        (unmanaged,) = plan_observation(
            observation, PlanOptions(release="1.38")
        ).comparison.unmanaged
        assert (unmanaged.path, unmanaged.file) == (f"{scope}/container", "memory.max")


def test_a_plan_of_a_snapshot_does_not_ask_for_owners() -> None:
    code = (
        "import sys; sys.argv = ['memqos', 'plan', '--snapshot', 'tests/nodes/systemd.json']\n"
        "from memqos.cli.main import main\n"
        "try: main()\n"
        "except SystemExit: pass\n"
        "print(*sys.modules, file=sys.stderr)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, check=True
    )
    loaded = set(done.stderr.split())
    assert not loaded & {"asyncio", "socket", "h2", "jeepney", "memqos.converge.router"}


def test_a_plan_of_a_machine_says_who_would_write_each_change(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    node = recorded("systemd")
    put_tree(
        tmp_path / "cgroup",
        {
            path: {**files, "memory.low": "0"}
            for path, files in node["cgroups"].items()
            if path.startswith("/kubepods")
        },
    )
    pods, kubelet = tmp_path / "pods.json", tmp_path / "kubelet.yaml"
    pods.write_text(json.dumps(node["pods"]))
    kubelet.write_text(node["kubelet_configuration"])
    owners = OwnerEndpoints(systemd="/run/systemd", bus="/bus", sockets={"containerd": "/cri"})
    monkeypatch.setattr(
        "memqos.host.owner_discovery.discover_owners", lambda *_args, **_options: owners
    )
    arguments = ["plan", "--release", "1.38", "--cgroup-root", str(tmp_path / "cgroup")]
    arguments += ["--pods", str(pods), "--kubelet", str(kubelet)]

    def message(*more: str) -> str:
        return CliRunner().invoke(cli, [*arguments, *more], catch_exceptions=False).stdout

    routes = {
        change["path"]: (change["through"], change["through_because"])
        for change in json.loads(message("-o", "json"))["changes"]
        if change["file"] == "memory.low"
    }
    hands = {path.rpartition(".")[2]: hand for path, (hand, _) in routes.items()}
    assert hands == {"slice": "systemd", "scope": "runtime"}
    assert all(because for _, because in routes.values())
    assert "\nthrough the runtime: " in message()


def test_numa_assignments_are_planned_when_asked_for(tmp_path: Path) -> None:
    node = recorded("numa")
    state = tmp_path / "memory_manager_state"
    state.write_text(node["memory_manager_state"])
    node["memory_manager_state"] = ""
    for files in node["cgroups"].values():
        if "cpuset.mems" in files:
            files["cpuset.mems"] = "\n"
    file = tmp_path / "node.json"
    file.write_text(json.dumps(node))
    done = memqos("plan", "--snapshot", str(file), "--state", str(state), "--why")
    assert done.returncode == 2
    assert "+  default/p1-node1 c0  cpuset.mems  (empty)  →        0" in done.stdout
    assert "  memory 17Mi of node 0\n  rule numa/kubelet (memory_manager_state" in done.stdout
    assert done.stdout.endswith("6 to set\n")
    assert memqos("plan", "--snapshot", str(file)).returncode == 0


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (
            ["--numa", "allocate", "--state", "x"],
            64,
            "--state cannot be combined with --numa allocate",
        ),
        (["--numa", "nearby"], 64, "Usage: memqos"),
        (["--state", "examples/none"], 1, "no such file"),
        (["--state", "examples/numa/machine.yaml"], 1, "not a state file"),
        (["--numa", "allocate"], 1, "assigns NUMA memory itself"),
    ],
)
def test_numa_assignments_that_cannot_be_had_are_refused(
    arguments: list[str], code: int, says: str
) -> None:
    done = memqos("plan", "--snapshot", "tests/nodes/numa.json", *arguments)
    assert done.returncode == code
    assert says in done.stderr
    assert done.stdout == ""


def test_pods_whose_pod_level_resources_are_ignored_are_named(tmp_path: Path) -> None:
    node = recorded("cgroupfs")
    # Its kubelet aligns no memory, so there is nothing to say.
    assert "alignment" not in memqos("plan", "--snapshot", "tests/nodes/cgroupfs.json").stderr
    node["kubelet_configuration"] += "memoryManagerPolicy: Static\n"
    file = tmp_path / "node.json"
    file.write_text(json.dumps(node))
    says = "its pod-level resources are ignored for memory alignment"
    done = memqos("plan", "--snapshot", str(file))
    assert f"note: default/p5-node1: {says}" in done.stderr
    assert json.loads(memqos("plan", "--snapshot", str(file), "-o", "json").stdout)[
        "unaligned"
    ] == ["default/p5-node1"]
    judged = memqos("doctor", "--snapshot", str(file))
    assert judged.returncode == 2
    assert "warning  numa/pod-level  default/p5-node1" in judged.stdout


def test_a_difference_of_one_page_is_shown_in_bytes(tmp_path: Path) -> None:
    node = recorded("systemd")
    path, files = next(
        (path, files)
        for path, files in node["cgroups"].items()
        if files.get("memory.high", "max").strip() != "max"
    )
    planned = int(files["memory.high"])
    files["memory.high"] = str(planned - 4096)
    file = tmp_path / "node.json"
    file.write_text(json.dumps(node))
    row = next(
        line
        for line in memqos("plan", "--snapshot", str(file)).stdout.splitlines()
        if line.startswith("~")
    )
    assert row.split()[-4:] == ["memory.high", str(planned - 4096), "→", str(planned)], path


def test_a_reserved_cgroup_keeps_no_protection_once_the_gate_is_off(tmp_path: Path) -> None:
    """What is honoured after the change, not what is in place."""
    node = recorded("systemd")
    text = node["kubelet_configuration"].replace("[pods]", "[pods, kube-reserved]")
    node["kubelet_configuration"] = f"{text}kubeReservedCgroup: /podruntime\n"
    for files in node["cgroups"].values():
        files["memory.current"] = str(8 << 20)
    node["cgroups"]["/podruntime.slice"] = {
        "memory.min": str(100 << 20),
        "memory.low": "0",
        "memory.high": "max",
        "memory.current": str(32 << 20),
    }
    file = tmp_path / "node.json"
    file.write_text(json.dumps(node))
    done = memqos("plan", "--snapshot", str(file), "--gate", "MemoryQoS=false", "-o", "json")
    (change,) = [
        each for each in json.loads(done.stdout)["changes"] if each["path"] == "/podruntime.slice"
    ]
    assert (change["old"], change["new"], change["honoured"]) == (str(100 << 20), "0", 0)
