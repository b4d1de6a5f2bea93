"""One writer at a time: a lock on a file, which also names its holder."""

import errno
import fcntl
import os

from memqos.errors import MemqosError


class Locked(MemqosError):
    """Another process holds the lock."""


def take(path: str) -> int:
    """A handle that holds the lock until it is closed; Locked is raised where another has it.

    A process that is forked meanwhile holds it too, for as long as it lives: a write that goes
    on after its writer was killed still keeps others out.
    """
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
