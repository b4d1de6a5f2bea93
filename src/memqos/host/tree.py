"""Read a tree of cgroups at once: each cgroup's folder is opened once, each file read once.

Whoever may make cgroups, a container with a tree of its own or a user's systemd, may make as many
and as deep as the kernel lets them. So what is in a container is not looked at, the rest is read
without recursion and one folder after another, and what exceeds the bounds is skipped.
"""

import os
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Final, NamedTuple

from memqos.errors import InputError
from memqos.host.cgroups import VANISHED
from memqos.plan.names import is_pod, within_container

_FOLDER_FLAGS: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE_FLAGS: Final = os.O_RDONLY | os.O_CLOEXEC
_CHUNK: Final = 1 << 16
_LEAF: Final = 2
"""Links to a folder without folders in it, on file systems that count them, as cgroup2 does."""
DEEPEST: Final = 32
"""Levels of cgroups below the root: kubelets, systemd and runtimes make six."""
MOST_CGROUPS: Final = 1 << 14
"""Cgroups of a branch, which is what lies below the second level: a QoS class, a user, a service.
Three times as many as 500 pods of ten containers have."""


class ReadTree(NamedTuple):
    """What was read; a cgroup that vanished meanwhile is left out."""

    cgroups: dict[str, dict[str, str]]
    """Path → file → content without its last newline; parents come before children."""
    identities: dict[str, int]
    """Path → inode: another cgroup of the same name has another one."""
    unreadable: dict[str, str]
    """File or folder → why it could not be read, where it is there."""


def read_tree(root: str, files: Iterable[str], below: Iterable[str] = ("/",)) -> ReadTree:
    """Read these files of every cgroup from `below` down, siblings by name."""
    tree = ReadTree({}, {}, {})
    wanted = tuple(files)
    found: Counter[str] = Counter()
    for start in _distinct_roots(below):
        waiting = [(start, is_pod(start.rpartition("/")[0]))]
        while waiting:
            path, is_container = waiting.pop()
            room = MOST_CGROUPS - found[_branch(path)] if path.count("/") < DEEPEST else 0
            names = _read_cgroup(tree, wanted, root, path, room, is_container=is_container)
            found[_branch(path)] += len(names)
            above = "" if path == "/" else path
            is_below_pod = is_container or is_pod(path)
            waiting += [(f"{above}/{name}", is_below_pod) for name in reversed(names)]
    return tree


def _branch(path: str) -> str:
    return "/".join(path.split("/", 3)[:3])


def _distinct_roots(starts: Iterable[str]) -> Iterator[str]:
    """Those that are not below another."""
    kept: list[str] = []
    for start in sorted(set(starts), key=lambda path: path.count("/") if path != "/" else 0):
        if not start.startswith("/") or "\0" in start or ".." in start.split("/"):
            raise InputError(f"{start!r} is not the path of a cgroup", hint="it starts with /")
        if not any(above == "/" or f"{start}/".startswith(f"{above}/") for above in kept):
            kept.append(start)
            yield start


def _read_cgroup(
    tree: ReadTree, files: tuple[str, ...], root: str, path: str, room: int, *, is_container: bool
) -> Sequence[str]:
    """Read a cgroup; the names of those in it that are to be read, no more than there is room."""
    try:
        folder = os.open(root if path == "/" else root.rstrip("/") + path, _FOLDER_FLAGS)
    except OSError as error:
        _note(tree, path, error)
        return ()
    try:
        status = os.fstat(folder)
        tree.identities[path] = status.st_ino
        tree.cgroups[path] = {
            file: content
            for file in files
            if (content := _content(tree, file, folder, path)) is not None
        }
        if status.st_nlink == _LEAF:
            return ()
        if is_container:
            return within_container(path)
        return _folders(tree, folder, path, room)
    finally:
        os.close(folder)


def _content(tree: ReadTree, file: str, folder: int, path: str) -> str | None:
    try:
        handle = os.open(file, _FILE_FLAGS, dir_fd=folder)
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


def _folders(tree: ReadTree, folder: int, path: str, room: int) -> list[str]:
    try:
        with os.scandir(folder) as entries:
            found = (entry.name for entry in entries if entry.is_dir(follow_symlinks=False))
            names = list(islice(found, room + 1))
    except OSError as error:
        _note(tree, path, error)
        return []
    if len(names) > room:
        tree.unreadable[_branch(path)] = (
            f"More than {MOST_CGROUPS} cgroups, or more than {DEEPEST} levels of them: the "
            "rest is not read"
        )
    return sorted(names[:room])


def _note(tree: ReadTree, what: str, error: OSError) -> None:
    if error.errno not in VANISHED:
        tree.unreadable[what] = error.strerror or str(error)
