"""The kubelet's memory_manager_state, read anew only when it is another one."""

import os
from typing import Final

from memqos.agent.core.observed import Checkpoint

CHECKPOINT_NAME: Final = "memory_manager_state"


class CheckpointFile:
    """Remembers what it read last, and what the file looked like then."""

    def __init__(self) -> None:
        self._file_id: object = None
        self._last = Checkpoint("", None)

    def read(self, path: str) -> Checkpoint:
        """What the file says; the very same where it has not changed since."""
        mark = path, _file_id(path)
        if mark != self._file_id:
            self._file_id, self._last = mark, Checkpoint(path, _text(path))
        return self._last


def _file_id(path: str) -> tuple[int, int, int] | None:
    try:
        status = os.stat(path)
    except OSError:
        return None
    return status.st_ino, status.st_mtime_ns, status.st_size


def _text(path: str) -> str | None:
    """None where it cannot be read: the kubelet may not have written it yet."""
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read()
    except OSError:
        return None
