"""This machine's cgroups, open for writing: their owners, and what every write has to respect."""

import os
from typing import TYPE_CHECKING

from memqos.converge.direct_driver import WRITE_TIMEOUT
from memqos.converge.journal import hierarchy_of
from memqos.converge.records import Hierarchy
from memqos.converge.router import Router
from memqos.converge.steps import WriteOptions
from memqos.errors import Unreachable
from memqos.host.cgroups import CgroupFs
from memqos.host.machine import SYSTEM, Roots, read_machine
from memqos.host.owner_discovery import OwnerEndpoints, discover_owners
from memqos.kernel.file_formats import meminfo_of

if TYPE_CHECKING:
    from memqos.converge.cri_driver import RuntimeClient


class CgroupWriter:
    """All that `apply` and `rollback` need to know of a machine."""

    def __init__(
        self,
        fs: CgroupFs,
        owners: OwnerEndpoints,
        *,
        roots: Roots = SYSTEM,
        timeout: float = WRITE_TIMEOUT,
        force: bool = False,
    ) -> None:
        self.fs = fs
        self._roots = roots
        self._timeout = timeout
        self._force = force
        self.nri: RuntimeClient | None = None
        """The runtime, where this process is its NRI plugin."""
        self.router = self._new_router(owners)

    def set_owners(self, owners: OwnerEndpoints) -> None:
        """Write through these from now on: runtimes are started and stopped."""
        if owners != self.router.owners:
            self.router.close()
            self.router = self._new_router(owners)

    def options(self) -> WriteOptions:
        """Those of a write that begins now."""
        return read_write_options(self._roots.proc, force=self._force)

    def hierarchy(self) -> Hierarchy:
        """The tree that a journal of these cgroups is about."""
        boot = read_machine(self._roots).boot_id
        if boot is None:
            raise Unreachable("the kernel's boot ID cannot be read", hint="is /proc mounted?")
        return hierarchy_of(self.fs, boot)

    def close(self) -> None:
        """Close the connections to owners."""
        self.router.close()

    def _new_router(self, owners: OwnerEndpoints) -> Router:
        nri = self.nri if owners.has_nri else None
        return Router(self.fs, owners, os.sysconf("SC_PAGE_SIZE"), self._timeout, nri)


def open_writer(
    root: str,
    timeout: float,
    *,
    force: bool,
    direct: bool = False,
    cri_socket: str | None = None,
) -> CgroupWriter:
    """The cgroups below a root, for a command: an owner that was named has to answer."""
    fs = CgroupFs(root)
    owners = discover_owners(fs.root, cri_socket, direct=direct)
    writer = CgroupWriter(fs, owners, roots=Roots(cgroup=fs.root), timeout=timeout, force=force)
    # What cannot be journalled cannot be written: it raises now, not after a plan was shown.
    writer.hierarchy()
    return writer


def read_write_options(proc: str = "/proc", *, force: bool = False) -> WriteOptions:
    """Where the kernel shows no swap there is none."""
    try:
        with open(f"{proc}/meminfo", encoding="ascii") as file:
            swap_free = meminfo_of(file.read()).get("SwapFree", 0)
    except OSError:
        swap_free = 0
    return WriteOptions(os.sysconf("SC_PAGE_SIZE"), swap_free, force)
