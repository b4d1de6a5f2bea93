"""Who writes which change, and why: the owner of a cgroup puts back what it does not know of."""

from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from typing import TYPE_CHECKING, Final, Literal, NamedTuple, Protocol

from memqos.converge.direct_driver import WRITE_TIMEOUT, DirectDriver
from memqos.converge.driver import Driver
from memqos.converge.records import OwnerKind, OwnerState
from memqos.errors import Unreachable
from memqos.host.cgroups import CgroupFs
from memqos.host.owner_discovery import OwnerEndpoints
from memqos.host.systemd_dropins import SYSTEMD_RUN, DropIns
from memqos.plan.changes import Change
from memqos.plan.names import container_of, inner, systemd_unit
from memqos.settings.settings import PAGE_SIZE

if TYPE_CHECKING:
    from memqos.converge.cri_driver import RuntimeClient

WriteVia = Literal["direct", "nri"] | OwnerKind

_SCOPE: Final = ".scope"
_CPUSET_MEMS: Final = "cpuset.mems"


class Route(NamedTuple):
    """Who writes a change."""

    through: WriteVia
    because: str
    socket: str | None = None
    """The runtime's."""


def route(change: Change, owners: OwnerEndpoints, *, has_inner: bool) -> Route:
    """Which owner writes a change, among those in reach; `has_inner`: the runtime is crun."""
    if owners.is_copy:
        return Route("direct", "a copy of a cgroup tree, without owners")
    if owners.is_direct:
        return Route("direct", "--direct: systemd or the runtime may restore the old value")
    container = container_of(change.path) if change.container is not None else None
    socket = None if container is None else owners.sockets.get(container.runtime)
    if container is not None and not has_inner:
        where = "crun keeps them in a cgroup of its own, " if container.is_inner else ""
        # Over CRI where that can be had: it names the container that it refuses a value to, and
        # shows what is stored. Neither does NRI.
        if socket is not None:
            return Route(
                "runtime", f"{where}the runtime restores its stored values at every update", socket
            )
        if owners.has_nri and change.file != _CPUSET_MEMS:
            return Route(
                "nri",
                f"{where}the runtime stores the values of its NRI plugin; its CRI socket is not "
                f"reachable",
            )
    if systemd_unit(change.path) is None:
        return Route("direct", _no_owner_reason(container is not None, owners))
    if owners.systemd is None:
        return Route("direct", "named like a systemd unit, but systemd does not run here")
    # systemd writes cpuset files only of units with AllowedCPUs= or AllowedMemoryNodes= (src/core/
    # cgroup.c, cgroup_context_apply).
    if change.file == _CPUSET_MEMS:
        return Route("direct", "systemd changes it only after a request over D-Bus")
    if owners.bus is None:
        return Route(
            "direct", "a systemd unit, but D-Bus does not answer: daemon-reload resets the value"
        )
    return Route(
        "systemd", "a systemd unit: systemd restores its own values at every daemon-reload"
    )


def _no_owner_reason(is_container: bool, owners: OwnerEndpoints) -> str:
    if is_container and not owners.sockets:
        return "no container runtime answers: its next update may restore the old value"
    return "nothing restores old values here"


class _Closable(Protocol):
    """A client that can hang up."""

    def close(self) -> None: ...


class Router:
    """The driver that hands each change to the right one; those are made when first needed."""

    def __init__(
        self,
        fs: CgroupFs,
        owners: OwnerEndpoints,
        page_size: int = PAGE_SIZE,
        timeout: float = WRITE_TIMEOUT,
        nri: "RuntimeClient | None" = None,
    ) -> None:
        self.fs = fs
        self.owners = owners
        self._nri = nri
        self.page_size = page_size
        self.timeout = timeout
        self._drivers: dict[tuple[WriteVia, str | None], Driver] = {
            ("direct", None): DirectDriver(fs, timeout)
        }
        self._connections: list[_Closable] = []

    def route(self, change: Change) -> Route:
        """Who writes this, and why."""
        is_scope = change.path.endswith(_SCOPE)
        has_inner = is_scope and self.fs.identity(inner(change.path)) is not None
        return route(change, self.owners, has_inner=has_inner)

    def batch_key(self, change: Change) -> str:
        return self._driver_for(change).batch_key(change)

    def read_owner_state(self, change: Change) -> OwnerState | None:
        return self._driver_for(change).read_owner_state(change)

    def write(self, changes: Sequence[Change]) -> bool:
        return self._driver_for(changes[0]).write(changes)

    def restore_owner(
        self, path: str, owner_state: OwnerState, files: Collection[str]
    ) -> Sequence[str]:
        if self.owners.is_copy:
            return ()
        if owner_state.owner == "systemd":
            return self._driver("systemd", None).restore_owner(path, owner_state, files)
        container = container_of(path)
        socket = None if container is None else self.owners.sockets.get(container.runtime)
        if self.fs.identity(path) is None or self.owners.is_direct:
            return ()
        if socket is None and self._nri is not None:
            return self._driver("nri", None).restore_owner(path, owner_state, files)
        if socket is None:
            raise Unreachable(
                f"{path}: the container runtime still stores the values of memqos, and does not "
                f"answer",
                hint="give its socket with --cri-socket",
            )
        return self._driver("runtime", socket).restore_owner(path, owner_state, files)

    def read(self, path: str, file: str) -> str | None:
        return self.fs.read(path, file)

    def close(self) -> None:
        """Close all connections."""
        for connection in self._connections:
            connection.close()

    def _driver_for(self, change: Change) -> Driver:
        found = self.route(change)
        return self._driver(found.through, found.socket)

    def _driver(self, through: WriteVia, socket: str | None) -> Driver:
        if (through, socket) not in self._drivers:
            self._drivers[through, socket] = self._new_driver(through, socket)
        return self._drivers[through, socket]

    def _new_driver(self, through: WriteVia, socket: str | None) -> Driver:
        if through == "nri":
            return self._nri_driver()
        return self._systemd_driver() if socket is None else self._cri_driver(socket)

    def _nri_driver(self) -> Driver:
        from memqos.converge.cri_driver import CriDriver

        if self._nri is None:
            raise Unreachable("only the agent of this node is an NRI plugin of its runtime")
        return CriDriver(self.fs, self._nri, self.page_size, self.timeout)

    def _systemd_driver(self) -> Driver:
        from memqos.converge.systemd_driver import SystemdDriver
        from memqos.host.systemd_bus import SystemdManager

        manager = SystemdManager(self.owners.bus or "", self.timeout)
        self._connections.append(manager)
        dropins = DropIns(self.owners.systemd or SYSTEMD_RUN)
        return SystemdDriver(self.fs, manager, dropins, self.timeout)

    def _cri_driver(self, socket: str) -> Driver:
        from memqos.converge.cri_driver import CriDriver
        from memqos.host.cri import CriClient

        runtime = CriClient(socket, self.timeout)
        self._connections.append(runtime)
        return CriDriver(self.fs, runtime, self.page_size, self.timeout)


def count_routes(routes: Iterable[Route]) -> list[tuple[Route, int]]:
    """How many changes go each way, most first."""
    return Counter(routes).most_common()
