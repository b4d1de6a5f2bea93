"""A connection to a port of a pod, through the API server: port-forward over a WebSocket.

The subprotocol v4.channel.k8s.io has two channels for a port, data and errors; each message starts
with the number of its channel, and the first on each channel is the port (kubelet,
cri/streaming/portforward/websocket.go). WebSockets are RFC 6455.
"""

import base64
import os
import socket
import struct
import time
from hashlib import sha1
from http.client import HTTPException, HTTPResponse
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from memqos.errors import Unreachable
from memqos.host.apiserver.api_errors import status_of
from memqos.host.apiserver.client import CONNECT_SECONDS, ApiClient
from memqos.host.apiserver.proxies import proxy_of
from memqos.host.apiserver.resources import ApiRequest
from memqos.host.credential_files import describe_tls_error

if TYPE_CHECKING:
    from io import BufferedReader

_PROTOCOL: Final = "v4.channel.k8s.io"
_ACCEPT_SUFFIX: Final = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
"""As RFC 6455, 1.3 has it."""
_DATA: Final = 0
_ERROR: Final = 1
_LARGEST_FRAME: Final = 1 << 20
_LARGEST_REFUSAL: Final = 1 << 16
_CHUNK: Final = 32 << 10
_CONTINUATION: Final = 0x0
_BINARY: Final = 0x2
_CLOSE: Final = 0x8
_PING: Final = 0x9
_PONG: Final = 0xA
_FINAL: Final = 0x80
_MASKED: Final = 0x80


class PortForward:
    """The bytes that a port of a pod sends and receives, until a deadline."""

    def __init__(
        self, server: ApiClient, namespace: str, pod: str, port: int, seconds: float
    ) -> None:
        """Connect; the caller needs `get` and `create` on pods/portforward."""
        self._where = f"port {port} of pod {namespace}/{pod}"
        self._deadline = time.monotonic() + seconds
        self._has_port: set[int] = set()
        request = ApiRequest(
            # From 1.35 on a WebSocket takes this right too (KEP-4006).
            verb="create",
            path=f"/api/v1/namespaces/{namespace}/pods/{pod}/portforward",
            query={"ports": str(port)},
            resource="pods/portforward",
            namespace=namespace,
            name=pod,
        )
        with server.redact_errors():
            try:
                self._socket = _connect(server)
            except OSError as error:
                raise self._broken(error) from None
            try:
                self._reader = self._upgrade(server, request)
            except OSError as error:
                self._socket.close()
                raise self._broken(error) from None
            except BaseException:
                self._socket.close()
                raise

    def send(self, data: bytes) -> None:
        """Send all of it."""
        try:
            for start in range(0, len(data), _CHUNK):
                self._send_frame(_BINARY, bytes([_DATA]) + data[start : start + _CHUNK])
        except Unreachable:
            self.receive()  # what it has said before it hung up is the better reason
            raise

    def receive(self) -> bytes:
        """What has arrived; empty at the end."""
        while True:
            message = self._receive_message()
            if not message:
                return b""
            channel, data = message[0], message[1:]
            if channel not in self._has_port:
                self._has_port.add(channel)  # the first message is the number of the port
                data = data[2:]
            if channel == _ERROR and data:
                reason = data.decode("utf-8", "replace").strip()[:200]
                raise Unreachable(f"{self._where} cannot be reached: {reason}")
            if channel == _DATA and data:
                return data

    def close(self) -> None:
        # With its reader: of one that was closed before, Python 3.13 prints an "Exception ignored"
        # when the response is garbage collected.
        self._response.close()
        self._socket.close()

    def _upgrade(self, server: ApiClient, request: ApiRequest) -> "BufferedReader":
        """Ask for a WebSocket; what follows the answer is read from the reader."""
        key = base64.b64encode(os.urandom(16))
        self._set_timeout()
        self._socket.sendall(_handshake(server, request.target, key))
        # A response that is garbage collected closes its reader.
        self._response = response = HTTPResponse(self._socket, method="GET")
        try:
            response.begin()
            if response.status != 101:
                body = response.read(_LARGEST_REFUSAL + 1)
                status = status_of(body if len(body) <= _LARGEST_REFUSAL else b"")
                raise server.error_of(request, response.status, status)
        except HTTPException as error:
            raise Unreachable(
                f"{server.where}: not an answer to a port-forward ({type(error).__name__})"
            ) from None
        accept = base64.b64encode(sha1(key + _ACCEPT_SUFFIX, usedforsecurity=False).digest())
        if response.headers.get("Sec-WebSocket-Accept", "") != accept.decode():
            raise Unreachable(f"{server.where}: the port-forward is not a WebSocket")
        assert response.fp is not None
        return response.fp

    def _receive_message(self) -> bytes:
        """The next message with data; empty where the peer has closed."""
        parts = bytearray()
        while True:
            is_final, kind, payload = self._receive_frame()
            if kind == _CLOSE:
                return b""
            if kind == _PING:
                self._send_frame(_PONG, payload)
                continue
            if kind not in (_BINARY, _CONTINUATION):
                continue
            parts += payload
            if len(parts) > _LARGEST_FRAME:
                raise Unreachable(f"{self._where}: a message is too large")
            if is_final and parts:
                return bytes(parts)

    def _receive_frame(self) -> tuple[bool, int, bytes]:
        first, second = self._read(2)
        length = second & 0x7F
        if length >= 126:
            form = "!H" if length == 126 else "!Q"
            (length,) = struct.unpack(form, self._read(struct.calcsize(form)))
        if second & _MASKED or length > _LARGEST_FRAME:
            raise Unreachable(f"{self._where}: a frame is masked or too large")
        return bool(first & _FINAL), first & 0x0F, self._read(length)

    def _send_frame(self, kind: int, payload: bytes) -> None:
        mask, length = os.urandom(4), len(payload)
        if length < 126:
            size = struct.pack("!B", _MASKED | length)
        elif length < 1 << 16:
            size = struct.pack("!BH", _MASKED | 126, length)
        else:
            size = struct.pack("!BQ", _MASKED | 127, length)
        # Masking is the exclusive or with the mask, repeated (RFC 6455, 5.3).
        repeated = (mask * (length // 4 + 1))[:length]
        number = int.from_bytes(payload, "big") ^ int.from_bytes(repeated, "big")
        try:
            self._set_timeout()
            self._socket.sendall(
                bytes([_FINAL | kind]) + size + mask + number.to_bytes(length, "big")
            )
        except OSError as error:
            raise self._broken(error) from None

    def _read(self, size: int) -> bytes:
        try:
            self._set_timeout()
            data = self._reader.read(size)
        except OSError as error:
            raise self._broken(error) from None
        if len(data) < size:
            raise Unreachable(f"{self._where}: the connection was closed", hint="try again")
        return data

    def _set_timeout(self) -> None:
        remaining = self._deadline - time.monotonic()
        if remaining <= 0:
            raise TimeoutError
        self._socket.settimeout(remaining)

    def _broken(self, error: OSError) -> Unreachable:
        if isinstance(error, TimeoutError):
            return Unreachable(f"{self._where}: no answer in time", hint="try again")
        return Unreachable(f"{self._where}: the connection failed ({describe_tls_error(error)})")


def _connect(server: ApiClient) -> socket.socket:
    """A connection to the API server, with TLS where its address says so."""
    if proxy_of(server.access) is not None:
        raise Unreachable(
            f"{server.where}: memqos does not port-forward through a proxy",
            hint="name the agent's address with --agent-address",
        )
    address = urlsplit(server.access.cluster.server)
    host, is_tls = address.hostname or "", address.scheme == "https"
    port = address.port or (443 if is_tls else 80)
    plain = socket.create_connection((host, port), CONNECT_SECONDS)
    if not is_tls:
        return plain
    try:
        name = server.access.cluster.tls_server_name or host
        return server.credentials.tls_context().wrap_socket(plain, server_hostname=name)
    except BaseException:
        plain.close()
        raise


def _handshake(server: ApiClient, target: str, key: bytes) -> bytes:
    address = urlsplit(server.access.cluster.server)
    credentials = server.credentials
    fields = [
        ("Host", address.netloc.rpartition("@")[2]),
        ("Connection", "Upgrade"),
        ("Upgrade", "websocket"),
        ("Sec-WebSocket-Version", "13"),
        ("Sec-WebSocket-Key", key.decode()),
        ("Sec-WebSocket-Protocol", _PROTOCOL),
        ("User-Agent", "memqos"),
        *credentials.headers().items(),
        *[("Impersonate-Group", group) for group in credentials.groups],
    ]
    head = [f"GET {address.path.rstrip('/')}{target} HTTP/1.1", *[f"{k}: {v}" for k, v in fields]]
    return "\r\n".join([*head, "", ""]).encode("latin-1")
