"""What kube-reserved and system-reserved should be, by what the slices beside kubepods use."""

from collections.abc import Iterator, Mapping
from typing import Final, Literal

import msgspec

from memqos.findings.facts import file_number
from memqos.plan.changes import Files
from memqos.plan.names import outer

Reservation = Literal["kubeReserved", "systemReserved"]

_KUBE: Final = ("kubelet", "containerd", "crio", "cri-o", "docker", "runtime")
"""What a unit is called whose memory kubeReserved is for: Kubernetes' own daemons."""
_STEP: Final = 64 << 20
_HEADROOM: Final = 1.25
"""Times what is used: daemons grow with the pods of a node."""


class SliceUsage(msgspec.Struct, frozen=True):
    """A cgroup beside the pods, and the memory it holds for good."""

    path: str
    used: int
    """Bytes, without page cache that can be reclaimed."""


class ReservedAdvice(msgspec.Struct, frozen=True):
    """What to reserve for one group of daemons."""

    reservation: Reservation
    configured: int
    recommended: int
    slices: tuple[SliceUsage, ...]


def reserved_advice(
    cgroups: Mapping[str, Files], kubepods: str, configured: Mapping[Reservation, int]
) -> tuple[ReservedAdvice, ...]:
    """A recommendation for both reservations, out of the cgroups of a node."""
    slices = list(_slices(cgroups, kubepods))
    return tuple(
        _advise(name, configured.get(name, 0), [each for each in slices if _owner(each) == name])
        for name in ("kubeReserved", "systemReserved")
    )


def _slices(cgroups: Mapping[str, Files], kubepods: str) -> Iterator[SliceUsage]:
    """The cgroups below the slices of the system: services, sessions, and what has no children."""
    top = f"/{kubepods.strip('/').partition('/')[0]}"
    parents = {path.rpartition("/")[0] for path in cgroups}
    for path, files in cgroups.items():
        if path == "/" or path in parents or f"{path}/".startswith(f"{top}/"):
            continue
        current = file_number(files, "memory.current")
        if current is not None and outer(path) == path:
            cache = _reclaimable(files)
            yield SliceUsage(path, max(0, current - cache))


def _reclaimable(files: Files) -> int:
    for line in files.get("memory.stat", "").splitlines():
        name, _, value = line.partition(" ")
        if name == "inactive_file" and value.strip().isdigit():
            return int(value)
    return 0


def _owner(each: SliceUsage) -> Reservation:
    unit = each.path.rpartition("/")[2]
    return "kubeReserved" if any(name in unit for name in _KUBE) else "systemReserved"


def _advise(reservation: Reservation, configured: int, slices: list[SliceUsage]) -> ReservedAdvice:
    most = sum([each.used for each in slices])
    recommended = -(-int(most * _HEADROOM) // _STEP) * _STEP
    largest = sorted(slices, key=lambda each: each.used, reverse=True)
    return ReservedAdvice(reservation, configured, recommended, tuple(largest))
