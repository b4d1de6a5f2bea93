"""Be told by the kernel when something is made, changed or removed in a folder."""

import ctypes
import errno
import os
import struct
from collections.abc import Iterator
from typing import Final, NamedTuple

from memqos.errors import MemqosError

_EVENT: Final = struct.Struct("iIII")
_BUFFER: Final = 1 << 16

_CLOSE_WRITE: Final = 0x8
_MOVED_FROM: Final = 0x40
_MOVED_TO: Final = 0x80
_CREATE: Final = 0x100
_DELETE: Final = 0x200
_OVERFLOW: Final = 0x4000
_IGNORED: Final = 0x8000
_ONLYDIR: Final = 0x1000000
_ISDIR: Final = 0x40000000

FOLDERS: Final = _CREATE | _DELETE | _MOVED_FROM | _MOVED_TO
"""Folders made and removed, here or elsewhere."""
FILES: Final = _CLOSE_WRITE | _MOVED_FROM | _MOVED_TO | _DELETE | _CREATE
"""Files written, moved and removed."""


class Happening(NamedTuple):
    """What the kernel tells. Without a folder: more has happened than it could remember."""

    folder: str | None
    name: str = ""
    is_folder: bool = False
    is_gone: bool = False


class Inotify:
    """Watches folders; `fileno` is ready to be read when something has happened."""

    def __init__(self) -> None:
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._handle: int = self._libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
        if self._handle < 0:
            raise _failed("folders cannot be watched", ctypes.get_errno())
        self._folders: dict[int, str] = {}
        self._watches: dict[str, int] = {}

    def fileno(self) -> int:
        return self._handle

    def watch(self, folder: str, mask: int) -> bool:
        """Watch a folder; False where there is none. One that is watched already stays so."""
        found = self._libc.inotify_add_watch(
            self._handle, os.fsencode(folder), ctypes.c_uint32(mask | _ONLYDIR)
        )
        if found < 0:
            code = ctypes.get_errno()
            if code in (errno.ENOENT, errno.ENOTDIR, errno.ENODEV):
                return False
            raise _failed(f"{folder}: cannot be watched", code)
        self._folders[found] = folder
        self._watches[folder] = found
        return True

    def is_watched(self, folder: str) -> bool:
        return folder in self._watches

    def read(self) -> Iterator[Happening]:
        """All that has happened since the last time."""
        while True:
            try:
                data = os.read(self._handle, _BUFFER)
            except BlockingIOError:
                return
            position = 0
            while position < len(data):
                watch, mask, _, length = _EVENT.unpack_from(data, position)
                start = position + _EVENT.size
                name = os.fsdecode(data[start : start + length].rstrip(b"\0"))
                position = start + length
                yield from self._told(watch, mask, name)

    def close(self) -> None:
        os.close(self._handle)

    def _told(self, watch: int, mask: int, name: str) -> Iterator[Happening]:
        if mask & _OVERFLOW:
            yield Happening(None)
            return
        folder = self._folders.get(watch)
        if folder is None:
            return
        if mask & _IGNORED:
            # The folder itself is gone; another one of its name may be watched already.
            del self._folders[watch]
            if self._watches.get(folder) == watch:
                del self._watches[folder]
            return
        is_gone = bool(mask & (_DELETE | _MOVED_FROM))
        yield Happening(folder, name, bool(mask & _ISDIR), is_gone)


def _failed(what: str, code: int) -> MemqosError:
    hints = {
        errno.ENOSPC: "raise fs.inotify.max_user_watches",
        errno.EMFILE: "raise fs.inotify.max_user_instances",
    }
    return MemqosError(f"{what}: {os.strerror(code)}", hint=hints.get(code))
