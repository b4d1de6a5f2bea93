"""The kubelet's memory_manager_state, read anew only when it is another one."""

from typing import Final

from memqos.agent.core.observed import Checkpoint
from memqos.host.file_version import FileVersion, file_version

CHECKPOINT_NAME: Final = "memory_manager_state"


class CheckpointFile:
    """Remembers what it read last, and what the file looked like then."""

    def __init__(self) -> None:
        self._version: tuple[str, FileVersion | None] | None = None
        self._last = Checkpoint("", None)

    def read(self, path: str) -> Checkpoint:
        """What the file says; the very same where it has not changed since."""
        version = path, _version(path)
        if version != self._version:
            self._version, self._last = version, Checkpoint(path, _text(path))
        return self._last


def _version(path: str) -> FileVersion | None:
    try:
        return file_version(path)
    except OSError:
        return None


def _text(path: str) -> str | None:
    """None where it cannot be read: the kubelet may not have written it yet."""
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read()
    except OSError:
        return None
