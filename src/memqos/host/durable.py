"""Files that are there whole or not at all, and on the disk when the call returns."""

import os
import stat
from typing import Final

from memqos.errors import MemqosError

_OTHERS_MAY_WRITE: Final = stat.S_IWGRP | stat.S_IWOTH
_FRESH: Final = ".new"


def private_folder(path: str) -> None:
    """Make a folder for its owner alone, or see to it that only its owner can change it."""
    os.makedirs(path, mode=0o700, exist_ok=True)
    found = os.stat(path)
    if found.st_uid != os.geteuid():
        raise MemqosError(
            f"{path}: this folder belongs to user {found.st_uid}, and only its owner writes here",
            hint="run as that user, or give another folder with --journal",
        )
    if found.st_mode & _OTHERS_MAY_WRITE:
        raise MemqosError(
            f"{path}: others can write to this folder, so what it says cannot be trusted",
            hint="give another one with --journal, or make it yours alone: chmod 700",
        )


def append(handle: int, data: bytes) -> None:
    """Write all of it: a nearly full disk takes a part, and fails only at the next call."""
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(handle, rest) :]


def replace(path: str, data: bytes) -> None:
    """Put a file in the place of another in one step, its content already on the disk."""
    fresh = path + _FRESH
    try:
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
        handle = os.open(fresh, flags, 0o600)
        try:
            append(handle, data)
            os.fsync(handle)
        finally:
            os.close(handle)
        os.replace(fresh, path)
    except OSError:
        remove(fresh)
        raise
    _sync_folder(path)


def remove(path: str) -> None:
    """Remove a file for good; one that is not there is fine."""
    try:
        os.unlink(path)
    except FileNotFoundError:
        return
    _sync_folder(path)


def keep_aside(path: str, suffix: str) -> str:
    """Give a file a second name that nothing has yet, and say which."""
    number = 1
    while True:
        second = f"{path}.{suffix}-{number}"
        try:
            os.link(path, second)
        except FileExistsError:
            number += 1
        else:
            return second


def _sync_folder(path: str) -> None:
    handle = os.open(os.path.dirname(path) or ".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
