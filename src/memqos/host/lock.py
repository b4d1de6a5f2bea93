"""One writer at a time: a lock on a file that names its owner's PID and PID namespace."""

import errno
import fcntl
import os
from contextlib import suppress

from memqos.errors import MemqosError


class Locked(MemqosError):
    """Another process has the lock."""


class Lock:
    """An exclusive lock until it is released; Locked is raised where another process has it.

    A process that is forked meanwhile has it too, as long as it runs (flock(2)): after its parent
    was killed it may still write, and keeps other writers out.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        self._handle = _acquire(path)
        while not _is_file_at(self._handle, path):
            # The owner replaced the file between open and flock: the locked one is not at the path.
            os.close(self._handle)
            self._handle = _acquire(path)

    def renew(self) -> None:
        """Lock a new file at the same path, so that processes forked before no longer have it."""
        fresh = f"{self.path}.new"
        old, self._handle = self._handle, _acquire(fresh)
        os.replace(fresh, self.path)
        os.close(old)

    def release(self) -> None:
        os.close(self._handle)


class FolderLock:
    """An exclusive lock on a folder until it is released; Locked where another process has it.

    No file is made: the folder may be mounted read-only.
    """

    def __init__(self, folder: str, what: str) -> None:
        self._handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            fcntl.flock(self._handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(self._handle)
            raise Locked(f"another memqos {what}", hint="stop one of the two") from None

    def release(self) -> None:
        # A process that was forked meanwhile has inherited it, and would keep it as long as it runs
        # (flock(2)).
        fcntl.flock(self._handle, fcntl.LOCK_UN)
        os.close(self._handle)


def _acquire(path: str) -> int:
    handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            if error.errno != errno.EWOULDBLOCK:
                raise
            raise _lock_conflict(handle) from None
        # On a full disk the owner is not named, and has the lock all the same: rollback needs it.
        with suppress(OSError):
            os.ftruncate(handle, 0)
            os.pwrite(handle, f"{os.getpid()} {_pid_namespace()}\n".encode(), 0)
    except BaseException:
        os.close(handle)
        raise
    return handle


def _is_file_at(handle: int, path: str) -> bool:
    try:
        return os.path.samestat(os.fstat(handle), os.stat(path))
    except FileNotFoundError:
        return False


def _lock_conflict(handle: int) -> Locked:
    """The owner by its PID in this PID namespace: an agent in a container calls itself pid 1."""
    pid, _, namespace = os.pread(handle, 64, 0).decode("ascii", "replace").strip().partition(" ")
    if pid.isdigit() and namespace and namespace == _pid_namespace():
        if os.path.exists(f"/proc/{pid}"):
            return _busy(f"another memqos (pid {pid}) is writing to this node")
        return Locked(
            f"memqos (pid {pid}) was stopped, but a write it had begun is still going on",
            hint="try again in a few seconds",
        )
    visible = _pid_in_locks(os.fstat(handle))
    if visible is not None:
        return _busy(f"another memqos (pid {visible}) is writing to this node")
    return _busy(
        "another memqos is writing to this node, from another PID namespace: perhaps an agent in a "
        "container"
    )


def _busy(what: str) -> Locked:
    return Locked(what, hint="wait until it is done; if it is an agent in mode enforce, stop it")


def _pid_namespace() -> str:
    """Such as pid:[4026531836]; empty where /proc cannot be read."""
    try:
        return os.readlink("/proc/self/ns/pid")
    except OSError:
        return ""


def _pid_in_locks(file: os.stat_result) -> int | None:
    """The owner by /proc/locks: its PID in this PID namespace, 0 in others (fs/locks.c)."""
    device = f"{os.major(file.st_dev):02x}:{os.minor(file.st_dev):02x}"
    try:
        with open("/proc/locks", encoding="ascii") as locks:
            lines = [line.split() for line in locks]
    except OSError:
        return None
    for _, kind, _, _, pid, place, *_ in (line for line in lines if len(line) == 8):
        if kind == "FLOCK" and place == f"{device}:{file.st_ino}" and int(pid) > 0:
            return int(pid)
    return None
