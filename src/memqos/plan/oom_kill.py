"""The order in which the kernel kills processes when the whole machine is out of memory.

A process scores the pages it uses, in RAM, in swap and as page tables, plus oom_score_adj
thousandths of all RAM and swap; the one with the highest score is killed. Init, kernel threads and
processes with oom_score_adj -1000 are never killed. Where a cgroup on the way up has
memory.oom.group set, all of the highest such cgroup dies together (mm/oom_kill.c; since Linux 5.9
scores may be negative, before that the least was 1).

When a cgroup reaches its own memory.max, only its own processes are candidates.
"""

from collections.abc import Iterable
from typing import Final, Literal

import msgspec

from memqos.kernel.process import Process

NEVER: Final = -1000
INIT: Final = 1

Spared = Literal["init", "kernel thread", "oom_score_adj -1000"]


class Candidate(msgspec.Struct, frozen=True):
    """A process that may be killed; amounts in pages."""

    process: Process
    pages: int
    adjustment: int
    total: int
    """RAM and swap of the machine."""

    @property
    def points(self) -> int:
        """What the kernel compares; may be below 0."""
        return self.pages + self.adjustment

    @property
    def score(self) -> int:
        """What /proc/PID/oom_score shows of it."""
        # Points may be negative since 5.9; fs/proc/base.c, proc_oom_score(), maps them to 0…2000.
        return _towards_zero((1000 + _towards_zero(self.points * 1000, self.total)) * 2, 3)


class Kill(msgspec.Struct, frozen=True):
    """One kill: the process chosen, and those that die with it."""

    victim: Candidate
    along: tuple[Candidate, ...] = ()


class KillOrder(msgspec.Struct, frozen=True):
    """All that can be killed, the first to die first, and all that cannot."""

    kills: tuple[Kill, ...]
    spared: tuple[tuple[Process, Spared], ...]


def kill_order(processes: Iterable[Process], total: int, page_size: int) -> KillOrder:
    """The order in which processes die on a machine with `total` bytes of RAM and swap.

    Processes come in the order in which they were started. Memory that was not measured counts as
    none.
    """
    spared: list[tuple[Process, Spared]] = []
    candidates: list[Candidate] = []
    for process in processes:
        why = _why_spared(process)
        if why is None:
            candidates.append(_candidate(process, total // page_size, page_size))
        else:
            spared.append((process, why))
    # oom_evaluate_task() (mm/oom_kill.c) skips only those with fewer points than the chosen one:
    # of two with the same points the one it meets later is killed.
    candidates.reverse()
    candidates.sort(key=lambda candidate: -candidate.points)
    return KillOrder(tuple(_kills(candidates)), tuple(spared))


def _why_spared(process: Process) -> Spared | None:
    if process.kernel_thread:
        return "kernel thread"
    if process.pid == INIT:
        return "init"
    return "oom_score_adj -1000" if process.oom_score_adj == NEVER else None


def _candidate(process: Process, total: int, page_size: int) -> Candidate:
    pages = ((process.rss or 0) + process.swap) // page_size + process.page_tables // page_size
    # oom_badness() divides first (adj × (totalpages / 1000)): a thousandth is a whole number of
    # pages.
    return Candidate(process, pages, process.oom_score_adj * (total // 1000), max(1, total))


def _kills(candidates: list[Candidate]) -> Iterable[Kill]:
    of_group: dict[str, list[Candidate]] = {}
    for candidate in candidates:
        if candidate.process.oom_group is not None:
            of_group.setdefault(candidate.process.oom_group, []).append(candidate)
    dead: set[str] = set()
    for candidate in candidates:
        group = candidate.process.oom_group
        if group is None:
            yield Kill(candidate)
        elif group not in dead:
            dead.add(group)
            yield Kill(candidate, tuple(of_group[group][1:]))


def _towards_zero(dividend: int, divisor: int) -> int:
    """Division as C does it."""
    quotient = abs(dividend) // divisor
    return quotient if dividend >= 0 else -quotient
