"""gRPC calls over a unix socket, one after another: HTTP/2 by h2, without threads or an event loop.

Calls that may block run in a forked process, where threads do not survive, and a runtime gets one
call at a time. A stream has a channel of its own.
"""

import contextlib
import socket
import struct
import time
from collections.abc import Callable, Iterator
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

    def __init__(self, path: str, timeout: float, largest: int = _SIZE_LIMIT) -> None:
        """`largest` bounds a message, in bytes."""
        self.path = path
        self.timeout = timeout
        self._largest = largest
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
                    hint="check the container runtime; --timeout waits longer",
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

    def stream(self, method: str, request: bytes, patience: Callable[[], float]) -> Iterator[bytes]:
        """The messages of a server's stream as they arrive; errors as those of `call`.

        `patience` is called before each wait, for the seconds that it may take.
        """
        try:
            yield from self._stream(method, request, patience)
        except TimeoutError:
            raise Unreachable(f"{self.path}: no message in time") from None
        except (OSError, h2.exceptions.ProtocolError) as error:
            raise Unreachable(f"{self.path}: {getattr(error, 'strerror', None) or error}") from None
        finally:
            self.close()

    def interrupt(self) -> None:
        """End a stream that another thread waits for."""
        connected = self._socket
        if connected is not None:
            with contextlib.suppress(OSError):  # the server, or the other thread, has closed it
                connected.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Close the connection; the next call connects again."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def _call(self, method: str, request: bytes) -> bytes:
        deadline = time.monotonic() + self.timeout
        connected = self._socket or self._connect()
        timeout = ("grpc-timeout", f"{int(self.timeout * 1000)}m")
        stream = self._send_request(method, request, timeout)
        answer = GrpcReply({}, bytearray())
        while not self._has_ended(stream, answer, connected):
            self._receive(connected, deadline - time.monotonic())
        return _message(answer)

    def _stream(
        self, method: str, request: bytes, patience: Callable[[], float]
    ) -> Iterator[bytes]:
        connected = self._socket or self._connect()
        stream = self._send_request(method, request)
        answer = GrpcReply({}, bytearray())
        while not self._has_ended(stream, answer, connected):
            yield from _take_messages(answer.data, self._largest)
            self._receive(connected, patience())
        yield from _take_messages(answer.data, self._largest)
        _check_status(answer.headers)

    def _send_request(self, method: str, request: bytes, *headers: tuple[str, str]) -> int:
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
                *headers,
            ],
        )
        self._http.send_data(stream, _PREFIX.pack(0, len(request)) + request, end_stream=True)
        return stream

    def _receive(self, connected: socket.socket, seconds: float) -> None:
        if seconds <= 0:
            raise TimeoutError
        connected.settimeout(seconds)
        received = connected.recv(_CHUNK)
        if not received:
            raise ConnectionResetError("the connection was closed")
        self._events = self._http.receive_data(received)

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
                if len(answer.data) > self._largest + _PREFIX.size:
                    raise ConnectionError("the answer has no end")
                self._http.acknowledge_received_data(event.flow_controlled_length, stream)
            elif isinstance(event, h2.events.StreamEnded):
                ended = True
            elif isinstance(event, h2.events.StreamReset | h2.events.ConnectionTerminated):
                raise ConnectionResetError("the server ended the call")
        self._events = []
        connected.sendall(self._http.data_to_send())
        return ended


def _take_messages(data: bytearray, largest: int) -> Iterator[bytes]:
    """Cut all messages off that have arrived as a whole."""
    while len(data) >= _PREFIX.size:
        compressed, size = _PREFIX.unpack_from(data)
        if compressed or size > largest:
            raise ConnectionError(
                "a message is compressed" if compressed else f"a message of {size} bytes"
            )
        end = _PREFIX.size + size
        if len(data) < end:
            return
        message = bytes(data[_PREFIX.size : end])
        del data[:end]
        yield message


def _message(answer: GrpcReply) -> bytes:
    _check_status(answer.headers)
    data = bytes(answer.data)
    if len(data) < _PREFIX.size or _PREFIX.unpack_from(data)[0]:
        raise ConnectionError("the answer is not one plain message")
    return data[_PREFIX.size : _PREFIX.size + _PREFIX.unpack_from(data)[1]]


def _check_status(headers: dict[str, str]) -> None:
    code = headers.get("grpc-status")
    if code is None:
        raise ConnectionError("this is not a gRPC server")
    message = headers.get("grpc-message", "")
    if code == _DEADLINE_EXCEEDED:
        raise TimeoutError
    if code in _UNAVAILABLE:
        raise ConnectionError(message or "unavailable")
    if code != _OK:
        raise GrpcError(code, message)
