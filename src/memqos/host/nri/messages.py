"""The messages of NRI that memqos needs (containerd/nri, pkg/api/api.proto), and events by number.

Fields that are not listed are ignored where a runtime sends them.
"""

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from memqos.host.protowire import Message, ProtoField, Repeated, encode_message

RUNTIME: Final = "nri.pkg.api.v1alpha1.Runtime"

EVENTS: Final = {
    "CreateContainer": 4,
    "PostCreateContainer": 5,
    "StartContainer": 6,
    "UpdateContainer": 8,
    "StopContainer": 10,
    "RemoveContainer": 11,
}
"""Those that memqos knows, of 1 to 11. A runtime hangs up on a number that it does not know."""

_RESOURCES: Final[Message] = {
    "memory": ProtoField(1, {"limit": ProtoField(1, {"value": ProtoField(1, "number")})}),
    "unified": ProtoField(6, "map"),
}
POD: Final[Message] = {"id": ProtoField(1, "text"), "uid": ProtoField(3, "text")}
CONTAINER: Final[Message] = {
    "id": ProtoField(1, "text"),
    "pod_sandbox_id": ProtoField(2, "text"),
    "name": ProtoField(3, "text"),
    "linux": ProtoField(11, {"resources": ProtoField(3, _RESOURCES)}),
}
REGISTER: Final[Message] = {
    "plugin_name": ProtoField(1, "text"),
    "plugin_idx": ProtoField(2, "text"),
}
CONFIGURE: Final[Message] = {
    "runtime_name": ProtoField(2, "text"),
    "runtime_version": ProtoField(3, "text"),
    "registration_timeout": ProtoField(4, "number"),
    "request_timeout": ProtoField(5, "number"),
    "nri_version": ProtoField(6, "text"),
}
CONFIGURE_ANSWER: Final[Message] = {"events": ProtoField(2, "number")}
SYNCHRONIZE: Final[Message] = {
    "pods": ProtoField(1, Repeated(POD)),
    "containers": ProtoField(2, Repeated(CONTAINER)),
    "more": ProtoField(3, "flag"),
}
SYNCHRONIZE_ANSWER: Final[Message] = {"more": ProtoField(2, "flag")}
CONTAINER_EVENT: Final[Message] = {"pod": ProtoField(1, POD), "container": ProtoField(2, CONTAINER)}
"""CreateContainer, StopContainer, and from NRI 0.12 on every event."""
STATE_CHANGE: Final[Message] = {
    "event": ProtoField(1, "number"),
    "pod": ProtoField(2, POD),
    "container": ProtoField(3, CONTAINER),
}
UPDATE: Final[Message] = {**CONTAINER_EVENT, "linux_resources": ProtoField(3, _RESOURCES)}
_CONTAINER_UPDATE: Final[Message] = {
    "container_id": ProtoField(1, "text"),
    "linux": ProtoField(2, {"resources": ProtoField(1, _RESOURCES)}),
}
CREATE_ANSWER: Final[Message] = {
    "adjust": ProtoField(1, {"linux": ProtoField(6, {"resources": ProtoField(2, _RESOURCES)})})
}
UPDATES: Final[Message] = {"update": ProtoField(1, Repeated(_CONTAINER_UPDATE))}
"""The answer to UpdateContainer, and what UpdateContainers asks for."""
UPDATES_ANSWER: Final[Message] = {"failed": ProtoField(1, Repeated(_CONTAINER_UPDATE))}


class RuntimeInfo(msgspec.Struct, frozen=True, kw_only=True):
    """What a runtime says of itself in Configure."""

    name: str
    version: str
    request_timeout: float | None
    """Seconds; None with an NRI module below 0.7."""


class NriContainer(msgspec.Struct, frozen=True, kw_only=True):
    """A container as a runtime shows it to plugins."""

    id: str
    name: str
    pod_uid: str
    limit: int | None = None
    """Its memory limit; of an update, the requested one."""
    unified: Mapping[str, str] = {}
    """Those of the kubelet: at creation only from NRI 0.10 on, in an update always."""


def container_in(
    values: Mapping[str, Any], resources: Mapping[str, Any] | None = None
) -> NriContainer:
    """The container that an event is about; an update has resources of its own."""
    container = values.get("container", {})
    if resources is None:
        resources = container.get("linux", {}).get("resources", {})
    limit = resources.get("memory", {}).get("limit")
    return NriContainer(
        id=container.get("id", ""),
        name=container.get("name", ""),
        pod_uid=values.get("pod", {}).get("uid", ""),
        limit=None if limit is None else limit.get("value", 0),
        unified=resources.get("unified", {}),
    )


def event_mask(events: tuple[str, ...]) -> int:
    """A subscription; the bit of event n is n - 1."""
    return sum(1 << EVENTS[name] - 1 for name in events)


def encode_adjustment(unified: Mapping[str, str]) -> bytes:
    """The answer to CreateContainer."""
    resources = {"resources": {"unified": unified}}
    return encode_message(CREATE_ANSWER, {"adjust": {"linux": resources}}) if unified else b""


def encode_updates(updates: Mapping[str, Mapping[str, str]]) -> bytes:
    """Values of containers by ID."""
    listed = [
        {"container_id": container, "linux": {"resources": {"unified": unified}}}
        for container, unified in updates.items()
        if unified
    ]
    return encode_message(UPDATES, {"update": listed})
