"""A node with a tree of its own, a journal, and plans to write and take back."""

import os
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from tests.eventually import PATIENCE
from tests.fakes.cgroups import PAGE, FakeKernel

from memqos.converge.apply import ApplyResult, apply
from memqos.converge.direct_driver import DirectDriver
from memqos.converge.driver import Driver
from memqos.converge.journal import JournalContents, hierarchy_of, open_journal, read_journal
from memqos.converge.rollback import KubeletFiles, RollbackResult, rollback
from memqos.converge.steps import WriteOptions, WriteStep, steps_of
from memqos.plan.changes import Change
from memqos.plan.names import kind_of
from memqos.plan.setting import Rule, Setting
from memqos.plan.tree import Level

MI: Final = 1 << 20
RULE: Final = Rule("test/rule", "because the test says so", "the test")

CONTAINERS: Final = tuple(
    f"/kubepods/burstable/pod{pod}/{name}" for pod in range(4) for name in ("a", "b")
)
BUSY: Final = CONTAINERS[0]
"""A container that uses 400 Mi: memory.high below that makes its writer reclaim."""
CGROUPS: Final[dict[str, Level]] = {
    "/kubepods": "kubepods",
    "/kubepods/burstable": "qos",
    **{path.rpartition("/")[0]: "pod" for path in CONTAINERS},
    **dict.fromkeys(CONTAINERS, "container"),
}


@contextmanager
def memory_folder() -> Iterator[Path]:
    """A folder in memory, as a runtime directory is, where that can be had: tests sync a lot."""
    memory = "/dev/shm"
    inside = memory if os.access(memory, os.W_OK) else None
    with tempfile.TemporaryDirectory(prefix="memqos-", dir=inside) as name:
        yield Path(name)


class Node:
    """A fake kernel, and memqos at work on it."""

    def __init__(self, folder: Path) -> None:
        self.kernel = FakeKernel(folder)
        self.journal_folder = str(folder / "run")
        self.boot = "this-boot"
        self.timeout = PATIENCE
        if not any(self.kernel.folder.iterdir()):
            for path in CGROUPS:
                self.kernel.make(path, {"memory.low": str(2 * MI), "memory.high": str(900 * MI)})
            self.kernel.set(BUSY, "memory.current", str(400 * MI))

    @property
    def journal(self) -> Path:
        return Path(self.journal_folder) / "journal"

    def steps(self, wanted: Mapping[tuple[str, str], str]) -> tuple[WriteStep, ...]:
        """What it takes for these files to have these values."""
        changes = []
        for (path, file), new in wanted.items():
            old = self.kernel.read(path, file)
            assert old is not None
            level: Level = CGROUPS.get(path) or kind_of(path) or "reserved"
            pod = "ns/pod" if level in ("pod", "container") else None
            changes.append(
                Change(
                    path=path,
                    file=file,
                    old=old,
                    new=new,
                    level=level,
                    setting=Setting(new, RULE),
                    pod=pod,
                )
            )
        identities = {path: self.kernel.identity(path) for path, _ in wanted}
        return steps_of(changes, {path: inode for path, inode in identities.items() if inode})

    @contextmanager
    def driver(self) -> Iterator[Driver]:
        yield DirectDriver(self.kernel, self.timeout)

    def apply(
        self, steps: Iterable[WriteStep], *, force: bool = False, swap: int = 0
    ) -> ApplyResult:
        cautions = WriteOptions(PAGE, swap, force)
        with (
            open_journal(self.journal_folder, hierarchy_of(self.kernel, self.boot)) as journal,
            self.driver() as driver,
        ):
            return apply(steps, self.kernel, driver, journal, cautions)

    def rollback(
        self, *, force: bool = False, swap: int = 0, kubelet_files: KubeletFiles = None
    ) -> RollbackResult:
        cautions = WriteOptions(PAGE, swap, force)
        with (
            open_journal(self.journal_folder, hierarchy_of(self.kernel, self.boot)) as journal,
            self.driver() as driver,
        ):
            return rollback(self.kernel, driver, journal, cautions, kubelet_files=kubelet_files)

    def read_journal(self) -> JournalContents:
        return read_journal(self.journal_folder, hierarchy_of(self.kernel, self.boot))


def a_plan(step: int = 1) -> dict[tuple[str, str], str]:
    """Forty values: raised and lowered, set and taken back, some not a whole number of pages."""
    wanted = {
        ("/kubepods", "memory.high"): str((999 + step) * MI),
    }
    for index, path in enumerate(CGROUPS):
        wanted[path, "memory.low"] = (
            str((index + step + 2) * MI + 17) if (index + step) % 3 else "0"
        )
        wanted[path, "memory.min"] = str((2 * index + step) * MI)
    for index, path in enumerate(CONTAINERS):
        wanted[path, "memory.high"] = "max" if (index + step) % 2 else str((200 - step) * MI)
    for path in CONTAINERS[:3]:
        wanted[path, "cpuset.mems"] = f"0,{step}"
    return wanted
