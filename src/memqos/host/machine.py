"""A machine's facts, read from /proc and /sys. What cannot be read is missing, with the reason."""

import os
from collections.abc import Iterable, Iterator
from typing import Final

import msgspec

from memqos.errors import os_reason
from memqos.host.cgroups import SYSTEM_ROOT
from memqos.kernel.machine import CgroupLayout, Machine, NumaTexts, cgroup_layout, mounts_of

_CGROUP_TYPES: Final = frozenset({"cgroup", "cgroup2"})
_TREE: Final = ("cgroup.controllers", "kubepods", "kubepods.slice")
"""Names of which a copy of a cgroup v2 tree has at least one."""
_PRESSURES: Final = ("memory", "cpu", "io")
_HUGEPAGE_FILES: Final = ("nr_hugepages", "free_hugepages", "resv_hugepages", "surplus_hugepages")


class Roots(msgspec.Struct, frozen=True):
    """Where the machine's file systems are mounted."""

    proc: str = "/proc"
    sys: str = "/sys"
    cgroup: str = SYSTEM_ROOT
    kubelet: str = "/var/lib/kubelet"


SYSTEM: Final = Roots()


class _Reader:
    """Reads files, and records by field why one could not be read."""

    def __init__(self) -> None:
        self.missing: dict[str, str] = {}

    def text(self, field: str, path: str) -> str | None:
        try:
            with open(path, encoding="utf-8", errors="replace") as file:
                return file.read()
        except OSError as error:
            self.missing.setdefault(field, f"{path}: {os_reason(error)}")
            return None

    def names(self, field: str, folder: str) -> list[str]:
        try:
            return sorted(os.listdir(folder))
        except OSError as error:
            self.missing.setdefault(field, f"{folder}: {os_reason(error)}")
            return []


def read_machine(roots: Roots = SYSTEM) -> Machine:
    """Everything but the versions of runtime and kubelet."""
    reader = _Reader()
    mounts = tuple(_cgroup_mounts(reader.text("mount", f"{roots.proc}/mounts") or ""))
    kernel = reader.text("kernel", f"{roots.proc}/sys/kernel/osrelease")
    boot_id = reader.text("boot_id", f"{roots.proc}/sys/kernel/random/boot_id")
    return Machine(
        kernel=None if kernel is None else kernel.strip(),
        page_size=os.sysconf("SC_PAGE_SIZE"),
        meminfo=reader.text("meminfo", f"{roots.proc}/meminfo"),
        numa=dict(_numa(reader, f"{roots.sys}/devices/system/node")),
        mount=mounts,
        hugepages=_hugepages(reader, f"{roots.sys}/kernel/mm/hugepages"),
        pressure=_pressure(reader, f"{roots.proc}/pressure"),
        # A kernel without swap support has no such file, which needs no note.
        swaps=_Reader().text("swaps", f"{roots.proc}/swaps") or "",
        layout=_layout(mounts, roots.cgroup.rstrip("/")),
        boot_id=None if boot_id is None else boot_id.strip(),
        missing=reader.missing,
    )


def _cgroup_mounts(text: str) -> Iterator[str]:
    for line in text.splitlines():
        fields = line.split()
        if len(fields) >= 4 and fields[2] in _CGROUP_TYPES:
            yield line


def _layout(mounts: Iterable[str], root: str) -> CgroupLayout:
    """The layout by the mounts; by its content for a folder that is no mount, such as a copy."""
    found = tuple(mounts_of(mounts))
    if root != SYSTEM_ROOT and not any(f"{root}/".startswith(f"{m.point}/") for m in found):
        return "v2" if any(os.path.exists(f"{root}/{name}") for name in _TREE) else "none"
    return cgroup_layout(found)


def _numa(reader: _Reader, folder: str) -> Iterator[tuple[str, NumaTexts]]:
    for name in reader.names("numa", folder):
        if not name.removeprefix("node").isdecimal():
            continue
        meminfo = reader.text("numa", f"{folder}/{name}/meminfo")
        distance = reader.text("numa", f"{folder}/{name}/distance")
        if meminfo is not None and distance is not None:
            # A node without memory has no folder of hugepages (mm/hugetlb.c registers the others).
            pages = _hugepages(_Reader(), f"{folder}/{name}/hugepages")
            yield name, NumaTexts(meminfo, distance, pages)


def _hugepages(reader: _Reader, folder: str) -> dict[str, dict[str, str]]:
    sizes = [name for name in reader.names("hugepages", folder) if name.startswith("hugepages-")]
    return {size: dict(_files(f"{folder}/{size}", _HUGEPAGE_FILES)) for size in sizes}


def _files(folder: str, names: Iterable[str]) -> Iterator[tuple[str, str]]:
    """The files that exist. A NUMA node has no resv_hugepages (mm/hugetlb.c)."""
    for name in names:
        content = _Reader().text(name, f"{folder}/{name}")
        if content is not None:
            yield name, content.strip()


def _pressure(reader: _Reader, folder: str) -> dict[str, str]:
    texts = {name: reader.text("pressure", f"{folder}/{name}") for name in _PRESSURES}
    return {name: text for name, text in texts.items() if text is not None}
