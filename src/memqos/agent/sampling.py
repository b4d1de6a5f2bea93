"""What the kernel counts about cgroups: memory in use, events, and time lost to pressure."""

from typing import Final, NamedTuple

from memqos.api.kernel.keyed import keyed
from memqos.host.tree import read_tree

_FILES: Final = ("memory.current", "memory.events", "memory.pressure")


class Sample(NamedTuple):
    """One cgroup at one moment."""

    current: int | None
    events: dict[str, int]
    pressure: dict[str, float]
    """some, full → seconds."""


def sampled(root: str, below: str) -> dict[str, Sample]:
    """Read all cgroups from a path down."""
    tree = read_tree(root, _FILES, [below])
    return {path: _sample(files) for path, files in tree.cgroups.items()}


def pressure_of(text: str) -> dict[str, float]:
    """Seconds lost, out of a pressure file."""
    found: dict[str, float] = {}
    for line in text.splitlines():
        kind, _, rest = line.partition(" ")
        total = rest.rpartition("total=")[2]
        if total.isdecimal():
            found[kind] = int(total) / 1_000_000
    return found


def _sample(files: dict[str, str]) -> Sample:
    current = files.get("memory.current", "")
    return Sample(
        int(current) if current.isdecimal() else None,
        keyed(files.get("memory.events", "")),
        pressure_of(files.get("memory.pressure", "")),
    )
