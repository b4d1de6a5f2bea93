"""The kubelet's PodsAPI (KEP-4188): its pods over a unix socket, without credentials.

Its service is v1alpha1.Pods; the feature gate PodsAPI is alpha in 1.36, beta and on from 1.37 on.
Pods are decoded into the structs that JSON is decoded into. Field numbers are those of
k8s.io/api/core/v1/generated.proto and of ObjectMeta; a field that is not listed decides nothing
about memory on a node, and is skipped.
"""

from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from typing import Any, Final, Literal, NamedTuple

import msgspec

from memqos.errors import Unreachable
from memqos.host.grpc import Channel, GrpcError
from memqos.host.protowire import (
    MalformedMessage,
    wire_fields,
)
from memqos.kube.pod import Pod

_SERVICE: Final = "/v1alpha1.Pods"
UNREACHABLE_HINT: Final = (
    "is the kubelet up, and its feature gate PodsAPI on? It is by default from 1.37 on"
)
_LIST_BYTES: Final = 64 << 20
"""As of a list from the API server: 500 pods are 10 MiB."""
_EVENT_BYTES: Final = 4 << 20
"""etcd takes objects of 1.5 MiB at most; a static pod may be larger."""
_SECONDS: Final = 5.0
_FAILED_PRECONDITION: Final = "9"

PodEventType = Literal["changed", "deleted", "synced"]
_EVENT_TYPES: Final[dict[int, PodEventType]] = {
    1: "changed",
    2: "changed",
    3: "deleted",
    4: "synced",
}
"""ADDED, MODIFIED, DELETED, INITIAL_SYNC_COMPLETE."""


class PodWatchEvent(NamedTuple):
    """One event of a watch; `deleted` names its pod only, `synced` has none."""

    type: PodEventType
    pod: Pod
    size: int
    """In bytes."""


class PodsNotReady(Unreachable):
    """The kubelet has not read all sources of its pods yet, and gives no partial list."""


class PodsApiClient:
    """A kubelet behind its socket; what fails raises Unreachable."""

    def __init__(self, socket: str, timeout: float = _SECONDS) -> None:
        self.socket = socket
        self._timeout = timeout
        self._watching: Channel | None = None

    def list_pods(self) -> list[Pod]:
        """All pods of the node but mirror pods."""
        answer = self._call("ListPods", _LIST_BYTES)
        return [_pod(self.socket, data) for data in _messages_in(self.socket, answer, 1)]

    def watch_pods(self, patience: Callable[[], float]) -> Iterator[PodWatchEvent]:
        """All pods, then `synced`, then changes, as long as the kubelet keeps the watch open.

        `patience` is called before each wait, for the seconds that the next event may take.
        """
        for message in self._stream("WatchPods", patience):
            event = _event(self.socket, message)
            if event is not None:
                yield event

    def interrupt(self) -> None:
        """End the watch that another thread follows."""
        channel = self._watching
        if channel is not None:
            channel.interrupt()

    def _stream(self, method: str, patience: Callable[[], float]) -> Iterator[bytes]:
        channel = self._watching = Channel(self.socket, self._timeout, _EVENT_BYTES)
        try:
            yield from channel.stream(f"{_SERVICE}/{method}", b"", patience)
        except GrpcError as error:
            raise _describe_refusal(self.socket, method, error) from error
        except Unreachable as error:
            raise Unreachable(error.what, hint=UNREACHABLE_HINT) from None
        finally:
            self._watching = None

    def _call(self, method: str, largest: int) -> bytes:
        channel = Channel(self.socket, self._timeout, largest)
        try:
            return channel.call(f"{_SERVICE}/{method}", b"")
        except GrpcError as error:
            raise _describe_refusal(self.socket, method, error) from error
        except Unreachable as error:
            raise Unreachable(error.what, hint=UNREACHABLE_HINT) from None
        finally:
            channel.close()


def _describe_refusal(socket: str, method: str, error: GrpcError) -> Unreachable:
    if error.code == _FAILED_PRECONDITION:
        return PodsNotReady(
            f"{socket}: the kubelet has not listed all of its pods yet",
            hint="wait until it has reached the API server",
        )
    return Unreachable(f"{socket}: {method} was refused: {error}", hint="check the kubelet's log")


def _event(socket: str, message: bytes) -> PodWatchEvent | None:
    """None for an event of a type that memqos does not know."""
    fields = dict(_fields_in(socket, message))
    number, data = fields.get(1, 0), fields.get(2, b"")
    kind = _EVENT_TYPES.get(number) if isinstance(number, int) else None
    if kind is None or isinstance(data, int):
        return None
    if kind == "synced":
        return PodWatchEvent(kind, Pod(), 0)
    return PodWatchEvent(kind, _pod(socket, data), len(data))


def _pod(socket: str, data: bytes) -> Pod:
    try:
        pod = decode_pod(data)
    except MalformedMessage as error:
        raise _malformed(socket, error) from None
    if pod.metadata.uid is None:
        raise _malformed(socket, "a pod without a UID")
    return pod


def _messages_in(socket: str, data: bytes, field: int) -> list[bytes]:
    return [
        value
        for number, value in _fields_in(socket, data)
        if number == field and isinstance(value, bytes)
    ]


def _fields_in(socket: str, data: bytes) -> list[tuple[int, int | bytes]]:
    try:
        return list(wire_fields(data))
    except MalformedMessage as error:
        raise _malformed(socket, error) from None


def _malformed(socket: str, why: object) -> Unreachable:
    return Unreachable(
        f"{socket}: the answer is not what it should be: {why}",
        hint="is this the socket of a kubelet's PodsAPI?",
    )


_SIGN: Final = 1 << 63

_FieldShape = Literal["one", "list", "map", "inline"]
"""`inline`: fields of a message that stand beside its neighbours in JSON."""


class _PodField(NamedTuple):
    """What a field is called in JSON, and how its value is decoded."""

    name: str
    decode: Callable[[int | bytes], Any]
    shape: _FieldShape = "one"


_Fields = Mapping[int, _PodField]


def decode_pod(data: bytes) -> Pod:
    """The pod of a v1.Pod message; MalformedMessage where it is none."""
    try:
        return msgspec.convert(_decode(_POD, data), Pod)
    except (msgspec.ValidationError, RecursionError) as error:
        raise MalformedMessage(f"no pod: {error}") from None


def _decode(fields: _Fields, data: bytes) -> dict[str, Any]:
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


def _message(fields: _Fields) -> Callable[[int | bytes], dict[str, Any]]:
    return lambda value: _decode(fields, _bytes(value))


def _quantity(value: int | bytes) -> str:
    text: str = _decode({1: _PodField("string", _text)}, _bytes(value)).get("string", "")
    return text


def _time(value: int | bytes) -> str | None:
    """As in JSON; None for a zero time, which has no fields."""
    fields: _Fields = {1: _PodField("seconds", _number)}
    seconds = _decode(fields, _bytes(value)).get("seconds")
    if seconds is None:
        return None
    try:
        return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    except (ValueError, OverflowError, OSError):
        raise MalformedMessage(f"no time: {seconds} s") from None


def _map(name: str, decode: Callable[[int | bytes], Any]) -> _PodField:
    entry: _Fields = {1: _PodField("key", _text), 2: _PodField("value", decode)}
    return _PodField(name, _message(entry), "map")


def _list(name: str, fields: _Fields) -> _PodField:
    return _PodField(name, _message(fields), "list")


_RESOURCES: Final[_Fields] = {
    1: _map("limits", _quantity),
    2: _map("requests", _quantity),
    3: _list("claims", {1: _PodField("name", _text), 2: _PodField("request", _text)}),
}
_CONTAINER: Final[_Fields] = {
    1: _PodField("name", _text),
    2: _PodField("image", _text),
    8: _PodField("resources", _message(_RESOURCES)),
    23: _list(
        "resizePolicy", {1: _PodField("resourceName", _text), 2: _PodField("restartPolicy", _text)}
    ),
    24: _PodField("restartPolicy", _text),
}
_EMPTY_DIR: Final[_Fields] = {1: _PodField("medium", _text), 2: _PodField("sizeLimit", _quantity)}
_VOLUME: Final[_Fields] = {
    1: _PodField("name", _text),
    2: _PodField("", _message({2: _PodField("emptyDir", _message(_EMPTY_DIR))}), "inline"),
}
_TOLERATION: Final[_Fields] = {
    1: _PodField("key", _text),
    2: _PodField("operator", _text),
    3: _PodField("value", _text),
    4: _PodField("effect", _text),
    5: _PodField("tolerationSeconds", _number),
}
_SPEC: Final[_Fields] = {
    1: _list("volumes", _VOLUME),
    2: _list("containers", _CONTAINER),
    4: _PodField("terminationGracePeriodSeconds", _number),
    5: _PodField("activeDeadlineSeconds", _number),
    10: _PodField("nodeName", _text),
    14: _PodField("securityContext", _message({12: _PodField("supplementalGroupsPolicy", _text)})),
    20: _list("initContainers", _CONTAINER),
    22: _list("tolerations", _TOLERATION),
    24: _PodField("priorityClassName", _text),
    25: _PodField("priority", _number),
    32: _map("overhead", _quantity),
    34: _list("ephemeralContainers", {1: _PodField("", _message(_CONTAINER), "inline")}),
    36: _PodField("os", _message({1: _PodField("name", _text)})),
    39: _list("resourceClaims", {1: _PodField("name", _text)}),
    40: _PodField("resources", _message(_RESOURCES)),
}
_TERMINATED: Final[_Fields] = {
    1: _PodField("exitCode", _number),
    3: _PodField("reason", _text),
    5: _PodField("startedAt", _time),
    6: _PodField("finishedAt", _time),
}
_STATE: Final[_Fields] = {
    2: _PodField("running", _message({})),
    3: _PodField("terminated", _message(_TERMINATED)),
}
_CONTAINER_STATUS: Final[_Fields] = {
    1: _PodField("name", _text),
    2: _PodField("state", _message(_STATE)),
    3: _PodField("lastState", _message(_STATE)),
    5: _PodField("restartCount", _number),
    8: _PodField("containerID", _text),
    10: _map("allocatedResources", _quantity),
    11: _PodField("resources", _message(_RESOURCES)),
}
_CONDITION: Final[_Fields] = {
    1: _PodField("type", _text),
    2: _PodField("status", _text),
    4: _PodField("lastTransitionTime", _time),
    5: _PodField("reason", _text),
}
_CLAIM_STATUS: Final[_Fields] = {
    1: _PodField("resourceClaimName", _text),
    2: _PodField("containers", _text, "list"),
    4: _list("mapping", {1: _PodField("name", _text), 2: _PodField("quantity", _quantity)}),
    5: _list(
        "overhead",
        {
            1: _PodField("name", _text),
            2: _PodField("perPod", _quantity),
            3: _PodField("perContainer", _quantity),
        },
    ),
}
_STATUS: Final[_Fields] = {
    1: _PodField("phase", _text),
    2: _list("conditions", _CONDITION),
    3: _PodField("message", _text),
    4: _PodField("reason", _text),
    7: _PodField("startTime", _time),
    8: _list("containerStatuses", _CONTAINER_STATUS),
    9: _PodField("qosClass", _text),
    10: _list("initContainerStatuses", _CONTAINER_STATUS),
    13: _list("ephemeralContainerStatuses", _CONTAINER_STATUS),
    19: _map("allocatedResources", _quantity),
    20: _PodField("resources", _message(_RESOURCES)),
    21: _list("nodeAllocatableResourceClaimStatuses", _CLAIM_STATUS),
}
_METADATA: Final[_Fields] = {
    1: _PodField("name", _text),
    2: _PodField("generateName", _text),
    3: _PodField("namespace", _text),
    5: _PodField("uid", _text),
    8: _PodField("creationTimestamp", _time),
    9: _PodField("deletionTimestamp", _time),
    10: _PodField("deletionGracePeriodSeconds", _number),
    11: _map("labels", _text),
    12: _map("annotations", _text),
}
_POD: Final[_Fields] = {
    1: _PodField("metadata", _message(_METADATA)),
    2: _PodField("spec", _message(_SPEC)),
    3: _PodField("status", _message(_STATUS)),
}
