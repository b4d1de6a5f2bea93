"""The state an agent of memqos serves on its socket, as far as other commands use it."""

from collections.abc import Iterator
from typing import Annotated, Final, Literal, NamedTuple, TypeVar

import msgspec

from memqos.errors import InputError

_S = TypeVar("_S")


class FileState(msgspec.Struct, frozen=True):
    """The value that an agent desires in a file, and why."""

    desired: str
    rule: str
    because: str
    steps: tuple[str, ...] = ()
    source: str = "memqos"
    actual: str | None = None
    """The value in the file, as the agent last read or wrote it."""


class CgroupState(msgspec.Struct, frozen=True):
    """One cgroup with the values that an agent desires."""

    path: str
    files: dict[str, FileState]
    container: str | None = None


class PodState(msgspec.Struct, frozen=True):
    """One pod; its own cgroup is the one without a container."""

    pod: str
    """namespace/name."""
    mode: str
    cgroups: tuple[CgroupState, ...] = ()


class ManagedCgroup(NamedTuple):
    """A cgroup whose values an agent manages."""

    cgroup: CgroupState
    level: Literal["reserved", "qos", "pod", "container"]
    pod: str | None = None


class LeftAlone(msgspec.Struct, frozen=True):
    """A value that an agent no longer restores, as another process keeps changing it."""

    path: str
    file: str
    cause: str


class NriState(msgspec.Struct, frozen=True):
    """An agent as a plugin of its runtime."""

    mode: str = "off"
    runtime: str | None = None
    """Name and version of the one that is connected."""
    problem: str | None = None
    contested: bool = False


class AgentState(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """An agent at one moment; keys that are not listed here are skipped."""

    version: str
    mode: Literal["observe", "enforce"]
    release: Annotated[str, msgspec.Meta(pattern=r"^1\.[0-9]+$")]
    policy: Annotated[str, msgspec.Meta(pattern=r"^[A-Za-z]+$")]
    factor: float | None = None
    failing: str | None = None
    """Why its last pass failed."""
    doubt: str | None = None
    """Why it does not write although configured to: its settings are a guess."""
    levels: tuple[CgroupState, ...] = ()
    reserved: tuple[CgroupState, ...] = ()
    pods: tuple[PodState, ...] = ()
    left_alone: tuple[LeftAlone, ...] = ()
    nri: NriState = NriState()

    @property
    def enforces(self) -> bool:
        """Whether it writes any values."""
        return self.mode == "enforce" and self.doubt is None

    @property
    def managed_pods(self) -> tuple[PodState, ...]:
        """The pods whose values it manages: those selected, not only observed."""
        return tuple(pod for pod in self.pods if self.enforces and pod.mode == "enforce")

    @property
    def managed_cgroups(self) -> Iterator[ManagedCgroup]:
        """All cgroups whose values it manages; those above the pods where it manages any pod."""
        pods = self.managed_pods
        for each in self.reserved if self.enforces else ():
            yield ManagedCgroup(each, "reserved")
        for each in self.levels if pods else ():
            yield ManagedCgroup(each, "qos")
        for pod in pods:
            for each in pod.cgroups:
                yield ManagedCgroup(each, "pod" if each.container is None else "container", pod.pod)

    @property
    def managed_paths(self) -> frozenset[str]:
        """The paths of these cgroups."""
        return frozenset(each.cgroup.path for each in self.managed_cgroups)


class DriftState(msgspec.Struct, frozen=True, kw_only=True):
    """A value that another process has changed; `age` is in seconds."""

    path: str
    file: str
    held: str
    found: str
    cause: str
    age: float = 0.0


class CgroupUsage(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What the kernel counted of a cgroup; pressure in seconds."""

    current: int | None = None
    max: str | None = None
    """memory.max, which an agent never writes: it is not among the files that it desires."""
    high: int = 0
    oom_kill: int = 0
    some: float | None = None
    full: float | None = None


class UsageState(msgspec.Struct, frozen=True):
    """What the kernel counted, and how many seconds ago."""

    age: float = 0.0
    cgroups: dict[str, CgroupUsage] = {}


class AgentReport(AgentState, frozen=True, rename="camel", kw_only=True):
    """The same with what only those use who watch a node. It is in no snapshot."""

    converged: bool = False
    converged_for: float | None = None
    """Seconds."""
    configuration_refused: str | None = None
    notes: tuple[str, ...] = ()
    pod_source: str = ""
    drift: tuple[DriftState, ...] = ()
    guard: dict[str, int] = {}
    """Path → steps by which memory.high is wider than planned."""
    usage: UsageState = UsageState()


_decoder: Final = msgspec.json.Decoder(AgentState)
_report_decoder: Final = msgspec.json.Decoder(AgentReport)


def read_agent_state(data: bytes, origin: str) -> AgentState:
    """The state in an answer of /state."""
    return _decode(_decoder, data, origin)


def read_agent_report(data: bytes, origin: str) -> AgentReport:
    """The same, for those who watch a node."""
    return _decode(_report_decoder, data, origin)


def _decode(decoder: "msgspec.json.Decoder[_S]", data: bytes, origin: str) -> _S:
    try:
        return decoder.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InputError(
            f"the agent's answer cannot be read: {error}",
            file=origin,
            hint="use the memqos version of the agent",
        ) from None
