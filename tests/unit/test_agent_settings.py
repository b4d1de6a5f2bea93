"""An agent writes by what is known of the running kubelet, and never on a guess."""

from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from tests.fakes.agent import (
    KUBEPODS,
    MI,
    RESERVING_KUBELET,
    Delayed,
    SteppedNode,
    a_pod,
    container_paths,
    view_of,
)
from tests.fakes.kubelet import FakeKubelet, fake_kubelet
from tests.fakes.machine import put_kubelet_process, put_kubelet_program
from tests.fakes.node import memory_folder

from memqos.agent.configuration import PodSourceConfig
from memqos.agent.metrics import metric_families
from memqos.agent.reconcile import note_kubelet_reply, run_pass
from memqos.agent.settings_source import SettingsSource
from memqos.agent.state import agent_state
from memqos.converge.pod_sources import KubeletPods
from memqos.host.kubelet import KubeletEndpoint

OFF = "featureGates: {MemoryQoS: false}\n"
ON = "featureGates: {MemoryQoS: true}\nmemoryReservationPolicy: TieredReservation\n"


class Reserving(SteppedNode):
    """The file of its kubelet has the gate on."""

    kubelet = RESERVING_KUBELET


class Node:
    """An agent beside a kubelet whose process comes and goes."""

    def __init__(self, folder: Path, program: Path, **options: Any) -> None:
        self.folder = folder
        self.program = program
        self.started = 100
        self.bed = Reserving(folder, **{"release": None, **options})
        self.pod = self.bed.run_pod(a_pod("g", 256, 256))
        (self.container,) = container_paths(self.pod)
        self.bed.settle()

    def run_kubelet(self, version: str, *flags: str, configuration: str = ON) -> None:
        """Start one in the place of any other."""
        put_kubelet_program(self.program, version)
        self.started += 100
        file = self.folder / "kubelet.yaml"
        file.write_text(configuration)
        put_kubelet_process(
            self.folder / "proc",
            self.program,
            f"--config={file}",
            *flags,
            started=self.started,
        )

    def stop_kubelet(self) -> None:
        (self.folder / "proc" / "812" / "stat").unlink()

    @property
    def minimum(self) -> float | str:
        return self.bed.mi(self.container, "memory.min")

    def ready(self) -> str | None:
        return view_of(self.bed, is_complete=True).readiness_problem()

    def known(self) -> float:
        view = view_of(self.bed)
        (family,) = (each for each in metric_families(view) if each.name == "memqos_settings_known")
        return next(iter(family.samples)).value

    def written(self) -> int:
        return sum(self.bed.core.report.writes.values())


@pytest.fixture
def program(tmp_path: Path) -> Path:
    return tmp_path / "bin" / "kubelet"


@pytest.fixture
def folder() -> Iterator[Path]:
    with memory_folder() as made:
        yield made


class TestAGuess:
    def test_is_not_written_by_and_shows_everywhere(self, folder: Path, program: Path) -> None:
        node = Node(folder, program)
        node.bed.wait(120)
        assert node.minimum == 0
        assert node.written() == 0
        why = node.ready()
        assert why is not None
        assert why.startswith("nothing is written: the version of the running kubelet is unknown")
        assert node.known() == 0
        (message,) = node.bed.log_events("nothing is written")
        assert message.severity == "warning"
        assert agent_state(view_of(node.bed), node.bed.now)["doubt"] in why
        assert node.bed.core.pending  # what would be written is shown all the same

    def test_of_the_program_on_path_is_one(
        self, folder: Path, program: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        put_kubelet_program(program, "v1.38.0")
        monkeypatch.setenv("PATH", str(program.parent), prepend=":")
        node = Node(folder, program)
        assert node.bed.core.planner.node_settings.settings.release.minor == 38
        assert node.written() == 0
        assert node.bed.log_events("planned as 1.38, that of the kubelet on PATH")

    def test_ends_when_the_kubelet_is_there(self, folder: Path, program: Path) -> None:
        node = Node(folder, program)
        node.run_kubelet("v1.38.0")
        node.bed.wait(2)
        assert node.minimum == 256
        assert node.ready() is None
        assert node.known() == 1
        assert node.bed.log_events("the running kubelet is known now")
        assert node.bed.log_events("the running kubelet is v1.38.0, by its program")

    def test_is_checked_again_later_and_later(self, folder: Path, program: Path) -> None:
        node = Node(folder, program)
        now, looked = node.bed.now, list[float]()
        source = SettingsSource(node.bed.kernel, node.bed.reader.roots, lambda: now)
        end = now + 200
        while now < end:
            if not looked or source.is_due():
                looked.append(now)
                assert source.resolve(node.bed.configuration).doubt
            now += 0.5
        assert [b - a for a, b in pairwise(looked)] == [2, 4, 8, 16, 32, 60, 60]

    def test_is_one_without_any_configuration(self, folder: Path, program: Path) -> None:
        node = Node(folder, program, release="1.38", gates={})
        (folder / "kubelet" / "config.yaml").unlink()
        node.bed.wait(70)
        assert "and whether MemoryQoS is on" in str(node.ready())
        before = node.written()
        node.bed.kernel.write(node.container, "memory.min", "0")
        node.bed.wait(70)
        assert (node.minimum, node.written()) == (0, before)
        node.bed.reload(gates={"MemoryQoS": True}, policy="TieredReservation")
        node.bed.wait(70)
        assert node.minimum == 256

    @pytest.mark.parametrize("is_named", [True, False])
    def test_is_that_no_kubelet_runs_with_a_file_that_has_the_gate_on(
        self, folder: Path, program: Path, is_named: bool
    ) -> None:
        """One that does would keep the files above pods, and memqos fight it."""
        file = str(folder / "kubelet" / "config.yaml")
        options = {"kubelet_config": file} if is_named else {}
        node = Node(folder, program, release="1.38", **options)
        node.bed.wait(70)
        assert f"{file} has MemoryQoS on, and no kubelet is known" in str(node.ready())
        assert node.written() == 0
        node.run_kubelet("v1.38.0")
        node.bed.wait(60)
        assert node.ready() is None
        assert (KUBEPODS, "memory.min") in node.bed.core.node_intent.kubelet_managed

    def test_is_not_where_the_gate_is_stated_and_no_file_has_it_on(
        self, folder: Path, program: Path
    ) -> None:
        node = Node(folder, program, release="1.38")
        (folder / "kubelet" / "config.yaml").write_text(OFF)
        node.bed.wait(70)
        assert node.ready() is None
        assert node.minimum == 256

    def test_of_a_release_that_memqos_does_not_know_is_one(
        self, folder: Path, program: Path
    ) -> None:
        put_kubelet_program(program, "v1.99.0")
        put_kubelet_process(folder / "proc", program)
        node = Node(folder, program)
        assert "1.99 is newer than any release that memqos supports" in str(node.ready())
        assert node.written() == 0

    @pytest.mark.parametrize(
        "options", [{}, {"gates": {"MemoryQoS": True, "PodLevelResourceManagers": True}}]
    )
    def test_that_does_not_fit_the_node_does_not_end_the_agent(
        self, folder: Path, program: Path, options: dict[str, Any], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        # Neither the gate nor the policy was there in the release of the program on PATH.
        put_kubelet_program(folder / "path" / "kubelet", "v1.30.0")
        monkeypatch.setenv("PATH", str(folder / "path"), prepend=":")
        gates = "featureGates: {PodLevelResourceManagers: true, MemoryQoS: true}\n"
        monkeypatch.setattr(Reserving, "kubelet", gates)
        node = Node(folder, program, **options)
        assert node.ready() is not None
        node.run_kubelet("v1.38.0", configuration=f"{gates}memoryReservationPolicy: None\n")
        node.bed.wait(2)
        assert node.ready() is None

    def test_is_only_mentioned_by_an_agent_that_observes(self, folder: Path, program: Path) -> None:
        node = Node(folder, program, mode="observe")
        assert node.ready() is None
        (message,) = node.bed.log_events("nothing would be written")
        assert message.severity == "info"


class TestAStatedRelease:
    def test_holds_where_the_kubelets_own_gate_is_off(self, folder: Path, program: Path) -> None:
        options = {"gates": {"MemoryQoS": True}, "policy": "TieredReservation"}
        node = Node(folder, program, release="1.38", **options)
        node.run_kubelet("v1.34.11", configuration=OFF)
        node.bed.wait(70)
        assert node.bed.core.planner.node_settings.kubelet is not None
        assert not node.bed.core.planner.node_settings.kubelet.writes_levels
        assert node.ready() is None
        assert node.minimum == 256

    def test_that_the_kubelet_leaves_behind_stops_writing_and_keeps_what_is_there(
        self, folder: Path, program: Path
    ) -> None:
        node = Node(folder, program, release="1.38")
        node.run_kubelet("v1.38.0")
        node.bed.wait(70)
        assert node.minimum == 256
        node.run_kubelet("v1.34.11")
        node.bed.wait(2)
        assert "v1.34.11 and has MemoryQoS on, but the release is set to 1.38" in str(node.ready())
        before = node.written()
        node.bed.kernel.write(node.container, "memory.min", str(MI))
        node.bed.wait(130)
        assert node.minimum == 1  # neither put back nor given back
        assert node.bed.mi(KUBEPODS, "memory.min") != 0
        assert (node.written(), sum(node.bed.core.report.restores.values())) == (before, 0)
        assert not node.bed.core.report.drifts
        node.run_kubelet("v1.38.0")
        node.bed.wait(2)
        assert node.minimum == 256

    def test_is_no_contradiction_to_another_patch(self, folder: Path, program: Path) -> None:
        node = Node(folder, program, release="1.38")
        node.run_kubelet("v1.38.7+vendor")
        node.bed.wait(70)
        assert node.ready() is None


class TestTheKubelet:
    def test_is_known_by_its_own_flags_whatever_the_agent_is_reported(
        self, folder: Path, program: Path
    ) -> None:
        node = Node(folder, program, gates={"MemoryQoS": True}, policy="None")
        node.run_kubelet("v1.38.0", configuration=OFF)
        node.bed.wait(2)
        kubelet = node.bed.core.planner.node_settings.kubelet
        assert kubelet is not None
        assert not kubelet.writes_levels
        tiered = f"{OFF}memoryReservationPolicy: TieredReservation\n"
        node.run_kubelet("v1.38.0", "--feature-gates=MemoryQoS=true", configuration=tiered)
        node.bed.wait(2)
        kubelet = node.bed.core.planner.node_settings.kubelet
        assert kubelet is not None
        assert kubelet.writes_levels
        assert kubelet.policy == "TieredReservation"
        assert node.bed.core.planner.node_settings.settings.policy == "None"

    def test_is_asked_again_when_its_service_is_another(self, folder: Path, program: Path) -> None:
        node = Node(folder, program)
        node.bed.wait(1000)  # by now it asks once a minute
        node.run_kubelet("v1.38.0")
        node.bed.kernel.make("/system.slice/kubelet.service")
        node.bed.wait(1)
        assert node.minimum == 256

    def test_that_is_down_leaves_all_as_it_was(self, folder: Path, program: Path) -> None:
        node = Node(folder, program)
        node.run_kubelet("v1.38.0", "--cgroup-driver=cgroupfs")
        node.bed.wait(70)
        planner = node.bed.core.planner
        node.stop_kubelet()
        node.bed.wait(130)
        assert node.bed.core.planner is planner
        assert not node.bed.reader.settings_source.is_fresh
        node.run_kubelet("v1.38.0", "--cgroup-driver=cgroupfs")
        node.bed.wait(130)
        assert node.bed.core.planner is planner
        assert node.bed.reader.settings_source.is_fresh


def test_a_kubelet_that_pods_come_from_is_asked_what_it_is(folder: Path, program: Path) -> None:
    build = b'kubernetes_build_info{git_version="v1.38.1"} 1\n'
    with fake_kubelet({"/metrics": build}) as kubelet:
        node = Node(folder, program)
        node.bed.reader.source = KubeletPods(KubeletEndpoint(kubelet.url))
        node_settings = node.bed.reader.node_settings()
        assert node_settings.kubelet is not None
        assert node_settings.doubt is None
        assert node_settings.notes[0] == f"the running kubelet is v1.38.1, by {kubelet.url}/metrics"
        kubelet.raw = b""
        node.bed.now += 400
        assert node.bed.reader.node_settings() is node_settings


class TestPodsOfAKubelet:
    """Asked for off the pass: its answers come two seconds later."""

    @pytest.fixture
    def kubelet(self) -> Iterator[FakeKubelet]:
        pods = {"kind": "PodList", "items": [a_pod("g", 256, 256)]}
        with fake_kubelet({"/pods": pods}) as kubelet:
            yield kubelet

    def bed(
        self, folder: Path, kubelet: FakeKubelet, monkeypatch: pytest.MonkeyPatch
    ) -> SteppedNode:
        monkeypatch.setattr(Delayed, "seconds", 2.0)
        # Of its settings nobody has to be asked.
        bed = SteppedNode(
            folder,
            pods=PodSourceConfig(files=(), kubelet=kubelet.url),
            kubelet_config=str(folder / "kubelet" / "config.yaml"),
        )
        bed.run_pod(a_pod("g", 256, 256), listed=False)
        return bed

    def pod_requests(self, kubelet: FakeKubelet) -> int:
        return [path for path, _ in kubelet.request_log].count("/pods")

    def test_are_a_resync_when_they_are_first_told(
        self, folder: Path, kubelet: FakeKubelet, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        bed = self.bed(folder, kubelet, monkeypatch)
        assert not run_pass(bed.core, bed.reader, bed.writer, lambda: bed.now)
        assert not bed.core.node_intent.has_pods
        bed.now += 2
        bed.asker.deliver()
        note_kubelet_reply(bed.core, bed.reader, bed.now)
        assert run_pass(bed.core, bed.reader, bed.writer, lambda: bed.now)
        assert bed.mi(container_paths(a_pod("g", 256, 256))[0], "memory.min") == 256
        assert not bed.core.report.errors["source"]
        # The next resync goes by what was told, and asks.
        bed.core.resync(bed.now)
        assert run_pass(bed.core, bed.reader, bed.writer, lambda: bed.now)

    def test_are_asked_for_as_often_as_if_they_came_at_once(
        self, folder: Path, kubelet: FakeKubelet, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        bed = self.bed(folder, kubelet, monkeypatch)
        bed.wait(30)
        before = self.pod_requests(kubelet)
        bed.wait(600)
        assert self.pod_requests(kubelet) == before + 10

    def test_that_are_not_told_are_reported_once_an_answer(
        self, folder: Path, kubelet: FakeKubelet, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        kubelet.answers["/pods"] = 403, b""
        bed = self.bed(folder, kubelet, monkeypatch)
        bed.wait(300)
        assert bed.core.report.errors["source"] == self.pod_requests(kubelet) - len(bed.asker)
        kubelet.answers["/pods"] = {"kind": "PodList", "items": [a_pod("g", 256, 256)]}
        bed.wait(70)
        assert bed.core.node_intent.has_pods

    def test_that_come_while_it_is_asked_are_asked_for_again(
        self, folder: Path, kubelet: FakeKubelet, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        bed = self.bed(folder, kubelet, monkeypatch)
        bed.wait(30)
        bed.core.resync(bed.now)
        bed.settle()
        assert len(bed.asker) == 1
        before = self.pod_requests(kubelet)
        new = a_pod("h", 128, 128)
        bed.run_pod(new, listed=False)
        kubelet.answers["/pods"] = {"kind": "PodList", "items": [a_pod("g", 256, 256), new]}
        bed.wait(1)
        assert self.pod_requests(kubelet) == before
        bed.wait(4)
        assert bed.mi(container_paths(new)[0], "memory.min") == 128
