"""Memory for the bodies of requests: all connections share it, and a large body waits for its part.

A body that arrives is never dropped for another one, so many large reviews at once are all read,
one after another. Only a slow body is dropped while others wait. Client addresses take turns by the
bytes they were granted, so that reconnecting gains nothing. While the first in turn waits, others
go ahead in memory that it does not need.
"""

import asyncio
from collections import Counter
from typing import Final, NamedTuple

from memqos.serve.connections import Connection, Connections

SMALL_BODY: Final = 32 << 10
"""Bytes of a body that needs no reservation: most reviews are a few KiB."""

PEERS: Final = 1024
"""Client addresses whose turns are stored."""


class _Reservation(NamedTuple):
    size: int
    since: float
    is_in_turn: bool


class _Wait(NamedTuple):
    size: int
    granted: "asyncio.Future[None]"


class BodyMemory:
    """Tracks the bytes that are free, reserved and waited for."""

    def __init__(self, size: int, patience: float, connections: Connections) -> None:
        self.free = size
        self._size = size
        self._patience = patience
        """Seconds in which a body must arrive while others wait."""
        self._connections = connections
        self._reserved: dict[Connection, _Reservation] = {}
        self._waiting: dict[Connection, _Wait] = {}
        self._turn = 0
        """The turn of the last body that was granted memory in turn; no other is earlier."""
        self._turns: dict[str, int] = {}
        """Address → its next turn, which each grant delays by its bytes."""
        self._loop = asyncio.get_running_loop()

    async def reserve(self, connection: Connection, size: int) -> None:
        """Wait until there is memory for a body; `release` must follow."""
        if size <= SMALL_BODY:
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
        """Free the memory of a body, or stop waiting for it."""
        self._waiting.pop(connection, None)
        reservation = self._reserved.pop(connection, None)
        if reservation is not None:
            self.free += reservation.size
        self._share()

    def _share(self) -> None:
        """Grant memory to waiting bodies, as far as there is some."""
        while self._waiting:
            first, *others = sorted(self._waiting, key=self._turn_of)
            if self._waiting[first].size <= self.free:
                self._turn = self._turn_of(first)
                self._grant(first, is_in_turn=True)
                continue
            ahead = sum(each.size for each in self._reserved.values() if not each.is_in_turn)
            spare = min(self.free, self._size - self._waiting[first].size - ahead)
            fitting = [each for each in others if self._waiting[each].size <= spare]
            if not fitting:
                return
            self._grant(fitting[0], is_in_turn=False)

    def _grant(self, connection: Connection, *, is_in_turn: bool) -> None:
        size, granted = self._waiting.pop(connection)
        self._reserved[connection] = _Reservation(size, self._loop.time(), is_in_turn)
        self.free -= size
        self._turns[connection.peer] = self._turn_of(connection) + size
        if len(self._turns) > PEERS:
            self._turn = max(self._turn, min(self._turns.values()))
            self._turns = {peer: turn for peer, turn in self._turns.items() if turn > self._turn}
        granted.set_result(None)

    def _turn_of(self, connection: Connection) -> int:
        return max(self._turn, self._turns.get(connection.peer, 0))

    def _close_slow(self) -> None:
        """Close the connection of a slow body: the first of the address with the most memory."""
        latest = self._loop.time() - self._patience
        slow = [each for each, body in self._reserved.items() if body.since <= latest]
        if slow:
            reserved = self._bytes_by_peer()
            victim = max(slow, key=lambda each: reserved[each.peer])
            self._connections.drop(victim, "bytes")
            self.release(victim)

    def _bytes_by_peer(self) -> Counter[str]:
        reserved: Counter[str] = Counter()
        for connection, reservation in self._reserved.items():
            reserved[connection.peer] += reservation.size
        return reserved
