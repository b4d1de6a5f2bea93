"""The drop-in files in which systemd stores, until the next boot, a property set over the bus.

Nothing here follows a link: root writes below a folder that may be mounted into a container.
"""

import errno
import os
import re
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from typing import Final, NamedTuple

from memqos.errors import MemqosError
from memqos.host import durable

SYSTEMD_RUN: Final = "/run/systemd"
PROPERTIES: Final = {
    "memory.min": "MemoryMin",
    "memory.low": "MemoryLow",
    "memory.high": "MemoryHigh",
}
"""cgroup file → the property that sets it."""
_READ: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_LONGEST: Final = 4096
_MODE: Final = 0o644
_COMMENTS: Final = r"(?:(?:[#;][ -~]*)?\n)*"


def is_drop_in(unit: str, name: str, content: str) -> bool:
    """Whether a text sets this property of this unit and nothing else, as systemd writes it.

    unit_write_setting() in src/core/unit.c: comments, the section, one assignment.
    """
    section = unit.rpartition(".")[2].capitalize()
    form = rf"{_COMMENTS}\[{section}\]\n{name}=(?:infinity|[0-9]{{1,20}})\n{_COMMENTS}"
    return len(content) <= _LONGEST and re.fullmatch(form, content) is not None


class _Folder(NamedTuple):
    """An open folder of a unit's drop-ins, and the one it is in."""

    path: str
    handle: int
    parent: int


class DropIns:
    """The drop-ins below systemd's runtime directory, a file for each property of a unit."""

    def __init__(self, run: str = SYSTEMD_RUN) -> None:
        self.run = run

    def read(self, unit: str, name: str) -> str | None:
        """The drop-in of a property; None where there is none."""
        with self._unit_folder(unit) as folder:
            return None if folder is None else _content(folder, name)

    def restore(self, unit: str, name: str, content: str | None) -> bool:
        """Restore a drop-in's earlier content; whether it had another one.

        A drop-in that does not exist is not created: it was removed since, as by systemctl revert.
        """
        if content is not None and not is_drop_in(unit, name, content):
            raise MemqosError(f"{unit}: systemd writes no such drop-in for {name}")
        with self._unit_folder(unit) as folder:
            now = None if folder is None else _content(folder, name)
            if folder is None or now in (None, content):
                return False
            if content is not None:
                durable.replace(_file(name), content.encode(), _MODE, folder.handle)
                return True
            with suppress(FileNotFoundError):
                os.unlink(_file(name), dir_fd=folder.handle)
            with suppress(OSError):
                # Fails while other drop-ins are in it.
                os.rmdir(os.path.basename(folder.path), dir_fd=folder.parent)
            return True

    @contextmanager
    def _unit_folder(self, unit: str) -> Iterator[_Folder | None]:
        with ExitStack() as opened:

            def open_folder(path: str, above: int | None = None) -> int | None:
                handle = _open_folder(path, above)
                if handle is not None:
                    opened.callback(os.close, handle)
                return handle

            run = open_folder(self.run)
            if run is None:
                yield None
                return
            # unit_drop_in_dir() in src/core/unit.c: drop-ins of transient units, as kubelet and
            # runtimes make them, are in /run/systemd/transient and removed with the unit.
            path, parent = f"{self.run}/transient", open_folder(f"{self.run}/transient", run)
            if parent is None or not _is_in(parent, unit):
                path = f"{self.run}/system.control"
                parent = open_folder(path, run)
            path = f"{path}/{unit}.d"
            handle = None if parent is None else open_folder(path, parent)
            yield None if parent is None or handle is None else _Folder(path, handle, parent)


def _open_folder(path: str, above: int | None) -> int | None:
    name = path if above is None else os.path.basename(path)
    try:
        return os.open(name, _READ | os.O_DIRECTORY, dir_fd=above)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise _unusable(path, error) from None


def _is_in(folder: int, name: str) -> bool:
    try:
        os.stat(name, dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        return False
    return True


def _content(folder: _Folder, name: str) -> str | None:
    file = _file(name)
    try:
        handle = os.open(file, _READ, dir_fd=folder.handle)
        try:
            return os.read(handle, _LONGEST + 1).decode("utf-8", "replace")
        finally:
            os.close(handle)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise _unusable(f"{folder.path}/{file}", error) from None


def _file(name: str) -> str:
    # The priority that unit_write_setting() gives its drop-ins.
    return f"50-{name}.conf"


def _unusable(path: str, error: OSError) -> MemqosError:
    if error.errno in (errno.ELOOP, errno.ENOTDIR):
        return MemqosError(
            f"{path}: a link, or no folder, where systemd keeps its drop-ins",
            hint="see who made it, and remove it",
        )
    return MemqosError(f"{path}: {error.strerror}", hint="run as root")
