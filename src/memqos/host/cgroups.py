"""The cgroup v2 files of a machine, or of any folder that looks like them.

Cgroups are named by their path in the hierarchy, "/" being its root. A cgroup may be removed
between any two calls: reading a removed one gives None, writing to it is refused with ENOENT or
ENODEV. The root may be a link. Below it a folder may be a copy of the kernel's tree, with links
that lead anywhere: a cgroup behind a link has no identity, and nothing is written there.
"""

import errno
import os
import stat
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Final, NamedTuple

from memqos.errors import InputError, WriteRefused
from memqos.plan.names import is_pod, within_container

SYSTEM_ROOT: Final = "/sys/fs/cgroup"
VANISHED: Final = frozenset({errno.ENOENT, errno.ENODEV})
"""What the kernel answers for a cgroup that was removed: kernfs fails with ENODEV on a file that is
still open (fs/kernfs/file.c)."""

_HINTS: Final = {
    errno.EACCES: "run as root, or with CAP_DAC_OVERRIDE",
    errno.EPERM: "run as root",
    errno.EROFS: "the cgroup file system is mounted read-only here: mount it writable",
    errno.EBUSY: "the kernel is using it: try again",
    errno.EINVAL: "the kernel rejects this value",
    errno.ENOENT: "the cgroup has vanished, or its parent does not enable the controller",
    errno.ENODEV: "the cgroup has vanished",
    errno.ENOTDIR: "a folder in this path is a link or a file, and links are not followed",
    errno.ELOOP: "this is a link, and links are not followed",
}
_PATH_FLAGS: Final = os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC


class CgroupFs:
    """Reads and writes cgroup files below a root folder."""

    def __init__(self, root: str = SYSTEM_ROOT) -> None:
        self.root = root.rstrip("/") or "/"

    def read(self, path: str, file: str) -> str | None:
        """A file's content without its last newline; None where cgroup or file does not exist."""
        return _read_file(self._file(path, file))

    def read_all(self, path: str, files: Iterable[str]) -> dict[str, str]:
        """The contents of those of these files that exist, all of one and the same cgroup."""
        try:
            folder = os.open(self._folder(path), os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except OSError as error:
            if error.errno in VANISHED or error.errno == errno.ENOTDIR:
                return {}
            raise
        try:
            found = ((file, _read_file(file, folder)) for file in files)
            return {file: content for file, content in found if content is not None}
        finally:
            os.close(folder)

    def write(self, path: str, file: str, value: str) -> None:
        """Write a value in one call, as cgroup files require; raise WriteRefused if that fails.

        As a shell does, with a newline, so that an empty list is written too; and truncated, so
        that nothing of a longer value is left in a copy of the tree.
        """
        try:
            handle = self._open_to_write(path, file)
            try:
                os.write(handle, f"{value}\n".encode())
            finally:
                os.close(handle)
        except OSError as error:
            code = error.errno
            raise WriteRefused(
                f"{path}/{file}".replace("//", "/"),
                value,
                errno=code,
                hint=_HINTS.get(code or 0, error.strerror),
            ) from None

    def identity(self, path: str) -> int | None:
        """The inode of a cgroup; a later cgroup of the same name has another one."""
        try:
            found = os.stat(self.root)
            for folder in self._folders(path):
                found = os.lstat(folder)
                if not stat.S_ISDIR(found.st_mode):
                    return None
        except OSError as error:
            if error.errno in VANISHED:
                return None
            raise
        return found.st_ino

    def _open_to_write(self, path: str, file: str) -> int:
        """O_NOFOLLOW checks the last name alone, so each folder is opened from the one above."""
        self._file(path, file)
        folder = os.open(self.root, _PATH_FLAGS)
        try:
            for name in filter(None, path.split("/")):
                below = os.open(name, _PATH_FLAGS | os.O_NOFOLLOW, dir_fd=folder)
                os.close(folder)
                folder = below
            flags = os.O_WRONLY | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
            return os.open(file, flags, dir_fd=folder)
        finally:
            os.close(folder)

    def _folders(self, path: str) -> Iterator[str]:
        """The folders from the root's child down to the cgroup's own."""
        self._folder(path)
        folder = self.root
        for name in filter(None, path.split("/")):
            folder = f"{folder}/{name}"
            yield folder

    def _folder(self, path: str) -> str:
        if not path.startswith("/") or "\0" in path or ".." in path.split("/"):
            raise InputError(f"{path!r} is not the path of a cgroup", hint="it starts with /")
        return self.root + path if path != "/" else self.root

    def _file(self, path: str, file: str) -> str:
        if "/" in file or file in ("", ".", ".."):
            raise InputError(f"{file!r} is not the name of a cgroup file")
        return f"{self._folder(path)}/{file}"


def _read_file(name: str, folder: int | None = None) -> str | None:
    try:
        # os, not open(): kernfs builds the content at each read from the start (seq_read_iter(),
        # fs/seq_file.c), and a buffered file would read twice.
        handle = os.open(name, os.O_RDONLY | os.O_CLOEXEC, dir_fd=folder)
    except OSError as error:
        if error.errno in VANISHED or error.errno == errno.ENOTDIR:
            return None
        raise
    try:
        content = os.read(handle, 1 << 16)
        if len(content) == 1 << 16:
            while more := os.read(handle, 1 << 16):
                content += more
    except OSError as error:
        if error.errno in VANISHED:
            return None
        raise
    finally:
        os.close(handle)
    return content.decode("utf-8", "replace").removesuffix("\n")


_FOLDER_FLAGS: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE_FLAGS: Final = os.O_RDONLY | os.O_CLOEXEC
_CHUNK: Final = 1 << 16
_LEAF: Final = 2
"""Links to a folder without subfolders, on file systems that count them, as kernfs does
(fs/kernfs/inode.c). It saves listing the folder of every leaf."""
DEEPEST: Final = 32
"""Levels of cgroups below the root; kubelet, systemd and runtimes create six."""
MOST_CGROUPS: Final = 1 << 14
"""Cgroups in a branch, that is below the second level: a QoS class, a user, a service. Three
times as many as 500 pods of ten containers have."""


class ReadTree(NamedTuple):
    """What was read; a cgroup that was removed meanwhile is skipped."""

    cgroups: dict[str, dict[str, str]]
    """Path → file → content without its last newline; parents come before children."""
    identities: dict[str, int]
    """Path → inode; a later cgroup of the same name has another one."""
    unreadable: dict[str, str]
    """File or folder that exists → why it could not be read."""


def read_tree(root: str, files: Iterable[str], below: Iterable[str] = ("/",)) -> ReadTree:
    """Read these files of every cgroup from `below` down, siblings by name."""
    tree = ReadTree({}, {}, {})
    names_to_read = tuple(files)
    found: Counter[str] = Counter()
    for start in _distinct_roots(below):
        waiting = [(start, is_pod(start.rpartition("/")[0]))]
        while waiting:
            path, is_container = waiting.pop()
            room = MOST_CGROUPS - found[_branch(path)] if path.count("/") < DEEPEST else 0
            names = _read_cgroup(tree, names_to_read, root, path, room, is_container=is_container)
            found[_branch(path)] += len(names)
            above = "" if path == "/" else path
            is_below_pod = is_container or is_pod(path)
            waiting += [(f"{above}/{name}", is_below_pod) for name in reversed(names)]
    return tree


def _branch(path: str) -> str:
    return "/".join(path.split("/", 3)[:3])


def _distinct_roots(starts: Iterable[str]) -> Iterator[str]:
    """The starts that are not below another one."""
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
    """Read a cgroup; the names of the cgroups in it to read next, at most `room` of them."""
    try:
        folder = os.open(root if path == "/" else root.rstrip("/") + path, _FOLDER_FLAGS)
    except OSError as error:
        _note_error(tree, path, error)
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
        _note_error(tree, f"{path}/{file}", error)
        return None
    try:
        # One read returns as many whole records as fit (seq_read_iter(), fs/seq_file.c): only lists
        # of processes need several.
        content = os.read(handle, _CHUNK)
        if len(content) == _CHUNK:
            while more := os.read(handle, _CHUNK):
                content += more
    except OSError as error:
        _note_error(tree, f"{path}/{file}", error)
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
        _note_error(tree, path, error)
        return []
    if len(names) > room:
        tree.unreadable[_branch(path)] = (
            f"More than {MOST_CGROUPS} cgroups, or more than {DEEPEST} levels of them: the "
            "rest is not read"
        )
    return sorted(names[:room])


def _note_error(tree: ReadTree, what: str, error: OSError) -> None:
    if error.errno not in VANISHED:
        tree.unreadable[what] = error.strerror or str(error)
