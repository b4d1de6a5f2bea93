"""`memqos numa show` and `memqos numa admit` as a person or a script meets them."""

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import msgspec
import pytest
import yaml

from memqos.cli.numa.kubelet import manager_settings, resolve_kubelet
from memqos.cli.numa.node_source import read_node_facts
from memqos.draw.svg.numa_map import memory_holders, node_bars
from memqos.kernel.file_formats import node_list
from memqos.manifests.snapshot import Snapshot
from memqos.numa.admission import AdmittedPod
from memqos.numa.checkpoint import LoadedCheckpoint, encode_checkpoint, read_checkpoint
from memqos.numa.machine_state import (
    MemoryBlock,
    MemoryManagerState,
    NumaMemory,
    assign_block,
    empty_node_map,
)
from memqos.numa.machines import NumaMachine
from memqos.numa.manager import Manager, ManagerSettings, start_manager
from memqos.numa.running_pods import pods_in_state

ROOT = Path(__file__).parents[2]
MACHINE = "examples/numa/machine.yaml"
KUBELET = "examples/numa/kubelet.yaml"
STATE = "examples/numa/memory_manager_state"
NODE = "tests/nodes/numa.json"


def memqos(*arguments: str, stdin: str = "") -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-m", "memqos.cli.main", "numa", *arguments],
        input=stdin,
        capture_output=True,
        cwd=ROOT,
        text=True,
        check=False,
    )


def guaranteed(name: str = "p", **sizes: str) -> str:
    limits = {"cpu": "1"} | {each.replace("_", "-"): size for each, size in sizes.items()}
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name},
        "spec": {"containers": [{"name": "c", "image": "i", "resources": {"limits": limits}}]},
    }
    return yaml.safe_dump(pod)


def admit(pods: str, *arguments: str) -> "subprocess.CompletedProcess[str]":
    return memqos("admit", "-", *arguments, stdin=pods)


def verdicts(pods: str, *arguments: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(admit(pods, *arguments, "-o", "json").stdout)["pods"]
    return found


def words(verdict: dict[str, Any]) -> list[str]:
    return [change["words"] for change in verdict["advice"]["changes"]]


ON_STATE = ("--state", STATE, "--machine", MACHINE, "--kubelet", KUBELET)


# show


def test_this_machine_is_shown_without_being_asked_for() -> None:
    done = memqos("show")
    assert done.returncode == 0, done.stderr
    assert "of this machine" in done.stdout
    assert done.stdout.splitlines()[1].split()[:2] == ["node", "memory"]


def test_nodes_and_holders_are_shown() -> None:
    done = memqos("show", "--state", STATE, "--machine", MACHINE)
    rows = [tuple(line.split()) for line in done.stdout.splitlines()]
    assert ("1", "64Gi", "4Gi", "0", "12", "10", "22", "24") in rows
    assert ("1", "memory", "64Gi", "1Gi", "59Gi", "30.25Gi", "28.75Gi", "–") in rows
    assert ("6b1f0a52-0c3e-4f1d-9a77-1d2f3a4b5c01", "postgres", "memory", "0", "40Gi") in rows


def test_a_snapshot_names_the_pods() -> None:
    done = memqos("show", "--snapshot", NODE)
    assert "default/p5-node1" in done.stdout
    assert "note:" not in done.stdout


@pytest.mark.parametrize("form", ["json", "yaml"])
def test_what_show_prints_is_a_machine_file(form: str, tmp_path: Path) -> None:
    printed = memqos("show", "--machine", MACHINE, "-o", form).stdout
    (tmp_path / "machine").write_text(printed)
    again = memqos("show", "--machine", str(tmp_path / "machine"), "-o", form).stdout
    one, other = yaml.safe_load(printed), yaml.safe_load(again)
    assert one["numa"] == other["numa"]
    assert one["numa"][0]["hugepages"]["2Mi"] == 2048
    assert one["numa"][0]["distances"] == [10, 12, 20, 22]


def test_holders_are_also_data() -> None:
    data = json.loads(memqos("show", "--state", STATE, "-o", "json").stdout)
    held = {(each["container"], each["resource"]): each for each in data["state"]["holders"]}
    assert held["redis", "memory"]["size"] == 30 << 30
    assert held["redis", "memory"]["nodes"] == [1]


def test_a_machine_that_is_not_what_the_state_says_is_reported(tmp_path: Path) -> None:
    smaller = (ROOT / MACHINE).read_text().replace("id: 3, memory: 64Gi", "id: 3, memory: 60Gi")
    (tmp_path / "machine.yaml").write_text(smaller)
    done = memqos("show", "--state", STATE, "--machine", str(tmp_path / "machine.yaml"))
    assert f"note: node 3 has {60 << 30} bytes of memory, the state says {64 << 30}" in done.stdout


def test_the_map_is_a_picture_with_words() -> None:
    done = memqos("show", "--state", STATE, "--machine", MACHINE, "-o", "svg")
    picture = ElementTree.fromstring(done.stdout)
    texts = ["".join(each.itertext()) for each in picture.iter("{http://www.w3.org/2000/svg}text")]
    assert "node 3" in texts
    assert "40Gi of memory" in texts
    assert "1Gi for the system · 32Gi assigned · 31Gi free" in texts
    assert "Distances" in texts
    spoken = picture.find("{http://www.w3.org/2000/svg}desc")
    assert spoken is not None
    assert "kafka is assigned 32Gi of memory on node 3" in (spoken.text or "")


def test_the_map_explains_what_it_shows_and_nothing_else() -> None:
    svg = memqos("show", "--snapshot", NODE, "-o", "svg").stdout
    assert ">reserved for the system</text>" in svg
    assert "hugepages</text>" not in svg
    untold = memqos("show", "--machine", MACHINE, "-o", "svg").stdout
    assert ">4Gi hugepages-2Mi</text>" in untold
    assert "free" not in untold


def test_memory_of_a_group_is_drawn_on_all_its_nodes() -> None:
    machine = NumaMachine(tuple(NumaMemory(i, 10) for i in range(2)))
    block = MemoryBlock("memory", (0, 1), 14)
    nodes = assign_block(empty_node_map(machine.nodes, {}), block)
    state = MemoryManagerState("Static", nodes, {"uid": {"c": (block,)}})
    bars = node_bars(machine, state, memory_holders(state, {}))
    assert [[(each.kind, each.size) for each in bar.segments] for bar in bars] == [
        [("held", 10)],
        [("held", 4), ("free", 6)],
    ]
    assert bars[0].used_with == (1,)


# admit


def test_the_example_state_is_what_admitting_the_running_pods_gives() -> None:
    admitted = verdicts(
        (ROOT / "examples/numa/running.yaml").read_text(),
        "--machine",
        MACHINE,
        "--kubelet",
        KUBELET,
    )
    state = read_checkpoint((ROOT / STATE).read_text())
    assert isinstance(state, LoadedCheckpoint)
    held = {
        name: blocks
        for of_pod in state.state.assignments.values()
        for name, blocks in of_pod.items()
    }
    for pod in admitted:
        for name, container in pod["containers"].items():
            assert {(b["resource"], b["size"], *b["nodes"]) for b in container["memory"]} == {
                (block.type, block.size, *block.nodes) for block in held.pop(name)
            }
    assert held == {}


def test_a_pod_that_fits_is_told_its_nodes() -> None:
    (pod,) = verdicts(guaranteed(memory="8Gi"), *ON_STATE)
    assert pod["admitted"]
    assert pod["containers"]["c"]["cpusetMems"] == "0"


def test_pods_are_admitted_one_after_the_other() -> None:
    pods = "---\n".join(guaranteed(f"p{i}", memory="30Gi") for i in range(3))
    assert [pod["admitted"] for pod in verdicts(pods, *ON_STATE)] == [True, False, False]


def test_a_refusal_says_what_is_wanted_where_the_room_is_and_what_would_fit() -> None:
    done = admit(guaranteed(memory="60Gi"), *ON_STATE)
    assert done.returncode == 2
    for line in (
        "pod/p  Guaranteed  refused: UnexpectedAdmissionError",
        "container c requests memory 60Gi",
        "no nodes have enough memory",
        "free memory: at most 31Gi on node 3",
        "memorymanager: finds no nodes, so any node is allowed",
        "- memory 31Gi instead of 60Gi for container c (29Gi less)",
        "- without pod 6b1f0a52-0c3e-4f1d-9a77-1d2f3a4b5c04, which is assigned 32Gi of memory on "
        "node 3",
    ):
        assert line in done.stdout


def test_a_merge_that_fails_shows_its_hints_and_a_laxer_policy() -> None:
    flags = ("--machine", MACHINE, "--topology-policy", "single-numa-node", "--scope", "pod")
    done = admit(guaranteed(memory="100Gi"), *flags)
    assert done.returncode == 2
    assert "refused: TopologyAffinityError" in done.stdout
    assert "it needs 2 nodes, such as nodes 0-1; the policy allows one" in done.stdout
    assert "{0-1}* {0,2}* {0,3}*" in done.stdout
    assert "merged: any node, not preferred" in done.stdout
    assert "- topologyManagerPolicy restricted instead of single-numa-node" in done.stdout
    assert "even if this machine were empty" in done.stdout


def test_many_hints_are_described_instead_of_listed(tmp_path: Path) -> None:
    nodes = [{"id": i, "memory": "16Gi"} for i in range(34)]
    (tmp_path / "machine.yaml").write_text(yaml.safe_dump({"numa": nodes}))
    done = admit(
        guaranteed(memory="30Gi"),
        "--machine",
        str(tmp_path / "machine.yaml"),
        "--topology-policy",
        "single-numa-node",
        "--option",
        "max-allowable-numa-nodes=64",
    )
    assert "any of the idle 0-33 that are large enough together" in done.stdout
    assert "preferred are sets of 2 nodes" in done.stdout
    assert max(map(len, done.stdout.splitlines())) < 200


@pytest.mark.parametrize(
    ("sizes", "flags"),
    [
        ({"memory": "60Gi"}, ON_STATE),
        ({"memory": "100Gi"}, ("--machine", MACHINE, "--topology-policy", "single-numa-node")),
        ({"memory": "20Gi", "hugepages_2Mi": "9Gi"}, ON_STATE),
        ({"memory": "63Gi", "hugepages_2Mi": "6Gi"}, ON_STATE),
    ],
)
def test_the_smaller_size_fits_and_a_little_more_does_not(
    sizes: dict[str, str], flags: tuple[str, ...]
) -> None:
    (refused,) = verdicts(guaranteed(**sizes), *flags)
    change = next(each for each in refused["advice"]["changes"] if each["kind"] == "smaller")
    fitting = {each["resource"]: each["after"] for each in change["sizes"]}
    asked = {name.replace("_", "-"): size for name, size in sizes.items()}

    def admitted(amounts: dict[str, Any]) -> bool:
        texts = {name.replace("-", "_"): str(size) for name, size in amounts.items()}
        return bool(verdicts(guaranteed(**texts), *flags)[0]["admitted"])

    assert admitted(asked | fitting)
    for name, size in fitting.items():
        step = 1 << 21 if name != "memory" else 1 << 20
        assert not admitted(asked | fitting | {name: size + step})


def test_a_pod_of_another_class_is_admitted_unpinned() -> None:
    pod = guaranteed(memory="400Gi").replace("cpu: '1'", "")
    done = admit(pod.replace("limits:", "requests:"), "--machine", MACHINE)
    assert done.returncode == 0
    assert "Burstable: only Guaranteed pods get exclusive memory" in done.stdout


def pod_level(total: str, own: str) -> str:
    both = {"requests": {"cpu": "2", "memory": total}, "limits": {"cpu": "2", "memory": total}}
    exclusive = {"requests": {"cpu": "1", "memory": own}, "limits": {"cpu": "1", "memory": own}}
    spec = {
        "resources": both,
        "containers": [
            {"name": "own", "image": "i", "resources": exclusive},
            {"name": "shared", "image": "i"},
        ],
    }
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": spec}
    return yaml.safe_dump(pod)


def test_a_pod_with_resources_at_pod_level_is_told_that_it_is_not_aligned() -> None:
    done = admit(pod_level("10Gi", "4Gi"), "--machine", MACHINE, "--release", "1.37")
    assert done.returncode == 0
    assert "note: its pod-level resources are ignored for memory alignment" in done.stdout


def test_with_the_gate_on_a_pod_shares_out_what_it_has() -> None:
    flags = (
        *("--machine", MACHINE, "--kubelet", KUBELET, "--release", "1.37"),
        *("--gate", "PodLevelResourceManagers=true"),
    )
    (pod,) = verdicts(pod_level("10Gi", "4Gi"), *flags)
    sizes = {name: each["memory"][0]["size"] >> 30 for name, each in pod["containers"].items()}
    assert sizes == {"own": 4, "shared": 6}
    (empty,) = verdicts(pod_level("10Gi", "10Gi"), *flags)
    assert "leave nothing of the pod's for the other containers" in empty["why"][1]
    assert "memory 10239Mi instead of 10Gi for container own (1Mi less)" in words(empty)
    (large,) = verdicts(pod_level("100Gi", "4Gi"), *flags)
    assert "memory 63Gi instead of 100Gi for the whole pod (37Gi less)" in words(large)


def test_the_api_server_spells_sizes_again_but_not_those_of_static_pods() -> None:
    fraction = guaranteed(memory="1.5Gi")
    assert admit(fraction, "--machine", MACHINE).returncode == 0
    (static,) = verdicts(fraction, "--machine", MACHINE, "--static")
    assert static["cause"] == "not_an_integer"
    assert words(static) == ["memory written as 1536Mi for container c"]


def test_prefer_closest_takes_nodes_that_are_near_each_other() -> None:
    # Nodes 0 and 1 are taken one by one, so that 2 and 3 are left beside one of another socket.
    flags = ("--machine", MACHINE, "--topology-policy", "best-effort")
    closest = ("--option", "prefer-closest-numa-nodes=true")
    pods = guaranteed("first", memory="59Gi") + "---\n" + guaranteed("second", memory="100Gi")
    _, plain = verdicts(pods, *flags)
    _, near = verdicts(pods, *flags, *closest)
    assert plain["containers"]["c"]["cpusetMems"] == "1-2"
    assert near["containers"]["c"]["cpusetMems"] == "2-3"


def test_the_recorded_node_is_replayed_to_its_own_state_and_cpusets() -> None:
    snapshot = msgspec.json.decode((ROOT / NODE).read_bytes(), type=Snapshot)
    site = read_node_facts(None, None, str(ROOT / NODE))
    # The bare machine: what the recorded state tells but the page sizes is left out.
    bare = msgspec.structs.replace(site, loaded=None)
    settings, _ = manager_settings(bare, resolve_kubelet(bare, None, None, ()))
    assert isinstance(settings, ManagerSettings)
    kubelet = start_manager(settings)
    assert isinstance(kubelet, Manager)
    for pod in snapshot.running:
        kubelet, outcome = kubelet.admit(pod)
        assert isinstance(outcome, AdmittedPod)
    compared = 0
    for pod in snapshot.running:
        for container in pod.spec.containers or ():
            kubelet = kubelet.start_container(pod.metadata.uid or "", container.name)
        for status in (pod.status and pod.status.container_statuses) or ():
            identity = (status.container_id or "").rpartition("/")[2]
            path = next(path for path in snapshot.cgroups if path.endswith(identity))
            pinned = kubelet.cpuset_nodes(pod.metadata.uid or "", status.name)
            assert snapshot.cgroups[path]["cpuset.mems"] == node_list(pinned)
            compared += 1
    assert compared > 8
    assert encode_checkpoint(kubelet.state, settings.release) == snapshot.memory_manager_state


def test_a_state_alone_tells_of_its_machine_and_its_pods_keep_their_memory() -> None:
    loaded = read_checkpoint((ROOT / STATE).read_text())
    assert isinstance(loaded, LoadedCheckpoint)
    assert len(pods_in_state(loaded.state)) == 4
    (pod,) = verdicts(guaranteed(memory="40Gi"), "--state", STATE)
    assert not pod["admitted"]


def test_reservations_the_kubelet_refuses_keep_it_from_starting(tmp_path: Path) -> None:
    broken = (ROOT / KUBELET).read_text().replace("memory: 2Gi", "memory: 3Gi")
    (tmp_path / "kubelet.yaml").write_text(broken)
    done = admit(
        guaranteed(memory="1Gi"), "--machine", MACHINE, "--kubelet", str(tmp_path / "kubelet.yaml")
    )
    assert done.returncode == 2
    assert done.stdout == ""
    assert "the nodes reserve 4Gi together, it must be 5Gi: 1Gi too little" in done.stderr


# Bad input

NODES: dict[str, tuple[Any, str]] = {
    "the same node twice": ([{"id": 0, "memory": "1Gi"}] * 2, "node 0 is given by numa[0] already"),
    "no node": ([], "no NUMA node"),
    "a negative size": ([{"id": 0, "memory": "-1Gi"}], "is not an amount of memory"),
    "half a byte": ([{"id": 0, "memory": "1500m"}], "is not an amount of memory"),
    "an absurd size": ([{"id": 0, "memory": "9999Ei"}], "is not an amount of memory"),
    "no size": ([{"id": 0}], "memory: required, but missing"),
    "a wrong type": ([{"id": "zero", "memory": "1Gi"}], "id: expected an integer, got a string"),
    "a negative node": ([{"id": -1, "memory": "1Gi"}], "-1 is not the number of a node"),
    "a strange page": ([{"id": 0, "memory": "1Gi", "hugepages": {"x": 1}}], "no size of a page"),
    "negative pages": ([{"id": 0, "memory": "1Gi", "hugepages": {"2Mi": -1}}], "-1 pages"),
    "too many pages": ([{"id": 0, "memory": "1Gi", "hugepages": {"2Mi": 513}}], "hugepages take"),
    "distances missing": (
        [{"id": 0, "memory": "1Gi", "distances": [10, 20]}],
        "2 distances, but there are 1 nodes",
    ),
    "distances of nothing": (
        [{"id": 0, "memory": "1Gi", "distances": [0]}],
        "a distance is a number from 1 to 255",
    ),
    "too many nodes": ([{"id": i, "memory": "1Gi"} for i in range(1025)], "1025 NUMA nodes"),
}


@pytest.mark.parametrize("fault", NODES)
def test_a_machine_file_that_cannot_be_is_refused_with_the_place(
    fault: str, tmp_path: Path
) -> None:
    nodes, says = NODES[fault]
    file = tmp_path / "machine.yaml"
    file.write_text(yaml.safe_dump({"numa": nodes}))
    done = memqos("show", "--machine", str(file))
    assert done.returncode == 1
    assert done.stdout == ""
    assert says in done.stderr
    assert re.match(rf"memqos: {re.escape(str(file))}:\d+:\d+: numa", done.stderr)


def test_64_nodes_need_the_option_and_then_are_quick(tmp_path: Path) -> None:
    file = tmp_path / "machine.yaml"
    file.write_text(yaml.safe_dump({"numa": [{"id": i, "memory": "16Gi"} for i in range(64)]}))
    flags = ("--machine", str(file), "--topology-policy", "restricted")
    refused = admit(guaranteed(memory="500Gi"), *flags)
    assert refused.returncode == 2
    assert "raise it with --option max-allowable-numa-nodes=N" in refused.stderr
    done = admit(guaranteed(memory="500Gi"), *flags, "--option", "max-allowable-numa-nodes=64")
    assert done.returncode == 0
    assert " 0-31 " in done.stdout


def test_a_machine_file_with_a_slip_is_still_taken_for_one(tmp_path: Path) -> None:
    file = tmp_path / "machine.yaml"
    file.write_text("numa:\n- {id: 0, memory: 1Gi\n")
    done = memqos("show", "--machine", str(file))
    assert "not a machine file" not in done.stderr
    assert f"{file}:" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (["show", "--machine", "examples/none.yaml"], 1, "no such file"),
        (["show", "--machine", KUBELET], 1, "holds a KubeletConfiguration"),
        (["show", "--machine", "README.md"], 1, "README.md:2:2: not a machine file"),
        (
            ["show", "--machine", "README.md"],
            1,
            "memqos numa show -o yaml prints that of a machine",
        ),
        (["show", "--machine", "Makefile"], 1, "as numa: [{id: 0, memory: 64Gi}] does"),
        (["show", "--machine", "examples"], 1, "no NUMA node is visible"),
        (["show", "--state", MACHINE], 1, "not a state file"),
        (["show", "--snapshot", MACHINE], 1, "not a snapshot"),
        (["show", "-o", "xml"], 64, "Usage: memqos"),
        (["admit"], 64, "Usage: memqos"),
        (["admit", "-", "--machine", MACHINE, "--option", "x"], 64, "is not NAME=VALUE"),
        (["admit", "-", "--machine", MACHINE, "--policy", "static"], 64, "Usage: memqos"),
        (["admit", "-", "--machine", MACHINE, "--reserved", "0:memory"], 1, "reserves no memory"),
        (["admit", "-", "--machine", MACHINE, "--release", "1.2"], 1, "the oldest is 1.22"),
        (["nonsense"], 64, "Usage: memqos"),
    ],
)
def test_what_cannot_be_asked_is_refused_with_the_next_step(
    arguments: list[str], code: int, says: str
) -> None:
    done = memqos(*arguments, stdin=guaranteed(memory="1Gi"))
    assert done.returncode == code
    assert says in done.stderr
    assert done.stdout == ""


def test_one_bad_pod_does_not_hide_the_others() -> None:
    pods = guaranteed("good", memory="1Gi") + "---\n" + guaranteed("bad", memory="1.5.2Gi")
    done = admit(pods, "--machine", MACHINE)
    assert done.returncode == 1
    assert "pod/good" in done.stdout
    assert "'1.5.2Gi' is not a quantity" in done.stderr
    assert done.stderr.startswith("<stdin>:")
