"""memqos at work on a machine whose cgroups have owners, as its command would be."""

import json
import os
import subprocess
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final

import msgspec
from tests.eventually import PATIENCE, eventually
from tests.vm.guest.runtime import start_unit
from tests.vm.guest.support import ROOT, WORKLOAD, Workload

from memqos.converge.apply import ApplyResult, WriteProgress, apply, ignore_progress
from memqos.converge.cgroup_writer import read_write_options
from memqos.converge.cri_driver import RuntimeClient
from memqos.converge.journal import hierarchy_of, open_journal
from memqos.converge.node_plan import PLAN_FILES, NodePlan, PlanOptions, plan_observation
from memqos.converge.observation import observe_live
from memqos.converge.pod_sources import FilePods
from memqos.converge.rollback import RollbackResult, rollback
from memqos.converge.router import Router
from memqos.converge.steps import WriteStep, steps_of
from memqos.host.cgroups import CgroupFs, read_tree
from memqos.host.machine import read_machine
from memqos.host.owner_discovery import discover_owners
from memqos.plan.changes import Change
from memqos.plan.names import kind_of
from memqos.plan.setting import Rule, Setting
from memqos.plan.tree import Level
from memqos.settings.facts import RawKubeletConfig

SETTING: Final = Setting(None, Rule("test", "because the test says so", "the test"))
MEMORY: Final = ("memory.min", "memory.low", "memory.high", "memory.max", "memory.oom.group")
ENTER: Final = 'echo 1000 >/proc/$$/oom_score_adj; echo $$ >{}/cgroup.procs; exec "$@"'
"""What enters is killed first: not the container itself, and the tests cannot be killed at all."""


class Memqos:
    """Plans, writes and takes back, with a journal in a folder."""

    def __init__(self, folder: Path, timeout: float = PATIENCE) -> None:
        self.folder = folder
        self.fs = CgroupFs()
        self.machine = read_machine()
        self.timeout = timeout
        self.nri: RuntimeClient | None = None
        """The runtime over NRI, to be written through instead of CRI."""
        assert self.machine.boot_id
        self._reserved: set[str] = set()
        self._hierarchy = hierarchy_of(self.fs, self.machine.boot_id)

    def router(self) -> Router:
        owners = discover_owners(self.fs.root)
        if self.nri is not None:
            owners = msgspec.structs.replace(owners, sockets={}, has_nri=True)
        return Router(self.fs, owners, 4096, self.timeout, self.nri)

    def step(
        self,
        path: str,
        file: str,
        new: str | int,
        level: Level | None = None,
        name: str | None = None,
    ) -> WriteStep:
        level = level or kind_of(path) or "reserved"
        if level == "reserved":
            self._reserved.add(path)
        cgroup = ROOT / path.removeprefix("/")
        old = (cgroup / file).read_text().strip()
        change = Change(
            path=path,
            file=file,
            old=old,
            new=str(new),
            level=level,
            setting=SETTING,
            pod="default/pod",
            container=name,
        )
        return WriteStep(change, cgroup.stat().st_ino)

    def apply(
        self,
        steps: Iterable[WriteStep],
        progress: WriteProgress = ignore_progress,
        *,
        force: bool = False,
        router: Router | None = None,
    ) -> ApplyResult:
        options = read_write_options(force=force)
        router = router or self.router()
        try:
            with open_journal(str(self.folder / "journal"), self._hierarchy) as journal:
                return apply(steps, self.fs, router, journal, options, progress)
        finally:
            router.close()

    def rollback(self) -> RollbackResult:
        options = read_write_options()
        router = self.router()
        try:
            with open_journal(str(self.folder / "journal"), self._hierarchy) as journal:
                return rollback(self.fs, router, journal, options, reserved=self._reserved)
        finally:
            router.close()

    def plan(
        self, pods: Iterable[Mapping[str, Any]], below: str, release: str = "1.38", **kubelet: Any
    ) -> tuple[NodePlan, tuple[WriteStep, ...]]:
        """The plan of a node with these pods, whose kubelet is configured like this."""
        file = self.folder / "pods.json"
        file.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": list(pods)}))
        configuration = {
            "apiVersion": "kubelet.config.k8s.io/v1beta1",
            "kind": "KubeletConfiguration",
            "cgroupDriver": "systemd" if below.endswith(".slice") else "cgroupfs",
            **kubelet,
        }
        observation = observe_live(
            FilePods((str(file),)),
            PLAN_FILES,
            below=(below,),
            configuration=RawKubeletConfig("kubelet", json.dumps(configuration).encode()),
        )
        plan = plan_observation(observation, PlanOptions(release=release))
        return plan, steps_of(plan.comparison.changes, observation.identities)

    def files(self, below: str) -> dict[str, str | None]:
        """All that memqos may write there, and what it must not change."""
        return {
            f"{path}/{file}": self.fs.read(path, file)
            for path in read_tree(self.fs.root, (), [below]).cgroups
            for file in MEMORY
        }


def ends(applied: ApplyResult) -> dict[str, str]:
    """Path/file → how it ended."""
    return {f"{r.change.path}/{r.change.file}": r.outcome for r in applied.results}


def number(cgroup: Path, file: str) -> int:
    return int((cgroup / file).read_text())


def text(cgroup: Path, file: str) -> str:
    return (cgroup / file).read_text().strip()


def count(cgroup: Path, event: str) -> int:
    """How often something happened, by memory.events."""
    events = dict(line.split() for line in text(cgroup, "memory.events").splitlines())
    return int(events[event])


def workload_in(cgroup: Path) -> Workload:
    """A process that holds memory when told to, in a cgroup that somebody else has made."""
    command = ["sh", "-ec", ENTER.format(cgroup), "sh", sys.executable, "-I", "-S", "-u"]
    return Workload(
        subprocess.Popen(
            [*command, str(WORKLOAD)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
    )


def cache_in(cgroup: Path, file: Path, size: int) -> None:
    """Fill the page cache on a cgroup's account, with a file that takes no disk."""
    with file.open("wb") as sparse:
        sparse.truncate(size)
    command = ["sh", "-ec", ENTER.format(cgroup), "sh", "busybox", "cat", str(file)]
    subprocess.run(command, stdout=subprocess.DEVNULL, check=True)


def scope(name: str, slice_: str) -> tuple[Path, subprocess.Popen[bytes]]:
    """A scope as runtimes make them, around a process that sleeps."""
    process = subprocess.Popen(["sleep", "infinity"])
    start_unit(
        name,
        {
            "PIDs": ("au", [process.pid]),
            "Slice": ("s", slice_),
            "MemoryAccounting": ("b", True),
        },
    )
    line = f"/{name}\n"
    cgroup_of = Path(f"/proc/{process.pid}/cgroup")
    eventually(f"{name} is there", lambda: cgroup_of.read_text().endswith(line))
    path = cgroup_of.read_text().strip().removeprefix("0::/")
    return ROOT / path, process


def systemctl(*arguments: str) -> str:
    done = subprocess.run(["systemctl", *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def reload_writes_files() -> bool:
    """Whether systemd writes its own values again as it reloads.

    252 and 262 were seen to do so; 257 leaves the files alone until a property of the unit is set.
    """
    return int(systemctl("--version").split()[1]) != 257


def dropins() -> dict[str, str]:
    """All that systemd was told until the next boot."""
    return {
        str(path): path.read_text()
        for folder in ("transient", "system.control")
        for path in Path("/run/systemd", folder).rglob("50-Memory*")
        if os.path.isfile(path)
    }
