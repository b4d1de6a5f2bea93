"""Runs experiments in virtual machines: one for all scenarios that want the same one."""

import shutil
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Final

import msgspec

from memqos.errors import LabError
from memqos.kernel.file_formats import meminfo_of
from memqos.lab.events import LabEvent, decode_event
from memqos.lab.guest import selection_words
from memqos.lab.runner import Selected
from memqos.lab.vm.building import failure_of
from memqos.lab.vm.image import (
    MachineImage,
    built_image,
    image_cache,
    machine_image,
    obstacle_to_building,
)
from memqos.lab.vm.machine import VM, Job
from memqos.lab.vm.payload import make_payload
from memqos.lab.vm.tools import obstacle_to_booting
from memqos.lab.vm.topology import Accel, Suite, Topology
from memqos.lab.waiting import PATIENCE
from memqos.units import format_bytes

SILENCE: Final = PATIENCE + 60
"""Seconds after which a machine that has sent nothing is given up: one that waits in vain itself
says for what, and goes on with the next run."""
BOOT_SECONDS: Final = 12.0
BUILD_SECONDS: Final = 120.0
_BUILD_DISK: Final = 3 << 30
_RUN_DISK: Final = 512 << 20
_BESIDE: Final = 256 << 20
"""What QEMU itself takes, and what the host keeps free."""


def machines_of(
    selection: Sequence[Selected], suite: Suite
) -> list[tuple[Topology, list[Selected]]]:
    """The machines that a selection needs, and what runs on each."""
    found: dict[Topology, list[Selected]] = {}
    for each in selection:
        topology = msgspec.structs.replace(each.scenario.machine, suite=suite)
        found.setdefault(topology, []).append(each)
    return list(found.items())


def estimate_seconds(selection: Sequence[Selected], runs: int, suite: Suite) -> float:
    """What all of it takes in emulated machines on an idle computer."""
    measuring = sum(each.scenario.seconds * len(each.variants) * runs for each in selection)
    building = 0.0 if built_image(suite) else BUILD_SECONDS
    return building + BOOT_SECONDS * len(machines_of(selection, suite)) + measuring


def check_host(selection: Sequence[Selected], suite: Suite, folder: Path) -> None:
    """Refuse what cannot be run here, before anything is started."""
    obstacle = obstacle_to_booting()
    if obstacle is None and built_image(suite) is None:
        obstacle = obstacle_to_building(suite)
        if obstacle is None:
            _check_disk(image_cache(), _BUILD_DISK)
    if obstacle is not None:
        what, _, hint = obstacle.partition(" – ")
        raise LabError(what, hint=hint or None)
    _check_disk(folder, _RUN_DISK)
    largest = max(sum(topology.nodes) << 20 for topology, _ in machines_of(selection, suite))
    available = meminfo_of(Path("/proc/meminfo").read_text())["MemAvailable"]
    if available < largest + _BESIDE:
        raise LabError(
            f"a virtual machine of {format_bytes(largest)} needs {format_bytes(largest + _BESIDE)} "
            f"of memory, and {format_bytes(available)} are available",
            hint="stop other programs, or use a larger machine",
        )


def run_in_vm(
    selection: Sequence[Selected],
    runs: int,
    *,
    suite: Suite,
    accel: Accel,
    folder: Path,
    note: Callable[[str], None],
) -> Iterator[LabEvent]:
    """What the machines report; `note` is called with what takes time before."""
    image = built_image(suite)
    if image is None:
        note(f"building the image of Debian {suite}, once")
        image = machine_image(suite)
    payload = make_payload(folder)
    for number, (topology, group) in enumerate(machines_of(selection, suite)):
        note("booting")
        own_folder = folder / f"machine-{number}"
        own_folder.mkdir()
        job = _job(group, runs, topology, image, payload, accel)
        with VM(job, own_folder) as machine:
            for line in machine.result_lines(silence=SILENCE):
                yield _event_of(line)
            outcome = machine.outcome()
        if outcome.exit_code != 0:
            why = "sent nothing for too long" if outcome.timed_out else "ended too early"
            what = f"the virtual machine {why}"
            raise failure_of(what, f"{outcome.story()}\n{outcome.output or outcome.console}")


def _event_of(line: bytes) -> LabEvent:
    try:
        event: LabEvent = decode_event(line)
    except msgspec.MsgspecError as error:
        raise failure_of(
            "the virtual machine sent what is no event of an experiment", str(error)
        ) from None
    return event


def _job(
    group: list[Selected],
    runs: int,
    topology: Topology,
    image: MachineImage,
    payload: Path,
    accel: Accel,
) -> Job:
    words = ("python3", "-m", "memqos.lab.guest", str(runs), *selection_words(group))
    return Job(words, topology, image, payload, int(SILENCE), accel)


def _check_disk(folder: Path, needed: int) -> None:
    there = next(each for each in (folder, *folder.parents) if each.exists())
    free = shutil.disk_usage(there).free
    if free < needed:
        raise LabError(
            f"{there} has {format_bytes(free)} free, and {format_bytes(needed)} are needed",
            hint="free some, or choose another place with MEMQOS_VM_CACHE and TMPDIR",
        )
