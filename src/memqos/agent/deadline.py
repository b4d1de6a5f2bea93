"""Work in a thread of its own, for which its caller waits up to a deadline."""

import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any, Generic, TypeVar

_T = TypeVar("_T")


class DeadlinePassed(Exception):
    """There is no result in time, and a late one is not used."""


class _Job(Generic[_T]):
    def __init__(self, action: Callable[[], _T], revoke: Callable[[], object]) -> None:
        self._action = action
        self._revoke = revoke
        self.is_done = threading.Event()
        self.is_abandoned = False
        self.result: _T
        self.error: Exception | None = None

    def run(self) -> None:
        try:
            self.result = self._action()
        except Exception as error:
            self.error = error

    def revoke(self) -> None:
        try:
            self._revoke()
        except Exception as error:
            self.error = error


class DeadlineThread:
    """Runs one action after the other. A slow one delays only those after it."""

    def __init__(self, name: str, seconds: float) -> None:
        self._seconds = seconds
        self._jobs: SimpleQueue[_Job[Any] | None] = SimpleQueue()
        self._deciding = threading.Lock()
        """Whether a job ended in time is decided once, by its thread or by the one that waits."""
        self._abandoned = 0
        """Jobs that have passed their deadline, and have not ended."""
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """After what is under way; an action that hangs is left behind."""
        self._jobs.put(None)
        self._thread.join(self._seconds)

    def run(self, action: Callable[[], _T], revoke: Callable[[], object]) -> _T:
        """What the action returns or raises; DeadlinePassed where that takes too long.

        `revoke` undoes an action that ends too late. While one hangs, no other is begun.
        """
        if self._abandoned:
            raise DeadlinePassed
        job = _Job(action, revoke)
        self._jobs.put(job)
        if not self._ends_in_time(job):
            raise DeadlinePassed
        if job.error is not None:
            raise job.error
        return job.result

    def run_always(self, action: Callable[[], object]) -> None:
        """Run it even if it ends after the deadline."""
        job = _Job(action, _do_nothing)
        is_behind = self._abandoned > 0
        self._jobs.put(job)
        if not is_behind and self._ends_in_time(job) and job.error is not None:
            raise job.error

    def _ends_in_time(self, job: _Job[Any]) -> bool:
        if job.is_done.wait(self._seconds):
            return True
        with self._deciding:
            if job.is_done.is_set():
                return True
            job.is_abandoned = True
            self._abandoned += 1
            return False

    def _run(self) -> None:
        while (job := self._jobs.get()) is not None:
            job.run()
            with self._deciding:
                job.is_done.set()
            if job.is_abandoned:
                job.revoke()
                with self._deciding:
                    self._abandoned -= 1


def _do_nothing() -> None:
    """What is right however late it is."""
