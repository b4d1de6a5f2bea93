"""A pool of worker processes that keep their state from one message to the next."""

import multiprocessing
import signal
from collections.abc import Callable, Iterator
from contextlib import suppress
from multiprocessing.connection import Connection, wait
from typing import Any, Final

from memqos.errors import Unreachable

Handler = Callable[[Any], Any]
"""Answers a message."""

_INTERRUPTS: Final = frozenset({signal.SIGINT})


class WorkerPool:
    """Worker processes; each makes its own message handler."""

    def __init__(self, count: int, make_handler: Callable[[], Handler]) -> None:
        # Forked: the worker inherits all that was read so far.
        context = multiprocessing.get_context("fork")
        self._ends: list[Connection] = []
        self._processes = []
        for _ in range(count):
            here, there = context.Pipe()
            # A worker sees the end of its pipe once no process has the other end open (pipe(7)):
            # the workers forked later inherit it, and close it.
            inherited = (here, *self._ends)
            process = context.Process(
                target=_work, args=(there, make_handler, inherited), daemon=True
            )
            # Ctrl-C reaches the whole process group: the parent ends its workers itself.
            before = signal.pthread_sigmask(signal.SIG_BLOCK, _INTERRUPTS)
            try:
                process.start()
            finally:
                signal.pthread_sigmask(signal.SIG_SETMASK, before)
            there.close()
            self._ends.append(here)
            self._processes.append(process)

    def __len__(self) -> int:
        return len(self._ends)

    def send(self, worker: int, message: Any) -> None:
        """Send a message to one worker."""
        try:
            self._ends[worker].send(message)
        except OSError:
            raise _worker_lost() from None

    def answers(self, seconds: float | None = None) -> Iterator[tuple[int, Any]]:
        """Wait for answers, at most so many seconds; those that have arrived, by worker."""
        for end in wait(self._ends, seconds):
            assert isinstance(end, Connection)
            try:
                answer = end.recv()
            except (EOFError, OSError):
                raise _worker_lost() from None
            yield self._ends.index(end), answer

    def broadcast(self, message: Any) -> None:
        """Send a message to all workers."""
        for worker in range(len(self)):
            self.send(worker, message)

    def gather(self) -> list[Any]:
        """The answers of all workers to a broadcast, in order."""
        found: dict[int, Any] = {}
        while len(found) < len(self):
            found |= dict(self.answers())
        return [found[worker] for worker in range(len(self))]

    def terminate(self) -> None:
        """Kill all workers; what they have in memory is dropped."""
        for process in self._processes:
            process.kill()
        for end, process in zip(self._ends, self._processes, strict=True):
            end.close()
            process.join()


def _work(
    end: Connection, make_handler: Callable[[], Handler], inherited: tuple[Connection, ...]
) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    for other in inherited:
        other.close()
    handler = make_handler()
    with suppress(EOFError, OSError):
        while True:
            end.send(handler(end.recv()))


def _worker_lost() -> Unreachable:
    return Unreachable(
        "a worker process has died", hint="it may have been OOM-killed: try --jobs 1"
    )
