"""A bar that moves while something long goes on, where somebody watches."""

import sys
import time
from typing import Final

from memqos.cli.streams import show_status

_WIDTH: Final = 30
_EVERY: Final = 0.1
"""Seconds."""


class ProgressBar:
    """Bytes and objects read so far, of as many as are known to come."""

    def __init__(self, total: int) -> None:
        self._total = total
        self._done = 0
        self._objects = 0
        self._expected = 0
        self._shown = 0.0
        self._is_watched = sys.stderr.isatty()

    def advance(self, size: int, objects: int) -> None:
        """So much more was read."""
        self._done += size
        self._objects += objects
        if self._is_watched and time.monotonic() - self._shown > _EVERY:
            self._shown = time.monotonic()
            self._write(self._line())

    def expect(self, objects: int) -> None:
        """So many objects are to come, whatever their size."""
        self._expected = self._objects + objects

    def end(self) -> None:
        """Take the bar away."""
        if self._is_watched:
            self._write("")

    def _line(self) -> str:
        told = f"{self._objects:,} objects, {self._done >> 20:,} MiB"
        if self._expected:
            share = min(1.0, self._objects / self._expected)
        elif self._total:
            share = min(1.0, self._done / self._total)
        else:
            return told
        full = round(_WIDTH * share)
        return f"{'█' * full}{'░' * (_WIDTH - full)} {share:4.0%}  {told}"

    def _write(self, line: str) -> None:
        show_status(line)
