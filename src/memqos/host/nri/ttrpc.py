"""Unary calls and their answers on a stream of bytes (containerd/ttrpc, PROTOCOL.md)."""

from collections.abc import Iterator
from struct import Struct
from typing import Any, Final, NamedTuple

from memqos.host.nri.mux import ConnectionEnded
from memqos.host.protowire import Message, ProtoField, decode_message, encode_message

HEADER: Final = Struct(">IIBB")
"""Length of the data, number of the call, type, flags."""
REQUEST: Final = 1
RESPONSE: Final = 2
LARGEST_MESSAGE: Final = 64 << 20
"""ttrpc allows 4 MiB; containerd 1.7.24 sends more in Synchronize."""

_REQUEST_FIELDS: Final[Message] = {
    "service": ProtoField(1, "text"),
    "method": ProtoField(2, "text"),
    "payload": ProtoField(3, "bytes"),
    "timeout_nano": ProtoField(4, "number"),
}
_RESPONSE_FIELDS: Final[Message] = {
    "status": ProtoField(1, {"code": ProtoField(1, "number"), "message": ProtoField(2, "text")}),
    "payload": ProtoField(2, "bytes"),
}


class TtrpcMessage(NamedTuple):
    """A request or a response. The caller numbers its calls 1, 3, 5, …"""

    type: int
    call: int
    data: bytes


class Request(NamedTuple):
    """One call."""

    service: str
    method: str
    payload: bytes
    timeout: float | None = None
    """Seconds the caller waits."""


class Response(NamedTuple):
    """What came of a call; code 0 is success, others are gRPC's."""

    payload: bytes
    code: int = 0
    message: str = ""


class MessageReader:
    """Cuts one stream into messages, however frames cut it."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, data: bytes) -> Iterator[TtrpcMessage]:
        """The messages that are complete with this."""
        buffer = self._buffer
        buffer += data
        while len(buffer) >= HEADER.size:
            length, call, kind, _ = HEADER.unpack_from(buffer)
            if length > LARGEST_MESSAGE:
                raise ConnectionEnded(f"a message of {length} bytes")
            end = HEADER.size + length
            if len(buffer) < end:
                return
            message = TtrpcMessage(kind, call, bytes(buffer[HEADER.size : end]))
            del buffer[:end]
            yield message


def encode_request(call: int, request: Request) -> bytes:
    """A request as it is sent."""
    values = request._asdict()
    values["timeout_nano"] = int((values.pop("timeout") or 0) * 1e9)
    return _encode(REQUEST, call, encode_message(_REQUEST_FIELDS, values))


def encode_response(call: int, response: Response) -> bytes:
    """A response as it is sent."""
    values: dict[str, Any] = {"payload": response.payload}
    if response.code:
        values["status"] = {"code": response.code, "message": response.message}
    return _encode(RESPONSE, call, encode_message(_RESPONSE_FIELDS, values))


def decode_request(data: bytes) -> Request:
    """The call that a message is."""
    values = decode_message(_REQUEST_FIELDS, data)
    nanoseconds = values.get("timeout_nano")
    return Request(
        values.get("service", ""),
        values.get("method", ""),
        values.get("payload", b""),
        None if nanoseconds is None else nanoseconds / 1e9,
    )


def decode_response(data: bytes) -> Response:
    """The answer that a message is."""
    values = decode_message(_RESPONSE_FIELDS, data)
    status = values.get("status", {})
    return Response(values.get("payload", b""), status.get("code", 0), status.get("message", ""))


def _encode(kind: int, call: int, data: bytes) -> bytes:
    return HEADER.pack(len(data), call, kind, 0) + data
