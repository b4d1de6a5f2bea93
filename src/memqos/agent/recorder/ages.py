"""How long ago files were written to, in time that the machine has run: nobody can set that."""

import os
from collections.abc import Collection
from typing import Final

import msgspec

from memqos.agent.recorder.clock import RecordClock
from memqos.host import durable

_FILE: Final = "ages"
_LONGEST: Final = 1 << 20


class _StoredAges(msgspec.Struct, frozen=True):
    """What is remembered from one recorder to the next. Times are seconds."""

    boot: str = ""
    up: float = 0.0
    """Since the boot, when this was kept."""
    elapsed: float = 0.0
    """In all boots, likewise."""
    touched: dict[str, float] = {}
    """Name → elapsed when it was last written to."""


class FileAges:
    """The ages of the files in a folder; one that nothing is known of is new."""

    def __init__(self, folder: str, clock: RecordClock) -> None:
        self._path = os.path.join(folder, _FILE)
        self._clock = clock
        kept = _load_ages(self._path)
        self._touched = dict(kept.touched)
        self._elapsed_before = kept.elapsed
        # Of another boot's end nothing is known, but this one has followed it.
        self._up_before = 0.0
        if not clock.boot:
            self._up_before = clock.uptime()
        elif clock.boot == kept.boot:
            self._up_before = kept.up

    @property
    def _elapsed(self) -> float:
        return self._elapsed_before + max(0.0, self._clock.uptime() - self._up_before)

    def touch(self, name: str) -> None:
        """It is written to now."""
        self._touched[name] = self._elapsed

    def age_of(self, name: str) -> float:
        """Seconds since it was last written to, or heard of."""
        return self._elapsed - self._touched.setdefault(name, self._elapsed)

    def retain(self, names: Collection[str]) -> None:
        """Forget the ages of all others."""
        self._touched = {name: self._touched[name] for name in names if name in self._touched}

    def save(self) -> None:
        """Have the next recorder know them."""
        kept = _StoredAges(self._clock.boot, self._clock.uptime(), self._elapsed, self._touched)
        durable.replace(self._path, msgspec.json.encode(kept))


def _load_ages(path: str) -> _StoredAges:
    """What was kept; nothing where that is missing or makes no sense."""
    try:
        return msgspec.json.decode(durable.read_plain_file(path, _LONGEST), type=_StoredAges)
    except (OSError, msgspec.DecodeError, UnicodeDecodeError):
        return _StoredAges()
