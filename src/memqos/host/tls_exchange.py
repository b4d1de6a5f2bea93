"""One request and its answer over TLS, whatever carries the bytes: a socket or a port-forward."""

import ssl
import time
from collections.abc import Callable
from socket import create_connection
from typing import Any, Final, Protocol, TypeVar

from memqos.errors import InputError, Unreachable
from memqos.host.credential_files import describe_tls_error
from memqos.units import format_bytes

_LARGEST: Final = 64 << 20
_CHUNK: Final = 64 << 10

_T = TypeVar("_T")


class ByteStream(Protocol):
    """A connection."""

    def send(self, data: bytes) -> None: ...

    def receive(self) -> bytes:
        """What has arrived; empty at the end."""

    def close(self) -> None: ...


class DirectStream:
    """A TCP connection to HOST:PORT, until a deadline."""

    def __init__(self, address: str, seconds: float) -> None:
        host, _, port = address.rpartition(":")
        if not host or not port.isdecimal() or not 0 < int(port) < 1 << 16:
            raise InputError(f"{address} is not HOST:PORT", hint="write it like 10.0.0.7:9178")
        self._address = address
        self._deadline = time.monotonic() + seconds
        try:
            self._socket = create_connection((host.strip("[]"), int(port)), seconds)
        except OSError as error:
            raise self._broken(error) from None

    def send(self, data: bytes) -> None:
        self._call(self._socket.sendall, data)

    def receive(self) -> bytes:
        return self._call(self._socket.recv, _CHUNK)

    def close(self) -> None:
        self._socket.close()

    def _call(self, call: Callable[..., _T], *arguments: object) -> _T:
        try:
            self._socket.settimeout(max(0.001, self._deadline - time.monotonic()))
            return call(*arguments)
        except OSError as error:
            raise self._broken(error) from None

    def _broken(self, error: OSError) -> Unreachable:
        is_late = isinstance(error, TimeoutError)
        reason = "no answer in time" if is_late else describe_tls_error(error)
        return Unreachable(f"{self._address}: {reason}")


def exchange(stream: ByteStream, context: ssl.SSLContext, name: str, request: bytes) -> bytes:
    """Send a request once the peer has proven its name, and receive all of the answer."""
    client = _TlsClient(stream, context, name)
    client.run(client.tls.do_handshake)
    client.run(client.tls.write, request)
    answer = bytearray()
    while chunk := client.read():
        answer += chunk
        if len(answer) > _LARGEST:
            raise Unreachable(f"the answer of {name} is larger than {format_bytes(_LARGEST)}")
    return bytes(answer)


class _TlsClient:
    """TLS in memory: what it has to send goes to a stream, and what it needs comes from there."""

    def __init__(self, stream: ByteStream, context: ssl.SSLContext, name: str) -> None:
        self._stream = stream
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.tls = context.wrap_bio(self._incoming, self._outgoing, server_hostname=name)

    def run(self, call: Callable[..., _T], *arguments: Any) -> _T:
        """Repeat a call until it has all that it needs."""
        while True:
            try:
                result = call(*arguments)
            except ssl.SSLWantReadError:
                self._flush()
                data = self._stream.receive()
                if data:
                    self._incoming.write(data)
                else:
                    self._incoming.write_eof()
            else:
                self._flush()
                return result

    def read(self) -> bytes:
        """Some of the answer; empty where the peer has ended it."""
        try:
            return self.run(self.tls.read, _CHUNK)
        except ssl.SSLZeroReturnError:
            return b""

    def _flush(self) -> None:
        data = self._outgoing.read()
        if data:
            self._stream.send(data)
