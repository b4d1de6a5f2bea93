"""Reads a source in a thread of its own, while it is shown: a slow source delays no screen."""

import threading
import time
from collections.abc import Callable, Collection
from typing import Final

from memqos.converge.node_sources import NodeSource
from memqos.errors import MemqosError
from memqos.monitor.instant import NodeInstant, RowQuery

_ATTENTION: Final = 5.0
"""Seconds after the last request in which reading continues."""


class Refresher:
    """The last instant of a source, read again every `interval` seconds while it is requested."""

    def __init__(self, source: NodeSource, interval: float) -> None:
        self.source = source
        self._interval = interval
        self._notify: Callable[[], object] = lambda: None
        self._visible: Collection[str] = ()
        self._query = RowQuery()
        self._asked_at = time.monotonic()
        self._wake = threading.Event()
        self._done = threading.Event()
        self._stopping = False
        self.fault: str | None = None
        """Why the last reading failed."""
        self.instant = source.read((), self._query)
        self._thread = threading.Thread(target=self._run, name="refresher", daemon=True)

    def on_read(self, notify: Callable[[], object]) -> None:
        """Call this after each reading, from the thread that reads."""
        self._notify = notify

    def start(self) -> None:
        """Begin to read on."""
        self._thread.start()

    def latest(
        self, visible: Collection[str], query: RowQuery, patience: float = 0.0
    ) -> NodeInstant:
        """The last instant; these rows are read in full from now on.

        After a time without requests the last instant is old: then wait for a new one, for at most
        `patience` seconds.
        """
        is_idle = time.monotonic() - self._asked_at > _ATTENTION
        self._visible, self._query, self._asked_at = visible, query, time.monotonic()
        if is_idle:
            self._done.clear()
            self._wake.set()
            self._done.wait(patience)
        return self.instant

    def read_now(self) -> None:
        """Read again without waiting for the interval."""
        self._wake.set()

    def stop(self) -> None:
        """Read no more."""
        self._stopping = True
        self._wake.set()

    def _run(self) -> None:
        while not self._stopping:
            is_watched = time.monotonic() - self._asked_at <= _ATTENTION
            # Not without end: a request that comes right now believes that reading goes on.
            is_woken = self._wake.wait(self._interval if is_watched else _ATTENTION)
            if is_woken:  # else a request may have come since: it wakes the next wait
                self._wake.clear()
            if (is_woken or is_watched) and not self._stopping:
                self._read()

    def _read(self) -> None:
        try:
            self.instant = self.source.read(self._visible, self._query)
            self.fault = None
        except (MemqosError, OSError) as error:
            self.fault = str(error)
        except Exception as error:
            # A thread that dies of an unforeseen error would leave an instant that looks current.
            self.fault = f"{type(error).__name__}: {error}"
        self._done.set()
        self._notify()
