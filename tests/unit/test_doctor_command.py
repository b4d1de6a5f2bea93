"""`memqos doctor`: a node judged, live or out of a snapshot."""

import json
import os
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml
from tests.commands import memqos
from tests.fakes.cgroups import FakeKernel

from memqos.cli.doctor import command
from memqos.cli.main import cli

NODES = Path(__file__).parents[1] / "nodes"
MI = 1 << 20
CONTROLLERS = {"cgroup.controllers": "cpu memory", "cgroup.subtree_control": "cpu memory"}


def doctor(*arguments: str) -> int:
    code = command.main(["--output", "json", *arguments], "doctor", standalone_mode=False)
    assert isinstance(code, int)
    return code


def judged(capsys: pytest.CaptureFixture[str]) -> dict[str, dict[str, Any]]:
    return {each["rule"]: each for each in json.loads(capsys.readouterr().out)["findings"]}


@pytest.fixture
def kubelet(tmp_path: Path) -> str:
    file = tmp_path / "kubelet.yaml"
    file.write_text("apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n")
    return str(file)


@pytest.fixture
def kernel(tmp_path: Path) -> FakeKernel:
    fake = FakeKernel(tmp_path)
    for file, content in CONTROLLERS.items():
        (fake.folder / file).write_text(f"{content}\n")
    fake.make("/kubepods", CONTROLLERS)
    fake.make(
        "/kubepods/app",
        {
            "memory.high": str(100 * MI),
            "memory.current": str(100 * MI),
            "memory.events": "low 0\nhigh 7",
            "memory.pressure": "some avg10=0.00 total=0\nfull avg10=0.00 total=0",
        },
    )
    return fake


def meanwhile(monkeypatch: pytest.MonkeyPatch, action: Callable[[], None]) -> None:
    """Have something happen in the time between two readings, which is as long as it should be."""
    now = 0.0

    def sleep(seconds: float) -> None:
        nonlocal now
        action()
        now += seconds

    clock = SimpleNamespace(sleep=sleep, monotonic=lambda: now)
    monkeypatch.setattr("memqos.cli.doctor.time", clock)


def test_a_container_throttled_while_one_looks_is_found(
    kernel: FakeKernel,
    kubelet: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    meanwhile(monkeypatch, lambda: kernel.set("/kubepods/app", "memory.events", "low 0\nhigh 9007"))
    code = doctor("--cgroup-root", kernel.root, "--seconds", "0.1", "--kubelet", kubelet)
    assert code == 2
    finding = judged(capsys)["throttling/now"]
    assert finding["where"] == "/kubepods/app"
    assert finding["evidence"][0].startswith("memory.events: high 9007, ")


def test_another_cgroup_of_the_same_name_is_another(
    kernel: FakeKernel,
    kubelet: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def restart() -> None:
        # The old one is kept aside, so that its inode is not given to the new one.
        os.rename(f"{kernel.root}/kubepods/app", f"{kernel.root}/../old")
        kernel.make("/kubepods/app", {"memory.events": "low 0\nhigh 9007"})

    meanwhile(monkeypatch, restart)
    doctor("--cgroup-root", kernel.root, "--seconds", "0.1", "--kubelet", kubelet)
    assert "throttling/now" not in judged(capsys)


def test_a_machine_without_cgroup_v2_is_told_so_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def never() -> None:
        raise AssertionError("there is nothing to wait for")

    meanwhile(monkeypatch, never)
    assert doctor("--cgroup-root", str(tmp_path)) == 2
    assert judged(capsys)["machine/cgroup-v2"]["severity"] == "error"


def test_a_node_kept_by_a_real_kubelet_passes(capsys: pytest.CaptureFixture[str]) -> None:
    assert doctor("--snapshot", str(NODES / "systemd.json")) == 0
    assert {each["severity"] for each in judged(capsys).values()} == {"info"}


@pytest.fixture
def turned_off(tmp_path: Path) -> str:
    node = (NODES / "systemd.json").read_text()
    file = tmp_path / "off.json"
    file.write_text(
        node.replace(
            "memoryReservationPolicy: TieredReservation", "featureGates: {MemoryQoS: false}"
        )
    )
    return str(file)


def test_a_feature_turned_off_leaves_findings(
    turned_off: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert doctor("--snapshot", turned_off) == 2
    assert len(judged(capsys)["tree/stale"]["evidence"]) > 20


def test_a_snapshot_of_a_cgroup_v1_node_says_exactly_that(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    node = json.loads((NODES / "cgroupfs.json").read_bytes())
    node["mount"] = ["cgroup /sys/fs/cgroup/memory cgroup rw,memory 0 0"]
    node["cgroups"] = {}
    file = tmp_path / "node.json"
    file.write_text(json.dumps(node))
    assert doctor("--snapshot", str(file)) == 2
    assert list(judged(capsys)) == ["machine/cgroup-v2"]


def test_a_driver_that_is_not_the_configured_one_is_found(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    node = json.loads((NODES / "cgroupfs.json").read_bytes())
    node["kubelet_configuration"] = node["kubelet_configuration"].replace(
        "cgroupDriver: cgroupfs", "cgroupDriver: systemd"
    )
    file = tmp_path / "node.json"
    file.write_text(json.dumps(node))
    assert doctor("--snapshot", str(file)) == 2
    assert judged(capsys)["tree/driver"]["where"] == "/kubepods"


def test_a_node_that_cannot_be_planned_is_a_finding(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    node = json.loads((NODES / "cgroupfs.json").read_bytes())
    node["kubelet_configuration"] += "cgroupsPerQOS: false\nenforceNodeAllocatable: []\n"
    node["kubelet_configuration"] = node["kubelet_configuration"].replace(
        "enforceNodeAllocatable: [pods]\n", ""
    )
    file = tmp_path / "node.json"
    file.write_text(json.dumps(node))
    assert doctor("--snapshot", str(file)) == 2
    assert "cgroupsPerQOS" in judged(capsys)["plan/refused"]["evidence"][0]


def test_values_are_not_called_stale_where_the_kubelet_is_not_known(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    node = json.loads((NODES / "cgroupfs.json").read_bytes())
    node["kubelet"] = node["kubelet_configuration"] = ""
    file = tmp_path / "node.json"
    file.write_text(json.dumps(node))
    assert doctor("--snapshot", str(file)) == 0
    findings = judged(capsys)
    assert "plan/terms" in findings
    assert "tree/stale" not in findings


def test_findings_come_as_text_and_yaml(capsys: pytest.CaptureFixture[str]) -> None:
    file = str(NODES / "numa.json")
    cli.main(["doctor", "--snapshot", file], standalone_mode=False)
    text = capsys.readouterr().out
    assert text.startswith(
        f"MemoryQoS is on: the default of 1.38, not changed by {file} (kubelet_configuration)\n\n"
        "info     protection/unknown  /\n"
    )
    assert text.endswith("\n3 notes\n")
    cli.main(["doctor", "--snapshot", file, "-o", "yaml"], standalone_mode=False)
    data = yaml.safe_load(capsys.readouterr().out)
    assert data["node"] == file
    assert (data["enablement"]["state"], data["enablement"]["source"]) == ("on", "release default")


def test_only_the_first_evidence_is_shown_and_the_rest_counted(
    turned_off: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["doctor", "--snapshot", turned_off], standalone_mode=False) == 2
    text = capsys.readouterr().out
    stale = text[text.index("tree/stale") :].partition("\n\n")[0]
    assert stale.count("\n  · ") == 6
    assert "  · … and " in stale


def test_reservations_are_recommended_by_what_daemons_use(tmp_path: Path) -> None:
    node = json.loads((NODES / "systemd.json").read_text())
    node["cgroups"]["/system.slice/kubelet.service"] = {"memory.current": str(1 << 30)}
    file = tmp_path / "node.json"
    file.write_text(json.dumps(node))
    done = memqos("doctor", "--reserved", "--snapshot", str(file))
    assert done.code == 2
    assert "kubeReserved: {memory: 1.25Gi}" in done.out
    assert "/system.slice/kubelet.service" in done.out
    data = memqos("doctor", "--reserved", "--snapshot", str(file), "-o", "json").data
    assert data["reserved"][0]["recommended"] == 5 << 28
    without = memqos("doctor", "--reserved", "--snapshot", str(NODES / "systemd.json"))
    assert without.code == 1
    assert "no cgroup outside kubepods is known" in without.err


def test_the_configured_driver_is_read_of_the_kubelets_document(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "kubelet.yaml"
    file.write_text("kind: Pod\n---\nkind: KubeletConfiguration\ncgroupDriver: systemd\n")
    node = str(NODES / "cgroupfs.json")
    assert doctor("--snapshot", node, "--kubelet", str(file)) == 2
    assert judged(capsys)["tree/driver"]["where"] == "/kubepods"
