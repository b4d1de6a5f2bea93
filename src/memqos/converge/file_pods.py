"""Pods out of files and folders that are read again and again: only what has changed is decoded."""

import os
import time
from collections.abc import Iterator, Sequence
from typing import Final

from memqos.converge.sources import pods_in_file, pods_of_one_node
from memqos.errors import InputError
from memqos.host.manifests import manifest_paths
from memqos.kube.pod import Pod

_FileVersion = tuple[int, int, int]
"""What changes with a file's content: time, size, inode."""
_TICK: Final = 50_000_000
"""Nanoseconds in which a file may be written twice with nothing to show for it."""
_MAY_CHANGE: Final = (-1, -1, -1)


class CachedFilePods:
    """The pods of files and folders; a folder may be empty.

    A file in a folder that can no longer be read stands for the pods it held before: half of a
    manifest, as while it is being written, does not plan them away.
    """

    def __init__(self, paths: Sequence[str]) -> None:
        self._paths = paths
        self.faults: list[InputError] = []
        self._kept: dict[str, tuple[_FileVersion, list[Pod]]] = {}
        """What each file held when it could last be read as a whole."""

    def pods(self) -> list[Pod]:
        kept: dict[str, tuple[_FileVersion, list[Pod]]] = {}
        faults: list[InputError] = []
        found: list[Pod] = []
        for file, from_folder in self._files():
            mark = _file_version(file)
            before = self._kept.get(file)
            if before is None or before[0] != mark or mark == _MAY_CHANGE:
                now = pods_in_file(file, from_folder=from_folder)
                faults += now.faults
                if not now.faults:
                    before = mark, now.pods
                elif before is None:
                    found += now.pods
                else:
                    before = _MAY_CHANGE, before[1]
            if before is not None:
                kept[file] = before
                found += before[1]
        self._kept, self.faults = kept, faults
        if faults and not found:
            raise faults[0]
        return pods_of_one_node(found, self.describe())

    def describe(self) -> str:
        return ", ".join(self._paths)

    def _files(self) -> Iterator[tuple[str, bool]]:
        for path in self._paths:
            if not os.path.isdir(path):
                yield path, False
                continue
            for found in manifest_paths(path):
                if isinstance(found, OSError):
                    raise _unreadable(found.filename, found)
                yield found, True


def _file_version(file: str) -> _FileVersion:
    try:
        status = os.stat(file)
    except OSError as error:
        raise _unreadable(file, error) from None
    if time.time_ns() - status.st_mtime_ns < _TICK:
        return _MAY_CHANGE
    return status.st_mtime_ns, status.st_size, status.st_ino


def _unreadable(file: str, error: OSError) -> InputError:
    return InputError((error.strerror or str(error)).lower(), file=file)
