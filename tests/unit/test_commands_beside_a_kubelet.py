"""`plan`, `apply`, `doctor` and `snapshot` go by the kubelet that runs, and say who told them."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.commands import Done, memqos
from tests.fakes.agent import LEVELS, MI, PROC, a_pod, container_paths, pod_path
from tests.fakes.cgroups import FakeKernel
from tests.fakes.kubelet import fake_kubelet
from tests.fakes.machine import put, put_kubelet_process, put_kubelet_program
from tests.fakes.node import memory_folder

from memqos.converge.journal import hierarchy_of, open_journal
from memqos.converge.records import KubeletWriteRecord
from memqos.host.machine import Roots, read_machine

ON = "featureGates: {MemoryQoS: true}\n"


class Node:
    """A node of a 1.34 kubelet with MemoryQoS on: hard reservation, kept by it already."""

    def __init__(self, folder: Path, program: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder = folder
        self.program = program
        self.kernel = FakeKernel(folder)
        (self.kernel.folder / "cgroup.controllers").write_text("cpuset cpu memory\n")
        pod = a_pod("b", 64, 128)
        for path in (*LEVELS, pod_path(pod), *container_paths(pod)):
            self.kernel.make(path)
        for path in (*LEVELS[:2], pod_path(pod), *container_paths(pod)):
            self.kernel.set(path, "memory.min", str(64 * MI))
        self.kernel.set(container_paths(pod)[0], "memory.max", str(128 * MI))
        self.kernel.set(container_paths(pod)[0], "memory.high", str(int(121.6 * MI) // 4096 * 4096))
        put(folder / "proc", PROC)
        put(folder / "kubelet", {"config.yaml": ON})
        self.pods = folder / "pods.json"
        self.pods.write_text(json.dumps(pod))
        places = {name: str(folder / name) for name in ("proc", "kubelet")}
        for module in ("node_plan", "rollback", "snapshot"):
            monkeypatch.setattr(
                f"memqos.cli.{module}.Roots", lambda cgroup: Roots(cgroup=cgroup, **places)
            )
        monkeypatch.setattr("memqos.converge.cgroup_writer.CgroupFs", lambda _root: self.kernel)
        monkeypatch.setenv("PATH", str(folder / "path"), prepend=":")

    def run_kubelet(self, version: str, *flags: str) -> None:
        put_kubelet_program(self.program, version)
        file = f"--config={self.folder}/kubelet/config.yaml"
        put_kubelet_process(self.folder / "proc", self.program, file, *flags)

    def memqos(self, command: str, *options: str, pods: str | None = None) -> Done:
        is_writer = command in ("apply", "rollback")
        journal = ["--journal", str(self.folder / "run")] if is_writer else []
        if command == "rollback":
            return memqos(command, "--cgroup-root", self.kernel.root, *journal, *options)
        root = ["--cgroup-root", self.kernel.root, "--pods", pods or str(self.pods)]
        return memqos(command, *root, *journal, *options)

    def plan(self, *options: str, pods: str | None = None) -> dict[str, Any]:
        done = self.memqos("plan", "-o", "json", *options, pods=pods)
        assert done.code in (0, 2), done.err
        found: dict[str, Any] = json.loads(done.out)
        return found

    def snapshot(self) -> dict[str, Any]:
        file = self.folder / "node.json"
        done = self.memqos("snapshot", "--without-records", "--out", str(file))
        assert done.code == 0, done.err
        taken: dict[str, Any] = json.loads(file.read_text())
        return taken

    @property
    def minimums(self) -> list[str | None]:
        return [self.kernel.read(path, "memory.min") for path in LEVELS[:2]]


@pytest.fixture
def node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Node]:
    with memory_folder() as folder:
        yield Node(folder, tmp_path / "bin" / "kubelet", monkeypatch)


class TestAGuess:
    def test_is_planned_with_a_note_and_not_applied(self, node: Node) -> None:
        before = node.minimums
        plan = node.plan()
        assert plan["release"] == "1.36"
        assert "the version of the running kubelet is unknown" in plan["doubt"]
        assert any("planned as 1.36, memqos's default" in note for note in plan["notes"])
        shown = node.memqos("plan")
        assert "memory.min" in shown.out  # by the rules of 1.36 its protection would go
        assert "note: memqos apply refuses this plan: " in shown.err
        refused = node.memqos("apply", "--yes")
        assert refused.code == 1
        assert "nothing is written, as the plan is a guess" in refused.err
        assert "--release" in refused.err
        assert node.minimums == before
        assert node.memqos("plan", "--out", str(node.folder / "saved")).code == 1

    @pytest.mark.parametrize("command", ["plan", "apply", "doctor"])
    def test_is_no_default_of_what_is_written(self, node: Node, command: str) -> None:
        message = " ".join(node.memqos(command, "--help").out.split())
        assert "if it is unknown, plan assumes 1.36, and apply writes nothing" in message

    def test_by_the_program_on_path_is_one(self, node: Node) -> None:
        put_kubelet_program(node.folder / "path" / "kubelet", "v1.38.0")
        assert any("the kubelet on PATH" in note for note in node.plan()["notes"])
        assert node.memqos("apply", "--yes").code == 1

    def test_of_the_configuration_is_one_too(self, node: Node) -> None:
        (node.folder / "kubelet" / "config.yaml").unlink()
        refused = node.memqos("apply", "--yes", "--release", "1.34")
        assert refused.code == 1
        assert "--gate MemoryQoS=true or false" in refused.err
        done = node.memqos("apply", "--yes", "--release", "1.34", "--gate", "MemoryQoS=true")
        assert (done.code, done.out) == (0, "converged: nothing to change\n")

    def test_is_nothing_that_doctor_judges_by(self, node: Node) -> None:
        done = node.memqos("doctor", "-o", "json", "--seconds", "0.1")
        found = {each["rule"]: each for each in json.loads(done.out)["findings"]}
        assert "tree/stale" not in found
        assert "no kubelet process is visible here" in found["plan/terms"]["evidence"][1]

    def test_is_not_kept_in_a_snapshot(self, node: Node) -> None:
        put_kubelet_program(node.folder / "path" / "kubelet", "v1.38.0")
        taken = node.snapshot()
        assert taken["kubelet"] == ""
        assert any("the one on PATH is v1.38.0" in note for note in taken["notes"])


class TestTheRunningKubelet:
    def test_wins_over_the_program_on_path(self, node: Node) -> None:
        put_kubelet_program(node.folder / "path" / "kubelet", "v1.38.0")
        node.run_kubelet("v1.34.11")
        plan = node.plan()
        assert (plan["release"], plan["doubt"], plan["changes"]) == ("1.34", None, [])
        assert plan["notes"][-2:] == [
            f"the running kubelet is v1.34.11, by its program {node.program}",
            f"the kubelet's configuration is from {node.folder}/kubelet/config.yaml",
        ]
        done = node.memqos("apply", "--yes")
        assert (done.code, done.out) == (0, "converged: nothing to change\n")
        assert "by its program" in node.memqos("doctor", "--seconds", "0.1").err
        assert node.snapshot()["kubelet"] == "v1.34.11"

    def test_has_flags_that_override_its_file(self, node: Node) -> None:
        node.run_kubelet("v1.34.11", "--feature-gates=MemoryQoS=false")
        changes = node.plan()["changes"]
        assert {change["new"] for change in changes} == {"0", "max"}

    def test_is_not_contradicted_in_writing(self, node: Node) -> None:
        node.run_kubelet("v1.34.11")
        before = node.minimums
        assert node.plan("--release", "1.38")["changes"]
        refused = node.memqos("apply", "--yes", "--release", "1.38")
        assert refused.code == 1
        assert "the release is set to 1.38" in refused.err
        assert node.minimums == before

    @pytest.mark.parametrize("version", ["v1.38.0", "v1.34.11"])
    def test_whose_configuration_is_not_known_may_keep_the_same_files(
        self, node: Node, version: str
    ) -> None:
        node.run_kubelet(version, "--config=/away.yaml")
        done = node.memqos("apply", "--yes", "--gate", "MemoryQoS=true")
        assert done.code == 1
        assert "the running kubelet's configuration is unknown" in done.err

    def test_is_asked_where_its_address_is_known(self, node: Node) -> None:
        build = b'kubernetes_build_info{git_version="v1.34.3"} 1\n'
        pods = {"kind": "PodList", "items": [json.loads(node.pods.read_text())]}
        with fake_kubelet({"/pods": pods, "/metrics": build}) as kubelet:
            plan = node.plan(pods=kubelet.url)
            assert (plan["release"], plan["doubt"], plan["changes"]) == ("1.34", None, [])
            assert f"the running kubelet is v1.34.3, by {kubelet.url}/metrics" in plan["notes"]


class TestMemoryQosThatIsOff:
    """Policy and factor say nothing then, and the plan says so."""

    def test_makes_options_void_which_is_said_with_what_the_gate_would_show(
        self, node: Node
    ) -> None:
        node.run_kubelet("v1.38.0", "--feature-gates=MemoryQoS=false")
        for path in ("/kubepods", LEVELS[1], f"{LEVELS[1]}/podb", f"{LEVELS[1]}/podb/ba"):
            node.kernel.set(path, "memory.min", "0")
            node.kernel.set(path, "memory.high", "max")
        options = ("--policy", "TieredReservation", "--factor", "0.9")
        done = node.memqos("plan", *options)
        count = len(node.plan(*options, "--gate", "MemoryQoS=true")["changes"])
        assert count > 1
        assert done.code == 0
        assert (
            "note: MemoryQoS is off on this node, so --policy and --factor are of no effect: with "
            f"--gate MemoryQoS=true, {count} changes would be pending" in done.err
        )
        assert any(f"{count} changes would" in note for note in node.plan(*options)["notes"])
        assert "MemoryQoS is off" not in node.memqos("plan").err
        assert "MemoryQoS is off" not in node.memqos("plan", *options, "--gate=MemoryQoS=false").err


class TestRollbackOfAWriteInTheKubeletsPlace:
    @pytest.fixture
    def written(self, node: Node) -> Node:
        """memory.min of kubepods was raised from 32 to 64 Mi, and not confirmed."""
        fs = node.kernel
        boot = read_machine(Roots(cgroup=fs.root)).boot_id
        assert boot is not None
        with open_journal(str(node.folder / "run"), hierarchy_of(fs, boot)) as journal:
            values = str(32 * MI), str(64 * MI)
            identity = fs.identity(LEVELS[0]) or 0
            journal.record_writes(
                [KubeletWriteRecord(LEVELS[0], "memory.min", identity, *values, "kubepods")]
            )
        return node

    def value(self, node: Node) -> int:
        return int(node.minimums[0] or 0) // MI

    def test_leaves_what_the_running_kubelet_keeps(self, written: Node) -> None:
        written.run_kubelet("v1.34.11")
        listed = written.memqos("rollback", "--list")
        assert (listed.code, listed.out.splitlines()[-1]) == (0, "1 set by the kubelet")
        assert listed.out.splitlines()[1].startswith("kubelet  /kubepods/memory.min")
        done = written.memqos("rollback", "--force")
        assert (done.code, done.out, done.err) == (0, "1 set by the kubelet\n", "")
        assert self.value(written) == 64
        assert written.memqos("rollback").out == "nothing to restore\n"

    @pytest.mark.parametrize(
        ("version", "config"), [("v1.34.11", "featureGates: {MemoryQoS: false}\n")]
    )
    def test_restores_what_it_does_not(self, written: Node, version: str, config: str) -> None:
        (written.folder / "kubelet" / "config.yaml").write_text(config)
        written.run_kubelet(version)
        done = written.memqos("rollback")
        assert (done.code, done.out, done.err) == (0, "1 restored\n", "")
        assert self.value(written) == 32

    def test_leaves_it_to_a_person_where_no_kubelet_runs(self, written: Node) -> None:
        for options in ((), ("--list",)):
            done = written.memqos("rollback", *options)
            assert done.code == 2
            assert done.out.splitlines()[-1] == "1 managed by the kubelet, not decided"
            assert (
                f"conflict: /kubepods/memory.min: {64 * MI} was written on behalf of the kubelet, "
                "and the version of the running kubelet is unknown" in done.err
            )
            assert "(--kubelet FILE) and version (--release) decides" in done.err
        data = written.memqos("rollback", "-o", "json").data
        assert data["values"][0]["state"] == "unconfirmed"
        assert "was written on behalf of the kubelet" in data["notes"][0]
        assert self.value(written) == 64

    def test_goes_by_what_a_person_states(self, written: Node) -> None:
        (written.folder / "kubelet" / "config.yaml").unlink()
        assert "no kubelet configuration is known" in written.memqos("rollback").err
        file = written.folder / "stated.yaml"
        file.write_text("featureGates: {MemoryQoS: true, Unheard: true}\n")
        wrong = written.memqos("rollback", "--kubelet", str(file), "--release", "1.34")
        assert f"a kubelet 1.34 does not run with {file}" in wrong.err
        file.write_text(ON)
        done = written.memqos("rollback", "--kubelet", str(file), "--release", "1.34")
        assert (done.code, done.out) == (0, "1 set by the kubelet\n")

    def test_is_forced_by_a_person_alone(self, written: Node) -> None:
        done = written.memqos("rollback", "--force")
        assert (done.code, done.out) == (0, "1 restored\n")
        assert self.value(written) == 32

    def test_is_no_matter_where_the_file_is_as_before(self, written: Node) -> None:
        written.kernel.set(LEVELS[0], "memory.min", str(32 * MI))
        assert written.memqos("rollback").code == 0
