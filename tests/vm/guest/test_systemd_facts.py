"""What memqos takes for granted about systemd, where that owns the cgroups."""

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.eventually import eventually
from tests.vm.guest.owner_node import reload_writes_files
from tests.vm.guest.support import MI, ROOT

from memqos.lab.vm.topology import Topology

MACHINES = {"systemd": Topology(init="systemd")}

UNIT = "workload.service"
SLICE = "workloads.slice"


def run(*command: str) -> None:
    subprocess.run(command, check=True, capture_output=True, text=True)


@pytest.fixture
def memory_low() -> Iterator[Path]:
    """The file of a service that was started with 8 MiB."""
    run(
        *("systemd-run", "--unit", UNIT, "--slice", SLICE, "--property", f"MemoryLow={8 * MI}"),
        *("sleep", "infinity"),
    )
    yield ROOT / SLICE / UNIT / "memory.low"
    run("systemctl", "stop", UNIT)


def test_systemd_is_the_first_process() -> None:
    assert Path("/proc/1/comm").read_text() == "systemd\n"


def test_a_property_becomes_the_value_of_the_file(memory_low: Path) -> None:
    assert int(memory_low.read_text()) == 8 * MI


def test_a_value_written_past_systemd_is_lost_when_it_reloads(memory_low: Path) -> None:
    memory_low.write_text(str(16 * MI))
    run("systemctl", "daemon-reload")
    if not reload_writes_files():
        run("systemctl", "set-property", "--runtime", UNIT, "TasksMax=500")
    eventually("systemd's value is back", lambda: int(memory_low.read_text()) == 8 * MI)


def test_a_property_set_later_survives_a_reload(memory_low: Path) -> None:
    run("systemctl", "set-property", "--runtime", UNIT, f"MemoryLow={32 * MI}")
    run("systemctl", "daemon-reload")
    assert int(memory_low.read_text()) == 32 * MI


def test_systemd_leaves_a_mark_when_it_loads_its_units() -> None:
    mark = Path("/run/systemd/systemd-units-load")
    before = mark.stat().st_mtime_ns
    run("systemctl", "daemon-reload")
    eventually("the mark is a new one", lambda: mark.stat().st_mtime_ns != before)
