"""gRPC calls over a unix socket, one after another: HTTP/2 by h2, without threads or an event loop.

Calls that may block run in a forked process, where threads do not survive, and a runtime gets one
call at a time.
"""

import socket
import struct
import time
from typing import Final, NamedTuple

import h2.config
import h2.connection
import h2.events
import h2.exceptions

from memqos.errors import MemqosError, Unreachable
from memqos.host.backoff import CircuitBreaker

_SIZE_LIMIT: Final = 16 << 20
_CHUNK: Final = 1 << 16
_PREFIX: Final = struct.Struct(">BI")
"""Whether a message is compressed, and its length."""
_OK: Final = "0"
_DEADLINE_EXCEEDED: Final = "4"
_UNAVAILABLE: Final = frozenset({"1", "14"})
"""CANCELLED and UNAVAILABLE: the answer of a server that is stopping or starting."""


class GrpcError(MemqosError):
    """The server answered with an error."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message or f"gRPC status {code}")
        self.code = code


class GrpcReply(NamedTuple):
    """What has arrived for one call so far."""

    headers: dict[str, str]
    data: bytearray


class Channel:
    """A server behind a unix socket, connected to at the first call.

    Where the server was restarted since the last call, the channel connects again.
    """

    def __init__(self, path: str, timeout: float) -> None:
        self.path = path
        self.timeout = timeout
        self._socket: socket.socket | None = None
        self._http: h2.connection.H2Connection
        self._events: list[h2.events.Event] = []
        self._breaker = CircuitBreaker()

    def call(self, method: str, request: bytes) -> bytes:
        """The answer's message; GrpcError with the server's text, or Unreachable."""
        self._breaker.check()
        is_used = self._socket is not None
        try:
            return self._call(method, request)
        except TimeoutError:
            self.close()
            raise self._breaker.trip(
                Unreachable(
                    f"{self.path}: no answer within {self.timeout:g} s",
                    hint="see whether the runtime is well; --timeout waits longer",
                )
            ) from None
        except (OSError, h2.exceptions.ProtocolError) as error:
            self.close()
            if is_used:
                return self.call(method, request)
            raise Unreachable(
                f"{self.path}: {getattr(error, 'strerror', None) or error}",
                hint="is the runtime up? Apply again when it is",
            ) from None

    def close(self) -> None:
        """Close the connection; the next call connects again."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def _call(self, method: str, request: bytes) -> bytes:
        deadline = time.monotonic() + self.timeout
        connected = self._socket or self._connect()
        stream = self._http.get_next_available_stream_id()
        self._http.send_headers(
            stream,
            [
                (":method", "POST"),
                (":scheme", "http"),
                (":path", method),
                (":authority", "localhost"),
                ("te", "trailers"),
                ("content-type", "application/grpc"),
                ("grpc-timeout", f"{int(self.timeout * 1000)}m"),
            ],
        )
        self._http.send_data(stream, _PREFIX.pack(0, len(request)) + request, end_stream=True)
        answer = GrpcReply({}, bytearray())
        while not self._has_ended(stream, answer, connected):
            remaining = deadline - time.monotonic()
            if remaining <= 0:
                raise TimeoutError
            connected.settimeout(remaining)
            received = connected.recv(_CHUNK)
            if not received:
                raise ConnectionResetError("the connection was closed")
            self._events = self._http.receive_data(received)
        return _message(answer)

    def _connect(self) -> socket.socket:
        connected = socket.socket(socket.AF_UNIX)
        try:
            connected.settimeout(self.timeout)
            connected.connect(self.path)
        except BaseException:
            connected.close()
            raise
        config = h2.config.H2Configuration(client_side=True, header_encoding="utf-8")
        self._http = h2.connection.H2Connection(config)
        self._http.initiate_connection()
        self._events = []
        self._socket = connected
        return connected

    def _has_ended(self, stream: int, answer: GrpcReply, connected: socket.socket) -> bool:
        ended = False
        for event in self._events:
            if isinstance(event, h2.events.ResponseReceived | h2.events.TrailersReceived):
                answer.headers.update((str(name), str(value)) for name, value in event.headers)
            elif isinstance(event, h2.events.DataReceived):
                answer.data.extend(event.data)
                if len(answer.data) > _SIZE_LIMIT:
                    raise ConnectionError("the answer has no end")
                self._http.acknowledge_received_data(event.flow_controlled_length, stream)
            elif isinstance(event, h2.events.StreamEnded):
                ended = True
            elif isinstance(event, h2.events.StreamReset | h2.events.ConnectionTerminated):
                raise ConnectionResetError("the server ended the call")
        self._events = []
        connected.sendall(self._http.data_to_send())
        return ended


def _message(answer: GrpcReply) -> bytes:
    code = answer.headers.get("grpc-status")
    if code is None:
        raise ConnectionError("this is no gRPC server")
    message = answer.headers.get("grpc-message", "")
    if code == _DEADLINE_EXCEEDED:
        raise TimeoutError
    if code in _UNAVAILABLE:
        raise ConnectionError(message or "unavailable")
    if code != _OK:
        raise GrpcError(code, message)
    data = bytes(answer.data)
    if len(data) < _PREFIX.size or _PREFIX.unpack_from(data)[0]:
        raise ConnectionError("the answer is not one plain message")
    return data[_PREFIX.size : _PREFIX.size + _PREFIX.unpack_from(data)[1]]
