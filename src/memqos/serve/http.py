"""A small HTTP server on a TCP address or a unix socket, with bounds on what clients use."""

import asyncio
import errno
import logging
import os
import socket
import stat
from collections import Counter
from collections.abc import Awaitable, Callable
from http import HTTPStatus
from typing import TYPE_CHECKING, Final

from memqos.errors import InputError, Unreachable
from memqos.serve.body_memory import BodyMemory
from memqos.serve.connections import ClientLimits, Connection, Connections
from memqos.serve.endpoints import PLAIN, HttpReply, PostRoutes, Routes
from memqos.serve.http_messages import (
    HEAD_LIMIT,
    BadRequest,
    HttpRequest,
    encode_refusal,
    encode_reply,
    parse_request,
    route_request,
)

if TYPE_CHECKING:
    from ssl import SSLContext

REQUEST_SECONDS: Final = 10.0
"""How long a client may take to send a request."""
ANSWER_SECONDS: Final = 10.0
"""How long a client may take to read an answer."""
BODY_SECONDS: Final = 1.0
"""How long a large body may take while others wait to be read. An API server sends one in much
less, and waits for its answer as long as the webhook's timeoutSeconds: five seconds here."""
IDLE_SECONDS: Final = 120.0
"""How long a connection is kept between two requests: Prometheus scrapes once or twice a minute."""
LINGER_READS: Final = 16
LINGER_SECONDS: Final = 1.0
"""How many reads a refused request still gets, and how long each may take."""
BACKLOG: Final = 128
"""Connections that the kernel keeps until they are accepted."""
SOCKET_BUFFER: Final = 64 << 10
"""Bytes that the kernel buffers from a client, and for one: they are charged to the container's
cgroup. By default it buffers up to 32 MiB (ip-sysctl.rst, tcp_rmem)."""
ROOM_SECONDS: Final = 0.05
"""How long no connection is accepted where none can be closed yet for it."""
RETRY_SECONDS: Final = 1.0
"""How long no connection is accepted after accept(2) failed for another reason."""

_CONTINUE: Final = b"HTTP/1.1 100 Continue\r\n\r\n"
_EXHAUSTED: Final = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)

_log = logging.getLogger("memqos.serve")

NO_BODIES: Final = ClientLimits()

AnswerRequest = Callable[[HttpRequest], Awaitable[HttpReply]]
"""Answers every request that has no body, whatever its path; it may take its time."""


class Listener:
    """Answers requests until it is closed."""

    def __init__(
        self,
        bound: socket.socket,
        routes: Routes,
        posts: PostRoutes,
        bounds: ClientLimits,
        tls: "Callable[[], SSLContext] | None" = None,
        answer: AnswerRequest | None = None,
    ) -> None:
        self._bound = bound
        self._routes = routes
        self._posts = posts
        self._bounds = bounds
        self._tls = tls
        self._answer_request = answer
        self._connections = Connections(bounds)
        self._bodies = BodyMemory(max(bounds.bodies, bounds.body), BODY_SECONDS, self._connections)
        self._loop = asyncio.get_running_loop()
        self._resume: asyncio.TimerHandle | None = None
        self._inode = _inode(bound.getsockname()) if bound.family == socket.AF_UNIX else 0
        bound.setblocking(False)
        bound.listen(BACKLOG)
        self._loop.add_reader(bound.fileno(), self._accept)

    @property
    def address(self) -> str:
        """Where it listens: HOST:PORT, or the path of a socket."""
        name = self._bound.getsockname()
        if isinstance(name, str):
            return name
        host, port = name[:2]
        return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"

    @property
    def closed(self) -> Counter[str]:
        """How many connections were closed, by the bound that was reached."""
        return self._connections.closed

    async def close(self) -> None:
        """Close all connections and the socket, and remove its file."""
        path = self._bound.getsockname()
        self._loop.remove_reader(self._bound.fileno())
        if self._resume is not None:
            self._resume.cancel()
        self._bound.close()
        tasks = [each.task for each in self._connections if each.task is not None]
        for connection in list(self._connections):
            self._connections.remove(connection)
        await asyncio.gather(*tasks, return_exceptions=True)
        if self._inode and _inode(path) == self._inode:
            os.unlink(path)

    def _accept(self) -> None:
        """Accept one connection; the event loop calls again while there are more."""
        in_handshake = self._tls is not None
        if not self._connections.make_room(in_handshake=in_handshake):
            self._pause(ROOM_SECONDS)
            return
        try:
            accepted, _ = self._bound.accept()
        except (BlockingIOError, ConnectionAbortedError):
            return
        except OSError as error:
            if error.errno not in _EXHAUSTED or len(self._connections) == 0:
                _log.error("no connection is accepted for a moment: %s", error)
                self._pause(RETRY_SECONDS)
            elif not self._connections.free_descriptor():
                self._pause(ROOM_SECONDS)
            return
        connection = Connection(accepted)
        self._connections.add(connection, in_handshake=in_handshake)
        connection.task = self._loop.create_task(self._handle_connection(connection))

    def _pause(self, seconds: float) -> None:
        # The listening socket stays readable while a connection waits, and would wake the loop.
        self._loop.remove_reader(self._bound.fileno())
        self._resume = self._loop.call_later(
            seconds, self._loop.add_reader, self._bound.fileno(), self._accept
        )

    async def _handle_connection(self, connection: Connection) -> None:
        try:
            if self._tls is not None:
                async with asyncio.timeout(REQUEST_SECONDS):
                    await connection.start_tls(self._tls)
                self._connections.establish(connection)
            await self._serve(connection)
            await connection.finish(LINGER_READS, LINGER_SECONDS)
        except (OSError, EOFError, TimeoutError):
            pass  # the client has disconnected, or was too slow
        finally:
            self._connections.remove(connection)

    async def _serve(self, connection: Connection) -> None:
        patience = REQUEST_SECONDS
        while True:
            try:
                request = await _read_head(connection, patience, self._bounds.body)
                message = await self._respond(connection, request)
            except BadRequest as error:
                await _send(connection, encode_refusal(error))
                return
            self._connections.renew(connection)
            await _send(connection, message)
            if not request.keep_alive:
                return
            patience = IDLE_SECONDS
            await asyncio.sleep(0)  # other tasks run, even where the next request has arrived

    async def _respond(self, connection: Connection, request: HttpRequest) -> bytes:
        """The answer to a request; its body is freed."""
        if self._answer_request is not None:
            return await self._await_answer(request, self._answer_request)
        if not request.length:
            return self._answer(request, bytearray())
        try:
            async with asyncio.timeout(REQUEST_SECONDS):
                await self._bodies.reserve(connection, request.length)
        except TimeoutError:
            raise BadRequest(
                HTTPStatus.SERVICE_UNAVAILABLE, "too many large requests at once: try again"
            ) from None
        try:
            return self._answer(request, await _read_body(connection, request))
        finally:
            self._bodies.release(connection)

    async def _await_answer(self, request: HttpRequest, answer: AnswerRequest) -> bytes:
        try:
            async with asyncio.timeout(ANSWER_SECONDS):
                return encode_reply(await answer(request), request)
        except TimeoutError:
            return encode_reply(HttpReply(503, PLAIN, b"no answer in time: try again\n"), request)
        except Exception as error:
            return _encode_failure(request, error)

    def _answer(self, request: HttpRequest, body: bytearray) -> bytes:
        try:
            return encode_reply(route_request(request, body, self._routes, self._posts), request)
        except Exception as error:
            return _encode_failure(request, error)


def _encode_failure(request: HttpRequest, error: Exception) -> bytes:
    _log.error("no answer to %s: %s: %s", request.path, type(error).__name__, error)
    return encode_reply(HttpReply(500, PLAIN, b"no answer; the log says why\n"), request)


async def listen(
    routes: Routes,
    host: str,
    port: int,
    *,
    posts: PostRoutes | None = None,
    bounds: ClientLimits = NO_BODIES,
    tls: "Callable[[], SSLContext] | None" = None,
    answer: AnswerRequest | None = None,
) -> Listener:
    """Listen on an address; port 0 takes any that is free.

    `tls` gives the TLS context of each new connection. `answer` answers instead of `routes`.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        bound = socket.create_server((host, port), family=family, dualstack_ipv6=host == "::")
    except OSError as error:
        raise Unreachable(
            f"cannot listen on {host}:{port}: {os.strerror(error.errno or 0)}",
            hint="does another process listen there? Choose another address with listen",
        ) from None
    for buffer in (socket.SO_RCVBUF, socket.SO_SNDBUF):
        bound.setsockopt(socket.SOL_SOCKET, buffer, SOCKET_BUFFER)
    return Listener(bound, routes, posts or {}, bounds, tls, answer)


async def listen_on_socket(routes: Routes, path: str) -> Listener:
    """Listen on a unix socket that only its owner may open."""
    try:
        bound = _bind_socket(path)
    except OSError as error:
        raise Unreachable(
            f"cannot listen on {path}: {error.strerror or error}",
            hint="choose another path with stateSocket",
        ) from None
    return Listener(bound, routes, {}, NO_BODIES)


async def _read_head(connection: Connection, patience: float, body_limit: int) -> HttpRequest:
    async with asyncio.timeout(patience):
        head = await connection.receive_until(b"\r\n\r\n", HEAD_LIMIT)
    if head is None:
        raise BadRequest(
            HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, "the request's head is too large"
        )
    return parse_request(head, body_limit)


async def _read_body(connection: Connection, request: HttpRequest) -> bytearray:
    if request.expects_continue:
        await _send(connection, _CONTINUE)
    async with asyncio.timeout(REQUEST_SECONDS):
        return await connection.receive_exactly(request.length)


async def _send(connection: Connection, message: bytes) -> None:
    async with asyncio.timeout(ANSWER_SECONDS):
        await connection.send(message)


def _bind_socket(path: str) -> socket.socket:
    """A socket with mode 0600 from its creation on."""
    _remove_stale_socket(path)
    os.makedirs(os.path.dirname(path) or ".", mode=0o700, exist_ok=True)
    listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        # Linux gives the file the mode of the socket (unix_bind(), net/unix/af_unix.c).
        os.fchmod(listening.fileno(), stat.S_IRUSR | stat.S_IWUSR)
        listening.bind(path)
    except OSError:
        listening.close()
        raise
    return listening


def _remove_stale_socket(path: str) -> None:
    """Remove the socket file that a killed agent has left behind, and nothing else."""
    try:
        is_socket = stat.S_ISSOCK(os.lstat(path).st_mode)
    except FileNotFoundError:
        return
    if not is_socket:
        raise InputError("this path exists and is not a socket", file=path)
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        try:
            probe.connect(path)
        except ConnectionRefusedError:
            os.unlink(path)
            return
    raise Unreachable(f"another process listens on {path}", hint="is another agent running?")


def _inode(path: str) -> int:
    try:
        return os.lstat(path).st_ino
    except FileNotFoundError:
        return 0
