"""The kernel's notices of what is created or removed in folders, and of files that it changes."""

import ctypes
import errno
import os
import struct
from collections.abc import Iterator
from typing import Final, NamedTuple

from memqos.errors import MemqosError

_EVENT: Final = struct.Struct("iIII")
_BUFFER: Final = 1 << 16

_MODIFY: Final = 0x2
_CLOSE_WRITE: Final = 0x8
_MOVED_FROM: Final = 0x40
_MOVED_TO: Final = 0x80
_CREATE: Final = 0x100
_DELETE: Final = 0x200
_OVERFLOW: Final = 0x4000
_IGNORED: Final = 0x8000
_ONLYDIR: Final = 0x1000000
_ISDIR: Final = 0x40000000
_ONESHOT: Final = 0x80000000

FOLDER_EVENTS: Final = _CREATE | _DELETE | _MOVED_FROM | _MOVED_TO
"""Subfolders created, removed, and moved in or out."""
WRITE_EVENTS: Final = _CLOSE_WRITE
"""Files that a process has written. What the kernel itself changes in a cgroup is not reported."""
FILE_EVENTS: Final = _CLOSE_WRITE | _MOVED_FROM | _MOVED_TO | _DELETE | _CREATE
"""Files written, moved and removed."""


class FolderEvent(NamedTuple):
    """What happened in a folder; without a folder, the kernel's queue has overflown."""

    folder: str | None
    name: str = ""
    is_folder: bool = False
    is_removed: bool = False


class Inotify:
    """Watches folders; `fileno` is readable when there are events."""

    def __init__(self) -> None:
        self._instance = _Instance()
        self._folders: dict[int, str] = {}
        self._watches: dict[str, int] = {}

    def fileno(self) -> int:
        return self._instance.handle

    def watch(self, folder: str, mask: int) -> bool:
        """Watch a folder; False where it does not exist. It may be watched already."""
        found = self._instance.add(folder, mask | _ONLYDIR)
        if found is None:
            return False
        self._folders[found] = folder
        self._watches[folder] = found
        return True

    def is_watched(self, folder: str) -> bool:
        return folder in self._watches

    def read(self) -> Iterator[FolderEvent]:
        """All events since the last call."""
        for watch, mask, name in self._instance.events():
            yield from self._folder_events(watch, mask, name)

    def close(self) -> None:
        self._instance.close()

    def _folder_events(self, watch: int, mask: int, name: str) -> Iterator[FolderEvent]:
        if mask & _OVERFLOW:
            yield FolderEvent(None)
            return
        folder = self._folders.get(watch)
        if folder is None:
            return
        if mask & _IGNORED:
            # inotify(7): the watched folder was removed. Another one of its name may be watched
            # already.
            del self._folders[watch]
            if self._watches.get(folder) == watch:
                del self._watches[folder]
            return
        is_removed = bool(mask & (_DELETE | _MOVED_FROM))
        yield FolderEvent(folder, name, bool(mask & _ISDIR), is_removed)


class FileChangeWatch:
    """Reports the next change of each file once; then the file has to be watched again."""

    # Of cgroup files only those notify that the kernel calls cgroup_file_notify() for, such as
    # memory.events (cgroup-v2.rst, "file modified event"). IN_ONESHOT, as a throttled container
    # changes it thousands of times a second.

    def __init__(self) -> None:
        self._instance = _Instance()
        self._files: dict[int, str] = {}
        self._watches: dict[str, int] = {}

    def watch(self, file: str) -> bool:
        """Watch for the next change; False where there is no such file."""
        self.forget(file)
        found = self._instance.add(file, _MODIFY | _ONESHOT)
        if found is None:
            return False
        self._files[found] = file
        self._watches[file] = found
        return True

    def forget(self, file: str) -> None:
        """Stop watching a file, as has to be done for one whose cgroup was removed."""
        # kernfs removes a cgroup's files without IN_DELETE_SELF, and the watch would stay.
        watch = self._watches.pop(file, None)
        if watch is not None:
            del self._files[watch]
            self._instance.remove(watch)

    def read_changes(self) -> frozenset[str] | None:
        """The files that changed since the last call; None where the kernel's queue overflowed."""
        changed: set[str] = set()
        has_overflowed = False
        for watch, mask, _ in self._instance.events():
            if mask & _OVERFLOW:
                has_overflowed = True
            file = self._files.pop(watch, None)
            if file is not None:
                del self._watches[file]
                changed.add(file)
        return None if has_overflowed else frozenset(changed)

    def close(self) -> None:
        self._instance.close()


class _Instance:
    """An inotify instance; watches are its numbers."""

    def __init__(self) -> None:
        self._libc = ctypes.CDLL(None, use_errno=True)
        self.handle: int = self._libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
        if self.handle < 0:
            raise _inotify_error("nothing can be watched", ctypes.get_errno())

    def add(self, path: str, mask: int) -> int | None:
        """Add a watch; None where the path does not exist."""
        found: int = self._libc.inotify_add_watch(
            self.handle, os.fsencode(path), ctypes.c_uint32(mask)
        )
        if found >= 0:
            return found
        code = ctypes.get_errno()
        if code in (errno.ENOENT, errno.ENOTDIR, errno.ENODEV):
            return None
        raise _inotify_error(f"{path}: cannot be watched", code)

    def remove(self, watch: int) -> None:
        """Remove a watch; one that has ended by itself is fine."""
        self._libc.inotify_rm_watch(self.handle, watch)

    def events(self) -> Iterator[tuple[int, int, str]]:
        """Watch, mask and name of each event."""
        while True:
            try:
                data = os.read(self.handle, _BUFFER)
            except BlockingIOError:
                return
            position = 0
            while position < len(data):
                watch, mask, _, length = _EVENT.unpack_from(data, position)
                start = position + _EVENT.size
                yield watch, mask, os.fsdecode(data[start : start + length].rstrip(b"\0"))
                position = start + length

    def close(self) -> None:
        os.close(self.handle)


def _inotify_error(what: str, code: int) -> MemqosError:
    hints = {
        errno.ENOSPC: "raise fs.inotify.max_user_watches",
        errno.EMFILE: "raise fs.inotify.max_user_instances",
    }
    return MemqosError(f"{what}: {os.strerror(code)}", hint=hints.get(code))
