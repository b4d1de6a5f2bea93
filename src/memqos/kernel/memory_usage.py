"""Every reading of a cgroup's memory side by side: what each counts, and what it leaves out."""

from collections.abc import Mapping
from typing import Final, NamedTuple

from memqos.kernel.file_formats import parse_keyed

READING_FILES: Final = (
    "memory.current",
    "memory.stat",
    "memory.swap.current",
    "memory.min",
    "memory.low",
    "memory.high",
    "memory.max",
    "memory.events",
    "memory.pressure",
)
"""The files that readings, and a view of the container, are made of."""
_PARTS_OF_KERNEL: Final = ("kernel_stack", "pagetables", "percpu", "slab", "vmalloc")
"""What `kernel` is made of for the most part; kernels before 5.18 show these alone
(cgroup-v2.rst)."""


class ReadingKind(NamedTuple):
    """A reading of a container's memory, and how it is computed."""

    name: str
    v2: str
    """By the files of cgroup v2."""
    v1: str
    shown_by: str
    meaning: str


READING_KINDS: Final[tuple[ReadingKind, ...]] = (
    ReadingKind(
        "usage",
        "memory.current",
        "memory.usage_in_bytes",
        "container_memory_usage_bytes",
        "all charged memory: the limit applies to this",
    ),
    ReadingKind(
        "working set",
        "memory.current − inactive_file",
        "memory.usage_in_bytes − total_inactive_file",
        "kubectl top, container_memory_working_set_bytes, eviction",
        "does not count inactive page cache",
    ),
    ReadingKind(
        "RSS",
        "anon",
        "total_rss",
        "container_memory_rss",
        "anonymous memory; does not count page cache, tmpfs, kernel memory and swap",
    ),
    ReadingKind(
        "cache",
        "file",
        "total_cache",
        "container_memory_cache",
        "page cache and tmpfs; only the page cache can be reclaimed without swap",
    ),
    ReadingKind(
        "tmpfs",
        "shmem",
        "total_shmem",
        "no gauge of its own: a part of cache",
        "files in memory-backed volumes and /dev/shm, and shared memory",
    ),
    ReadingKind(
        "kernel",
        "kernel",
        "memory.kmem.usage_in_bytes",
        "container_memory_kernel_usage, which is 0 on cgroup v2",
        "stacks, page tables, slab: counts towards the limit",
    ),
    ReadingKind(
        "swap",
        "memory.swap.current",
        "total_swap",
        "container_memory_swap",
        "swapped out: counts towards no memory limit on cgroup v2",
    ),
)
"""What cAdvisor, and with it the kubelet, reads: setMemoryStats() in container/libcontainer/
handler.go."""


class MemoryUsage(NamedTuple):
    """The readings in bytes, in the order of `READING_KINDS`; None where one is not known."""

    usage: int | None = None
    working_set: int | None = None
    rss: int | None = None
    cache: int | None = None
    tmpfs: int | None = None
    kernel: int | None = None
    swap: int | None = None


def kernel_memory(statistics: Mapping[str, int]) -> int | None:
    """Kernel memory by memory.stat; by its parts before 5.18."""
    if "kernel" in statistics:
        return statistics["kernel"]
    parts = [statistics[name] for name in _PARTS_OF_KERNEL if name in statistics]
    return sum(parts) if parts else None


def usage_of(files: Mapping[str, str]) -> MemoryUsage:
    """The readings of a container, given its cgroup files."""
    statistics = parse_keyed(files.get("memory.stat", ""))
    current, swap = _amount(files.get("memory.current")), _amount(files.get("memory.swap.current"))
    inactive = statistics.get("inactive_file")
    return MemoryUsage(
        usage=current,
        working_set=working_set_of(current, inactive),
        rss=statistics.get("anon"),
        cache=statistics.get("file"),
        tmpfs=statistics.get("shmem"),
        kernel=kernel_memory(statistics),
        swap=swap,
    )


def working_set_of(usage: int | None, inactive_file: int | None) -> int | None:
    """What `kubectl top` shows of a container."""
    if usage is None or inactive_file is None:
        return None
    return max(0, usage - inactive_file)


def _amount(text: str | None) -> int | None:
    return int(text) if text is not None and text.strip().isdecimal() else None
