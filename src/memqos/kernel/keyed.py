"""Cgroup files that hold more than one value, as numbers and names."""

import re
from collections.abc import Collection, Iterator, Mapping
from functools import lru_cache
from typing import Final

import msgspec

_KINDS: Final = re.compile(r"^(anon|file|shmem) (\d+)$", re.MULTILINE)


class Controllers(msgspec.Struct, frozen=True):
    """What a cgroup has been given, and what it passes on to its children."""

    available: frozenset[str]
    enabled: frozenset[str]


def parse_keyed(text: str) -> dict[str, int]:
    """The lines of memory.stat or memory.events: name → number."""
    pairs = (line.split() for line in text.splitlines())
    return {pair[0]: int(pair[1]) for pair in pairs if len(pair) == 2 and pair[1].isdecimal()}


@lru_cache(maxsize=1 << 12)
def events_of(text: str) -> Mapping[str, int]:
    """The same of memory.events, kept: most cgroups meet nothing for long, and many the same."""
    return parse_keyed(text)


def memory_kinds(text: str) -> dict[str, int]:
    """anon, file and shmem of memory.stat, which has ten times as many lines."""
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
