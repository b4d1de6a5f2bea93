"""What a kubelet takes for the memory in use on its node, out of the kernel's numbers."""

from collections.abc import Callable, Mapping
from typing import Final

from memqos.cluster.eviction_signals import SignalObservation
from memqos.errors import InputError
from memqos.kernel.meminfo import meminfo_of
from memqos.release import Release, Since

_INACTIVE_FILE: Final = "inactive_file"


def node_observation(meminfo: str, release: Release) -> SignalObservation:
    """memory.available of a node with cgroup v2, whose root has no memory.current."""
    amounts = meminfo_of(meminfo)
    try:
        total = amounts["MemTotal"]
        used = _USAGE.at(release.minor)(amounts)
        return SignalObservation(total - max(0, used - amounts["Inactive(file)"]), total)
    except KeyError as missing:
        raise InputError(
            f"there is no {missing.args[0]} in it",
            field="meminfo",
            hint="give the text of /proc/meminfo",
        ) from None


def pods_observation(files: Mapping[str, str]) -> SignalObservation | None:
    """allocatableMemory.available, out of the files of the cgroup all pods are in."""
    limit, used = files.get("memory.max", "max"), working_set(files)
    if used is None or not limit.isdigit():
        return None
    return SignalObservation(int(limit) - used, int(limit))


def working_set(files: Mapping[str, str]) -> int | None:
    """What a cgroup uses, without file pages that have not been used for a while."""
    current = files.get("memory.current", "").strip()
    if not current.isdigit():
        return None
    for line in files.get("memory.stat", "").splitlines():
        name, _, value = line.partition(" ")
        if name == _INACTIVE_FILE and value.strip().isdigit():
            return max(0, int(current) - int(value))
    return int(current)


def _all_but_free(amounts: Mapping[str, int]) -> int:
    return amounts["MemTotal"] - amounts["MemFree"]


def _anonymous_and_file(amounts: Mapping[str, int]) -> int:
    """What the kernel itself uses does not count."""
    files = amounts["Cached"] + amounts["Buffers"] + amounts["SwapCached"]
    return amounts["AnonPages"] + files


_USAGE: Final[Since[Callable[[Mapping[str, int]], int]]] = Since(
    {22: _all_but_free, 29: _anonymous_and_file}
)
