"""Every command reads the same settings out of the same node, whatever is stated."""

import json
from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec
import pytest
from tests.commands import ROOT, Done, memqos
from tests.fakes.machine import UNIFIED, put

from memqos.agent.configuration import AgentConfiguration
from memqos.agent.settings_source import SettingsSource
from memqos.cli.cluster_access import LiveCluster
from memqos.cli.numa.kubelet import resolve_kubelet
from memqos.cli.numa.node_source import read_node_facts
from memqos.cli.rank_eviction_inputs import read_eviction_inputs
from memqos.cli.settings import check_settings_options, resolve_settings, with_kubelet_file
from memqos.converge.node_plan import PlanOptions, plan_observation
from memqos.converge.observation import load_kubelet_config
from memqos.converge.snapshots import observe_snapshot_file
from memqos.errors import MemqosError
from memqos.host.cgroups import CgroupFs
from memqos.host.machine import Roots
from memqos.host.snapshots import load_snapshot
from memqos.kube.kubelet import KubeletConfiguration
from memqos.kube.node import Node, NodeStatus, NodeSystemInfo
from memqos.release import Release
from memqos.settings.resolver import resolve
from memqos.settings.settings import Settings, SettingsOptions

RECORDED: Final = sorted((ROOT / "tests" / "nodes").glob("*.json"))
RELEASES: Final = (None, "1.25", "1.30", "1.34", "1.36", "1.38")
GATES: Final[tuple[dict[str, bool], ...]] = (
    {},
    {"MemoryQoS": True},
    {"MemoryQoS": False},
    {"PodLevelResources": False},
    {"MemoryQoS": True, "PodLevelResourceManagers": False},
)


def _without_version(node: dict[str, Any]) -> None:
    node["kubelet"] = ""


def _without_configuration(node: dict[str, Any]) -> None:
    node["kubelet_configuration"] = ""


def _with_a_gate_of_its_release(node: dict[str, Any]) -> None:
    text = node["kubelet_configuration"]
    is_old = node["kubelet"].startswith("v1.34")
    gate = "PodLevelResources: true" if is_old else "PodLevelResourceManagers: true"
    section = "featureGates:\n"
    if section in text:
        node["kubelet_configuration"] = text.replace(section, f"{section}  {gate}\n")
    else:
        node["kubelet_configuration"] = f"{text}{section}  {gate}\n"


def _with_another_driver(node: dict[str, Any]) -> None:
    other = {"cgroupfs": "systemd", "systemd": "cgroupfs"}[node["driver"]]
    node["kubelet_configuration"] = node["kubelet_configuration"].replace(
        f"cgroupDriver: {node['driver']}", f"cgroupDriver: {other}"
    )


VARIANTS: Final[tuple[Callable[[dict[str, Any]], None], ...]] = (
    lambda _node: None,
    _without_version,
    _without_configuration,
    _with_a_gate_of_its_release,
    _with_another_driver,
)


class Found(NamedTuple):
    """What a command goes by; memory where it has a part in the command."""

    release: Release
    config: KubeletConfiguration
    memory: tuple[int | None, int | None] | None = None

    @classmethod
    def of(cls, settings: Settings, config: KubeletConfiguration) -> "Found":
        memory = settings.memory_capacity, settings.memory_allocatable
        return cls(settings.release, config, memory)


class Stated(NamedTuple):
    """The options of one run."""

    release: str | None
    gates: dict[str, bool]
    kubelet: str | None = None

    @property
    def texts(self) -> tuple[str, ...]:
        return tuple(f"{name}={str(on).lower()}" for name, on in self.gates.items())

    @property
    def arguments(self) -> tuple[str, ...]:
        release = () if self.release is None else ("--release", self.release)
        kubelet = () if self.kubelet is None else ("--kubelet", self.kubelet)
        return (*release, *kubelet, *(word for text in self.texts for word in ("--gate", text)))


def explain(file: str, stated: Stated) -> Found:
    """As resize, and why on a snapshot."""
    arguments = check_settings_options(
        release=stated.release,
        gates=stated.texts,
        kubelet=stated.kubelet,
        snapshot=file,
        factor=None,
        policy=None,
    )
    found = resolve_settings(arguments)
    return Found.of(found.settings, found.config)


def plan(file: str, stated: Stated) -> Found:
    """As apply and doctor."""
    observation = observe_snapshot_file(file)
    configuration = load_kubelet_config(stated.kubelet) or observation.configuration
    observation = msgspec.structs.replace(observation, configuration=configuration, pods=())
    found = plan_observation(observation, PlanOptions(release=stated.release, gates=stated.gates))
    return Found.of(found.settings, found.config)


def numa(file: str, stated: Stated) -> Found:
    found = resolve_kubelet(
        read_node_facts(None, None, file), stated.kubelet, stated.release, stated.texts
    )
    return Found(found.release, found.config)


def rank(file: str, stated: Stated) -> Found:
    node = read_eviction_inputs(None, None, file, LiveCluster()).node
    options = SettingsOptions(release=stated.release, gates=stated.gates)
    found = resolve(with_kubelet_file(node, stated.kubelet), options)
    return Found.of(found.settings, found.config)


def agent(file: str, stated: Stated, folder: Path) -> Found:
    """On a machine of the snapshot's memory and cgroups, whose Node names the version."""
    snapshot = load_snapshot(file)
    put(folder / "proc", {"meminfo": snapshot.meminfo, "mounts": f"{UNIFIED}\n"})
    put(folder / "kubelet", {"config.yaml": snapshot.kubelet_configuration})
    name = "kubepods" if snapshot.driver == "cgroupfs" else "kubepods.slice"
    put(folder / "cgroup" / name, {})
    roots = Roots(
        proc=str(folder / "proc"),
        sys=str(folder / "sys"),
        cgroup=str(folder / "cgroup"),
        kubelet=str(folder / "kubelet"),
    )
    source = SettingsSource(CgroupFs(roots.cgroup), roots)
    info = NodeSystemInfo(kubelet_version=snapshot.kubelet)
    found = source.resolve(
        AgentConfiguration(
            release=stated.release, gates=stated.gates, kubelet_config=stated.kubelet
        ),
        Node(status=NodeStatus(node_info=info)),
    )
    return Found.of(found.settings, found.config)


def outcome(command: Callable[[str, Stated], Found], file: str, stated: Stated) -> Found | str:
    try:
        return command(file, stated)
    except MemqosError as error:
        return str(error)


def agree(left: Found | str, right: Found | str) -> bool:
    if isinstance(left, str) or isinstance(right, str) or None not in (left.memory, right.memory):
        return left == right
    return left[:2] == right[:2]


@pytest.fixture(params=list(product(RECORDED, VARIANTS)), ids=lambda each: each[0].stem)
def node_file(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    path, change = request.param
    node = json.loads(path.read_text())
    change(node)
    file = tmp_path / "node.json"
    file.write_text(json.dumps(node))
    return str(file)


def test_all_commands_agree_on_every_node_release_and_gate_set(node_file: str) -> None:
    for stated in map(Stated, *zip(*product(RELEASES, GATES), strict=True)):
        planned = outcome(plan, node_file, stated)
        assert agree(outcome(numa, node_file, stated), planned), stated
        assert agree(outcome(rank, node_file, stated), planned), stated
        assert agree(outcome(explain, node_file, stated), planned), stated


def test_commands_agree_whether_memory_qos_is_on_and_why(node_file: str) -> None:
    for release, gates in product(RELEASES, GATES):
        texts = tuple(f"{name}={str(on).lower()}" for name, on in gates.items())
        try:
            observation = observe_snapshot_file(node_file)
            planned = plan_observation(observation, PlanOptions(release=release, gates=gates))
        except MemqosError:
            continue
        arguments = check_settings_options(
            release=release, gates=texts, kubelet=None, snapshot=node_file, factor=None, policy=None
        )
        explained = resolve_settings(arguments).enablement
        assert explained == planned.enablement
        assert explained.state == (
            "on" if planned.settings.release.is_enabled("MemoryQoS") else "off"
        )


@pytest.mark.parametrize("path", RECORDED, ids=lambda path: path.stem)
def test_the_agent_beside_that_kubelet_agrees(path: Path, tmp_path: Path) -> None:
    for number, (release, gates) in enumerate(product(RELEASES, GATES)):
        stated = Stated(release, gates)
        planned = outcome(plan, str(path), stated)
        if isinstance(planned, Found):
            assert agree(agent(str(path), stated, tmp_path / str(number)), planned), stated


@pytest.mark.parametrize("path", RECORDED, ids=lambda path: path.stem)
def test_a_stated_configuration_holds_in_every_command(path: Path, tmp_path: Path) -> None:
    file = tmp_path / "kubelet.yaml"
    file.write_text(
        "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n"
        "kubeReserved: {memory: 300Mi}\nfeatureGates: {MemoryQoS: false}\n"
        f"cgroupDriver: {load_snapshot(str(path)).driver}\n"
    )
    for release, gates in product(RELEASES, GATES):
        stated = Stated(release, gates, str(file))
        planned = outcome(plan, str(path), stated)
        for command in (explain, numa, rank):
            assert agree(outcome(command, str(path), stated), planned), (command, stated)
        if isinstance(planned, Found):
            assert agree(agent(str(path), stated, tmp_path / "machine"), planned), stated


def test_a_configuration_is_found_among_other_documents(tmp_path: Path) -> None:
    node, file = str(RECORDED[0]), tmp_path / "kubelet.yaml"
    text = "kind: KubeletConfiguration\nkubeReserved: {memory: 300Mi}\n"
    file.write_text(text)
    alone = plan(node, Stated("1.38", {"MemoryQoS": True}, str(file)))
    file.write_text(f"kind: Pod\n---\n{text}")
    for command in (explain, plan, numa, rank):
        assert agree(command(node, Stated("1.38", {"MemoryQoS": True}, str(file))), alone), command
    file.write_text("kind: Pod\n")
    refused = {outcome(each, node, Stated(None, {}, str(file))) for each in (explain, plan, numa)}
    (error,) = refused
    assert "the file has a Pod, not a KubeletConfiguration" in str(error)


class TestWholeCommands:
    """On a node whose kubelet's file names a gate that the stated release does not have."""

    @pytest.fixture
    def node(self, tmp_path: Path) -> str:
        node = json.loads((ROOT / "tests/nodes/systemd.json").read_text())
        _with_a_gate_of_its_release(node)
        file = tmp_path / "node.json"
        file.write_text(json.dumps(node))
        return str(file)

    @pytest.mark.parametrize(
        ("command", "place"),
        [
            (("explain",), "terms"),
            (("plan",), None),
            (("rank", "eviction"), None),
            (("numa", "admit", "examples/one.yaml"), "terms"),
        ],
        ids=lambda each: each[0] if isinstance(each, tuple) else None,
    )
    def test_skip_that_gate_with_a_note(
        self, node: str, command: tuple[str, ...], place: str | None
    ) -> None:
        done: Done = memqos(*command, "--snapshot", node, "--release", "1.30", "-o", "json")
        assert done.code in (0, 2), done.err
        data = done.data if place is None else done.data[place]
        assert data["release"] == "1.30"
        assert "PodLevelResourceManagers" not in data.get("gates", {})
        refused = "1.30 refuses it: Kubernetes 1.30 has no feature gate PodLevelResourceManagers"
        assert sum(refused in note for note in data["notes"]) == 1

    def test_doctor_judges_it_all_the_same(self, node: str) -> None:
        done = memqos("doctor", "--snapshot", node, "--release", "1.30", "-o", "json")
        assert done.code in (0, 2), done.err

    def test_refuse_a_file_alone_as_a_kubelet_of_that_release_would(
        self, node: str, tmp_path: Path
    ) -> None:
        file = tmp_path / "kubelet.yaml"
        file.write_text(load_snapshot(node).kubelet_configuration)
        for command in (
            ("explain", "examples/one.yaml"),
            ("resize", "examples/one.yaml", "examples/one.yaml"),
            ("numa", "reserve", "--machine", str(ROOT / "tests/nodes/numa.json")),
        ):
            done = memqos(*command, "--kubelet", str(file), "--release", "1.30")
            assert done.code == 1, command
            assert "1.30 has no feature gate PodLevelResourceManagers" in done.err


NODE: Final = """\
apiVersion: v1
kind: Node
metadata: {name: n1}
status:
  capacity: {memory: 8Gi, cpu: "4", pods: "110"}
  allocatable: {memory: 7Gi, cpu: "4", pods: "110"}
  nodeInfo: {kubeletVersion: v1.34.1}
"""


@pytest.mark.parametrize("reserved", [None, "512Mi"])
@pytest.mark.parametrize("release", [None, "1.34"])  # another would be the API server's
def test_a_node_object_is_the_same_to_explain_audit_and_fit(
    release: str | None, reserved: str | None, tmp_path: Path
) -> None:
    node, kubelet = tmp_path / "node.yaml", tmp_path / "kubelet.yaml"
    node.write_text(NODE)
    kubelet.write_text(
        "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n"
        f"kubeReserved: {{memory: {reserved}}}\n"
    )
    stated = Stated(release, {}, None if reserved is None else str(kubelet))
    pod = "examples/one.yaml"
    explained = memqos("explain", pod, "--node", str(node), *stated.arguments, "-o", "json")
    terms = explained.data["terms"]
    audited = memqos("audit", str(node), *stated.arguments, "-o", "json").data
    memory = audited["nodes"][0]["memory"]
    assert (terms["release"], terms["factor"]) == (audited["release"], audited["factor"])
    assert terms["memory_capacity"] == memory["capacity"]
    assert terms["memory_allocatable"] == memory["enforced"]
    without_file = Stated(release, {}).arguments
    fitted = memqos("fit", pod, "--nodes", str(node), *without_file, "-o", "json").data
    assert fitted["release"] == terms["release"]


@pytest.mark.parametrize("path", RECORDED, ids=lambda path: path.stem)
@pytest.mark.parametrize("release", ["1.34", "1.38"])
def test_commands_print_the_settings_that_they_agree_on(path: Path, release: str) -> None:
    options = ("--snapshot", str(path), "--release", release, "--gate", "MemoryQoS=true")
    explained = memqos("explain", *options, "-o", "json").data["terms"]
    planned = memqos("plan", *options, "-o", "json").data
    ranked = memqos("rank", "eviction", *options, "-o", "json").data
    admitted = memqos("numa", "admit", "examples/one.yaml", *options, "-o", "json").data["terms"]
    releases = {each["release"] for each in (explained, planned, ranked, admitted)}
    assert releases == {release}
    assert explained["gates"] == ranked["gates"] == admitted["gates"]
    assert (explained["policy"], explained["factor"]) == (planned["policy"], planned["factor"])
