"""Pods as Protocol Buffers, decoded into the structs that JSON is decoded into.

Field numbers are those of k8s.io/api/core/v1/generated.proto and of ObjectMeta. A field that is not
listed decides nothing about memory on a node, and is skipped.
"""

from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any, Final, Literal, NamedTuple

import msgspec

from memqos.host.protowire import MalformedMessage, wire_fields
from memqos.kube.pod import Pod

_SIGN: Final = 1 << 63

FieldShape = Literal["one", "list", "map", "inline"]
"""`inline`: fields of a message that stand beside its neighbours in JSON."""


class PodField(NamedTuple):
    """What a field is called in JSON, and how its value is decoded."""

    name: str
    decode: Callable[[int | bytes], Any]
    shape: FieldShape = "one"


Fields = Mapping[int, PodField]


def decode_pod(data: bytes) -> Pod:
    """The pod of a v1.Pod message; MalformedMessage where it is none."""
    try:
        return msgspec.convert(_decode(POD_FIELDS, data), Pod)
    except (msgspec.ValidationError, RecursionError) as error:
        raise MalformedMessage(f"no pod: {error}") from None


def _decode(fields: Fields, data: bytes) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for number, value in wire_fields(data):
        field = fields.get(number)
        if field is None:
            continue
        decoded = field.decode(value)
        if field.shape == "inline":
            values |= decoded
        elif field.shape == "list":
            values.setdefault(field.name, []).append(decoded)
        elif field.shape == "map":
            values.setdefault(field.name, {})[decoded.get("key", "")] = decoded.get("value", "")
        # The API's encoders write empty texts, which in JSON are omitted (omitempty).
        elif decoded not in ("", None):
            values[field.name] = decoded
    return values


def _text(value: int | bytes) -> str:
    return _bytes(value).decode("utf-8", "replace")


def _number(value: int | bytes) -> int:
    if not isinstance(value, int):
        raise MalformedMessage("a text in the place of a number")
    return value - 2 * _SIGN if value >= _SIGN else value


def _bytes(value: int | bytes) -> bytes:
    if isinstance(value, int):
        raise MalformedMessage("a number in the place of a text or message")
    return value


def _message(fields: Fields) -> Callable[[int | bytes], dict[str, Any]]:
    return lambda value: _decode(fields, _bytes(value))


def _quantity(value: int | bytes) -> str:
    text: str = _decode({1: PodField("string", _text)}, _bytes(value)).get("string", "")
    return text


def _time(value: int | bytes) -> str | None:
    """As in JSON; None for a zero time, which has no fields."""
    fields: Fields = {1: PodField("seconds", _number)}
    seconds = _decode(fields, _bytes(value)).get("seconds")
    if seconds is None:
        return None
    try:
        return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    except (ValueError, OverflowError, OSError):
        raise MalformedMessage(f"no time: {seconds} s") from None


def _map(name: str, decode: Callable[[int | bytes], Any]) -> PodField:
    entry: Fields = {1: PodField("key", _text), 2: PodField("value", decode)}
    return PodField(name, _message(entry), "map")


def _list(name: str, fields: Fields) -> PodField:
    return PodField(name, _message(fields), "list")


_RESOURCES: Final[Fields] = {1: _map("limits", _quantity), 2: _map("requests", _quantity)}
_CONTAINER: Final[Fields] = {
    1: PodField("name", _text),
    2: PodField("image", _text),
    8: PodField("resources", _message(_RESOURCES)),
    23: _list(
        "resizePolicy", {1: PodField("resourceName", _text), 2: PodField("restartPolicy", _text)}
    ),
    24: PodField("restartPolicy", _text),
}
_EMPTY_DIR: Final[Fields] = {1: PodField("medium", _text), 2: PodField("sizeLimit", _quantity)}
_VOLUME: Final[Fields] = {
    1: PodField("name", _text),
    2: PodField("", _message({2: PodField("emptyDir", _message(_EMPTY_DIR))}), "inline"),
}
_TOLERATION: Final[Fields] = {
    1: PodField("key", _text),
    2: PodField("operator", _text),
    3: PodField("value", _text),
    4: PodField("effect", _text),
    5: PodField("tolerationSeconds", _number),
}
_SPEC: Final[Fields] = {
    1: _list("volumes", _VOLUME),
    2: _list("containers", _CONTAINER),
    4: PodField("terminationGracePeriodSeconds", _number),
    5: PodField("activeDeadlineSeconds", _number),
    10: PodField("nodeName", _text),
    20: _list("initContainers", _CONTAINER),
    22: _list("tolerations", _TOLERATION),
    24: PodField("priorityClassName", _text),
    25: PodField("priority", _number),
    32: _map("overhead", _quantity),
    34: _list("ephemeralContainers", {1: PodField("", _message(_CONTAINER), "inline")}),
    36: PodField("os", _message({1: PodField("name", _text)})),
    40: PodField("resources", _message(_RESOURCES)),
}
_TERMINATED: Final[Fields] = {
    1: PodField("exitCode", _number),
    3: PodField("reason", _text),
    5: PodField("startedAt", _time),
    6: PodField("finishedAt", _time),
}
_STATE: Final[Fields] = {
    2: PodField("running", _message({})),
    3: PodField("terminated", _message(_TERMINATED)),
}
_CONTAINER_STATUS: Final[Fields] = {
    1: PodField("name", _text),
    2: PodField("state", _message(_STATE)),
    3: PodField("lastState", _message(_STATE)),
    5: PodField("restartCount", _number),
    8: PodField("containerID", _text),
    10: _map("allocatedResources", _quantity),
    11: PodField("resources", _message(_RESOURCES)),
}
_CONDITION: Final[Fields] = {
    1: PodField("type", _text),
    2: PodField("status", _text),
    5: PodField("reason", _text),
}
_STATUS: Final[Fields] = {
    1: PodField("phase", _text),
    2: _list("conditions", _CONDITION),
    3: PodField("message", _text),
    4: PodField("reason", _text),
    7: PodField("startTime", _time),
    8: _list("containerStatuses", _CONTAINER_STATUS),
    9: PodField("qosClass", _text),
    10: _list("initContainerStatuses", _CONTAINER_STATUS),
    13: _list("ephemeralContainerStatuses", _CONTAINER_STATUS),
    19: _map("allocatedResources", _quantity),
    20: PodField("resources", _message(_RESOURCES)),
}
_METADATA: Final[Fields] = {
    1: PodField("name", _text),
    2: PodField("generateName", _text),
    3: PodField("namespace", _text),
    5: PodField("uid", _text),
    8: PodField("creationTimestamp", _time),
    9: PodField("deletionTimestamp", _time),
    10: PodField("deletionGracePeriodSeconds", _number),
    11: _map("labels", _text),
    12: _map("annotations", _text),
}
POD_FIELDS: Final[Fields] = {
    1: PodField("metadata", _message(_METADATA)),
    2: PodField("spec", _message(_SPEC)),
    3: PodField("status", _message(_STATUS)),
}
