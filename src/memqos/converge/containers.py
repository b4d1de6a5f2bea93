"""The driver that has the container runtime write: unified values of its containers.

A runtime writes all that it has stored of a container on every update, whoever asks for it, so
values that it was not told are lost.
"""

from collections.abc import Collection, Mapping, Sequence
from errno import ENOENT
from typing import TYPE_CHECKING, Final

from memqos.converge.cpusets import all_nodes, unbind
from memqos.converge.reclaiming import make_room
from memqos.converge.records import Holding
from memqos.converge.values import shown, value_fault
from memqos.errors import InputError, WriteRefused
from memqos.host.cgroups import CgroupFs
from memqos.plan.changes import Change, number
from memqos.plan.names import container_of

if TYPE_CHECKING:
    from memqos.host.cri import Runtime
    from memqos.host.grpc import Refused

_UNIFIED: Final = ("memory.min", "memory.low", "memory.high")
_MEMS: Final = "cpuset.mems"
_NOT_FOUND: Final = "5"


class Containers:
    """Updates a container's values in one call."""

    def __init__(self, fs: CgroupFs, runtime: "Runtime", page_size: int, timeout: float) -> None:
        self.fs = fs
        self.runtime = runtime
        self.page_size = page_size
        self.timeout = timeout

    def batch(self, change: Change) -> str:
        return f"runtime {change.path}"

    def holding(self, change: Change) -> Holding:
        from memqos.host import grpc

        container = id_of(change.path)
        try:
            kept = self.runtime.kept(container)
        except grpc.Refused as error:
            raise _refused(change.path, {change.file: change.new}, error) from None
        values: dict[str, str | None] = {file: kept.unified.get(file) for file in _UNIFIED}
        return Holding("runtime", container, {**values, _MEMS: kept.cpuset_mems or None})

    def write(self, changes: Sequence[Change]) -> bool:
        path = changes[0].path
        if not all([make_room(change, self.fs, self.timeout) for change in changes]):
            return False
        new = {change.file: change.new for change in changes}
        self._update(path, new)
        if new.get(_MEMS) == "":
            unbind(path, self.fs)
        return True

    def release(self, path: str, holding: Holding, files: Collection[str]) -> Sequence[str]:
        """Store what was stored, where that is not what the file had; the file stays.

        A key that was not there cannot be taken away again: it stays with the value of the file.
        """
        now = {file: value for file in files if (value := self.fs.read(path, file)) is not None}
        stored = {
            file: value
            for file in now
            if (value := holding.values[file]) is not None
            and value_fault(file, value) is None
            and shown(file, value, self.page_size) != now[file]
            and not self._would_throttle(path, file, value)
        }
        if stored:
            self._update(path, stored)
            for file in stored:
                if file == _MEMS and not now[file]:
                    unbind(path, self.fs)
                else:
                    self.fs.write(path, file, now[file])
        return [f"container {id_of(path)}: {file} = {value}" for file, value in stored.items()]

    def _would_throttle(self, path: str, file: str, value: str) -> bool:
        usage = self.fs.read(path, "memory.current") or "0"
        return file == "memory.high" and number(value) < number(usage)

    def read(self, path: str, file: str) -> str | None:
        return self.fs.read(path, file)

    def _update(self, path: str, new: Mapping[str, str]) -> None:
        from memqos.host import grpc

        values = {file: new.get(file) or self.fs.read(path, file) for file in _UNIFIED}
        unified = {file: value for file, value in values.items() if value is not None}
        mems = new.get(_MEMS)
        if mems == "":
            # No list at all cannot be asked for: the runtime keeps the longest one instead.
            mems = all_nodes(path, self.fs.read)
        try:
            self.runtime.update(id_of(path), unified, mems or "")
        except grpc.Refused as error:
            raise _refused(path, new, error) from None


def id_of(path: str) -> str:
    """The container whose cgroup this is, or is within."""
    found = container_of(path)
    if found is None:
        raise InputError(f"{path}: not the cgroup of a container")
    return found.container_id


def _refused(path: str, new: Mapping[str, str], error: "Refused") -> WriteRefused:
    return WriteRefused(
        f"{path}/{', '.join(new)}",
        ", ".join(new.values()),
        errno=ENOENT if error.code == _NOT_FOUND else None,
        hint=f"the runtime: {error.what}",
    )
