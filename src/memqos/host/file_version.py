"""The version of a file: what shows that its content may have changed, without reading it."""

import os
from typing import NamedTuple


class FileVersion(NamedTuple):
    """Equal as long as a file is the same and was not written to."""

    inode: int
    """A file that is replaced has another one: the kubelet swaps the folder behind a mounted Secret
    (pkg/volume/util/atomic_writer.go)."""
    size: int
    modified: int
    """Nanoseconds since 1970."""


def file_version(path: str) -> FileVersion:
    """The version of the file at a path, which may be a link; OSError where there is none."""
    status = os.stat(path)
    return FileVersion(status.st_ino, status.st_size, status.st_mtime_ns)
