"""Memory for the bodies of requests: all connections share it, and a large body waits for its part.

Bodies that arrive never have to make room for another, so many large reviews at once are all read,
one after another. Only one that takes its time while others wait has to go.
"""

import asyncio
from collections import Counter
from typing import Final, NamedTuple

from memqos.serve.connections import Connection, Connections

SMALL: Final = 32 << 10
"""Bytes of a body that waits for nothing: most reviews are a few KiB."""


class _Reservation(NamedTuple):
    size: int
    since: float


class _Wait(NamedTuple):
    size: int
    granted: "asyncio.Future[None]"


class Bodies:
    """Bytes that are free, reserved and waited for."""

    def __init__(self, size: int, patience: float, connections: Connections) -> None:
        self.free = size
        self._patience = patience
        """Seconds that a body may take while others wait."""
        self._connections = connections
        self._reserved: dict[Connection, _Reservation] = {}
        self._waiting: dict[Connection, _Wait] = {}
        self._loop = asyncio.get_running_loop()

    async def reserve(self, connection: Connection, size: int) -> None:
        """Wait until there is memory for a body; `release` has to follow."""
        if size <= SMALL:
            return
        granted = self._loop.create_future()
        self._waiting[connection] = _Wait(size, granted)
        self._share()
        try:
            while not granted.done():
                await asyncio.wait([granted], timeout=self._patience)
                if not granted.done():
                    self._close_slow()
        except BaseException:
            self.release(connection)
            raise

    def release(self, connection: Connection) -> None:
        """The body is gone, or does not come."""
        self._waiting.pop(connection, None)
        reservation = self._reserved.pop(connection, None)
        if reservation is not None:
            self.free += reservation.size
        self._share()

    def _share(self) -> None:
        """Grant what can be: first to the address that has the least, and in turn."""
        while self._waiting:
            reserved = self._reserved_by_peer()
            connection = min(self._waiting, key=lambda each: reserved[each.peer])
            size, granted = self._waiting[connection]
            if size > self.free:
                return
            del self._waiting[connection]
            self._reserved[connection] = _Reservation(size, self._loop.time())
            self.free -= size
            granted.set_result(None)

    def _close_slow(self) -> None:
        """Close a body that has had its time: the first of the address that has the most."""
        latest = self._loop.time() - self._patience
        slow = [each for each, (_, since) in self._reserved.items() if since <= latest]
        if slow:
            reserved = self._reserved_by_peer()
            victim = max(slow, key=lambda each: reserved[each.peer])
            self._connections.drop(victim, "bytes")
            self.release(victim)

    def _reserved_by_peer(self) -> Counter[str]:
        reserved: Counter[str] = Counter()
        for connection, (size, _) in self._reserved.items():
            reserved[connection.peer] += size
        return reserved
