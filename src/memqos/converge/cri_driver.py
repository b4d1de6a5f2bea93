"""The driver that has the container runtime write: unified values of its containers.

A runtime writes all that it has stored of a container on every update, also of other clients, so
values that it does not store are lost.
"""

from collections.abc import Collection, Mapping, Sequence
from errno import ENOENT
from typing import TYPE_CHECKING, Final, Protocol

from memqos.converge.direct_driver import reclaim_below_high
from memqos.converge.records import OwnerState
from memqos.converge.values import clear_cpuset, kernel_form, parent_nodes, value_fault
from memqos.errors import InputError, WriteRefused
from memqos.host.cgroups import CgroupFs
from memqos.plan.changes import Change, magnitude
from memqos.plan.names import container_of, inner

if TYPE_CHECKING:
    from memqos.host.cri import StoredResources
    from memqos.host.grpc import GrpcError

_UNIFIED: Final = ("memory.min", "memory.low", "memory.high")
_CPUSET_MEMS: Final = "cpuset.mems"
_NOT_FOUND: Final = "5"  # gRPC status code


class RuntimeClient(Protocol):
    """A runtime, over CRI or NRI; a refused call raises GrpcError, a failed one Unreachable."""

    def read_resources(self, container: str) -> "StoredResources":
        """What it has stored for a container, as far as it shows that."""

    def update(self, container: str, unified: Mapping[str, str], cpuset_mems: str = "") -> None:
        """Have it store and write these values; it keeps all others."""


class CriDriver:
    """Updates a container's values in one call."""

    def __init__(
        self, fs: CgroupFs, runtime: RuntimeClient, page_size: int, timeout: float
    ) -> None:
        self.fs = fs
        self.runtime = runtime
        self.page_size = page_size
        self.timeout = timeout

    def batch_key(self, change: Change) -> str:
        return f"runtime {change.path}"

    def read_owner_state(self, change: Change) -> OwnerState:
        from memqos.host import grpc

        container = container_id_of(change.path)
        try:
            resources = self.runtime.read_resources(container)
        except grpc.GrpcError as error:
            raise _write_refusal(change.path, {change.file: change.new}, error) from None
        values: dict[str, str | None] = {file: resources.unified.get(file) for file in _UNIFIED}
        return OwnerState(
            "runtime", container, {**values, _CPUSET_MEMS: resources.cpuset_mems or None}
        )

    def write(self, changes: Sequence[Change]) -> bool:
        path = changes[0].path
        if not all([reclaim_below_high(change, self.fs, self.timeout) for change in changes]):
            return False
        new = {change.file: change.new for change in changes}
        self._update(path, new)
        if new.get(_CPUSET_MEMS) == "":
            clear_cpuset(path, self.fs)
        return True

    def restore_owner(
        self, path: str, owner_state: OwnerState, files: Collection[str]
    ) -> Sequence[str]:
        """Store what was stored, where that is not what the file had; the file stays.

        A key that was not there cannot be taken away again: it stays with the value of the file.
        """
        now = {file: value for file in files if (value := self.fs.read(path, file)) is not None}
        stored = {
            file: value
            for file in now
            if (value := owner_state.values[file]) is not None
            and value_fault(file, value) is None
            and kernel_form(file, value, self.page_size) != now[file]
            and not self._would_throttle(path, file, value)
        }
        if stored or self._stores_other_values(path, owner_state, now):
            self._update(path, stored)
            for file in stored:
                if file == _CPUSET_MEMS and not now[file]:
                    clear_cpuset(path, self.fs)
                else:
                    self.fs.write(path, file, now[file])
        return [
            f"container {container_id_of(path)}: {file} = {value}" for file, value in stored.items()
        ]

    def _stores_other_values(self, path: str, before: OwnerState, now: Mapping[str, str]) -> bool:
        """Whether an update would change a file to what was not stored before memqos wrote.

        Where something has written to the file alone, the runtime still has the value of memqos.
        """
        from memqos.host import grpc

        if self.fs.identity(inner(path)) is not None:
            return False  # crun: it writes to the cgroup within
        try:
            known = self.runtime.read_resources(container_id_of(path)).unified
        except grpc.GrpcError:
            return False  # it has no such container any more
        return any(
            value != before.values[file]
            and value_fault(file, value) is None
            and kernel_form(file, value, self.page_size) != now[file]
            for file in _UNIFIED
            if file in now and (value := known.get(file)) is not None
        )

    def _would_throttle(self, path: str, file: str, value: str) -> bool:
        usage = self.fs.read(path, "memory.current") or "0"
        return file == "memory.high" and magnitude(value) < magnitude(usage)

    def read(self, path: str, file: str) -> str | None:
        return self.fs.read(path, file)

    def _update(self, path: str, new: Mapping[str, str]) -> None:
        from memqos.host import grpc

        # All three every time: at each update the runtime writes what it has stored, and a value
        # that was written past it would change.
        values = {file: new.get(file) or self.fs.read(path, file) for file in _UNIFIED}
        unified = {file: value for file, value in values.items() if value is not None}
        mems = new.get(_CPUSET_MEMS)
        if mems == "":
            # In CRI an empty cpuset_mems means "unchanged" (containerd WithResources): the runtime
            # stores all nodes instead.
            mems = parent_nodes(path, self.fs.read)
        try:
            self.runtime.update(container_id_of(path), unified, mems or "")
        except grpc.GrpcError as error:
            raise _write_refusal(path, new, error) from None


def container_id_of(path: str) -> str:
    """The container whose cgroup this is, or is within."""
    found = container_of(path)
    if found is None:
        raise InputError(f"{path}: not the cgroup of a container")
    return found.container_id


def _write_refusal(path: str, new: Mapping[str, str], error: "GrpcError") -> WriteRefused:
    return WriteRefused(
        f"{path}/{', '.join(new)}",
        ", ".join(new.values()),
        errno=ENOENT if error.code == _NOT_FOUND else None,
        hint=f"the runtime: {error.what}",
    )
