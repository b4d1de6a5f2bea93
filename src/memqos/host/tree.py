"""Read a tree of cgroups at once: each cgroup's folder is opened once, each file read once."""

import os
from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

from memqos.errors import InputError
from memqos.host.cgroups import GONE

_FOLDER: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE: Final = os.O_RDONLY | os.O_CLOEXEC
_CHUNK: Final = 1 << 16
_LEAF: Final = 2
"""Links to a folder without folders in it, on file systems that count them, as cgroup2 does."""


class Tree(NamedTuple):
    """What was read; a cgroup that vanished meanwhile is left out."""

    cgroups: dict[str, dict[str, str]]
    """Path → file → content without its last newline; parents come before children."""
    identities: dict[str, int]
    """Path → inode: another cgroup of the same name has another one."""
    refused: dict[str, str]
    """File or folder → why it could not be read, where it is there."""


def read_tree(root: str, files: Iterable[str], below: Iterable[str] = ("/",)) -> Tree:
    """Read these files of every cgroup from `below` down, siblings by name."""
    tree = Tree({}, {}, {})
    wanted = tuple(files)
    for start in _apart(below):
        folder = root if start == "/" else root.rstrip("/") + start
        _read(tree, wanted, folder, None, start)
    return tree


def _apart(starts: Iterable[str]) -> Iterator[str]:
    """Those that are not below another."""
    kept: list[str] = []
    for start in sorted(set(starts), key=lambda path: path.count("/") if path != "/" else 0):
        if not start.startswith("/") or "\0" in start or ".." in start.split("/"):
            raise InputError(f"{start!r} is not the path of a cgroup", hint="it starts with /")
        if not any(above == "/" or f"{start}/".startswith(f"{above}/") for above in kept):
            kept.append(start)
            yield start


def _read(tree: Tree, files: tuple[str, ...], name: str, above: int | None, path: str) -> None:
    try:
        folder = os.open(name, _FOLDER, dir_fd=above)
    except OSError as error:
        _note(tree, path, error)
        return
    try:
        status = os.fstat(folder)
        tree.identities[path] = status.st_ino
        tree.cgroups[path] = {
            file: content
            for file in files
            if (content := _content(tree, file, folder, path)) is not None
        }
        if status.st_nlink == _LEAF:
            return
        for child in _folders(tree, folder, path):
            _read(tree, files, child, folder, f"/{child}" if path == "/" else f"{path}/{child}")
    finally:
        os.close(folder)


def _content(tree: Tree, file: str, folder: int, path: str) -> str | None:
    try:
        handle = os.open(file, _FILE, dir_fd=folder)
    except OSError as error:
        _note(tree, f"{path}/{file}", error)
        return None
    try:
        # A file of one record comes whole in one read; lists of processes alone have more.
        content = os.read(handle, _CHUNK)
        if len(content) == _CHUNK:
            while more := os.read(handle, _CHUNK):
                content += more
    except OSError as error:
        _note(tree, f"{path}/{file}", error)
        return None
    finally:
        os.close(handle)
    return content.decode("utf-8", "replace").removesuffix("\n")


def _folders(tree: Tree, folder: int, path: str) -> list[str]:
    try:
        with os.scandir(folder) as entries:
            return sorted(entry.name for entry in entries if entry.is_dir(follow_symlinks=False))
    except OSError as error:
        _note(tree, path, error)
        return []


def _note(tree: Tree, what: str, error: OSError) -> None:
    if error.errno not in GONE:
        tree.refused[what] = error.strerror or str(error)
