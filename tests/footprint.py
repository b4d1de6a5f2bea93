"""What this process holds on to, and whether that grows."""

import functools
import gc
import os
import sys
import threading
import tracemalloc
from typing import Final, NamedTuple

from tests.vm.guest.processes import watches

SLACK: Final = 64 << 10
"""Bytes by which what is in use may differ: some dozen a pod."""
_OWN: Final = [
    tracemalloc.Filter(False, name)
    for name in ("*/tests/soak.py", __file__, "*/tests/fakes/*", "*/pathlib.py", "*/tracemalloc.py")
]
"""What is held by these tests, and not by the agent."""


class Footprint(NamedTuple):
    """What is in use, by what the kernel and Python count."""

    memory: int
    descriptors: int
    threads: int
    watches: int


def footprint() -> Footprint:
    """Bounded caches are emptied first: they fill up over thousands of pods, and then stay so."""
    for module in list(sys.modules.values()):
        for each in list(vars(module).values()):
            if type(each) is functools._lru_cache_wrapper and each.cache_parameters()["maxsize"]:
                each.cache_clear()
    gc.collect()
    held = tracemalloc.take_snapshot().filter_traces(_OWN)
    memory = sum(trace.size for trace in held.traces)
    return Footprint(memory, len(os.listdir("/proc/self/fd")), threading.active_count(), watches())


def check_flat(prints: list[Footprint]) -> None:
    """The last third must come down to what the one before it needed; the first is the beginning.

    Up to then what is needed may rise: records wait while the disk is full, and tables that were
    large once are made smaller later.
    """
    third = len(prints) // 3
    for name, allowed in {"memory": SLACK, "descriptors": 0, "threads": 0, "watches": 0}.items():
        figures = [getattr(each, name) for each in prints]
        before, after = min(figures[third:-third]), min(figures[-third:])
        assert after <= before + allowed, f"{name} grew from {before} to {after}: {figures}"
