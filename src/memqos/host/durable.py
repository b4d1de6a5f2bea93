"""Write files atomically: complete or not at all, and on the disk when the call returns."""

import errno
import os
import stat
from contextlib import suppress
from typing import Final

from memqos.errors import MemqosError

_OTHERS_MAY_WRITE: Final = stat.S_IWGRP | stat.S_IWOTH
_UNFINISHED: Final = ".memqos-"
_FRESH: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


def ensure_private_folder(path: str) -> None:
    """Create a folder for its owner alone, or check that only its owner can change it."""
    os.makedirs(path, mode=0o700, exist_ok=True)
    found = os.stat(path)
    if found.st_uid != os.geteuid():
        raise MemqosError(
            f"{path}: this folder belongs to user {found.st_uid}, and only its owner may write it",
            hint="run as that user, or give another folder with --journal",
        )
    if found.st_mode & _OTHERS_MAY_WRITE:
        raise MemqosError(
            f"{path}: other users can write to this folder, so its content is not trusted",
            hint="give another one with --journal, or restrict it: chmod 700",
        )


def read_plain_file(path: str, largest: int = -1) -> bytes:
    """A plain file's content, or its first `largest` bytes.

    Links are not followed, and opening never blocks, as it would on a pipe.
    """
    handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    with open(handle, "rb") as file:
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            raise OSError(errno.EINVAL, "not a plain file", path)
        return file.read(largest)


def append(handle: int, data: bytes) -> None:
    """Write all of it: on a nearly full disk write(2) stores a part, and the next call fails."""
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(handle, rest) :]


def replace(path: str, data: bytes, mode: int = 0o600, folder: int | None = None) -> None:
    """Replace a file, or create it, in one step; its content is on the disk before.

    A link at the path is replaced, not followed. The content is first written under a random name,
    which no one else can have created. With `folder`, an open one, the path is a name in it.
    """
    fresh = os.path.join(os.path.dirname(path), f"{_UNFINISHED}{os.urandom(8).hex()}")
    handle = os.open(fresh, _FRESH, mode, dir_fd=folder)
    try:
        try:
            append(handle, data)
            os.fsync(handle)
        finally:
            os.close(handle)
        os.replace(fresh, path, src_dir_fd=folder, dst_dir_fd=folder)
    except BaseException:
        with suppress(FileNotFoundError):
            os.unlink(fresh, dir_fd=folder)
        raise
    if folder is None:
        sync_folder_of(path)
    else:
        os.fsync(folder)


def remove_unfinished(folder: str) -> None:
    """Remove the temporary files that a killed writer has left in its folder."""
    for name in os.listdir(folder):
        if name.startswith(_UNFINISHED):
            with suppress(OSError):
                os.unlink(os.path.join(folder, name))


def remove(path: str) -> None:
    """Remove a file, on the disk too; one that does not exist is fine."""
    try:
        os.unlink(path)
    except FileNotFoundError:
        return
    sync_folder_of(path)


def link_aside(path: str, suffix: str) -> str:
    """Give a file a second name that is not in use; that name."""
    number = 1
    while True:
        second = f"{path}.{suffix}-{number}"
        try:
            os.link(path, second)
        except FileExistsError:
            number += 1
        else:
            return second


def sync_folder_of(path: str) -> None:
    """Sync the folder that names a new, replaced or removed file: fsync(2) of the file does not."""
    handle = os.open(os.path.dirname(path) or ".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
