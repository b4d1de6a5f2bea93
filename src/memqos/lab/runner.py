"""Runs experiments in a scratch cgroup of this machine, which may be a virtual one."""

import os
import platform
import secrets
import shutil
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final, NamedTuple

from memqos.errors import LabError
from memqos.host.machine import read_machine
from memqos.lab.cgroup import CGROUP_ROOT, ScratchCgroup
from memqos.lab.events import LabEvent, LabMachine, RunFailed, RunMeasured, RunStarted
from memqos.lab.node import protection_is_recursive
from memqos.lab.scenario import Planned, Scenario, Workbench

SCRATCH_PREFIX: Final = "memqos-lab-"
_FILES: Final = "/var/tmp"
"""On a disk: what is read from a tmpfs is no page cache that can be reclaimed."""
_SWEEP: Final = """
read -r _
while [ -d "$1" ]; do
    echo 1 >"$1/cgroup.kill"
    find "$1" -depth -type d -exec rmdir {} + || sleep 0.1
done 2>/dev/null
rm -rf -- "$2"
"""


class Selected(NamedTuple):
    """A scenario, and which of its variants are run."""

    scenario: Scenario
    variants: tuple[str, ...]


@contextmanager
def scratch_space() -> Iterator[tuple[ScratchCgroup, Path]]:
    """A cgroup and a folder, removed at the end whatever happens.

    A process of its own removes them as soon as this one ends, even if it is killed.
    """
    name = f"{SCRATCH_PREFIX}{os.getpid()}"
    path = CGROUP_ROOT / name
    folder = Path(_FILES) / f"{name}-{secrets.token_hex(8)}"
    # It starts before what it removes is made: at no moment would something be left behind.
    sweeper = subprocess.Popen(
        ["sh", "-c", _SWEEP, "sh", str(path), str(folder)],
        stdin=subprocess.PIPE,
        # Ctrl-C is for this process.
        start_new_session=True,
    )
    try:
        folder.mkdir(mode=0o700)
        yield ScratchCgroup(path), folder
    finally:
        assert sweeper.stdin is not None
        sweeper.stdin.close()
        sweeper.wait()
        if path.exists() or folder.exists():
            raise LabError(
                f"{path} or {folder} could not be removed",
                hint="see which processes are in cgroup.procs",
            )


def run_experiments(
    selection: Sequence[Selected], runs: int, root: ScratchCgroup, folder: Path
) -> Iterator[LabEvent]:
    """Run all variants, one after the other, as often as asked: runs of a variant are apart."""
    for scenario, variants in selection:
        # Before any process is in it.
        root.write(memory_max=scenario.memory, memory_swap_max=scenario.swap)
        for run in range(1, runs + 1):
            for name in variants:
                yield RunStarted(scenario.name, name, run)
                yield _run_variant(scenario, name, run, root, folder)


def _run_variant(
    scenario: Scenario, name: str, run: int, root: ScratchCgroup, folder: Path
) -> RunMeasured | RunFailed:
    start = time.monotonic()
    planned: list[Planned] = []
    own_folder = folder / f"{scenario.name}-{run}"
    own_folder.mkdir()
    cgroup = root.child("run")
    bench = Workbench(cgroup, own_folder, planned)
    outcome: RunMeasured | RunFailed
    try:
        figures = scenario.measure(bench, scenario.variants[name])
        seconds = time.monotonic() - start
        outcome = RunMeasured(scenario.name, name, run, seconds, figures, tuple(planned))
    except (LabError, OSError) as error:
        outcome = RunFailed(scenario.name, name, run, str(error))
    # Not where it was interrupted, perhaps while a cgroup was made: the space as a whole goes then.
    cgroup.remove()
    root.forget(cgroup)
    shutil.rmtree(own_folder)
    return outcome


def describe_machine() -> LabMachine:
    """This machine."""
    machine = read_machine()
    return LabMachine(
        kernel=machine.kernel or "unknown",
        system=platform.freedesktop_os_release().get("PRETTY_NAME", "unknown"),
        memory=machine.memory or 0,
        swap=machine.swap or 0,
        # A kernel without NUMA, as those of some small boards, has no folder of nodes.
        numa_nodes=len(machine.numa) or 1,
        processors=os.cpu_count() or 1,
        python=platform.python_version(),
        recursive_protection=protection_is_recursive(),
    )
