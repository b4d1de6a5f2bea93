"""Answers of an API server as they come in, bounded in time and in size.

A socket's own timeout bounds a single pause, and an answer that comes a byte at a time never pauses
for long. The reader cannot check a clock either: one call of `read` waits for many bytes, in the
head of an answer, in the head of a chunk, or in data that unpacks to nothing. So the socket checks
its deadline before every read.

urllib3 unpacks no more of a compressed answer than `read` asks for, so a small answer that would
unpack to a huge one is noticed at the same bound.
"""

import re
import socket
import ssl
import time
from collections.abc import Iterator, Mapping
from contextvars import ContextVar
from math import inf
from typing import Any, Final

import urllib3
from urllib3.connection import HTTPConnection, HTTPSConnection

from memqos.errors import InputError
from memqos.host.credential_files import client_context
from memqos.units import format_bytes


class Deadline:
    """When an answer must be complete, and the part of it that is arriving."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self.part_seconds = inf
        self._whole = time.monotonic() + seconds
        self._part = inf

    def begin_part(self, seconds: float) -> None:
        """A part begins to arrive, and must be complete within so many seconds."""
        self._part, self.part_seconds = time.monotonic() + seconds, seconds

    def end_part(self) -> None:
        self._part = inf

    @property
    def remaining(self) -> float:
        """Seconds until the first of both."""
        return min(self._whole, self._part) - time.monotonic()

    @property
    def has_part_passed(self) -> bool:
        return self._part <= time.monotonic()

    @property
    def has_passed(self) -> bool:
        return self._whole <= time.monotonic()


_current: Final[ContextVar[Deadline | None]] = ContextVar("deadline", default=None)
"""Of the request that this thread sends: urllib3 passes nothing of a request to its connection."""


class _DeadlineSocket:
    """A socket whose reads time out at a deadline; mixed into one, which mypy cannot see."""

    deadline: Deadline | None = None
    _pause: float | None = None

    def settimeout(self, value: float | None) -> None:
        self._pause = value
        super().settimeout(value)  # type: ignore[misc]

    def recv(self, *args: Any) -> bytes:
        self._apply_deadline()
        return super().recv(*args)  # type: ignore[misc, no-any-return]

    def recv_into(self, *args: Any) -> int:
        self._apply_deadline()
        return super().recv_into(*args)  # type: ignore[misc, no-any-return]

    def _apply_deadline(self) -> None:
        if self.deadline is None:
            return
        remaining = self.deadline.remaining
        if remaining <= 0:
            raise TimeoutError("timed out")
        pause = remaining if self._pause is None else min(remaining, self._pause)
        super().settimeout(pause)  # type: ignore[misc]


class _Socket(_DeadlineSocket, socket.socket):
    pass


class _TlsSocket(_DeadlineSocket, ssl.SSLSocket):
    pass


class _DeadlineConnection:
    """A connection of such sockets; mixed into one of urllib3."""

    sock: Any

    def _new_conn(self) -> socket.socket:
        plain = super()._new_conn()  # type: ignore[misc]
        timeout = plain.gettimeout()
        replacement = _Socket(fileno=plain.detach())
        replacement.settimeout(timeout)
        replacement.deadline = _current.get()
        return replacement

    def getresponse(self) -> Any:
        # Behind an https:// proxy urllib3 wraps the socket in an SSLTransport
        # (urllib3/util/ssltransport.py).
        getattr(self.sock, "socket", self.sock).deadline = _current.get()
        return super().getresponse()  # type: ignore[misc]


class _Http(_DeadlineConnection, HTTPConnection):
    pass


class _Https(_DeadlineConnection, HTTPSConnection):
    pass


class _HttpPool(urllib3.HTTPConnectionPool):
    ConnectionCls = _Http


class _HttpsPool(urllib3.HTTPSConnectionPool):
    ConnectionCls = _Https


def enforce_deadlines(manager: urllib3.PoolManager) -> urllib3.PoolManager:
    """The same manager; connections it makes from now on enforce deadlines."""
    manager.pool_classes_by_scheme = {"http": _HttpPool, "https": _HttpsPool}
    return manager


def tls_context(*, cafile: str | None = None, cadata: str | None = None) -> ssl.SSLContext:
    """A TLS context whose sockets enforce deadlines."""
    context = client_context(cafile, cadata)
    context.sslsocket_class = _TlsSocket
    return context


def send_request(
    manager: urllib3.PoolManager,
    deadline: Deadline,
    method: str,
    url: str,
    *,
    headers: Mapping[str, str],
    body: bytes | None,
    timeout: urllib3.Timeout,
) -> urllib3.BaseHTTPResponse:
    """An answer whose head and body arrive before the deadline, or end in a timeout.

    Its body is still to be read; redirects are not followed, and nothing is retried.
    """
    token = _current.set(deadline)
    try:
        return manager.request(
            method,
            url,
            headers=headers,
            body=body,
            timeout=timeout,
            preload_content=False,
            redirect=False,
            retries=False,
        )
    finally:
        _current.reset(token)


LARGEST_ANSWER: Final = 256 << 20
"""Bytes, unpacked. A page of 500 pods is 5 MiB; etcd stores no object above 1.5 MiB by default."""
_CHUNK: Final = 1 << 16
_BLOCK: Final = 1 << 20
_LONGEST_LINE: Final = 8 << 20
_LONGEST_QUOTE: Final = 500


def short_error(error: Exception) -> str:
    """The text of an error; only its type where the text is long, as it may quote an answer."""
    text = str(error)
    return text if len(text) <= _LONGEST_QUOTE else type(error).__name__


_NOT_DECODED: Final = re.compile(rb'"(?:managedFields|env)":\s*+\[')
"""Arrays of which memqos decodes nothing, and of which most objects of a pod consist."""
_FLAT_ARRAY: Final = re.compile(rb'(?:[^\[\]"]++|"(?:[^"\\]++|\\.)*+")*+', re.DOTALL)
"""The inside of an array that contains no other: up to its end, or to the start of another."""
_WIDE_STRING: Final = re.compile(
    rb'(?:[^"]++|"(?:[^"\\\xc4-\xff]++|\\[^u]|\\u00)*+")*+("(?:[^"\\]++|\\.)*+"?)', re.DOTALL
)
"""A string with a character beyond U+00FF, after all that has none."""
_WIDEST: Final = re.compile(rb"[\xf0-\xff]|\\u[dD]")
"""A character beyond U+FFFF; in escapes those are written as two surrogates."""


def decoded_size(text: bytes) -> int:
    """The most bytes that JSON takes once it is decoded, more than a hundred times its own length.

    An empty object of three bytes becomes a struct of up to 200, each entry of a map two strings.
    """
    skipped = b"".join(_arrays_not_decoded(text))
    objects = text.count(b"{") - skipped.count(b"{")
    size = len(text) + 250 * objects + 130 * (text.count(b",") - skipped.count(b","))
    return size if text.isascii() and b"\\u" not in text else size + _excess_of_wide_strings(text)


def _excess_of_wide_strings(text: bytes) -> int:
    """A single character may have all others of its string take 2 or 4 bytes (PEP 393).

    While it is decoded there is a second copy, of what came before that character. Escapes take a
    buffer more, for one string at a time: up to half of this again, which the agent's limit covers.
    """
    at = excess = 0
    while found := _WIDE_STRING.match(text, at):
        excess += len(found[1]) * (4 if _WIDEST.search(found[1]) else 2)
        at = found.end()
    return excess


def _arrays_not_decoded(text: bytes) -> Iterator[memoryview]:
    """What msgspec skips; each byte is looked at once, whatever the text."""
    at, view = 0, memoryview(text)
    while key := _NOT_DECODED.search(text, at):
        inside = _FLAT_ARRAY.match(text, key.end())
        at = key.end() if inside is None else inside.end()
        if text[at : at + 1] == b"]":
            yield view[key.end() : at]


class ResponseStream:
    """An answer that is read as it arrives; another thread may end it."""

    def __init__(
        self, answer: urllib3.BaseHTTPResponse, deadline: Deadline, line_seconds: float
    ) -> None:
        self._answer = answer
        self._deadline = deadline
        self._line_seconds = line_seconds
        self._remaining = LARGEST_ANSWER

    def lines(self) -> Iterator[bytes]:
        """Every complete line; one that breaks off is dropped."""
        rest: list[bytes] = []
        size = 0
        while chunk := self._answer.read1(_CHUNK):
            *lines, tail = chunk.split(b"\n")
            if lines:
                lines[0] = b"".join(rest) + lines[0]
                rest, size = [], 0
                yield from filter(None, lines)
            self._time_line(is_new=not size, has_begun=bool(size or tail))
            rest.append(tail)
            size += len(tail)
            if size > _LONGEST_LINE:
                raise _too_large(_LONGEST_LINE, "an event of a watch")

    def _time_line(self, *, is_new: bool, has_begun: bool) -> None:
        if not has_begun:
            self._deadline.end_part()
        elif is_new:
            self._deadline.begin_part(self._line_seconds)

    def read(self, count: int) -> bytes:
        """Up to `count` bytes, fewer only at the end."""
        data = self._answer.read(count)
        self._remaining -= len(data)
        if self._remaining < 0:
            raise _too_large(LARGEST_ANSWER)
        return data

    def stop(self) -> None:
        """End it, even while another thread reads."""
        try:
            self._answer.shutdown()
        except (OSError, RuntimeError, ValueError):
            self._answer.close()


def read_body(answer: urllib3.BaseHTTPResponse, largest: int) -> bytes:
    """All of an answer; an error once it unpacks to more than `largest` bytes."""
    chunks, size = [], 0
    while chunk := answer.read(_BLOCK):
        chunks.append(chunk)
        size += len(chunk)
        if size > largest:
            raise _too_large(largest)
    return b"".join(chunks)


def _too_large(largest: int, what: str = "the API server's answer") -> InputError:
    return InputError(
        f"{what} is larger than {format_bytes(largest)}",
        hint="is this the address of an API server?",
    )
