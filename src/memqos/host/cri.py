"""The container runtime over its CRI socket, as far as memory values go.

Field numbers are those of the Container Runtime Interface, runtime.v1; what is not needed is left
out, and passed over where a runtime sends it.
"""

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from memqos.host import grpc
from memqos.host.protowire import Field, Malformed, Many, Message, decode, encode

SERVICE: Final = "/runtime.v1.RuntimeService"

LINUX_RESOURCES: Final[Message] = {
    "memory_limit_in_bytes": Field(4, "number"),
    "cpuset_mems": Field(7, "text"),
    "unified": Field(9, "map"),
}
UPDATE: Final[Message] = {
    "container_id": Field(1, "text"),
    "linux": Field(2, LINUX_RESOURCES),
}
STATUS_REQUEST: Final[Message] = {"container_id": Field(1, "text"), "verbose": Field(2, "flag")}
STATUS: Final[Message] = {
    "id": Field(1, "text"),
    "resources": Field(16, {"linux": Field(1, LINUX_RESOURCES)}),
}
STATUS_RESPONSE: Final[Message] = {"status": Field(1, STATUS), "info": Field(2, "map")}
LISTED: Final[Message] = {
    "id": Field(1, "text"),
    "state": Field(6, "number"),
    "created_at": Field(7, "number"),
    "labels": Field(8, "map"),
}
LIST_RESPONSE: Final[Message] = {"containers": Field(1, Many(LISTED))}
_LIVING: Final = (0, 1)
"""Created and running."""


class Listed(msgspec.Struct, frozen=True):
    """A container that has a cgroup, and how the kubelet has labelled it."""

    id: str
    labels: dict[str, str] = {}
    created_at: int = 0


class _Resources(msgspec.Struct, frozen=True):
    unified: dict[str, str] | None = None
    cpu: dict[str, Any] | None = None


class _Linux(msgspec.Struct, frozen=True):
    resources: _Resources | None = None


class _Spec(msgspec.Struct, frozen=True):
    linux: _Linux | None = None


class _Info(msgspec.Struct, frozen=True, rename="camel"):
    runtime_spec: _Spec | None = None


class Kept(msgspec.Struct, frozen=True):
    """What a runtime puts back whenever it updates a container."""

    unified: dict[str, str] = {}
    cpuset_mems: str = ""


class Runtime:
    """A container runtime; what it refuses raises grpc.Refused, and it may be Unreachable."""

    def __init__(self, socket: str, timeout: float) -> None:
        self._channel = grpc.Channel(socket, timeout)

    def kept(self, container: str) -> Kept:
        """What the runtime has stored of a container, as its own specification says."""
        answer = self._ask(
            "ContainerStatus",
            encode(STATUS_REQUEST, {"container_id": container, "verbose": True}),
            STATUS_RESPONSE,
        )
        return _kept(answer)

    def update(self, container: str, unified: Mapping[str, str], cpuset_mems: str = "") -> None:
        """Have the runtime store and write these values; all else stays as it has it."""
        linux = {"unified": unified, "cpuset_mems": cpuset_mems}
        request = encode(UPDATE, {"container_id": container, "linux": linux})
        self._ask("UpdateContainerResources", request, {})

    def containers(self) -> list[Listed]:
        """All that are created or running."""
        answer = self._ask("ListContainers", b"", LIST_RESPONSE)
        return [
            Listed(each.get("id", ""), each.get("labels", {}), each.get("created_at", 0))
            for each in answer.get("containers", ())
            if each.get("state", 0) in _LIVING
        ]

    def close(self) -> None:
        self._channel.close()

    def _ask(self, method: str, request: bytes, response: Message) -> dict[str, Any]:
        answer = self._channel.call(f"{SERVICE}/{method}", request)
        try:
            return decode(response, answer)
        except Malformed as error:
            raise grpc.Refused(
                "13", f"{method}: the answer is not what it should be: {error}"
            ) from None


def _kept(answer: Mapping[str, Any]) -> Kept:
    """From the verbose status, which every runtime fills as it likes, else from the plain one."""
    try:
        info = msgspec.json.decode(answer.get("info", {}).get("info", "{}"), type=_Info)
    except msgspec.DecodeError:
        info = _Info()
    linux = info.runtime_spec.linux if info.runtime_spec else None
    if linux is not None and linux.resources is not None:
        mems = (linux.resources.cpu or {}).get("mems", "")
        return Kept(linux.resources.unified or {}, mems if isinstance(mems, str) else "")
    stored = answer.get("status", {}).get("resources", {}).get("linux", {})
    return Kept(stored.get("unified", {}), stored.get("cpuset_mems", ""))
