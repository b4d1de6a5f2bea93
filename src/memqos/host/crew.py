"""Other processes that do a part of the work and keep what they learn between two messages."""

import multiprocessing
from collections.abc import Callable, Iterator
from contextlib import suppress
from multiprocessing.connection import Connection, wait
from typing import Any, Final

from memqos.errors import Unreachable

Handler = Callable[[Any], Any]
"""Answers a message."""

_ENOUGH: Final = "enough"
_PATIENCE: Final = 5.0
"""Seconds a process has to end by itself."""


class Crew:
    """Processes, each with a handler of its own, made in that process."""

    def __init__(self, count: int, hire: Callable[[], Handler]) -> None:
        # A forked process has all that was read so far, without being told.
        context = multiprocessing.get_context("fork")
        self._ends: list[Connection] = []
        self._processes = []
        for _ in range(count):
            here, there = context.Pipe()
            # A process that held an end of another's pipe would keep it from ending with this one.
            inherited = (here, *self._ends)
            process = context.Process(target=_work, args=(there, hire, inherited), daemon=True)
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
            with suppress(OSError):
                end.send(_ENOUGH)
            end.close()
        for process in self._processes:
            process.join(_PATIENCE)
            if process.is_alive():
                process.kill()
                process.join()


def _work(end: Connection, hire: Callable[[], Handler], inherited: tuple[Connection, ...]) -> None:
    for other in inherited:
        other.close()
    handler = hire()
    with suppress(EOFError, OSError, KeyboardInterrupt):
        while (message := end.recv()) != _ENOUGH:
            end.send(handler(message))


def _gone() -> Unreachable:
    return Unreachable("a process that helped is gone", hint="was it killed? try --jobs 1")
