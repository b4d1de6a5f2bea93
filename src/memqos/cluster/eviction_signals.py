"""Which eviction thresholds are met by what was observed on a node."""

from collections.abc import Callable, Iterable, Mapping
from typing import Final, NamedTuple

from memqos.errors import InputError
from memqos.kernel.file_formats import meminfo_of
from memqos.kube.kubelet.thresholds import NodeCondition, Threshold
from memqos.kube.quantity import Quantity
from memqos.release import Release, Since


class SignalObservation(NamedTuple):
    """The reading of a signal: what is available, and of how much."""

    available: int
    capacity: int
    at: int | None = None
    """When it was measured, in nanoseconds; None where that is unknown."""
    capacity_known: bool = True
    """Whether the capacity is that of the node; else it is what is available and in use."""


SignalObservations = Mapping[str, SignalObservation]
"""By signal."""


class ThresholdReading(NamedTuple):
    """A threshold against its signal; nothing is met by a signal that was not observed."""

    threshold: Threshold
    observation: SignalObservation | None
    limit: Quantity | None
    """Less than this meets it."""
    limit_reclaimed: Quantity | None
    """Less than this keeps it met once it was: the limit and the minimum reclaim."""

    @property
    def met(self) -> bool:
        return _is_below(self.observation, self.limit)

    @property
    def met_until_reclaimed(self) -> bool:
        return _is_below(self.observation, self.limit_reclaimed)


def threshold_readings(
    thresholds: Iterable[Threshold], observations: SignalObservations
) -> list[ThresholdReading]:
    """Every threshold with the numbers that decide about it."""
    return [
        _read_threshold(threshold, observations.get(threshold.signal)) for threshold in thresholds
    ]


def node_conditions(met: Iterable[Threshold]) -> list[NodeCondition]:
    """The conditions that thresholds put a node into, in their order."""
    return list(dict.fromkeys([threshold.condition for threshold in met]))


def _read_threshold(
    threshold: Threshold, observation: SignalObservation | None
) -> ThresholdReading:
    if observation is None:
        return ThresholdReading(threshold, None, None, None)
    return ThresholdReading(
        threshold,
        observation,
        threshold.limit(observation.capacity),
        threshold.limit(observation.capacity, reclaimed=True),
    )


def _is_below(observation: SignalObservation | None, limit: Quantity | None) -> bool:
    return (
        observation is not None and limit is not None and Quantity.of(observation.available) < limit
    )


_INACTIVE_FILE: Final = "inactive_file"
_UNSIGNED: Final = 1 << 64
_UNLIMITED: Final = 1 << 62
"""A limit above this is none to cAdvisor (kubelet stats/helper.go, maxMemorySize)."""


def available_memory(limit: int, used: int) -> int | None:
    """What a cgroup has left, as an unsigned number of 64 bits; None where it has no limit."""
    return None if limit > _UNLIMITED else (limit - used) % _UNSIGNED


def without_hugepages(available: int, hugepages: int, release: Release) -> int:
    """What a node has left, less the memory that is set aside for hugepages, used or not.

    No memory controller counts hugepages, so until 1.37 they passed for available memory.
    """
    if not release.is_enabled("HugepageAwareEviction"):
        return available
    return max(0, available - hugepages)


def memory_observation(available: int, used: int) -> SignalObservation:
    """The signal by unsigned numbers; the kubelet reads both as signed ones."""
    return SignalObservation(_signed(available), _signed((available + used) % _UNSIGNED))


def _signed(number: int) -> int:
    return number - _UNSIGNED if number >= _UNSIGNED // 2 else number


def node_observation(meminfo: str, hugepages: int, release: Release) -> SignalObservation:
    """memory.available of a node with cgroup v2, whose root has no memory.current.

    `hugepages` are the bytes set aside for them.
    """
    amounts = meminfo_of(meminfo)
    try:
        total = amounts["MemTotal"]
        used = max(0, _USAGE.at(release.minor)(amounts) - amounts["Inactive(file)"])
        available = without_hugepages((total - used) % _UNSIGNED, hugepages, release)
        return memory_observation(available, used)
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
    available = available_memory(int(limit), used)
    return None if available is None else memory_observation(available, used)


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


# The v2 root has no memory.current, so runc derives usage from /proc/meminfo: total − free up to
# 1.1.7, anon + file in 1.1.10, which kubelet 1.29 vendors (libcontainer/cgroups/fs2/memory.go,
# rootStatsFromMeminfo). Kernel memory left the sum with it.
_USAGE: Final[Since[Callable[[Mapping[str, int]], int]]] = Since(
    {22: _all_but_free, 29: _anonymous_and_file}
)
