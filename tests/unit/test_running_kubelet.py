"""The kubelet that runs on a node: its process, its flags, and who says what it is."""

import os
from itertools import pairwise
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.fakes.kubelet import fake_kubelet
from tests.fakes.machine import put, put_kubelet_process, put_kubelet_program, roots

from memqos.converge import running_kubelet
from memqos.converge.kubelet_endpoint import EndpointFacts
from memqos.converge.running_kubelet import KubeletSources
from memqos.errors import InputError
from memqos.host.kubelet import KubeletEndpoint
from memqos.host.local_kubelet import find_kubelet, is_running, process_version
from memqos.kube.kubelet.flags import command_line_of, merge_configuration
from memqos.kube.node import Node

BUILD = b'kubernetes_build_info{git_version="v1.33.1",major="1"} 1\n'
NODE = msgspec.convert(
    {"metadata": {"name": "n"}, "status": {"nodeInfo": {"kubeletVersion": "v1.35.0"}}}, Node
)


class TestFlags:
    @pytest.mark.parametrize(
        ("text", "fields"),
        [
            (
                "--feature-gates=MemoryQoS=true,NodeSwap=0",
                {"featureGates": {"MemoryQoS": True, "NodeSwap": False}},
            ),
            ("--feature_gates MemoryQoS=T", {"featureGates": {"MemoryQoS": True}}),
            (
                "--feature-gates=A=true --feature-gates=B=false",
                {"featureGates": {"A": True, "B": False}},
            ),
            ("--cgroup-driver systemd", {"cgroupDriver": "systemd"}),
            ("-cgroup-root=/x", {"cgroupRoot": "/x"}),
            ("--fail-swap-on", {"failSwapOn": True}),
            ("--fail-swap-on=false --v=4", {"failSwapOn": False}),
            ("--kube-reserved=cpu=1,memory=1Gi", {"kubeReserved": {"cpu": "1", "memory": "1Gi"}}),
            ("--eviction-hard=memory.available<5%", {"evictionHard": {"memory.available": "5%"}}),
            ("--eviction-hard=", {"evictionHard": {}}),
            (
                "--enforce-node-allocatable=pods,kube-reserved",
                {"enforceNodeAllocatable": ["pods", "kube-reserved"]},
            ),
            ("--pod-max-pids=100", {"podPidsLimit": 100}),
            (
                "--reserved-memory 0:memory=1Gi;1:memory=2Gi,hugepages-2Mi=4Mi",
                {
                    "reservedMemory": [
                        {"numaNode": 0, "limits": {"memory": "1Gi"}},
                        {"numaNode": 1, "limits": {"memory": "2Gi", "hugepages-2Mi": "4Mi"}},
                    ]
                },
            ),
            ("--v 2 --kubeconfig /etc/kubernetes/kubelet.conf", {}),
            ("-- --fail-swap-on", {}),
        ],
    )
    def test_become_fields(self, text: str, fields: dict[str, Any]) -> None:
        assert command_line_of(text.split()).fields == fields

    def test_name_the_files(self) -> None:
        line = command_line_of(["--config=/a.yaml", "--config-dir", "/b", "--pod-max-pids=1"])
        assert (line.config, line.config_dir, line.flags) == ("/a.yaml", "/b", ("--pod-max-pids",))

    @pytest.mark.parametrize(
        "flag", ["--feature-gates=MemoryQoS", "--feature-gates=A=maybe", "--pod-max-pids=many"]
    )
    def test_that_no_kubelet_would_start_with_are_refused(self, flag: str) -> None:
        with pytest.raises(InputError, match=flag):
            command_line_of([flag])

    def test_override_drop_ins_and_these_the_file_but_gates_are_merged(self) -> None:
        merged = merge_configuration(
            {
                "featureGates": {"MemoryQoS": True, "NodeSwap": True},
                "kubeReserved": {"memory": "1Gi", "cpu": "1"},
                "evictionSoft": {"memory.available": "10%"},
                "cgroupRoot": "/a",
            },
            [{"kubeReserved": {"memory": "2Gi"}, "evictionSoft": None}, {"cgroupRoot": "/b"}],
            command_line_of(["--feature-gates=MemoryQoS=false", "--cgroup-root=/c"]),
        )
        assert merged == {
            "featureGates": {"MemoryQoS": False, "NodeSwap": True},
            "kubeReserved": {"memory": "2Gi", "cpu": "1"},
            "cgroupRoot": "/c",
        }


@pytest.fixture
def program(tmp_path: Path) -> Path:
    return put_kubelet_program(tmp_path / "bin" / "kubelet", "v1.34.11")


class TestTheProcess:
    def test_is_found_with_its_arguments_and_version(self, tmp_path: Path, program: Path) -> None:
        put_kubelet_process(tmp_path, program, "--config=/a", pid=7, started=99)
        process = find_kubelet(str(tmp_path)).process
        assert process is not None
        assert (process.pid, process.started) == (7, 99)
        assert process.arguments == (str(program), "--config=/a")
        assert process_version(process, str(tmp_path)) == "v1.34.11"

    @pytest.mark.parametrize(
        "forged",
        [
            {"uid": 1000},
            {"pids": "812 1"},
            {"cgroup": "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-podx.slice"},
            {"state": "Z"},
            {"comm": "kubelet-shim"},
        ],
    )
    def test_is_no_process_that_a_pod_could_have_made(
        self, tmp_path: Path, program: Path, forged: dict[str, Any]
    ) -> None:
        put_kubelet_process(tmp_path, program, **forged)
        assert find_kubelet(str(tmp_path)).process is None

    def test_is_not_known_where_there_are_two(self, tmp_path: Path, program: Path) -> None:
        put_kubelet_process(tmp_path, program)
        put_kubelet_process(tmp_path, program, pid=9)
        assert find_kubelet(str(tmp_path)) == (None, "2 processes are named kubelet")

    def test_of_k3s_has_no_version_of_its_own(self, tmp_path: Path, program: Path) -> None:
        put_kubelet_process(tmp_path, program, comm="k3s-server")
        found = find_kubelet(str(tmp_path))
        assert found == (None, "k3s-server runs the kubelet inside itself")

    def test_is_another_after_a_restart_though_the_number_is_the_same(
        self, tmp_path: Path, program: Path
    ) -> None:
        put_kubelet_process(tmp_path, program, started=5)
        process = find_kubelet(str(tmp_path)).process
        assert process is not None
        assert is_running(process, str(tmp_path))
        put_kubelet_process(tmp_path, program, started=6)
        assert not is_running(process, str(tmp_path))

    def test_is_not_of_the_version_that_its_file_was_replaced_with(
        self, tmp_path: Path, program: Path
    ) -> None:
        old = tmp_path / "old"
        os.link(program, old)
        folder = put_kubelet_process(tmp_path, program)
        put_kubelet_program(program, "v1.38.0")
        (folder / "exe").unlink()
        (folder / "exe").symlink_to(old)  # what the kernel shows of a deleted file
        process = find_kubelet(str(tmp_path)).process
        assert process is not None
        assert process_version(process, str(tmp_path)) is None

    @pytest.mark.parametrize(("years", "version"), [(50, "v1.34.11"), (-50, None)])
    def test_that_does_not_show_its_file_is_believed_if_that_is_older(
        self,
        tmp_path: Path,
        program: Path,
        years: int,
        version: str | None,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        put(tmp_path, {"stat": f"cpu 0\nbtime {int(program.stat().st_ctime) + years * 31536000}\n"})
        put_kubelet_process(tmp_path, program)
        process = find_kubelet(str(tmp_path)).process
        assert process is not None
        stat = os.stat

        def without_ptrace(path: Any, **more: Any) -> os.stat_result:
            if str(path).endswith("/exe"):
                raise PermissionError
            return stat(path, **more)

        monkeypatch.setattr(os, "stat", without_ptrace)
        assert process_version(process, str(tmp_path)) == version

    def test_of_a_program_that_anybody_may_write_to_is_not_executed(
        self, tmp_path: Path, program: Path
    ) -> None:
        program.chmod(0o777)
        put_kubelet_process(tmp_path, program)
        process = find_kubelet(str(tmp_path)).process
        assert process is not None
        assert process_version(process, str(tmp_path)) is None


class TestSources:
    """In their order, and which one was used."""

    def test_of_the_version(self, tmp_path: Path, program: Path) -> None:
        machine = roots(tmp_path)
        sources = KubeletSources(machine)
        assert sources.read_facts().version is None
        assert sources.read_facts().why_unknown == "no kubelet process is visible here"
        put_kubelet_process(Path(machine.proc), program)
        with fake_kubelet({"/metrics": BUILD}) as kubelet:
            endpoint = KubeletEndpoint(kubelet.url)
            sources = KubeletSources(machine)
            assert sources.read_facts(NODE, endpoint).notes[0] == (
                "the running kubelet is v1.35.0, by its Node"
            )
            assert kubelet.request_log == []
            found = KubeletSources(machine).read_facts(None, endpoint)
            assert found.version == "v1.33.1"
            assert found.version_source == f"{kubelet.url}/metrics"
            kubelet.answers["/metrics"] = (403, b"")
            found = KubeletSources(machine).read_facts(None, endpoint)
            assert found.version == "v1.34.11"
            assert found.version_source == f"its program {program}"
            assert any("nodes/metrics" in each for each in found.complaints)

    def test_of_the_configuration(self, tmp_path: Path, program: Path) -> None:
        machine = roots(tmp_path, kubelet={"config.yaml": "cgroupRoot: /standard\n"})
        found = KubeletSources(machine).read_facts().configuration
        assert found is not None
        assert (found.name, found.is_in_use) == (f"{machine.kubelet}/config.yaml", False)
        own = tmp_path / "own.yaml"
        own.write_text("cgroupRoot: /own\n")
        proc = Path(machine.proc)
        put_kubelet_process(proc, program, f"--config={own}")
        found = KubeletSources(machine).read_facts().configuration
        assert found is not None
        assert found == type(found)(str(own), b"cgroupRoot: /own\n", is_in_use=True)
        put(tmp_path / "d", {"20.conf": "cgroupRoot: /later", "10.conf": "cgroupRoot: /sooner"})
        put(tmp_path / "d", {"30.yaml": "cgroupRoot: /never"})
        flags = [f"--config={own}", f"--config-dir={tmp_path}/d", "--feature-gates=MemoryQoS=true"]
        put_kubelet_process(proc, program, *flags, started=2001)
        found = KubeletSources(machine).read_facts().configuration
        assert found is not None
        assert msgspec.json.decode(found.data) == {
            "cgroupRoot": "/later",
            "featureGates": {"MemoryQoS": True},
        }
        assert found.name == (
            f"{own} and 2 drop-ins of {tmp_path}/d and the flags of the kubelet's process "
            "(--feature-gates)"
        )
        assert (found.is_in_use, found.flag_gates) == (True, ("MemoryQoS",))

    def test_a_file_of_the_process_that_cannot_be_read_is_not_replaced_by_another(
        self, tmp_path: Path, program: Path
    ) -> None:
        machine = roots(tmp_path, kubelet={"config.yaml": "cgroupRoot: /standard\n"})
        put_kubelet_process(Path(machine.proc), program, f"--config={tmp_path}/away.yaml")
        found = KubeletSources(machine).read_facts()
        assert found.configuration is None
        assert "away.yaml: no such file" in found.complaints[0]

    def test_what_a_process_said_holds_while_it_is_down(
        self, tmp_path: Path, program: Path
    ) -> None:
        machine = roots(tmp_path)
        now = [0.0]
        folder = put_kubelet_process(Path(machine.proc), program, "--cgroup-root=/x")
        sources = KubeletSources(machine, lambda: now[0])
        first = sources.read_facts()
        assert first.is_fresh
        (folder / "stat").unlink()
        now[0] = 100.0
        down = sources.read_facts()
        assert (down.version, down.configuration) == (first.version, first.configuration)
        assert not down.is_fresh
        put_kubelet_program(program, "v1.38.0")
        put_kubelet_process(Path(machine.proc), program, started=3000)
        now[0] = 200.0
        assert sources.read_facts().version == "v1.38.0"

    def test_an_endpoint_that_answers_is_asked_again_after_five_minutes(
        self, tmp_path: Path
    ) -> None:
        now = [0.0]
        sources = KubeletSources(roots(tmp_path), lambda: now[0])
        with fake_kubelet({"/metrics": BUILD, "/configz": b"{}"}) as kubelet:
            endpoint = KubeletEndpoint(kubelet.url)
            sources.read_facts(None, endpoint)
            once = len(kubelet.request_log)
            now[0] = 299.9
            sources.read_facts(None, endpoint)
            assert len(kubelet.request_log) == once
            now[0] = 300.0
            sources.read_facts(None, endpoint)
            assert len(kubelet.request_log) == 2 * once

    def test_an_endpoint_that_is_silent_is_asked_again_later_and_later(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        now, asked = [0.0], list[float]()

        def ask(_endpoint: object, **_parts: bool) -> EndpointFacts:
            asked.append(now[0])
            return EndpointFacts(is_unreachable=True)

        monkeypatch.setattr(running_kubelet, "query_kubelet", ask)
        sources = KubeletSources(roots(tmp_path), lambda: now[0])
        endpoint = KubeletEndpoint("https://127.0.0.1:10250")
        for _ in range(9):
            sources.read_facts(None, endpoint)
            now[0] = sources.retry_at - 0.1
            sources.read_facts(None, endpoint)
            now[0] += 0.1
        assert [round(b - a) for a, b in pairwise(asked)] == [1, 2, 4, 8, 16, 32, 60, 60]

    def test_a_running_process_keeps_its_configuration_though_its_file_is_edited(
        self, tmp_path: Path, program: Path
    ) -> None:
        machine = roots(tmp_path)
        own = tmp_path / "own.yaml"
        own.write_text("cgroupRoot: /own\n")
        put_kubelet_process(Path(machine.proc), program, f"--config={own}")
        sources = KubeletSources(machine)
        before = sources.read_facts().configuration
        own.write_text("cgroupRoot: /next\n")
        assert sources.read_facts().configuration == before
        put_kubelet_process(Path(machine.proc), program, f"--config={own}", started=3000)
        assert sources.read_facts().configuration != before

    def test_a_running_process_keeps_its_version_though_its_file_is_replaced(
        self, tmp_path: Path, program: Path
    ) -> None:
        machine = roots(tmp_path)
        put_kubelet_process(Path(machine.proc), program)
        sources = KubeletSources(machine)
        assert sources.read_facts().version == "v1.34.11"
        put_kubelet_program(program, "v1.38.0")
        assert sources.read_facts().version == "v1.34.11"
