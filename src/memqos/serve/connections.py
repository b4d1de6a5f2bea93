"""Clients' connections: non-blocking sockets, and the bounds on their number.

Nothing is read ahead and nothing is buffered for writing, so a client takes only the memory that is
allocated here. asyncio's own TLS transport allocates 256 KiB for a client before its handshake
(asyncio/sslproto.py, max_size), and does not report when written bytes were sent.
"""

import asyncio
import socket
import ssl
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from typing import Any, Final, NamedTuple

CHUNK: Final = 64 << 10
GRACE_SECONDS: Final = 0.25
"""How long a new connection is not closed for another. While the next one to close is that new, no
more are accepted: they wait in the kernel's backlog, so a burst of clients is served in turn. A
client that finishes its TLS handshake has been accepted and does not wait again: where no other
connection can be closed for it, one within its grace is."""


class ClientLimits(NamedTuple):
    """How much clients may use."""

    connections: int = 16
    """Connections at a time, after their TLS handshake."""
    handshakes: int = 16
    """Connections at a time before it."""
    body: int = 0
    """Bytes of a request's body; with 0 only GET and HEAD are answered."""
    bodies: int = 0
    """Bytes of large bodies over all connections; never less than one body."""


class Connection:
    """A client's connection, with TLS or without."""

    def __init__(self, accepted: socket.socket) -> None:
        accepted.setblocking(False)
        self._socket = accepted
        self._loop = asyncio.get_running_loop()
        self._received = bytearray()
        self.peer = _peer(accepted)
        self.is_idle = True
        """Whether nothing has arrived since it connected, or was last answered."""
        self.since = self._loop.time()
        """When it connected, finished its handshake, began a request, or was last answered."""
        self.task: asyncio.Task[None] | None = None

    async def start_tls(self, context: Callable[[], ssl.SSLContext]) -> None:
        """Do a TLS handshake as the server, once the client has begun."""
        await self._retry(self._socket.recv, 1, socket.MSG_PEEK)
        self.is_idle = False
        wrapped = context().wrap_socket(
            self._socket, server_side=True, do_handshake_on_connect=False
        )
        self._socket = wrapped
        await self._retry(wrapped.do_handshake)
        self.is_idle = True

    async def receive_until(self, end: bytes, limit: int) -> bytes | None:
        """All bytes before `end`; None where it is not within `limit` bytes."""
        start = 0
        while (found := self._received.find(end, start)) < 0:
            start = max(0, len(self._received) - len(end) + 1)
            if len(self._received) >= limit:
                return None
            self._received += await self._receive(limit - len(self._received))
        text = bytes(self._received[:found])
        del self._received[: found + len(end)]
        return text

    async def receive_exactly(self, size: int) -> bytearray:
        """Exactly `size` bytes."""
        taken = self._received[:size]
        del self._received[:size]
        while len(taken) < size:
            taken += await self._receive(min(CHUNK, size - len(taken)))
            await asyncio.sleep(0)  # other tasks run, however fast this client sends
        return taken

    async def send(self, message: bytes) -> None:
        """Send a message; afterwards the kernel has all of it."""
        view = memoryview(message)
        while view:
            # A TLS write that would block has to be repeated with the same bytes (SSL_write(3)).
            view = view[await self._retry(self._socket.send, view[:CHUNK], writes=True) :]
        self.is_idle = not self._received

    async def finish(self, reads: int, patience: float) -> None:
        """Shut down the sending side, and read some of what still arrives.

        Closing a socket with unread bytes resets the connection (RFC 2525, 2.17): the client would
        lose an answer that it has not read yet.
        """
        if isinstance(self._socket, ssl.SSLSocket):
            with suppress(OSError, ValueError):
                self._socket.unwrap()  # sends close_notify at once, and would wait for the client's
        # From here on the socket of a TLS connection carries plain bytes.
        self._socket.shutdown(socket.SHUT_WR)
        for _ in range(reads):
            async with asyncio.timeout(patience):
                if not await self._retry(self._socket.recv, CHUNK):
                    return

    def close(self) -> None:
        """Close it now, even in the middle of a message; the task that serves it ends."""
        descriptor = self._socket.fileno()
        if descriptor >= 0:
            self._loop.remove_reader(descriptor)
            self._loop.remove_writer(descriptor)
            self._socket.close()
        if self.task is not None:
            # No reference to the task may stay here: it keeps the CancelledError, whose traceback
            # keeps the frames with a body in memory until the cyclic garbage collector runs.
            task, self.task = self.task, None
            task.cancel()

    async def _receive(self, most: int) -> bytes:
        data: bytes = await self._retry(self._socket.recv, most)
        if not data:
            raise EOFError
        if self.is_idle:
            self.is_idle = False
            self.since = self._loop.time()
        return data

    async def _retry(self, call: Callable[..., Any], *arguments: Any, writes: bool = False) -> Any:
        while True:
            try:
                return call(*arguments)
            except ssl.SSLWantReadError:
                await self._wait(writes=False)
            except ssl.SSLWantWriteError:
                await self._wait(writes=True)
            except BlockingIOError:
                await self._wait(writes=writes)

    async def _wait(self, *, writes: bool) -> None:
        loop, descriptor = self._loop, self._socket.fileno()
        add, remove = (
            (loop.add_writer, loop.remove_writer)
            if writes
            else (loop.add_reader, loop.remove_reader)
        )
        ready = loop.create_future()
        add(descriptor, _set, ready)
        try:
            await ready
        finally:
            # Once closed, the descriptor may be another connection's.
            if self._socket.fileno() == descriptor:
                remove(descriptor)


class Connections:
    """The open connections, within bounds.

    Of too many, one is closed: one that has been idle beyond its grace rather than one with a
    request; one of the address that has more than half of all, if there is one; of the address that
    has the most of those; the oldest. So a request that is being received is closed last, and where
    all send requests, a client that floods the server has its own connections closed.
    """

    def __init__(self, bounds: ClientLimits) -> None:
        self._bounds = bounds
        self._loop = asyncio.get_running_loop()
        self._handshakes: dict[Connection, None] = {}
        self._established: dict[Connection, None] = {}
        self.closed: Counter[str] = Counter()
        """How many were closed, by the bound that was reached."""

    def __len__(self) -> int:
        return len(self._handshakes) + len(self._established)

    def __iter__(self) -> Iterator[Connection]:
        yield from (*self._handshakes, *self._established)

    def make_room(self, *, in_handshake: bool) -> bool:
        """Close one for another connection; False where none can be closed yet."""
        if in_handshake:
            group, limit, what = self._handshakes, self._bounds.handshakes, "handshakes"
        else:
            group, limit, what = self._established, self._bounds.connections, "connections"
        return len(group) < limit or self._close_one(group, what)

    def free_descriptor(self) -> bool:
        """Close one for its file descriptor; False where none can be closed yet."""
        return self._close_one(self._handshakes or self._established, "descriptors")

    def add(self, connection: Connection, *, in_handshake: bool) -> None:
        """Add a new connection."""
        (self._handshakes if in_handshake else self._established)[connection] = None

    def establish(self, connection: Connection) -> None:
        """Its handshake is done: it counts as established, at once, even if another is closed."""
        self._handshakes.pop(connection, None)
        if len(self._established) >= self._bounds.connections:
            self.drop(self._next_to_close(self._established), "connections")
        connection.since = self._loop.time()
        self._established[connection] = None

    def renew(self, connection: Connection) -> None:
        """It has sent a request: it is the last to be closed."""
        if connection in self._established:
            del self._established[connection]
            connection.since = self._loop.time()
            self._established[connection] = None

    def drop(self, connection: Connection, what: str) -> None:
        """Close one because a bound is reached."""
        self.closed[what] += 1
        self.remove(connection)

    def remove(self, connection: Connection) -> None:
        """Close one; the task that serves it ends."""
        self._handshakes.pop(connection, None)
        self._established.pop(connection, None)
        connection.close()

    def _close_one(self, group: Iterable[Connection], what: str) -> bool:
        connection = self._next_to_close(group)
        is_due = self._is_due(connection)
        if is_due:
            self.drop(connection, what)
        return is_due

    def _next_to_close(self, group: Iterable[Connection]) -> Connection:
        every = list(group)
        idle = [each for each in every if each.is_idle]
        due = [each for each in idle if self._is_due(each)]
        suspects = _of_largest_peer(every)
        if 2 * len(suspects) <= len(every):
            suspects = every
        # Within its grace a client may not have had the time to send a request. It is closed before
        # a request that is as new, but not before one of a flood of requests that do not end.
        return _of_largest_peer(
            _common(due, suspects)
            or due
            or _common(idle, suspects)
            or [each for each in suspects if self._is_due(each)]
            or idle
            or suspects
        )[0]

    def _is_due(self, connection: Connection) -> bool:
        return self._loop.time() >= connection.since + GRACE_SECONDS


def _common(some: list[Connection], others: list[Connection]) -> list[Connection]:
    chosen = set(others)
    return [each for each in some if each in chosen]


def _of_largest_peer(group: list[Connection]) -> list[Connection]:
    """The connections of the address that has the most."""
    counts = Counter([each.peer for each in group])
    peer = max(counts, key=counts.__getitem__)
    return [each for each in group if each.peer == peer]


def _peer(accepted: socket.socket) -> str:
    """The address of a client; all clients of a unix socket share one."""
    try:
        name = accepted.getpeername()
    except OSError:  # it has disconnected already
        return ""
    return name[0] if isinstance(name, tuple) else ""


def _set(ready: "asyncio.Future[None]") -> None:
    if not ready.done():
        ready.set_result(None)
