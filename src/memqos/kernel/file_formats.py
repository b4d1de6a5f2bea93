"""Cgroup files with more than one value, as numbers and names."""

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from functools import lru_cache
from typing import Final

import msgspec

from memqos.errors import InputError

_KINDS: Final = re.compile(
    r"^(anon|file|shmem|kernel|inactive_file|kernel_stack|pagetables|percpu|slab|vmalloc|"
    r"workingset_refault_file) (\d+)$",
    re.MULTILINE,
)


class Controllers(msgspec.Struct, frozen=True):
    """The controllers a cgroup has, and those it enables for its children."""

    available: frozenset[str]
    enabled: frozenset[str]


def parse_keyed(text: str) -> dict[str, int]:
    """The lines of memory.stat or memory.events: name → number."""
    pairs = (line.split() for line in text.splitlines())
    return {pair[0]: int(pair[1]) for pair in pairs if len(pair) == 2 and pair[1].isdecimal()}


@lru_cache(maxsize=1 << 12)
def events_of(text: str) -> Mapping[str, int]:
    """The same of memory.events, cached: the text changes rarely, and many cgroups share it."""
    return parse_keyed(text)


def processes_killed(events: Mapping[str, int]) -> int:
    """How many processes memory.events counts as killed for want of memory.

    oom_kill has the first one of a group twice: with memory.oom.group, oom_kill_process()
    (mm/oom_kill.c) kills it, and then every process of the group. Unless it had ended by then.
    """
    kills, groups = events.get("oom_kill", 0), events.get("oom_group_kill", 0)
    return max(kills - groups, min(kills, groups))


def memory_kinds(text: str) -> dict[str, int]:
    """What of memory.stat is recorded: it has five times as many lines."""
    return {name: int(number) for name, number in _KINDS.findall(text)}


def lines_about(text: str, names: Collection[str]) -> str:
    """The lines of such a file that are about these names."""
    return "\n".join(line for line in text.splitlines() if line.partition(" ")[0] in names)


def controllers_of(files: Mapping[str, str]) -> Controllers:
    """The controllers of a cgroup, given its files."""
    return Controllers(
        frozenset(files.get("cgroup.controllers", "").split()),
        frozenset(files.get("cgroup.subtree_control", "").split()),
    )


def withheld_at(cgroups: Mapping[str, Mapping[str, str]], path: str, controller: str) -> str | None:
    """The highest cgroup from the root to the parent of `path` that withholds a controller."""
    return next(
        (
            above
            for above in _above(path)
            if above in cgroups and controller not in controllers_of(cgroups[above]).enabled
        ),
        None,
    )


def _above(path: str) -> Iterator[str]:
    if path == "/":
        return
    yield "/"
    parts = path.split("/")
    for depth in range(2, len(parts)):
        yield "/".join(parts[:depth])


_LINE: Final = re.compile(r"^(.+?):\s+([0-9]+)( kB)?$", re.MULTILINE)


def meminfo_of(text: str) -> dict[str, int]:
    """Bytes by the name of their line, and plain counts where a line has no unit."""
    return {
        name: int(number) << 10 if unit else int(number)
        for name, number, unit in _LINE.findall(text)
    }


def memory_of(text: str, name: str) -> int:
    """Bytes of one line, which must exist."""
    found = meminfo_of(text).get(name)
    if found is None:
        raise InputError(
            f"there is no {name} in it", field="meminfo", hint="give the text of /proc/meminfo"
        )
    return found


_FIELD: Final = re.compile(r"\b(avg10|avg60|avg300|total)=(\d+(?:\.\d+)?)")


class Stalled(msgspec.Struct, frozen=True):
    """Share of the time spent waiting, in percent, and its sum in microseconds."""

    avg10: float = 0.0
    avg60: float = 0.0
    avg300: float = 0.0
    total: int = 0


class Stall(msgspec.Struct, frozen=True):
    """Time in which some tasks waited, and in which all of them did."""

    some: Stalled = Stalled()
    full: Stalled = Stalled()


@lru_cache(maxsize=1 << 10)
def stall_of(text: str) -> Stall:
    """A pressure file; missing lines count as 0."""
    # cpu has a "full" line since 5.13 only, and zeros in it for the whole machine (psi.rst).
    lines = dict(line.partition(" ")[::2] for line in text.splitlines())
    return Stall(_parse_line(lines.get("some", "")), _parse_line(lines.get("full", "")))


def _parse_line(line: str) -> Stalled:
    fields = {name: float(value) for name, value in _FIELD.findall(line)}
    total = int(fields.pop("total", 0))
    return Stalled(**fields, total=total)


# NUMA node numbers are below 1 << CONFIG_NODES_SHIFT, at most 1024; cpus below NR_CPUS, 8192.
NODE_LIST: Final = re.compile(r"(?:[0-9]{1,5}(?:-[0-9]{1,5})?(?:,[0-9]{1,5}(?:-[0-9]{1,5})?)*)?")
"""A list of nodes, or cpus, such as 0-3,8 (cgroup-v2.rst, cpuset.cpus)."""


def node_list(nodes: Iterable[int]) -> str:
    """The list of some nodes; empty if there are none."""
    runs: list[list[int]] = []
    for node in sorted(nodes):
        if runs and node == runs[-1][-1] + 1:
            runs[-1].append(node)
        else:
            runs.append([node])
    return ",".join([str(run[0]) if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in runs])


def describe_nodes(nodes: Iterable[int]) -> str:
    """`node 0`, `nodes 0-3,8`."""
    members = list(nodes)
    return f"node {members[0]}" if len(members) == 1 else f"nodes {node_list(members)}"


def nodes_in(text: str) -> set[int]:
    """The nodes, or cpus, of a `NODE_LIST`."""
    nodes: set[int] = set()
    for part in filter(None, text.strip().split(",")):
        first, _, last = part.partition("-")
        nodes.update(range(int(first), int(last or first) + 1))
    return nodes
