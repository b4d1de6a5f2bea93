"""Detect a kubelet's cgroup driver by the names of the cgroups it has created."""

from collections.abc import Iterable
from typing import NamedTuple

from memqos.kube.kubelet import CgroupDriver


class Kubepods(NamedTuple):
    """A cgroup with a kubelet's pods below it."""

    path: str
    driver: CgroupDriver
    below: int
    """How many cgroups are in it."""


def kubepods_in(paths: Iterable[str]) -> list[Kubepods]:
    """Those of the node's own kubelet, the one with most in it first.

    A kubelet within a container of another has its cgroups further down. After a change of
    driver those of the old one remain.
    """
    all_paths = list(paths)
    drivers = {path: driver for path in all_paths if (driver := _driver(path)) is not None}
    highest = min((_depth(path) for path in drivers), default=0)
    found = [
        Kubepods(path, driver, sum(other.startswith(f"{path}/") for other in all_paths))
        for path, driver in drivers.items()
        if _depth(path) == highest
    ]
    return sorted(found, key=lambda kubepods: -kubepods.below)


def _driver(path: str) -> CgroupDriver | None:
    name = path.rpartition("/")[2]
    if name == "kubepods":
        return "cgroupfs"
    is_slice = name == "kubepods.slice" or name.endswith("-kubepods.slice")
    return "systemd" if is_slice else None


def _depth(path: str) -> int:
    """Slices of a cgroup root are nested, as plain cgroups are."""
    return path.count("/")
