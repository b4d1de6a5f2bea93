"""Pressure stall information as numbers."""

import re
from functools import lru_cache
from typing import Final

import msgspec

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
    """A pressure file; lines that are not there count as nothing."""
    lines = dict(line.partition(" ")[::2] for line in text.splitlines())
    return Stall(_parse_line(lines.get("some", "")), _parse_line(lines.get("full", "")))


def _parse_line(line: str) -> Stalled:
    fields = {name: float(value) for name, value in _FIELD.findall(line)}
    total = int(fields.pop("total", 0))
    return Stalled(**fields, total=total)
