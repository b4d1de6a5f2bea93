"""Clients' connections: sockets that never block, and how many of them are kept.

Nothing is read before it is asked for and nothing is written ahead, so a client costs what is held
for it here and no more. asyncio's own TLS transport holds 256 KiB for a client that has not even
said hello, and does not tell when what was written has gone.
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
"""How long a connection is left alone. Where the one that would have to go is that new, no more are
accepted: the kernel keeps who comes until then, so a burst of clients is served in turn. Whoever
finishes a TLS handshake has been accepted already and does not wait again: where no other can go,
one within its grace does."""


class ClientLimits(NamedTuple):
    """How much is taken from clients."""

    connections: int = 16
    """So many at a time, after their TLS handshake."""
    handshakes: int = 16
    """So many besides, before it."""
    body: int = 0
    """Bytes of a request's body; with none nothing but GET and HEAD is answered."""
    bodies: int = 0
    """Bytes of large bodies over all connections; never less than one body has."""


class Connection:
    """A client: bytes from it and to it, with TLS or without."""

    def __init__(self, accepted: socket.socket) -> None:
        accepted.setblocking(False)
        self._socket = accepted
        self._loop = asyncio.get_running_loop()
        self._received = bytearray()
        self.peer = _peer(accepted)
        self.is_idle = True
        """Whether nothing has come from it since it connected, or was last answered."""
        self.since = self._loop.time()
        """When it connected, finished its handshake, began to ask, or was last answered."""
        self.task: asyncio.Task[None] | None = None

    async def start_tls(self, context: Callable[[], ssl.SSLContext]) -> None:
        """Do the server's part of a handshake, once the client has begun."""
        await self._retry(self._socket.recv, 1, socket.MSG_PEEK)
        self.is_idle = False
        wrapped = context().wrap_socket(
            self._socket, server_side=True, do_handshake_on_connect=False
        )
        self._socket = wrapped
        await self._retry(wrapped.do_handshake)
        self.is_idle = True

    async def receive_until(self, end: bytes, limit: int) -> bytes | None:
        """All up to an end that comes within so many bytes; None if it does not."""
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
        """So many bytes."""
        taken = self._received[:size]
        del self._received[:size]
        while len(taken) < size:
            taken += await self._receive(min(CHUNK, size - len(taken)))
            await asyncio.sleep(0)  # others have a turn, however fast this one sends
        return taken

    async def send(self, message: bytes) -> None:
        """Send a message; afterwards all of it is the kernel's."""
        view = memoryview(message)
        while view:
            # A TLS write that would block has to be tried again with the same bytes.
            view = view[await self._retry(self._socket.send, view[:CHUNK], writes=True) :]
        self.is_idle = not self._received

    async def finish(self, reads: int, patience: float) -> None:
        """Say that no more comes, and take some of what still does.

        A socket that is closed over unread bytes resets the connection: the client would lose an
        answer that it has not read yet.
        """
        if isinstance(self._socket, ssl.SSLSocket):
            with suppress(OSError, ValueError):
                self._socket.unwrap()  # sends its goodbye at once, and would wait for the other's
        # From here on the socket of a TLS connection gives and takes plain bytes.
        self._socket.shutdown(socket.SHUT_WR)
        for _ in range(reads):
            async with asyncio.timeout(patience):
                if not await self._retry(self._socket.recv, CHUNK):
                    return

    def close(self) -> None:
        """Close it now, whatever is on its way; the task that serves it ends."""
        descriptor = self._socket.fileno()
        if descriptor >= 0:
            self._loop.remove_reader(descriptor)
            self._loop.remove_writer(descriptor)
            self._socket.close()
        if self.task is not None:
            # The task must not be found from here: it keeps the cancellation, which keeps the
            # frames that hold a body, until the garbage collector comes by.
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
            # Once closed, the descriptor may be somebody else's.
            if self._socket.fileno() == descriptor:
                remove(descriptor)


class Connections:
    """Those that are open, within bounds.

    Of too many, one is closed: one that has been idle beyond its grace rather than one that asks;
    one of the address that has more than half of all, if there is one; of the address that has the
    most of those; the one that has waited the longest. So a request that is on its way is the last
    to go, and where all ask, whoever floods the server has their own connections closed.
    """

    def __init__(self, bounds: ClientLimits) -> None:
        self._bounds = bounds
        self._loop = asyncio.get_running_loop()
        self._handshakes: dict[Connection, None] = {}
        self._established: dict[Connection, None] = {}
        self.closed: Counter[str] = Counter()
        """How many were closed, by what there was too much of."""

    def __len__(self) -> int:
        return len(self._handshakes) + len(self._established)

    def __iter__(self) -> Iterator[Connection]:
        yield from (*self._handshakes, *self._established)

    def make_room(self, *, in_handshake: bool) -> bool:
        """Make sure that another may be added; False where none can go yet."""
        if in_handshake:
            crowd, most, what = self._handshakes, self._bounds.handshakes, "handshakes"
        else:
            crowd, most, what = self._established, self._bounds.connections, "connections"
        return len(crowd) < most or self._close_one(crowd, what)

    def free_descriptor(self) -> bool:
        """Close one for its file descriptor; False where none can go yet."""
        return self._close_one(self._handshakes or self._established, "descriptors")

    def add(self, connection: Connection, *, in_handshake: bool) -> None:
        """Take in a new one."""
        (self._handshakes if in_handshake else self._established)[connection] = None

    def establish(self, connection: Connection) -> None:
        """Its handshake is over: it is taken in at once, whoever has to go for it."""
        self._handshakes.pop(connection, None)
        if len(self._established) >= self._bounds.connections:
            self.drop(self._next_to_go(self._established), "connections")
        connection.since = self._loop.time()
        self._established[connection] = None

    def renew(self, connection: Connection) -> None:
        """It has sent a request: whoever asks has waited the least."""
        if connection in self._established:
            del self._established[connection]
            connection.since = self._loop.time()
            self._established[connection] = None

    def drop(self, connection: Connection, what: str) -> None:
        """Close one of which there is too much of something."""
        self.closed[what] += 1
        self.remove(connection)

    def remove(self, connection: Connection) -> None:
        """Close one; the task that serves it ends."""
        self._handshakes.pop(connection, None)
        self._established.pop(connection, None)
        connection.close()

    def _close_one(self, crowd: Iterable[Connection], what: str) -> bool:
        connection = self._next_to_go(crowd)
        is_due = self._is_due(connection)
        if is_due:
            self.drop(connection, what)
        return is_due

    def _next_to_go(self, crowd: Iterable[Connection]) -> Connection:
        every = list(crowd)
        idle = [each for each in every if each.is_idle]
        due = [each for each in idle if self._is_due(each)]
        suspects = _of_one_peer(every)
        if 2 * len(suspects) <= len(every):
            suspects = every
        # Within its grace a client may just not have had the time to ask. It goes before a request
        # that is as new, but not before one of a flood that nobody finishes.
        return _of_one_peer(
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


def _of_one_peer(crowd: list[Connection]) -> list[Connection]:
    """Those of the address that has the most."""
    counts = Counter([each.peer for each in crowd])
    peer = max(counts, key=counts.__getitem__)
    return [each for each in crowd if each.peer == peer]


def _peer(accepted: socket.socket) -> str:
    """The address of a client; all clients of a unix socket are one."""
    try:
        name = accepted.getpeername()
    except OSError:  # it has gone already
        return ""
    return name[0] if isinstance(name, tuple) else ""


def _set(ready: "asyncio.Future[None]") -> None:
    if not ready.done():
        ready.set_result(None)
