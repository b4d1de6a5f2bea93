"""Read blocks and count pods in this process, and in worker processes where there are any."""

import gc
from collections import deque
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec

from memqos.audit.census import (
    BlockResult,
    Census,
    ClusterObjects,
    MeasuredUsage,
    NumberedObject,
    collect_objects,
)
from memqos.audit.pod_counter import CountRequest, count_pods
from memqos.audit.totals import ClusterTotals, merge_totals
from memqos.errors import InputError
from memqos.host.dumps import BlockReader, DumpBlock, DumpPart, Restart
from memqos.manifests.dumps.text import Size

if TYPE_CHECKING:
    from memqos.host.workers import WorkerPool

_AHEAD: Final = 6
"""Blocks in a worker's queue, so that it never waits while this process is busy. Any small number
does: a worker takes longer to read a block than this process takes to cut the next one."""

QuickResult = tuple[BlockResult, Size]
"""The result of a block that was decoded as a whole, and the block's size."""


class NumberedPart(NamedTuple):
    """A part of a dump, its number, and its result where it was decoded as a whole."""

    number: int
    part: DumpPart
    quick: QuickResult | None = None


class _DiscardFrom(NamedTuple):
    number: int


class CensusWorkers:
    """Reads and counts with a given number of processes, this one included."""

    def __init__(self, jobs: int, usage: dict[str, MeasuredUsage]) -> None:
        self.own = Census()
        self._block_reader = BlockReader()
        self._usage = usage
        self._number = 0
        self._workers = self._start_workers(jobs - 1) if jobs > 1 else None

    def close(self) -> None:
        """End the worker processes."""
        if self._workers is not None:
            self._workers.terminate()

    def read_parts(self, parts: Iterator[DumpPart]) -> Iterator[NumberedPart]:
        """Every part in order, with its result where it was decoded as a whole."""
        waiting: deque[NumberedPart] = deque()
        done: dict[int, QuickResult | None] = {}
        free = deque([*range(0 if self._workers is None else len(self._workers))] * _AHEAD)
        for part in parts:
            number = self._number
            waiting.append(NumberedPart(number, part))
            if isinstance(part, DumpBlock):
                # An idle worker takes it; without one this process counts it itself.
                worker = _choose_worker(part, free)
                if self._workers is not None and worker is not None:
                    free.remove(worker)
                    self._workers.send(worker, (number, part))
                else:
                    done[number] = read_block(self.own, self._block_reader, number, part)
            if not isinstance(part, InputError | Restart):
                self._number += 1
            if self._workers is not None:
                # Counts after a restart must follow all counts before it.
                while isinstance(part, Restart) and len(free) < _AHEAD * len(self._workers):
                    self._collect_answers(self._workers, free, done, None)
                self._collect_answers(self._workers, free, done, 0.0)
            yield from _ready_parts(waiting, done)
        while waiting:
            assert self._workers is not None
            self._collect_answers(self._workers, free, done, None)
            yield from _ready_parts(waiting, done)

    def discard_from(self, number: int) -> None:
        """Discard what was read from this block and all after it; none is being read."""
        self.own.discard_from(number)
        if self._workers is not None:
            self._workers.broadcast(_DiscardFrom(number))
            self._workers.gather()

    def cluster_objects(self) -> ClusterObjects:
        """All objects that were read, other than pods, by this process and the workers."""
        total = Census()
        parts: list[tuple[list[NumberedObject], dict[str, MeasuredUsage]]] = [
            (self.own.other_objects, self.own.usage)
        ]
        if self._workers is not None:
            self._workers.broadcast(None)
            parts += self._workers.gather()
        for found, usage in parts:
            total.other_objects += found
            for key, used in usage.items():
                total.merge_usage(key, used)
        return collect_objects(total.other_objects, total.usage)

    def count_pods(self, request: CountRequest) -> ClusterTotals:
        """All pods added up; the usage in the request is what the dumps themselves say of it."""
        if self._workers is not None:
            self._workers.broadcast(request)
        total = _count_census(self.own, self._usage, request)
        if self._workers is not None:
            for part in self._workers.gather():
                merge_totals(total, part)
        return total

    def _start_workers(self, count: int) -> "WorkerPool":
        from memqos.host.workers import WorkerPool

        return WorkerPool(count, self._make_handler)

    def _make_handler(self) -> Callable[[Any], Any]:
        """A worker's message handler."""
        gc.disable()
        census, block_reader, usage = Census(), BlockReader(), self._usage

        def handle(message: Any) -> Any:
            if message is None:
                return census.other_objects, census.usage
            if isinstance(message, CountRequest):
                return _count_census(census, usage, message)
            if isinstance(message, _DiscardFrom):
                return census.discard_from(message.number)
            number, block = message
            return number, read_block(census, block_reader, number, block)

        return handle

    def _collect_answers(
        self,
        pool: "WorkerPool",
        free: deque[int],
        done: dict[int, QuickResult | None],
        seconds: float | None,
    ) -> None:
        for worker, (number, found) in pool.answers(seconds):
            free.append(worker)
            done[number] = found


def _choose_worker(block: DumpBlock, free: deque[int]) -> int | None:
    """The worker that reads a block; None where all queues are full.

    A block that has its text with it goes only to an idle worker: a pipe holds 64 KiB (pipe(7)),
    less than a block, and two processes that both write to full pipes would wait for ever.
    """
    if block.text is None:
        return free[0] if free else None
    return next((worker for worker in free if free.count(worker) == _AHEAD), None)


def _ready_parts(
    waiting: deque[NumberedPart], done: dict[int, QuickResult | None]
) -> Iterator[NumberedPart]:
    while waiting:
        number, part, _ = waiting[0]
        is_block = isinstance(part, DumpBlock)
        if is_block and number not in done:
            return
        waiting.popleft()
        yield NumberedPart(number, part, done.pop(number) if is_block else None)


def read_block(
    census: Census, block_reader: BlockReader, number: int, block: DumpBlock
) -> QuickResult | None:
    """Decode a block as a whole; None where that fails."""
    try:
        read = block_reader.objects_of(block)
    except OSError:
        return None
    if read is None:
        return None
    text, size = read
    result = census.read_block(number, text, block.layout.form)
    return None if result is None else (result, size)


def _count_census(
    census: Census, usage: dict[str, MeasuredUsage], request: CountRequest
) -> ClusterTotals:
    known = {**usage, **request.usage} if request.usage else usage
    return count_pods(census, msgspec.structs.replace(request, usage=known))
