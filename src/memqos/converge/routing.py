"""Who writes which change, and why: the owner of a cgroup puts back what it was not told."""

from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from typing import Final, Literal, NamedTuple, Protocol

from memqos.converge.direct import TIMEOUT, Direct
from memqos.converge.driver import Driver
from memqos.converge.records import Holding, Owner
from memqos.errors import Unreachable
from memqos.host.cgroups import CgroupFs
from memqos.host.owner_discovery import Reach
from memqos.host.systemd_dropins import RUN, DropIns
from memqos.plan.changes import Change
from memqos.plan.names import container_of, inner, unit_of
from memqos.plan.terms import PAGE_SIZE

Through = Literal["direct"] | Owner

_SCOPE: Final = ".scope"


class Route(NamedTuple):
    """Who writes a change."""

    through: Through
    because: str
    socket: str | None = None
    """The runtime's."""


def route(change: Change, reach: Reach, *, has_inner: bool) -> Route:
    """Whom to have write a change, among those in reach; `has_inner` tells of crun."""
    if reach.is_copy:
        return Route("direct", "a copy of a tree, which nobody owns")
    if reach.is_direct:
        return Route("direct", "asked for: its owner, if it has one, may put back the old value")
    container = container_of(change.path) if change.container is not None else None
    socket = None if container is None else reach.sockets.get(container.runtime)
    if container is not None and socket is not None and not has_inner:
        where = "crun keeps them in a cgroup of its own, " if container.is_inner else ""
        return Route(
            "runtime", f"{where}the runtime puts back what it stored at every update", socket
        )
    if unit_of(change.path) is None:
        return Route("direct", _nobody(container is not None, reach))
    if reach.systemd is None:
        return Route("direct", "named as a unit, but systemd does not run here")
    if change.file == "cpuset.mems":
        return Route("direct", "systemd leaves it alone unless it is told of it")
    if reach.bus is None:
        return Route("direct", "systemd's, but the bus does not answer: a reload takes it back")
    return Route("systemd", "a unit of systemd's, which puts back what it knows at every reload")


def _nobody(is_container: bool, reach: Reach) -> str:
    if is_container and not reach.sockets:
        return "no runtime answers: its next update may put back the old value"
    return "nobody puts back old values here"


class Connection(Protocol):
    """A client that can hang up."""

    def close(self) -> None: ...


class Router:
    """The driver that hands each change to the right one; those are made when first needed."""

    def __init__(
        self, fs: CgroupFs, reach: Reach, page_size: int = PAGE_SIZE, timeout: float = TIMEOUT
    ) -> None:
        self.fs = fs
        self.reach = reach
        self.page_size = page_size
        self.timeout = timeout
        self._drivers: dict[tuple[Through, str | None], Driver] = {
            ("direct", None): Direct(fs, timeout)
        }
        self._connections: list[Connection] = []

    def route(self, change: Change) -> Route:
        """Who writes this, and why."""
        is_scope = change.path.endswith(_SCOPE)
        has_inner = is_scope and self.fs.identity(inner(change.path)) is not None
        return route(change, self.reach, has_inner=has_inner)

    def batch(self, change: Change) -> str:
        return self._for(change).batch(change)

    def holding(self, change: Change) -> Holding | None:
        return self._for(change).holding(change)

    def write(self, changes: Sequence[Change]) -> bool:
        return self._for(changes[0]).write(changes)

    def release(self, path: str, holding: Holding, files: Collection[str]) -> Sequence[str]:
        if self.reach.is_copy:
            return ()
        if holding.owner == "systemd":
            return self._driver("systemd", None).release(path, holding, files)
        container = container_of(path)
        socket = None if container is None else self.reach.sockets.get(container.runtime)
        if self.fs.identity(path) is None or self.reach.is_direct:
            return ()
        if socket is None:
            raise Unreachable(
                f"{path}: its runtime still keeps what memqos told it, and no runtime answers",
                hint="--cri-socket names its socket",
            )
        return self._driver("runtime", socket).release(path, holding, files)

    def read(self, path: str, file: str) -> str | None:
        return self.fs.read(path, file)

    def close(self) -> None:
        """Hang up, wherever there is somebody at the other end."""
        for connection in self._connections:
            connection.close()

    def _for(self, change: Change) -> Driver:
        found = self.route(change)
        return self._driver(found.through, found.socket)

    def _driver(self, through: Through, socket: str | None) -> Driver:
        if (through, socket) not in self._drivers:
            self._drivers[through, socket] = (
                self._units() if socket is None else self._containers(socket)
            )
        return self._drivers[through, socket]

    def _units(self) -> Driver:
        from memqos.converge.units import Units
        from memqos.host.systemd_bus import Manager

        manager = Manager(self.reach.bus or "", self.timeout)
        self._connections.append(manager)
        dropins = DropIns(self.reach.systemd or RUN)
        return Units(self.fs, manager, dropins, self.timeout)

    def _containers(self, socket: str) -> Driver:
        from memqos.converge.containers import Containers
        from memqos.host.cri import Runtime

        runtime = Runtime(socket, self.timeout)
        self._connections.append(runtime)
        return Containers(self.fs, runtime, self.page_size, self.timeout)


def tally(routes: Iterable[Route]) -> list[tuple[Route, int]]:
    """How many changes go each way, most first."""
    return Counter(routes).most_common()
