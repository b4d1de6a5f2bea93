"""One writer at a time: a lock on a file, which also names its holder."""

import errno
import fcntl
import os

from memqos.errors import MemqosError


class Locked(MemqosError):
    """Another process holds the lock."""


class Lock:
    """A lock that is held until it is released; Locked is raised where another process has it.

    A process that is forked meanwhile holds it too, for as long as it lives: a write that is
    still to come from there, after its writer was killed, keeps others out.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        self._handle = _taken(path)
        while not _is_at(self._handle, path):
            # Renewed by its holder between the two.
            os.close(self._handle)
            self._handle = _taken(path)

    def renew(self) -> None:
        """Hold it anew, and alone: what was forked before no longer counts."""
        fresh = f"{self.path}.new"
        old, self._handle = self._handle, _taken(fresh)
        os.replace(fresh, self.path)
        os.close(old)

    def release(self) -> None:
        os.close(self._handle)


def _taken(path: str) -> int:
    handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            if error.errno != errno.EWOULDBLOCK:
                raise
            raise _locked(os.pread(handle, 32, 0).decode("ascii", "replace").strip()) from None
        os.ftruncate(handle, 0)
        os.pwrite(handle, f"{os.getpid()}\n".encode(), 0)
    except BaseException:
        os.close(handle)
        raise
    return handle


def _is_at(handle: int, path: str) -> bool:
    try:
        return os.path.samestat(os.fstat(handle), os.stat(path))
    except FileNotFoundError:
        return False


def _locked(holder: str) -> Locked:
    if not holder.isdigit():
        return Locked("another memqos is writing to this node", hint="wait until it is done")
    if os.path.exists(f"/proc/{holder}"):
        return Locked(
            f"another memqos (pid {holder}) is writing to this node",
            hint="wait until it is done, or stop it",
        )
    return Locked(
        f"memqos (pid {holder}) was stopped, but a write it had begun is still going on",
        hint="try again in a few seconds",
    )
