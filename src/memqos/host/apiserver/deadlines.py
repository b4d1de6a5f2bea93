"""Connections whose answers have an end in time: a socket's own timeout bounds a pause alone.

An answer that comes a byte at a time never pauses for long. Nor can whoever reads it look at a
clock: one call of `read` waits for many bytes, in the head of an answer, in a chunk's or in what
unpacks to nothing. So the socket looks, before every read.
"""

import socket
import ssl
import time
from contextvars import ContextVar
from math import inf
from typing import Any, Final

import urllib3
from urllib3.connection import HTTPConnection, HTTPSConnection


class Deadline:
    """When an answer has to be there: all of it, and what of it has begun to come."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self.part_seconds = inf
        self._whole = time.monotonic() + seconds
        self._part = inf

    def begin_part(self, seconds: float) -> None:
        """Something begins to come, and has so many seconds from now."""
        self._part, self.part_seconds = time.monotonic() + seconds, seconds

    def end_part(self) -> None:
        self._part = inf

    @property
    def left(self) -> float:
        """Seconds."""
        return min(self._whole, self._part) - time.monotonic()

    @property
    def has_part_passed(self) -> bool:
        return self._part <= time.monotonic()

    @property
    def has_passed(self) -> bool:
        return self._whole <= time.monotonic()


_current: Final[ContextVar[Deadline | None]] = ContextVar("deadline", default=None)
"""Of the request that this thread sends. urllib3 hands nothing of a request to its connection."""


class _Timed:
    """A socket that gives up at a deadline."""

    deadline: Deadline | None = None
    _pause: float | None = None

    def settimeout(self, value: float | None) -> None:
        self._pause = value
        super().settimeout(value)  # type: ignore[misc]

    def recv(self, *args: Any) -> bytes:
        self._look()
        return super().recv(*args)  # type: ignore[misc, no-any-return]

    def recv_into(self, *args: Any) -> int:
        self._look()
        return super().recv_into(*args)  # type: ignore[misc, no-any-return]

    def _look(self) -> None:
        if self.deadline is None:
            return
        left = self.deadline.left
        if left <= 0:
            raise TimeoutError("timed out")
        super().settimeout(left if self._pause is None else min(left, self._pause))  # type: ignore[misc]


class _Socket(_Timed, socket.socket):
    pass


class _TlsSocket(_Timed, ssl.SSLSocket):
    pass


class _TimedConnection:
    sock: Any

    def _new_conn(self) -> socket.socket:
        plain = super()._new_conn()  # type: ignore[misc]
        timeout = plain.gettimeout()
        timed = _Socket(fileno=plain.detach())
        timed.settimeout(timeout)
        timed.deadline = _current.get()
        return timed

    def getresponse(self) -> Any:
        # Behind an https:// proxy urllib3 wraps the socket in an SSLTransport.
        getattr(self.sock, "socket", self.sock).deadline = _current.get()
        return super().getresponse()  # type: ignore[misc]


class _Http(_TimedConnection, HTTPConnection):
    pass


class _Https(_TimedConnection, HTTPSConnection):
    pass


class _HttpPool(urllib3.HTTPConnectionPool):
    ConnectionCls = _Http


class _HttpsPool(urllib3.HTTPSConnectionPool):
    ConnectionCls = _Https


def time_connections(manager: urllib3.PoolManager) -> None:
    """Have all connections of a manager heed deadlines."""
    manager.pool_classes_by_scheme = {"http": _HttpPool, "https": _HttpsPool}


def timed_context(*, cafile: str | None = None, cadata: str | None = None) -> ssl.SSLContext:
    """TLS whose sockets heed deadlines, too."""
    context = ssl.create_default_context(cafile=cafile, cadata=cadata)
    context.sslsocket_class = _TlsSocket
    return context


def request(
    manager: urllib3.PoolManager, deadline: Deadline, *args: Any, **options: Any
) -> urllib3.BaseHTTPResponse:
    """An answer whose head and body come before the deadline, or end in a timeout."""
    token = _current.set(deadline)
    try:
        return manager.request(*args, **options)
    finally:
        _current.reset(token)
