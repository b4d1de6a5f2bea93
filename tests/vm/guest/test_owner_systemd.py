"""Values written through systemd stay, and leave nothing behind when they are taken back."""

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.eventually import eventually
from tests.vm.guest.owner_node import (
    Memqos,
    cache_in,
    dropins,
    ends,
    number,
    reload_writes_files,
    scope,
    systemctl,
    text,
    workload_in,
)
from tests.vm.guest.runtime import make_cgroups, remove_cgroup
from tests.vm.guest.support import MI, ROOT

from memqos.host.systemd_bus import SystemdManager
from memqos.lab.vm.topology import Topology
from memqos.plan.changes import Change
from memqos.plan.names import cgroup_names

MACHINES = {"systemd": Topology(init="systemd")}

NAMES = cgroup_names("systemd")
POD = NAMES.pod("1", "Burstable")
SCOPE = "cri-containerd-1.scope"
HIGH, LOW, MIN = "memory.high", "memory.low", "memory.min"
MANY = 5


@pytest.fixture
def memqos(tmp_path: Path) -> Memqos:
    return Memqos(tmp_path)


@pytest.fixture(scope="module")
def pod() -> Iterator[Path]:
    make_cgroups(NAMES, POD)
    yield ROOT / POD.removeprefix("/")
    remove_cgroup(POD)


@pytest.fixture
def container(pod: Path) -> Iterator[Path]:
    cgroup, process = scope(SCOPE, pod.name)
    yield cgroup
    process.kill()
    process.wait()
    eventually("the scope is gone", lambda: not cgroup.exists())


def test_values_outlive_all_that_undoes_a_direct_write(memqos: Memqos, pod: Path) -> None:
    before = memqos.files(NAMES.kubepods), dropins()
    steps = [memqos.step(POD, LOW, 8 * MI), memqos.step(NAMES.burstable, LOW, 16 * MI)]
    assert set(ends(memqos.apply(steps)).values()) == {"written"}
    undoing = {
        "a reload": ("daemon-reload",),
        "systemd started anew": ("daemon-reexec",),
        "another property": ("set-property", "--runtime", pod.name, "TasksMax=500"),
    }
    for what, command in undoing.items():
        (pod / MIN).write_text(str(4 * MI))
        systemctl(*command)
        if "set-property" in command or reload_writes_files():
            eventually(f"{what} undoes a direct write", lambda: text(pod, MIN) == "0")
        assert (number(pod, LOW), number(pod.parent, LOW)) == (8 * MI, 16 * MI), what
    assert memqos.rollback().owner_failures == ()
    assert (memqos.files(NAMES.kubepods), dropins()) == before
    systemctl("daemon-reload")
    assert (memqos.files(NAMES.kubepods), dropins()) == before
    assert systemctl("show", "--property=NeedDaemonReload", pod.name).strip().endswith("=no")


def test_a_property_somebody_had_set_is_back_after_rollback(memqos: Memqos, pod: Path) -> None:
    systemctl("set-property", "--runtime", pod.name, f"MemoryLow={4 * MI}")
    before = dropins()
    memqos.apply([memqos.step(POD, LOW, 8 * MI), memqos.step(POD, HIGH, 512 * MI)])
    assert dropins() != before
    memqos.rollback()
    assert dropins() == before
    systemctl("daemon-reload")
    assert (number(pod, LOW), text(pod, HIGH)) == (4 * MI, "max")
    systemctl("set-property", "--runtime", pod.name, "MemoryLow=0")


def test_what_a_kubelet_sets_on_a_slice_keeps_the_values_of_memqos(
    memqos: Memqos, pod: Path
) -> None:
    memqos.apply([memqos.step(POD, LOW, 8 * MI)])
    systemctl("set-property", "--runtime", pod.name, f"MemoryMax={900 * MI}", "TasksMax=500")
    assert (number(pod, LOW), number(pod, "memory.max")) == (8 * MI, 900 * MI)
    # And what it sets itself is its own: memqos sees that as drift, and does not fight for it.
    systemctl("set-property", "--runtime", pod.name, f"MemoryLow={2 * MI}")
    assert number(pod, LOW) == 2 * MI
    assert [each.state for each in memqos.rollback().not_written] == ["conflict"]
    assert number(pod, LOW) == 2 * MI
    systemctl("set-property", "--runtime", pod.name, "MemoryLow=0", "MemoryMax=infinity")


def test_a_slice_of_a_unit_file_forgets_its_values_too(memqos: Memqos) -> None:
    unit = Path("/run/systemd/system/reserved.slice")
    unit.write_text("[Slice]\nMemoryLow=4M\n")
    systemctl("daemon-reload")
    systemctl("start", unit.name)
    cgroup = ROOT / unit.name
    memqos.apply([memqos.step(f"/{unit.name}", MIN, 8 * MI)])
    assert any("system.control" in path for path in dropins())
    systemctl("daemon-reload")
    assert (number(cgroup, MIN), number(cgroup, LOW)) == (8 * MI, 4 * MI)
    memqos.rollback()
    assert not any("system.control" in path for path in dropins())
    systemctl("daemon-reload")
    assert (number(cgroup, MIN), number(cgroup, LOW)) == (0, 4 * MI)
    systemctl("stop", unit.name)


class TestAScope:
    def test_without_a_runtime_keeps_its_values_and_those_that_are_not_memqos_s(
        self, memqos: Memqos, container: Path
    ) -> None:
        (container / "memory.oom.group").write_text("1")
        path = f"{POD}/{SCOPE}"
        steps = [
            memqos.step(path, file, new, "container", "main")
            for file, new in ((LOW, 8 * MI), (HIGH, 64 * MI))
        ]
        assert set(ends(memqos.apply(steps)).values()) == {"written"}
        assert text(container, "memory.oom.group") == "1"
        systemctl("daemon-reload")
        assert (number(container, LOW), number(container, HIGH)) == (8 * MI, 64 * MI)

    def test_has_its_usage_reclaimed_before_systemd_is_reported(
        self, memqos: Memqos, container: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        cache_in(container, tmp_path / "file", 64 * MI)
        assert number(container, "memory.current") > 48 * MI
        usage_when_set: list[int] = []
        set_properties = SystemdManager.set_properties

        def note_usage(self: SystemdManager, unit: str, properties: dict[str, int]) -> None:
            usage_when_set.append(number(container, "memory.current"))
            set_properties(self, unit, properties)

        monkeypatch.setattr(SystemdManager, "set_properties", note_usage)
        step = memqos.step(f"{POD}/{SCOPE}", HIGH, 16 * MI, "container", "main")
        assert set(ends(memqos.apply([step])).values()) == {"written"}
        assert len(usage_when_set) == 1
        assert usage_when_set[0] <= 16 * MI

    def test_whose_usage_cannot_fall_is_not_given_to_systemd_to_wait_for(
        self, memqos: Memqos, container: Path
    ) -> None:
        workload = workload_in(container)
        workload.hold(64 * MI)
        step = memqos.step(f"{POD}/{SCOPE}", HIGH, 16 * MI, "container", "main")
        assert set(ends(memqos.apply([step])).values()) == {"withheld"}
        (result,) = memqos.apply([step], force=True).results
        assert (result.outcome, text(container, HIGH)) == ("refused", "max")
        assert "usage does not fall below it" in (result.detail or "")
        workload.end()


class TestTheBus:
    """Several pods, and a bus that is lost after the first was written."""

    @pytest.fixture
    def pods(self, pod: Path) -> Iterator[list[str]]:
        paths = [NAMES.pod(f"2{index}", "Burstable") for index in range(MANY)]
        make_cgroups(NAMES, *paths)
        yield paths
        for path in paths:
            remove_cgroup(path)

    def lows(self, pods: list[str]) -> list[str]:
        return [text(ROOT / path.removeprefix("/"), LOW) for path in pods]

    def test_killed_while_memqos_writes_is_found_again(
        self, memqos: Memqos, pods: list[str]
    ) -> None:
        def kill(done: int, _of: int, _change: Change) -> None:
            if done == 1:
                systemctl("kill", "--signal=KILL", "dbus.service")
                eventually("the bus is down", lambda: "running" not in state("dbus.service"))

        steps = [memqos.step(path, LOW, 8 * MI) for path in pods]
        found = set(ends(memqos.apply(steps, kill)).values())
        assert "written" in found
        assert found <= {"written", "unreachable"}
        # systemd takes a moment to be on the new bus.
        eventually("a later run finishes", lambda: self.is_finished(memqos, pods))
        assert memqos.rollback().owner_failures == ()
        assert self.lows(pods) == ["0"] * MANY
        assert not [path for path in dropins() if "pod2" in path]

    def test_that_is_gone_holds_up_nothing_else(self, memqos: Memqos, pods: list[str]) -> None:
        bare = ROOT / "bare"
        bare.mkdir()

        def stop(done: int, _of: int, _change: Change) -> None:
            if done == 1:
                systemctl("stop", "dbus.socket", "dbus.service")

        steps = [memqos.step(path, LOW, 8 * MI) for path in pods]
        applied = memqos.apply([*steps, memqos.step("/bare", LOW, 8 * MI)], stop)
        written = [place for place, end in ends(applied).items() if end == "written"]
        lost = [result for result in applied.results if result.outcome == "unreachable"]
        assert "/bare/memory.low" in written
        assert len(lost) == MANY + 1 - len(written) > 0
        assert "apply again when the bus is back" in (lost[0].detail or "")
        systemctl("start", "dbus.socket")
        eventually("a later run finishes", lambda: self.is_finished(memqos, pods))
        memqos.rollback()
        assert self.lows(pods) == ["0"] * MANY
        bare.rmdir()

    def is_finished(self, memqos: Memqos, pods: list[str]) -> bool:
        memqos.apply([memqos.step(path, LOW, 8 * MI) for path in pods])
        return self.lows(pods) == [str(8 * MI)] * MANY


def state(unit: str) -> str:
    done = subprocess.run(
        ["systemctl", "show", "--property=SubState", unit],
        capture_output=True,
        text=True,
        check=False,
    )
    return done.stdout
