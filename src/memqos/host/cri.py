"""The container runtime over its CRI socket, as far as memory values go.

Field numbers are those of the Container Runtime Interface, runtime.v1. Fields that memqos does not
need are not listed here, and are ignored where a runtime sends them.
"""

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from memqos.host import grpc
from memqos.host.protowire import (
    MalformedMessage,
    Message,
    ProtoField,
    Repeated,
    decode_message,
    encode_message,
)

SERVICE: Final = "/runtime.v1.RuntimeService"

LINUX_RESOURCES: Final[Message] = {
    "memory_limit_in_bytes": ProtoField(4, "number"),
    "cpuset_mems": ProtoField(7, "text"),
    "unified": ProtoField(9, "map"),
}
UPDATE_REQUEST: Final[Message] = {
    "container_id": ProtoField(1, "text"),
    "linux": ProtoField(2, LINUX_RESOURCES),
}
STATUS_REQUEST: Final[Message] = {
    "container_id": ProtoField(1, "text"),
    "verbose": ProtoField(2, "flag"),
}
STATUS: Final[Message] = {
    "id": ProtoField(1, "text"),
    "resources": ProtoField(16, {"linux": ProtoField(1, LINUX_RESOURCES)}),
}
STATUS_RESPONSE: Final[Message] = {"status": ProtoField(1, STATUS), "info": ProtoField(2, "map")}
_CONTAINER: Final[Message] = {
    "id": ProtoField(1, "text"),
    "state": ProtoField(6, "number"),
    "created_at": ProtoField(7, "number"),
    "labels": ProtoField(8, "map"),
}
LIST_RESPONSE: Final[Message] = {"containers": ProtoField(1, Repeated(_CONTAINER))}
_HAS_CGROUP: Final = (0, 1)
"""The states CONTAINER_CREATED and CONTAINER_RUNNING."""


class ListedContainer(msgspec.Struct, frozen=True):
    """A container that has a cgroup, and the labels the kubelet gave it."""

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


class StoredResources(msgspec.Struct, frozen=True):
    """What a runtime writes again whenever it updates a container."""

    unified: dict[str, str] = {}
    cpuset_mems: str = ""


class CriClient:
    """A container runtime; a refused call raises GrpcError, a failed one Unreachable."""

    def __init__(self, socket: str, timeout: float) -> None:
        self._channel = grpc.Channel(socket, timeout)

    def read_resources(self, container: str) -> StoredResources:
        """What the runtime has stored for a container, by the container's OCI specification."""
        answer = self._call(
            "ContainerStatus",
            encode_message(STATUS_REQUEST, {"container_id": container, "verbose": True}),
            STATUS_RESPONSE,
        )
        return _resources_in(answer)

    def update(self, container: str, unified: Mapping[str, str], cpuset_mems: str = "") -> None:
        """Have the runtime store and write these values; it keeps all others."""
        # containerd merges the unified map into its own and takes empty or zero fields for "not
        # given", cpuset_mems included (internal/cri/opts/spec_linux_opts.go, WithResources).
        linux = {"unified": unified, "cpuset_mems": cpuset_mems}
        request = encode_message(UPDATE_REQUEST, {"container_id": container, "linux": linux})
        self._call("UpdateContainerResources", request, {})

    def containers(self) -> list[ListedContainer]:
        """All containers that are created or running."""
        answer = self._call("ListContainers", b"", LIST_RESPONSE)
        return [
            ListedContainer(each.get("id", ""), each.get("labels", {}), each.get("created_at", 0))
            for each in answer.get("containers", ())
            if each.get("state", 0) in _HAS_CGROUP
        ]

    def close(self) -> None:
        self._channel.close()

    def _call(self, method: str, request: bytes, response: Message) -> dict[str, Any]:
        answer = self._channel.call(f"{SERVICE}/{method}", request)
        try:
            return decode_message(response, answer)
        except MalformedMessage as error:
            raise grpc.GrpcError(
                "13", f"{method}: the answer is not what it should be: {error}"
            ) from None


def _resources_in(answer: Mapping[str, Any]) -> StoredResources:
    """From the verbose status, which each runtime fills in its own way, else from the plain one."""
    # CRI leaves `info` to the runtime: containerd puts JSON with the OCI runtimeSpec under the key
    # "info" (internal/cri/server/container_status.go), and so does CRI-O.
    try:
        info = msgspec.json.decode(answer.get("info", {}).get("info", "{}"), type=_Info)
    except msgspec.DecodeError:
        info = _Info()
    linux = info.runtime_spec.linux if info.runtime_spec else None
    if linux is not None and linux.resources is not None:
        mems = (linux.resources.cpu or {}).get("mems", "")
        return StoredResources(linux.resources.unified or {}, mems if isinstance(mems, str) else "")
    stored = answer.get("status", {}).get("resources", {}).get("linux", {})
    return StoredResources(stored.get("unified", {}), stored.get("cpuset_mems", ""))
