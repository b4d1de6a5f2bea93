"""Load manifests: files, folders of files, and standard input."""

import errno
import os
import sys
from collections.abc import Iterable, Iterator
from typing import BinaryIO

from memqos.errors import InputError, os_reason
from memqos.units import format_bytes

FILE_SIZE_LIMIT = 512 << 20

_STDIN = "-"
_SUFFIXES = (".yaml", ".yml", ".json")
_CHUNK = 1 << 20
_HINTS = {
    errno.ENOENT: "check the path",
    errno.EACCES: "run as a user who can read it",
}

LoadedFile = tuple[str, bytes | InputError]
"""The name to show for a file, and its content or why there is none."""


class FlatFolder(str):
    """A folder of which the folders below are not read."""

    __slots__ = ()


def load_files(paths: Iterable[str]) -> Iterator[LoadedFile]:
    """Load the files that each path names, one at a time; `-` is standard input."""
    for path in paths:
        if path == _STDIN:
            yield _read_stream("<stdin>", sys.stdin.buffer)
        elif os.path.isdir(path):
            yield from _folder(path)
        else:
            yield _file(path)


def load_file(path: str) -> tuple[str, bytes]:
    """The name to show for the one file that a path names, and its content."""
    if os.path.isdir(path):
        raise InputError("this is a folder, but one file is expected", file=_printable_name(path))
    ((name, data),) = load_files([path])
    if isinstance(data, InputError):
        raise data
    return name, data


def manifest_paths(folder: str) -> Iterator[str | OSError]:
    """The manifests in a folder and below, in order; an error for each folder not readable."""
    unreadable: list[OSError] = []
    for parent, folders, files in os.walk(folder, onerror=unreadable.append):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        if isinstance(folder, FlatFolder):
            folders.clear()
        for name in sorted(files):
            path = os.path.join(parent, name)
            if _is_manifest(path):
                yield path
    yield from unreadable


def _folder(folder: str) -> Iterator[LoadedFile]:
    is_empty = True
    for found in manifest_paths(folder):
        is_empty = False
        if isinstance(found, OSError):
            yield _file_error(_printable_name(found.filename), found)
        else:
            yield _file(found)
    if is_empty:
        what = "no manifest in this folder"
        hint = f"files must end in {', '.join(_SUFFIXES)}"
        yield _printable_name(folder), InputError(what, file=_printable_name(folder), hint=hint)


def _is_manifest(path: str) -> bool:
    name = os.path.basename(path)
    # Found in a folder, not named: a FIFO or a device would block the open.
    return name.endswith(_SUFFIXES) and not name.startswith(".") and os.path.isfile(path)


def _file(path: str) -> LoadedFile:
    name = _printable_name(path)
    try:
        with open(path, "rb") as file:
            return _read_stream(name, file)
    except OSError as error:
        return _file_error(name, error)


def _read_stream(name: str, file: BinaryIO) -> LoadedFile:
    chunks = []
    size = 0
    try:
        while chunk := file.read(_CHUNK):
            chunks.append(chunk)
            size += len(chunk)
            if size > FILE_SIZE_LIMIT:
                what = f"larger than {format_bytes(FILE_SIZE_LIMIT)}"
                return name, InputError(what, file=name, hint="split it into smaller files")
    except OSError as error:
        return _file_error(name, error)
    return name, b"".join(chunks)


def _file_error(name: str, error: OSError) -> LoadedFile:
    what = os_reason(error)
    return name, InputError(what, file=name, hint=_HINTS.get(error.errno or 0))


def _printable_name(path: str) -> str:
    """Make a name printable that is not in the encoding of the system."""
    return os.fsencode(path).decode("utf-8", "replace")
