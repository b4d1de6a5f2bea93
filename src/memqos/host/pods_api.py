"""The kubelet's PodsAPI (KEP-4188): its pods over a unix socket, without credentials.

Its service is v1alpha1.Pods; the feature gate PodsAPI is alpha in 1.36, beta and on from 1.37 on.
"""

from collections.abc import Callable, Iterator
from typing import Final, Literal, NamedTuple

from memqos.errors import Unreachable
from memqos.host.grpc import Channel, GrpcError
from memqos.host.pod_messages import decode_pod
from memqos.host.protowire import (
    MalformedMessage,
    Message,
    ProtoField,
    encode_message,
    wire_fields,
)
from memqos.kube.pod import Pod

SERVICE: Final = "/v1alpha1.Pods"
UNREACHABLE_HINT: Final = (
    "is the kubelet up, and its feature gate PodsAPI on? It is by default from 1.37 on"
)
_LIST_BYTES: Final = 64 << 20
"""As of a list from the API server: 500 pods are 10 MiB."""
_EVENT_BYTES: Final = 4 << 20
"""etcd takes objects of 1.5 MiB at most; a static pod may be larger."""
_SECONDS: Final = 5.0
_NOT_FOUND: Final = "5"
_FAILED_PRECONDITION: Final = "9"
_GET_REQUEST: Final[Message] = {"podUID": ProtoField(1, "text")}

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
    """The kubelet has not heard from all sources of its pods yet, and gives no partial list."""


class PodsApiClient:
    """A kubelet behind its socket; what fails raises Unreachable."""

    def __init__(self, socket: str, timeout: float = _SECONDS) -> None:
        self.socket = socket
        self._timeout = timeout
        self._watching: Channel | None = None

    def list_pods(self) -> list[Pod]:
        """All pods of the node but mirror pods."""
        answer = self._call("ListPods", b"", _LIST_BYTES)
        return [_pod(self.socket, data) for data in _messages_in(self.socket, answer, 1)]

    def get_pod(self, uid: str) -> Pod | None:
        """One pod; None where the kubelet has none of that UID."""
        request = encode_message(_GET_REQUEST, {"podUID": uid})
        try:
            answer = self._call("GetPod", request, _EVENT_BYTES)
        except Unreachable as error:
            if isinstance(error.__cause__, GrpcError) and error.__cause__.code == _NOT_FOUND:
                return None
            raise
        found = _messages_in(self.socket, answer, 1)
        return _pod(self.socket, found[-1] if found else b"")

    def watch_pods(self, patience: Callable[[], float]) -> Iterator[PodWatchEvent]:
        """All pods, then `synced`, then changes, as long as the kubelet keeps the watch open.

        `patience` is asked before each wait for how many seconds the next event may take.
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
            yield from channel.stream(f"{SERVICE}/{method}", b"", patience)
        except GrpcError as error:
            raise _describe_refusal(self.socket, method, error) from error
        except Unreachable as error:
            raise Unreachable(error.what, hint=UNREACHABLE_HINT) from None
        finally:
            self._watching = None

    def _call(self, method: str, request: bytes, largest: int) -> bytes:
        channel = Channel(self.socket, self._timeout, largest)
        try:
            return channel.call(f"{SERVICE}/{method}", request)
        except GrpcError as error:
            raise _describe_refusal(self.socket, method, error) from error
        except Unreachable as error:
            raise Unreachable(error.what, hint=UNREACHABLE_HINT) from None
        finally:
            channel.close()


def _describe_refusal(socket: str, method: str, error: GrpcError) -> Unreachable:
    if error.code == _FAILED_PRECONDITION:
        return PodsNotReady(
            f"{socket}: the kubelet does not know all of its pods yet",
            hint="wait until it has reached the API server",
        )
    return Unreachable(f"{socket}: {method} was refused: {error}", hint="look at the kubelet's log")


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
