"""Calls to systemd and the runtime for a plan of 250 pods, and what it costs to be able to call."""

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from memqos.converge.apply import apply
from memqos.converge.cri_driver import CriDriver
from memqos.converge.driver import Driver
from memqos.converge.journal import hierarchy_of, open_journal
from memqos.converge.router import Router, WriteVia
from memqos.converge.steps import WriteOptions, WriteStep, steps_of
from memqos.converge.systemd_driver import SystemdDriver
from memqos.host.cgroups import CgroupFs
from memqos.host.cri import CriClient, StoredResources
from memqos.host.owner_discovery import OwnerEndpoints
from memqos.host.systemd_bus import SystemdManager
from memqos.host.systemd_dropins import PROPERTIES, DropIns
from memqos.plan.changes import Change
from memqos.plan.names import cgroup_names, kind_of
from memqos.plan.setting import Rule, Setting
from memqos.plan.tree import Level

PODS = 250
CONTAINERS = 2
MI = 1 << 20
ROUNDS = 5
_FILES = {"memory.min": "0", "memory.low": "0", "memory.high": "max", "memory.current": "0"}
_SETTING = Setting(None, Rule("bench", "as the bench says", "bench"))
_PRINT_MEMORY = "; print(open('/proc/self/status').read().split('VmRSS:')[1].split()[0])"


class _Manager(SystemdManager):
    """systemd without a bus: it writes the properties, and counts calls."""

    def __init__(self, root: str) -> None:
        super().__init__("", 1)
        self.paths = {os.path.basename(folder): folder for folder, _, _ in os.walk(root)}
        self.calls = 0

    def set_properties(self, unit: str, properties: Mapping[str, int]) -> None:
        self.calls += 1
        for file, name in PROPERTIES.items():
            value = properties[name]
            _put(self.paths[unit], file, "max" if value >= 1 << 63 else str(value))


class _Runtime(CriClient):
    """A runtime without a socket."""

    def __init__(self, root: str) -> None:
        super().__init__("", 1)
        self.paths = {os.path.basename(folder): folder for folder, _, _ in os.walk(root)}
        self.updates = self.statuses = 0

    def read_resources(self, container: str) -> StoredResources:
        self.statuses += 1
        return StoredResources()

    def update(self, container: str, unified: Mapping[str, str], cpuset_mems: str = "") -> None:
        self.updates += 1
        for file, value in unified.items():
            _put(self.paths[f"cri-containerd-{container}.scope"], file, value)


class _Router(Router):
    """Routes to drivers whose owners only count calls."""

    def __init__(self, root: str) -> None:
        owners = OwnerEndpoints(systemd=root, bus="/", sockets={"containerd": "/"})
        super().__init__(CgroupFs(root), owners)
        self.manager, self.runtime = _Manager(root), _Runtime(root)
        self._counting: dict[WriteVia, Driver] = {
            "systemd": SystemdDriver(self.fs, self.manager, DropIns(f"{root}/run"), 1),
            "runtime": CriDriver(self.fs, self.runtime, 4096, 1),
        }

    def _driver(self, through: WriteVia, socket: str | None) -> Driver:
        return self._counting[through]


def report() -> Iterator[str]:
    """Calls are counted, and do not depend on the machine."""
    with tempfile.TemporaryDirectory() as folder:
        root = f"{folder}/cgroup"
        values = _create_tree(root)
        fs = CgroupFs(root)
        for what in ("first", "converged"):
            steps = _steps(fs, values)
            router = _Router(root)
            with (
                _clock() as seconds,
                open_journal(f"{folder}/journal", hierarchy_of(fs, "b")) as journal,
            ):
                done = apply(steps, fs, router, journal, WriteOptions(4096, 0))
            assert not done.stale
            yield (
                f"{what}: {len(done.results)} changes, {router.manager.calls} D-Bus calls, "
                f"{router.runtime.updates} CRI updates, {router.runtime.statuses} CRI statuses, "
                f"{seconds[0] * 1000:.0f} ms of memqos itself"
            )
    for code in (
        "pass",
        "import memqos.host.systemd_bus",
        "import memqos.host.cri",
        "import memqos.host.systemd_bus, memqos.host.cri",
        "import asyncio",
    ):
        milliseconds, kilobytes = _cost(code)
        yield f"{code}: {milliseconds:.0f} ms, {kilobytes / 1024:.1f} MB"


def _create_tree(root: str) -> dict[tuple[str, str], str]:
    names = cgroup_names("systemd")
    values = {
        (names.kubepods, "memory.min"): str(PODS * MI),
        (names.kubepods, "memory.low"): str(PODS * MI),
        (names.burstable, "memory.low"): str(PODS * MI),
    }
    for index in range(PODS):
        pod = names.pod(f"{index}", "Burstable")
        values[pod, "memory.low"] = str(2 * MI)
        for number in range(CONTAINERS):
            container = names.container(pod, f"{index}x{number}", "containerd")
            values[container, "memory.low"] = str(MI)
            values[container, "memory.high"] = str(9 * MI)
    for path in {path for path, _ in values}:
        os.makedirs(root + path, exist_ok=True)
        for file, content in _FILES.items():
            _put(root + path, file, content)
    return values


def _steps(fs: CgroupFs, values: Mapping[tuple[str, str], str]) -> tuple[WriteStep, ...]:
    changes = []
    for (path, file), new in values.items():
        level: Level = kind_of(path) or "reserved"
        name = "main" if level == "container" else None
        old = fs.read(path, file) or ""
        if old != new:
            changes.append(
                Change(
                    path=path,
                    file=file,
                    old=old,
                    new=new,
                    level=level,
                    setting=_SETTING,
                    pod="ns/pod",
                    container=name,
                )
            )
    identities = {path: fs.identity(path) or 0 for path, _ in values}
    return steps_of(changes, identities)


def _put(folder: str, file: str, content: str) -> None:
    with open(f"{folder}/{file}", "w") as opened:
        opened.write(f"{content}\n")


@contextmanager
def _clock() -> Iterator[list[float]]:
    passed = [0.0]
    start = time.perf_counter()
    yield passed
    passed[0] = time.perf_counter() - start


def _cost(code: str) -> tuple[float, int]:
    """The best time to start and end, and the resident memory."""
    command = [sys.executable, "-c", code + _PRINT_MEMORY]
    best, kilobytes = float("inf"), 0
    for _ in range(ROUNDS):
        start = time.perf_counter()
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        best = min(best, time.perf_counter() - start)
        kilobytes = int(done.stdout)
    return best * 1000, kilobytes
