"""Other processes that do a part of the work and keep what they learn between two messages."""

import multiprocessing
from collections.abc import Callable, Iterator
from multiprocessing.connection import Connection, wait
from typing import Any

from memqos.errors import Unreachable

Handler = Callable[[Any], Any]
"""Answers a message."""


class Crew:
    """Processes, each with a handler of its own, made in that process."""

    def __init__(self, count: int, hire: Callable[[], Handler]) -> None:
        # A forked process has all that was read so far, without being told.
        context = multiprocessing.get_context("fork")
        self._ends: list[Connection] = []
        self._processes = []
        for _ in range(count):
            here, there = context.Pipe()
            process = context.Process(target=_work, args=(there, hire), daemon=True)
            process.start()
            there.close()
            self._ends.append(here)
            self._processes.append(process)

    def __len__(self) -> int:
        return len(self._ends)

    def send(self, worker: int, message: Any) -> None:
        """Give a worker something to do."""
        try:
            self._ends[worker].send(message)
        except OSError:
            raise _gone() from None

    def answers(self) -> Iterator[tuple[int, Any]]:
        """Wait for an answer, and give all that are there."""
        for end in wait(self._ends):
            assert isinstance(end, Connection)
            try:
                answer = end.recv()
            except EOFError:
                raise _gone() from None
            yield self._ends.index(end), answer

    def ask(self, message: Any) -> list[Any]:
        """Give all the same to do, and wait for all answers."""
        for worker in range(len(self)):
            self.send(worker, message)
        found: dict[int, Any] = {}
        while len(found) < len(self):
            found |= dict(self.answers())
        return [found[worker] for worker in range(len(self))]

    def dismiss(self) -> None:
        """End all processes."""
        for end in self._ends:
            end.close()
        for process in self._processes:
            process.join(timeout=1)
            if process.is_alive():
                process.terminate()


def _work(end: Connection, hire: Callable[[], Handler]) -> None:
    handler = hire()
    while True:
        try:
            message = end.recv()
        except (EOFError, KeyboardInterrupt):
            return
        end.send(handler(message))


def _gone() -> Unreachable:
    return Unreachable("a process that helped is gone", hint="was it killed? try --jobs 1")
