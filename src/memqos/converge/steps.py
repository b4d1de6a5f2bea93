"""Changes bound to the very cgroups they were planned for."""

from collections import defaultdict
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from typing import Final, Literal

import msgspec

from memqos.converge.driver import Driver
from memqos.converge.values import kernel_form, parent_nodes
from memqos.errors import MemqosError, Unreachable
from memqos.host.cgroups import CgroupFs
from memqos.plan.changes import Change
from memqos.plan.cpuset import MEMS
from memqos.plan.setting import MAX
from memqos.units import format_exact_bytes


class WriteStep(msgspec.Struct, frozen=True):
    """One change, and the inode of the cgroup it is meant for."""

    change: Change
    cgroup: int
    kubelet_managed: bool = False
    """Whether the running kubelet puts this very value there itself, once a minute
    (cm/qos_container_manager_linux.go, periodicQOSCgroupUpdateInterval).

    A kubelet that starts zeroes what it keeps above pods for that minute. To write it early is the
    kubelet's own doing, so it leaves nothing to restore, once the kubelet has confirmed that it
    keeps the file: the zero was not what was there before.
    """


class StaleStep(msgspec.Struct, frozen=True):
    """A step that no longer fits the tree."""

    step: WriteStep
    current: str | None
    """The value that is there instead; None where the cgroup is another one of the same name."""

    def __str__(self) -> str:
        change = self.step.change
        place = f"{change.path}/{change.file}"
        if self.current is None:
            return f"{place}: the cgroup was created again"
        return f"{place}: {change.old or 'empty'} when planned, {self.current or 'empty'} now"


StepState = Literal["ready", "done", "gone"] | StaleStep
"""Neither a cgroup that was removed nor a value that is already as planned makes a plan stale: so
one whose writer was killed can be applied again."""


def steps_of(
    changes: Iterable[Change],
    identities: Mapping[str, int],
    kubelet_managed: Container[tuple[str, str]] = (),
) -> tuple[WriteStep, ...]:
    """Bind changes to cgroups by path → inode; a change without a cgroup is skipped."""
    return tuple(
        WriteStep(change, identities[change.path], (change.path, change.file) in kubelet_managed)
        for change in changes
        if change.path in identities
    )


def step_state(step: WriteStep, fs: CgroupFs, page_size: int) -> StepState:
    """Whether the tree is still the one that a step was planned for."""
    change = step.change
    identity = fs.identity(change.path)
    if identity is None:
        return "gone"
    if identity != step.cgroup:
        return StaleStep(step, None)
    value = fs.read(change.path, change.file)
    if value is None:
        return "gone"
    if value == kernel_form(change.file, change.new, page_size):
        return "done"
    return "ready" if value == change.old else StaleStep(step, value)


Batch = list[WriteStep]
_Files = dict[str, set[str]]


def batch_steps(steps: Iterable[WriteStep], batch_key: Callable[[Change], str]) -> list[Batch]:
    """What is written in one call each, in order; `batch_key` names the owner of a change."""
    together: defaultdict[str, Batch] = defaultdict(list)
    for step in steps:
        together[batch_key(step.change)].append(step)
    raised_below, lowered_below = _below(together.values())
    raising: list[Batch] = []
    lowering: list[Batch] = []
    for batch in together.values():
        path = batch[0].change.path
        up = [step for step in batch if step.change.raises]
        down = [step for step in batch if not step.change.raises]
        if not up or not down or not _files(up) & raised_below[path]:
            (lowering if down else raising).append(batch)
        elif not _files(down) & lowered_below[path]:
            raising.append(batch)
        else:
            raising.append(up)
            lowering.append(down)
    return sorted(raising, key=_depth) + sorted(lowering, key=_depth, reverse=True)


def _below(together: Iterable[Batch]) -> tuple[_Files, _Files]:
    """Path → the files that are raised below it, and those that are lowered."""
    raised: defaultdict[str, set[str]] = defaultdict(set)
    lowered: defaultdict[str, set[str]] = defaultdict(set)
    for batch in together:
        for step in batch:
            files = raised if step.change.raises else lowered
            for ancestor in _ancestors(step.change.path):
                files[ancestor].add(step.change.file)
    return raised, lowered


def _ancestors(path: str) -> Iterator[str]:
    while path := path.rpartition("/")[0]:
        yield path


def _files(steps: Iterable[WriteStep]) -> set[str]:
    return {step.change.file for step in steps}


def _depth(batch: Batch) -> int:
    return batch[0].change.path.count("/")


WriteOutcome = Literal[
    "written", "gone", "refused", "unreachable", "overtaken", "withheld", "stopped", "differs"
]
"""How a step ended:

- written: it reads back as it should
- gone: the cgroup was removed, which is normal
- refused: the kernel, or its owner, did not take the value
- unreachable: the owner does not answer, and the value is not in place
- overtaken: something else has changed it since it was read
- withheld: it would go below memory that cannot be reclaimed, and was not forced
- stopped: the write took too long, and the value is not in place
- differs: something else is read back, or it is unknown what is there
"""
PENDING: Final[frozenset[WriteOutcome]] = frozenset({"overtaken", "withheld"})
"""Nothing failed, and something is left to do."""
FAILED: Final[frozenset[WriteOutcome]] = frozenset({"refused", "unreachable", "stopped", "differs"})


class WriteResult(msgspec.Struct, frozen=True):
    """One change and what came of it."""

    change: Change
    outcome: WriteOutcome
    detail: str | None = None
    """What a person should know of it."""
    writer_blocked: bool = False
    """Whether the value is in place though its write has not returned."""


class WriteOptions(msgspec.Struct, frozen=True):
    """What a writer has to know of the machine, and whether it may be reckless."""

    page_size: int
    swap_free: int
    force: bool = False


def write_batch(
    steps: Sequence[WriteStep], fs: CgroupFs, driver: Driver, options: WriteOptions
) -> list[WriteResult]:
    """Take the steps of one batch, but for those that something speaks against."""
    against = [_check_step(step, fs, driver, options) for step in steps]
    taken = [step for step, found in zip(steps, against, strict=True) if found is None]
    written = iter(_write_steps(taken, fs, driver, options.page_size) if taken else ())
    return [next(written) if found is None else found for found in against]


def _check_step(
    step: WriteStep, fs: CgroupFs, driver: Driver, options: WriteOptions
) -> WriteResult | None:
    change = step.change
    try:
        if fs.identity(change.path) != step.cgroup:
            return WriteResult(change, "gone")
        before = driver.read(change.path, change.file)
        if before is None:
            return WriteResult(change, "gone")
        # An owner may have written it along with another cgroup: crun 1.28 sets the values of its
        # own cgroup at the scope around it, too. The owner gets it anyway.
        if before not in (change.old, kernel_form(change.file, change.new, options.page_size)):
            return WriteResult(change, "overtaken", f"the value was {before}, not {change.old}")
        unreclaimable = None if options.force else _unreclaimable(change, fs, options.swap_free)
    except OSError as error:
        return WriteResult(change, "refused", f"{change.path}/{change.file}: {error.strerror}")
    return None if unreclaimable is None else WriteResult(change, "withheld", unreclaimable)


def _write_steps(
    steps: Sequence[WriteStep], fs: CgroupFs, driver: Driver, page_size: int
) -> list[WriteResult]:
    changes = [step.change for step in steps]
    try:
        finished = driver.write(changes)
    except (MemqosError, OSError) as error:
        # OSError: no file descriptor is free, or the container may have no more processes.
        return [_after_failure(step, error, fs, driver, page_size) for step in steps]
    return [_read_back(change, driver, page_size, finished=finished) for change in changes]


def _after_failure(
    step: WriteStep, error: MemqosError | OSError, fs: CgroupFs, driver: Driver, page_size: int
) -> WriteResult:
    """A call may fail after a part of it was done, or after all of it."""
    change, why = step.change, str(error)
    if isinstance(error, OSError):
        why = f"{change.path}/{change.file}: cannot write {change.new!r}: {error.strerror}"
    try:
        if fs.identity(change.path) != step.cgroup:
            return WriteResult(change, "gone")
        if driver.read(change.path, change.file) == kernel_form(change.file, change.new, page_size):
            return WriteResult(change, "written")
    except OSError:
        # Not "refused": then the journal would forget a value that may be there, or yet come.
        return WriteResult(change, "differs", why)
    return WriteResult(change, "unreachable" if isinstance(error, Unreachable) else "refused", why)


def _read_back(change: Change, driver: Driver, page_size: int, *, finished: bool) -> WriteResult:
    try:
        after = driver.read(change.path, change.file)
    except OSError as error:
        return WriteResult(change, "differs", f"{change.new} cannot be read back: {error.strerror}")
    if after is None:
        return WriteResult(change, "gone")
    if after == kernel_form(change.file, change.new, page_size):
        if finished:
            return WriteResult(change, "written")
        return WriteResult(
            change, "written", "in place, but the write had not returned yet", writer_blocked=True
        )
    if change.file == MEMS and not change.new and after == parent_nodes(change.path, driver.read):
        return WriteResult(change, "written", f"{after}, which is all nodes: it has processes")
    if finished:
        return WriteResult(change, "differs", f"{change.new} was written, but {after} is read back")
    return WriteResult(change, "stopped", f"the write took too long; the value is still {after}")


def _unreclaimable(change: Change, fs: CgroupFs, swap_free: int) -> str | None:
    """Why memory.high may not go as low as this; None where it may.

    Anonymous and shared memory can only leave for swap. Where that is full, the processes
    would be throttled for ever.
    """
    if change.file != "memory.high" or change.new == MAX or change.raises:
        return None
    high = int(change.new)
    if _number(fs.read(change.path, "memory.current")) <= high:
        return None
    stat = fs.read(change.path, "memory.stat") or ""
    counts = dict(line.split(" ", 1) for line in stat.splitlines() if " " in line)
    pinned = _number(counts.get("anon")) + _number(counts.get("shmem"))
    room = _swap_room(change.path, fs, swap_free)
    if pinned <= high + room:
        return None
    swap = f"{format_exact_bytes(room)} of swap" if room else "no swap"
    return f"{format_exact_bytes(pinned)} is anonymous or shared memory, with {swap} for it"


def _swap_room(path: str, fs: CgroupFs, swap_free: int) -> int:
    """What the cgroup can still swap out: each ancestor may allow less than the machine has."""
    room = swap_free
    while path and room:
        limit = fs.read(path, "memory.swap.max")
        if limit is not None and limit != MAX:
            used = _number(fs.read(path, "memory.swap.current"))
            room = min(room, max(0, _number(limit) - used))
        path = path.rpartition("/")[0]
    return room


def _number(text: str | None) -> int:
    return int(text) if text is not None and text.isdecimal() else 0
