"""A machine as its kernel shows it: the texts as read, and their values.

Texts are kept as they are, so that a machine looks the same live and out of a snapshot. What could
not be read is None or empty, and `missing` has the reason.
"""

import re
from collections.abc import Iterable, Mapping
from typing import Final, Literal

import msgspec

from memqos.kernel.file_formats import meminfo_of

CgroupLayout = Literal["v2", "hybrid", "v1", "none"]
LAYOUTS: Final[Mapping[CgroupLayout, str]] = {
    "v2": "cgroup v2",
    "hybrid": "cgroup v1, with a v2 hierarchy beside it (hybrid)",
    "v1": "cgroup v1",
    "none": "no cgroup file system",
}
"""How controllers are mounted, in words."""

NRI_SOCKET: Final = "/var/run/nri/nri.sock"
"""Where containerd and CRI-O have it by default."""
_VERSION: Final = re.compile(r"(\d+)\.(\d+)(?:\.(\d+))?")
_NODE_PREFIX: Final = re.compile(r"^Node \d+ ", re.MULTILINE)
_HUGEPAGES: Final = re.compile(r"hugepages-(\d+)kB")
# /proc/mounts escapes space, tab, newline and backslash so (fs/proc_namespace.c, mangle).
_OCTAL: Final = re.compile(r"\\([0-7]{3})")
# mm/hugetlb_cgroup.c, mem_fmt(): the largest unit that the size reaches, without a fraction.
_UNITS: Final = ((1 << 30, "GB"), (1 << 20, "MB"), (1 << 10, "KB"))

VersionNumbers = tuple[int, int, int]

OLDEST_SAFE_KERNEL: Final[VersionNumbers] = (5, 9, 0)
"""With commit b3ff92916af3 a task past memory.high reclaims more before it sleeps, which ends the
livelock that kept Memory QoS from beta (KEP-2570, Latest Update)."""


class Mount(msgspec.Struct, frozen=True):
    """A mounted file system."""

    source: str
    point: str
    type: str
    options: tuple[str, ...]


class HugePages(msgspec.Struct, frozen=True):
    """Huge pages of one size, in bytes, and how many there are."""

    size: int
    total: int
    free: int

    @property
    def name(self) -> str:
        """As cgroup files spell it: 2MB, 1GB."""
        unit, letters = next(each for each in _UNITS if self.size >= each[0])
        return f"{self.size // unit}{letters}"


class NumaTexts(msgspec.Struct, frozen=True, omit_defaults=True):
    """One NUMA node as the kernel shows it."""

    meminfo: str
    distance: str
    hugepages: dict[str, dict[str, str]] = {}
    """hugepages-2048kB → file → content."""


class NumaNode(msgspec.Struct, frozen=True):
    """One NUMA node; distances are to the nodes in the order of their numbers."""

    number: int
    memory: int
    distances: tuple[int, ...]
    hugepages: tuple[HugePages, ...]


class Machine(msgspec.Struct, frozen=True, kw_only=True):
    """What memqos knows of a machine, pods and cgroups apart."""

    kernel: str | None = None
    """The kernel's release, such as 6.1.0-54-cloud-amd64."""
    page_size: int | None = None
    meminfo: str | None = None
    numa: dict[str, NumaTexts] = {}
    """node0 → its texts."""
    mount: tuple[str, ...] = ()
    """The lines of /proc/mounts about cgroups."""
    hugepages: dict[str, dict[str, str]] = {}
    """hugepages-2048kB → file → content."""
    pressure: dict[str, str] = {}
    """memory, cpu, io → content of /proc/pressure."""
    swaps: str = ""
    """The text of /proc/swaps."""
    layout: CgroupLayout | None = None
    boot_id: str | None = None
    runtime: str | None = None
    """Such as `containerd 1.6.20`."""
    kubelet: str | None = None
    """The version of the kubelet that runs."""
    kubelet_on_path: str | None = None
    """That of the program on PATH, which need not be the one that runs."""
    missing: dict[str, str] = {}
    """Field → why it is missing."""

    @property
    def kernel_version(self) -> VersionNumbers | None:
        return version_numbers(self.kernel)

    @property
    def memory(self) -> int | None:
        """Bytes of RAM."""
        return self._meminfo().get("MemTotal")

    @property
    def swap(self) -> int | None:
        """Bytes of swap space; 0 where there is none."""
        return self._meminfo().get("SwapTotal")

    @property
    def swap_devices(self) -> tuple[str, ...]:
        """The files and partitions that are swapped to."""
        lines = (line.split() for line in self.swaps.splitlines()[1:])
        return tuple(fields[0] for fields in lines if fields)

    @property
    def mounts(self) -> tuple[Mount, ...]:
        """The cgroup file systems."""
        return tuple(mounts_of(self.mount))

    @property
    def recursive_protection(self) -> bool | None:
        """Whether what children leave unclaimed flows to them; None where there is no v2 mount."""
        # memory_recursiveprot, since 5.7: cgroup-v2.rst, Mounting. systemd mounts with it.
        return next(
            ("memory_recursiveprot" in each.options for each in self.mounts if _is_v2(each)), None
        )

    @property
    def numa_nodes(self) -> tuple[NumaNode, ...]:
        """The NUMA nodes by their numbers."""
        return tuple(
            sorted(
                (_numa_node(name, texts) for name, texts in self.numa.items()),
                key=lambda node: node.number,
            )
        )

    @property
    def huge_pages(self) -> tuple[HugePages, ...]:
        """Those of the whole machine, the smallest first."""
        return huge_pages_of(self.hugepages)

    @property
    def runtime_version(self) -> tuple[str, VersionNumbers] | None:
        """The runtime's name and version."""
        name, _, version = (self.runtime or "").partition(" ")
        found = version_numbers(version.removeprefix("v"))
        return None if found is None else (name, found)

    def _meminfo(self) -> dict[str, int]:
        return meminfo_of(self.meminfo or "")


def version_numbers(text: str | None) -> VersionNumbers | None:
    """The numbers a version starts with."""
    found = _VERSION.match(text or "")
    if found is None:
        return None
    major, minor, patch = found.groups(default="0")
    return int(major), int(minor), int(patch)


def old_kernel_risk(kernel: str | None) -> str | None:
    """Why memory.high is dangerous on a kernel; None where it is not, or the version is unknown."""
    version = version_numbers(kernel)
    if version is None or version >= OLDEST_SAFE_KERNEL:
        return None
    return f"kernel {kernel} is older than 5.9, and can hang a container at memory.high permanently"


def mounts_of(lines: Iterable[str]) -> Iterable[Mount]:
    """Mounts as /proc/mounts lists them."""
    for line in lines:
        fields = [_OCTAL.sub(lambda code: chr(int(code[1], 8)), part) for part in line.split()]
        if len(fields) >= 4:
            yield Mount(fields[0], fields[1], fields[2], tuple(fields[3].split(",")))


def cgroup_layout(mounts: Iterable[Mount]) -> CgroupLayout:
    """How the machine's controllers are mounted."""
    types = {mount.type for mount in mounts}
    if "cgroup" in types:
        return "hybrid" if "cgroup2" in types else "v1"
    return "v2" if "cgroup2" in types else "none"


def huge_pages_of(texts: Mapping[str, Mapping[str, str]]) -> tuple[HugePages, ...]:
    """Huge pages by the folders sysfs keeps about them, the smallest first."""
    sizes = ((_HUGEPAGES.fullmatch(folder), files) for folder, files in texts.items())
    found = (
        HugePages(
            int(size[1]) << 10,
            _number(files.get("nr_hugepages")),
            _number(files.get("free_hugepages")),
        )
        for size, files in sizes
        if size is not None
    )
    return tuple(sorted(found, key=lambda pages: pages.size))


def _is_v2(mount: Mount) -> bool:
    return mount.type == "cgroup2"


def _numa_node(name: str, texts: NumaTexts) -> NumaNode:
    return NumaNode(
        _number(name.removeprefix("node")),
        meminfo_of(_NODE_PREFIX.sub("", texts.meminfo)).get("MemTotal", 0),
        tuple(_number(each) for each in texts.distance.split()),
        huge_pages_of(texts.hugepages),
    )


def _number(text: str | None) -> int:
    digits = (text or "").strip()
    return int(digits) if digits.isdecimal() else 0
