"""A small HTTP server on a TCP address or a unix socket, that no client can wear down."""

import asyncio
import logging
import os
import socket
import stat
from http import HTTPStatus
from typing import TYPE_CHECKING, Final, NamedTuple

from memqos.errors import InputError, Unreachable
from memqos.serve.endpoints import PLAIN, Answer, Posts, Routes
from memqos.serve.requests import (
    HEAD_LIMIT,
    Refused,
    Request,
    answer_to,
    answered,
    refusal,
    request_of,
)

if TYPE_CHECKING:
    from ssl import SSLContext

REQUEST_SECONDS: Final = 10.0
"""How long a client may take to ask."""
ANSWER_SECONDS: Final = 10.0
"""How long a client may take to read."""
IDLE_SECONDS: Final = 120.0
"""How long a connection is kept between two requests: Prometheus asks once or twice a minute."""
CHUNK: Final = 64 << 10
LINGER_READS: Final = 16
LINGER_SECONDS: Final = 1.0
"""How much of a refused request is still taken, and how long is waited for each piece of it."""

_CONTINUE: Final = b"HTTP/1.1 100 Continue\r\n\r\n"

_log = logging.getLogger("memqos.serve")


class Bounds(NamedTuple):
    """How much is taken from clients."""

    connections: int = 16
    """So many at a time: of more, the one that has waited the longest is closed."""
    body: int = 0
    """Bytes of a request's body; with none nothing but GET and HEAD is answered."""


NO_BODIES: Final = Bounds()


class Listener:
    """Answers requests until it is closed."""

    def __init__(self, routes: Routes, posts: Posts, bounds: Bounds) -> None:
        self._routes = routes
        self._posts = posts
        self._bounds = bounds
        self._server: asyncio.Server | None = None
        self._clients: dict[asyncio.Task[None], asyncio.StreamWriter] = {}
        self._socket: tuple[str, int] | None = None

    @property
    def address(self) -> str:
        """Where it listens: HOST:PORT, or the path of a socket."""
        assert self._server is not None
        name = self._server.sockets[0].getsockname()
        if isinstance(name, str):
            return name
        host, port = name[:2]
        return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"

    async def close(self) -> None:
        """Stop answering, and leave nothing behind."""
        if self._server is not None:
            self._server.close()
        for client in list(self._clients):
            client.cancel()
        await asyncio.gather(*self._clients, return_exceptions=True)
        if self._socket is not None:
            path, inode = self._socket
            if _inode(path) == inode:
                os.unlink(path)

    async def _start(self, bound: socket.socket, tls: "SSLContext | None" = None) -> None:
        start = (
            asyncio.start_unix_server if bound.family == socket.AF_UNIX else asyncio.start_server
        )
        patience = None if tls is None else REQUEST_SECONDS
        self._server = await start(
            self._connected,
            sock=bound,
            limit=HEAD_LIMIT,
            ssl=tls,
            ssl_handshake_timeout=patience,
            ssl_shutdown_timeout=patience,
        )
        if bound.family == socket.AF_UNIX:
            path = bound.getsockname()
            self._socket = path, _inode(path)

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        if len(self._clients) >= self._bounds.connections:
            self._clients.pop(next(iter(self._clients))).transport.abort()
        self._clients[task] = writer
        writer.transport.set_write_buffer_limits(high=0)
        try:
            await self._serve(reader, writer, task)
            writer.close()
        except (OSError, EOFError, TimeoutError, asyncio.CancelledError):
            writer.transport.abort()  # the client has gone, or has to
        finally:
            self._clients.pop(task, None)

    async def _serve(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        task: asyncio.Task[None],
    ) -> None:
        patience = REQUEST_SECONDS
        while True:
            try:
                request = await _asked(reader, patience, self._bounds.body)
                body = await _body(reader, writer, request) if request.length else b""
            except Refused as error:
                await _told(writer, refusal(error))
                await _lingered(reader, writer)
                return
            if task in self._clients:  # whoever asks has waited the least
                self._clients[task] = self._clients.pop(task)
            await _told(writer, self._answer(request, body))
            if not request.keeps:
                return
            patience = IDLE_SECONDS

    def _answer(self, request: Request, body: bytes) -> bytes:
        try:
            return answered(answer_to(request, body, self._routes, self._posts), request)
        except Exception as error:
            _log.error("no answer to %s: %s: %s", request.path, type(error).__name__, error)
            return answered(Answer(500, PLAIN, b"no answer; the log says why\n"), request)


async def listen(
    routes: Routes,
    host: str,
    port: int,
    *,
    posts: Posts | None = None,
    bounds: Bounds = NO_BODIES,
    tls: "SSLContext | None" = None,
) -> Listener:
    """Answer on an address; port 0 takes any that is free."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        bound = socket.create_server((host, port), family=family, dualstack_ipv6=host == "::")
    except OSError as error:
        raise Unreachable(
            f"cannot listen on {host}:{port}: {os.strerror(error.errno or 0)}",
            hint="is another agent running? Choose another address with listen",
        ) from None
    listener = Listener(routes, posts or {}, bounds)
    await listener._start(bound, tls)
    return listener


async def listen_on_socket(routes: Routes, path: str) -> Listener:
    """Answer on a unix socket that only its owner may open."""
    try:
        bound = _bound(path)
    except OSError as error:
        raise Unreachable(
            f"cannot listen on {path}: {error.strerror or error}",
            hint="choose another path with stateSocket",
        ) from None
    listener = Listener(routes, {}, NO_BODIES)
    await listener._start(bound)
    return listener


async def _asked(reader: asyncio.StreamReader, patience: float, body_limit: int) -> Request:
    try:
        head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), patience)
    except asyncio.LimitOverrunError:
        raise Refused(
            HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, "the request's head is too large"
        ) from None
    return request_of(head[:-4], body_limit)


async def _body(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, request: Request
) -> bytes:
    if request.waits:
        await _told(writer, _CONTINUE)
    return await asyncio.wait_for(reader.readexactly(request.length), REQUEST_SECONDS)


async def _told(writer: asyncio.StreamWriter, message: bytes) -> None:
    view = memoryview(message)
    async with asyncio.timeout(ANSWER_SECONDS):
        for start in range(0, len(view), CHUNK):
            # Of an answer to a slow client only the piece on its way is held twice.
            writer.write(view[start : start + CHUNK])
            await writer.drain()


async def _lingered(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Take some of what still comes: closed over it, the answer would be lost on its way."""
    if writer.can_write_eof():
        writer.write_eof()
    for _ in range(LINGER_READS):
        if not await asyncio.wait_for(reader.read(HEAD_LIMIT), LINGER_SECONDS):
            return


def _bound(path: str) -> socket.socket:
    """A socket of mode 0600 from its first moment on."""
    _clear(path)
    os.makedirs(os.path.dirname(path) or ".", mode=0o700, exist_ok=True)
    listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        # Linux gives the file the mode of the socket.
        os.fchmod(listening.fileno(), stat.S_IRUSR | stat.S_IWUSR)
        listening.bind(path)
    except OSError:
        listening.close()
        raise
    return listening


def _clear(path: str) -> None:
    """Remove the socket that a killed agent has left behind, and nothing else."""
    try:
        is_socket = stat.S_ISSOCK(os.lstat(path).st_mode)
    except FileNotFoundError:
        return
    if not is_socket:
        raise InputError("there is something here that is no socket", file=path)
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        try:
            probe.connect(path)
        except ConnectionRefusedError:
            os.unlink(path)
            return
    raise Unreachable(f"somebody listens on {path} already", hint="is another agent running?")


def _inode(path: str) -> int:
    try:
        return os.lstat(path).st_ino
    except FileNotFoundError:
        return 0
