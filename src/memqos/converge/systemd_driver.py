"""The driver that has systemd write: memory values as properties of its units.

systemd writes all it knows of a unit whenever one property changes and on every reload, so values
that it does not know are lost; memory.oom.group, which no property of 252 sets, is restored.
"""

from collections.abc import Collection, Sequence
from errno import ENOENT
from typing import TYPE_CHECKING, Final

from memqos.converge.direct_driver import reclaim_below_high
from memqos.converge.records import OwnerState
from memqos.errors import InputError, MemqosError, WriteRefused
from memqos.host.cgroups import CgroupFs
from memqos.host.systemd_dropins import PROPERTIES, DropIns, is_drop_in
from memqos.plan import names
from memqos.plan.changes import Change
from memqos.plan.setting import MAX

if TYPE_CHECKING:
    from memqos.host.systemd_bus import SystemdManager

_INFINITY: Final = (1 << 64) - 1  # CGROUP_LIMIT_MAX, systemd's "infinity"
_OOM_GROUP: Final = "memory.oom.group"
_HINTS: Final = {
    "org.freedesktop.DBus.Error.AccessDenied": "run as root",
    "org.freedesktop.DBus.Error.InteractiveAuthorizationRequired": "run as root",
}


class SystemdDriver:
    """Sets all memory values of a unit in one call, until the next boot."""

    def __init__(
        self, fs: CgroupFs, manager: "SystemdManager", dropins: DropIns, timeout: float
    ) -> None:
        self.fs = fs
        self.manager = manager
        self.dropins = dropins
        self.timeout = timeout

    def batch_key(self, change: Change) -> str:
        return f"systemd {change.path}"

    def read_owner_state(self, change: Change) -> OwnerState:
        unit = require_unit(change.path)
        values = {file: self.dropins.read(unit, name) for file, name in PROPERTIES.items()}
        for file, text in values.items():
            if text is not None and not is_drop_in(unit, PROPERTIES[file], text):
                raise MemqosError(
                    f"{unit}: its drop-in 50-{PROPERTIES[file]}.conf was not written by systemd, "
                    f"and could not be restored",
                    hint=f"systemctl revert {unit} removes it, --direct bypasses systemd",
                )
        return OwnerState("systemd", unit, values)

    def write(self, changes: Sequence[Change]) -> bool:
        from memqos.host.systemd_bus import NO_SUCH_UNIT, SystemdError

        path = changes[0].path
        if not all([reclaim_below_high(change, self.fs, self.timeout) for change in changes]):
            return False
        new = {change.file: change.new for change in changes}
        # cgroup_context_apply() (systemd src/core/cgroup.c) writes memory.oom.group with the memory
        # properties, 1 only for OOMPolicy=kill: the 1 that the kubelet has set is lost.
        beside = self.fs.read(path, _OOM_GROUP)
        try:
            self.manager.set_properties(require_unit(path), self._properties(path, new))
        except SystemdError as error:
            raise WriteRefused(
                f"{path}/{', '.join(new)}",
                ", ".join(new.values()),
                errno=ENOENT if error.name == NO_SUCH_UNIT else None,
                hint=f"systemd: {_HINTS.get(error.name, error.what)}",
            ) from None
        if self.fs.identity(path) is None:
            # systemd loads any slice by its name, even that of a pod that has just ended: remove
            # the drop-ins it has written for it.
            for name in PROPERTIES.values():
                self.dropins.restore(require_unit(path), name, None)
        elif beside is not None and self.fs.read(path, _OOM_GROUP) not in (beside, None):
            self.fs.write(path, _OOM_GROUP, beside)
        return True

    def restore_owner(
        self, path: str, owner_state: OwnerState, files: Collection[str]
    ) -> Sequence[str]:
        unit = require_unit(path)
        return [
            f"{unit}: {name}"
            for file, name in PROPERTIES.items()
            if file in files and self.dropins.restore(unit, name, owner_state.values[file])
        ]

    def read(self, path: str, file: str) -> str | None:
        return self.fs.read(path, file)

    def _properties(self, path: str, new: dict[str, str]) -> dict[str, int]:
        values = {file: new.get(file) or self.fs.read(path, file) for file in PROPERTIES}
        return {
            PROPERTIES[file]: _INFINITY if value == MAX else int(value)
            for file, value in values.items()
            if value is not None
        }


def require_unit(path: str) -> str:
    """The unit whose cgroup this is."""
    unit = names.systemd_unit(path)
    if unit is None:
        raise InputError(f"{path}: not the cgroup of a systemd unit")
    return unit
