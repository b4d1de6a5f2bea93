"""A small HTTP server on a TCP address or a unix socket, that no client can wear down."""

import asyncio
import logging
import os
import socket
import stat
from http import HTTPStatus
from typing import Final

from memqos.errors import InputError, Unreachable
from memqos.serve.endpoints import PLAIN, Answer, Routes
from memqos.serve.requests import (
    HEAD_LIMIT,
    Refused,
    Request,
    answer_to,
    answered,
    refusal,
    request_of,
)

CONNECTIONS: Final = 16
"""So many at a time: of more, the one that has waited the longest is closed."""
REQUEST_SECONDS: Final = 10.0
"""How long a client may take to ask."""
ANSWER_SECONDS: Final = 10.0
"""How long a client may take to read."""
IDLE_SECONDS: Final = 120.0
"""How long a connection is kept between two requests: Prometheus asks once or twice a minute."""

_log = logging.getLogger("memqos.serve")


class Listener:
    """Answers requests until it is closed."""

    def __init__(self, routes: Routes) -> None:
        self._routes = routes
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

    async def _on_tcp(self, host: str, port: int) -> None:
        self._server = await asyncio.start_server(self._connected, host, port, limit=HEAD_LIMIT)

    async def _on_socket(self, path: str) -> None:
        listening = _bound(path)
        self._server = await asyncio.start_unix_server(
            self._connected, sock=listening, limit=HEAD_LIMIT
        )
        self._socket = path, _inode(path)

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        if len(self._clients) >= CONNECTIONS:
            self._clients.pop(next(iter(self._clients))).transport.abort()
        self._clients[task] = writer
        try:
            await self._serve(reader, writer)
        except (OSError, EOFError, TimeoutError, asyncio.CancelledError):
            pass  # the client has gone, or is told to
        finally:
            self._clients.pop(task, None)
            writer.transport.abort() if writer.transport.get_write_buffer_size() else writer.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        patience = REQUEST_SECONDS
        while True:
            try:
                request = await _asked(reader, patience)
            except Refused as error:
                await _told(writer, refusal(error))
                return
            self._moved_back()
            await _told(writer, answered(self._answer(request), request))
            if not request.keeps:
                return
            patience = IDLE_SECONDS

    def _moved_back(self) -> None:
        """Whoever asks has waited the least."""
        task = asyncio.current_task()
        assert task is not None
        if task in self._clients:
            self._clients[task] = self._clients.pop(task)

    def _answer(self, request: Request) -> Answer:
        try:
            return answer_to(request, self._routes)
        except Exception as error:
            _log.error(
                "%s could not be answered: %s: %s", request.path, type(error).__name__, error
            )
            return Answer(500, PLAIN, b"this could not be answered; the log says why\n")


async def listen(routes: Routes, host: str, port: int) -> Listener:
    """Answer on an address; port 0 takes any that is free."""
    listener = Listener(routes)
    try:
        await listener._on_tcp(host, port)
    except OSError as error:
        raise Unreachable(
            f"cannot listen on {host}:{port}: {error.strerror or error}",
            hint="is another agent running? Choose another address with listen",
        ) from None
    return listener


async def listen_on_socket(routes: Routes, path: str) -> Listener:
    """Answer on a unix socket that only its owner may open."""
    listener = Listener(routes)
    try:
        await listener._on_socket(path)
    except OSError as error:
        raise Unreachable(
            f"cannot listen on {path}: {error.strerror or error}",
            hint="choose another path with stateSocket",
        ) from None
    return listener


async def _asked(reader: asyncio.StreamReader, patience: float) -> Request:
    try:
        head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), patience)
    except asyncio.LimitOverrunError:
        raise Refused(
            HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, "the request's head is too large"
        ) from None
    return request_of(head[:-4])


async def _told(writer: asyncio.StreamWriter, message: bytes) -> None:
    writer.write(message)
    await asyncio.wait_for(writer.drain(), ANSWER_SECONDS)


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
