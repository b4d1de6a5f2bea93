"""The server answers those who ask properly, and outlives those who do not."""

import asyncio
import gc
import gzip
import logging
import os
import resource
import socket
import stat
import tracemalloc
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import ExitStack, asynccontextmanager, closing, contextmanager, suppress
from pathlib import Path

import pytest
from tests.eventually import PATIENCE, eventually_on_loop

from memqos.errors import InputError, Unreachable
from memqos.serve import connections, http
from memqos.serve.body_memory import SMALL_BODY, BodyMemory
from memqos.serve.connections import ClientLimits, Connection, Connections
from memqos.serve.endpoints import (
    JSON,
    PLAIN,
    HttpReply,
    Routes,
    monitoring_routes,
    parse_listen_address,
    state_route,
)
from memqos.serve.exposition import Family, MetricSample
from memqos.serve.http import Listener, listen, listen_on_socket

LARGE = 20_000
BOUNDS = ClientLimits()


def failing() -> HttpReply:
    raise ValueError("secret")


ROUTES: Routes = {
    **monitoring_routes(
        lambda: [Family("memqos_converged", "gauge", "Whether.", [MetricSample("", 1)])],
        lambda: None,
        lambda: "pods are not known yet",
    ),
    "/large": lambda: HttpReply(200, PLAIN, b"x" * LARGE),
    "/huge": lambda: HttpReply(200, PLAIN, os.urandom(1 << 24)),
    "/failing": failing,
    "/odd": lambda: HttpReply(999, PLAIN, b""),
}


def serving(
    test: Callable[[Listener], Awaitable[None]],
    routes: Routes = ROUTES,
    bounds: ClientLimits = BOUNDS,
) -> None:
    async def run() -> None:
        posts = {"/size": lambda body: HttpReply(200, PLAIN, b"%d" % len(body))}
        listener = await listen(routes, "127.0.0.1", 0, posts=posts, bounds=bounds)
        try:
            async with asyncio.timeout(PATIENCE):
                await test(listener)
        finally:
            await listener.close()

    asyncio.run(run())


async def connected(
    listener: Listener, address: str = "127.0.0.1"
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    return await asyncio.open_connection(
        *parse_listen_address(listener.address), local_addr=(address, 0)
    )


@contextmanager
def connection_of(peer: str) -> Iterator[Connection]:
    """A connection as if from that address."""
    near, far = socket.socketpair()
    connection = Connection(near)
    connection.peer = peer
    with far, closing(connection):
        yield connection


@contextmanager
def no_more_descriptors() -> Iterator[None]:
    """From here on this process cannot open anything."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    with ExitStack() as taken:
        taken.callback(resource.setrlimit, resource.RLIMIT_NOFILE, before)
        highest = max(map(int, os.listdir("/proc/self/fd")))
        resource.setrlimit(resource.RLIMIT_NOFILE, (highest + 1, before[1]))
        with suppress(OSError):
            while True:
                taken.callback(os.close, os.dup(0))
        yield


async def sent(listener: Listener, data: bytes) -> bytes:
    """All that comes back until the server ends the connection."""
    reader, writer = await connected(listener)
    writer.write(data)
    try:
        return await reader.read()
    finally:
        writer.close()


async def response_to(listener: Listener, path: str, *headers: str, method: str = "GET") -> bytes:
    head = [f"{method} {path} HTTP/1.1", "Host: x", *headers, "Connection: close"]
    return await sent(listener, "\r\n".join([*head, "\r\n"]).encode())


def status(answer: bytes) -> int:
    return int(answer.split(b" ", 2)[1])


def head_of(answer: bytes) -> bytes:
    return answer.partition(b"\r\n\r\n")[0]


def body_of(answer: bytes) -> bytes:
    return answer.partition(b"\r\n\r\n")[2]


def test_metrics_health_and_readiness_are_answered() -> None:
    async def test(listener: Listener) -> None:
        metrics = await response_to(listener, "/metrics?name=x")
        assert metrics.startswith(b"HTTP/1.1 200 OK\r\n")
        assert b"Content-Type: text/plain; version=0.0.4; charset=utf-8\r\n" in metrics
        assert body_of(metrics).endswith(b"memqos_converged 1\n")
        assert status(await response_to(listener, "/healthz")) == 200
        unready = await response_to(listener, "/readyz")
        assert status(unready) == 503
        assert body_of(unready) == b"pods are not known yet\n"

    serving(test)


def test_what_is_not_here_says_what_is() -> None:
    async def test(listener: Listener) -> None:
        answer = await response_to(listener, "/")
        assert status(answer) == 404
        assert b"/metrics\n" in body_of(answer)

    serving(test)


def test_a_head_is_an_answer_without_its_body() -> None:
    async def test(listener: Listener) -> None:
        answer = await response_to(listener, "/large", method="HEAD")
        assert b"Content-Length: 20000\r\n" in answer
        assert body_of(answer) == b""

    serving(test)


@pytest.mark.parametrize("accepted", ["gzip", "deflate, gzip;q=0.5", "*"])
def test_who_takes_gzip_gets_gzip(accepted: str) -> None:
    async def test(listener: Listener) -> None:
        answer = await response_to(listener, "/large", f"Accept-Encoding: {accepted}")
        assert b"Content-Encoding: gzip" in head_of(answer)
        assert len(body_of(answer)) < LARGE // 10
        assert gzip.decompress(body_of(answer)) == b"x" * LARGE

    serving(test)


@pytest.mark.parametrize("accepted", ["identity", "gzip;q=0", "gzip; q=0.0", "br", "gzipped"])
def test_who_does_not_take_gzip_gets_none(accepted: str) -> None:
    async def test(listener: Listener) -> None:
        answer = await response_to(listener, "/large", f"Accept-Encoding: {accepted}")
        assert b"Content-Encoding" not in head_of(answer)
        assert body_of(answer) == b"x" * LARGE

    serving(test)


def test_a_connection_is_kept_for_more_than_one_request() -> None:
    async def test(listener: Listener) -> None:
        twice = b"GET /healthz HTTP/1.1\r\n\r\n" * 2
        answer = await sent(listener, twice + b"GET /healthz HTTP/1.0\r\n\r\n")
        assert answer.count(b"200 OK") == 3
        assert answer.count(b"Connection: close") == 1

    serving(test)


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "OPTIONS", "TRACE", "get"])
def test_only_get_and_head_are_answered(method: str) -> None:
    async def test(listener: Listener) -> None:
        answer = await response_to(listener, "/metrics", method=method)
        assert status(answer) == 405
        assert b"Allow: GET, HEAD\r\n" in answer

    serving(test)


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"hello\r\n\r\n", 400),
        (b"\r\n\r\n", 400),
        (b"GET /metrics\r\n\r\n", 400),
        (b"GET  /metrics HTTP/1.1\r\n\r\n", 400),
        (b"GET /metrics HTTP/1.1\r\nno colon\r\n\r\n", 400),
        (b"GET /metrics HTTP/1.1\r\nHost : x\r\n\r\n", 400),
        (b"GET /metrics HTTP/1.1\r\n folded: x\r\n\r\n", 400),
        (b"GET /metrics HTTP/2.0\r\n\r\n", 505),
        (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 505),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n", 400),
        (b"GET /metrics HTTP/1.1\r\nContent-Length: 5\r\n\r\nhello", 413),
        (b"GET /metrics HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 413),
        (b"POST / HTTP/1.1\r\nContent-Length: 200000\r\n\r\n" + b"x" * 200_000, 405),
        (b"GET /\xff\xfe HTTP/1.1\r\nConnection: close\r\n\r\n", 404),
        (b"GET http://x/healthz HTTP/1.1\r\nConnection: close\r\n\r\n", 200),
        (b"GET * HTTP/1.1\r\nConnection: close\r\n\r\n", 404),
        (b"GET /" + b"a" * 20_000 + b" HTTP/1.1\r\n\r\n", 431),
        (b"GET / HTTP/1.1\r\n" + b"X: y\r\n" * 100_000, 431),
    ],
)
def test_what_is_no_request_is_refused_and_the_connection_ends(data: bytes, expected: int) -> None:
    async def test(listener: Listener) -> None:
        assert status(await sent(listener, data)) == expected
        assert status(await response_to(listener, "/healthz")) == 200

    serving(test)


@pytest.mark.parametrize("path", ["/failing", "/odd"])
def test_a_failure_inside_is_logged_and_not_told(
    path: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def test(listener: Listener) -> None:
        answer = await response_to(listener, path)
        assert status(answer) == 500
        assert b"secret" not in answer
        assert b"Traceback" not in answer

    with caplog.at_level(logging.ERROR):
        serving(test)
    (record,) = caplog.records
    assert path in record.getMessage()
    assert record.exc_info is None


def test_a_client_that_never_asks_is_let_go(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http, "REQUEST_SECONDS", 0.1)

    async def test(listener: Listener) -> None:
        reader, writer = await connected(listener)
        writer.write(b"GET /healthz HT")
        with suppress(ConnectionResetError):
            assert await reader.read() == b""
        writer.close()

    serving(test)


def test_a_connection_is_kept_between_requests_for_longer_than_one_may_take(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert http.IDLE_SECONDS > 60  # Prometheus scrapes once a minute
    monkeypatch.setattr(http, "REQUEST_SECONDS", 10 * PATIENCE)
    monkeypatch.setattr(http, "IDLE_SECONDS", 0.1)

    async def test(listener: Listener) -> None:
        reader, writer = await connected(listener)
        writer.write(b"GET /healthz HTTP/1.1\r\n\r\n")
        assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 200 OK\r\n")
        await reader.read()  # ends once the idle time is over, and not with that of a request
        writer.close()

    serving(test)


def test_a_client_that_never_reads_is_let_go(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http, "ANSWER_SECONDS", 0.2)

    async def test(listener: Listener) -> None:
        slow = socket.create_connection(parse_listen_address(listener.address))
        slow.sendall(b"GET /huge HTTP/1.1\r\n\r\n")
        await eventually_on_loop("it is connected", lambda: listener._connections)
        await eventually_on_loop("it is let go", lambda: not listener._connections)
        slow.close()
        assert status(await response_to(listener, "/healthz")) == 200

    serving(test)


def test_many_idle_clients_keep_nobody_out() -> None:
    async def test(listener: Listener) -> None:
        idle = [await connected(listener) for _ in range(3 * BOUNDS.connections)]
        for _ in range(10):
            assert status(await response_to(listener, "/healthz")) == 200
        assert len(listener._connections) <= BOUNDS.connections
        for _, writer in idle:
            writer.close()

    serving(test)


@pytest.mark.parametrize("in_handshake", [False, True])
def test_as_many_clients_as_allowed_are_kept_and_one_more_costs_one(in_handshake: bool) -> None:
    async def test() -> None:
        kept = Connections(ClientLimits(connections=3, handshakes=3))
        with ExitStack() as stack:
            for number in range(4):
                assert kept.make_room(in_handshake=in_handshake)
                connection = stack.enter_context(connection_of("client"))
                connection.since = -3600
                kept.add(connection, in_handshake=in_handshake)
                assert len(kept) == min(number + 1, 3)
                assert kept.closed.total() == max(0, number + 1 - 3)

    asyncio.run(test())


@pytest.fixture
def no_grace(monkeypatch: pytest.MonkeyPatch) -> None:
    """A connection may be closed from its first moment on."""
    monkeypatch.setattr(connections, "GRACE_SECONDS", 0)


@pytest.mark.usefixtures("no_grace")
def test_a_client_that_asks_is_kept_where_idle_ones_have_to_go() -> None:
    async def test(listener: Listener) -> None:
        reader, writer = await connected(listener)
        writer.write(b"GET /healthz HTTP/1.1\r\n\r\n")
        assert await reader.readuntil(b"ok\n")
        writer.write(b"GET /healthz HT")
        await eventually_on_loop(
            "its request has begun", lambda: not all(each.is_idle for each in listener._connections)
        )
        idle = [await connected(listener) for _ in range(3 * BOUNDS.connections)]
        await eventually_on_loop(
            "too many are closed", lambda: listener.closed["connections"] > 2 * BOUNDS.connections
        )
        writer.write(b"TP/1.0\r\n\r\n")
        assert status(await reader.read()) == 200
        for _, each in (*idle, (reader, writer)):
            each.close()

    serving(test)


def test_a_client_that_begins_to_ask_is_left_alone_for_a_moment() -> None:
    async def test(listener: Listener) -> None:
        _, writer = await connected(listener)
        await eventually_on_loop("it is accepted", lambda: len(listener._connections) == 1)
        (connection,) = listener._connections
        connection.since = -3600
        writer.write(b"GET")
        await eventually_on_loop("its request has begun", lambda: not connection.is_idle)
        assert connection.since > 0
        writer.close()

    serving(test)


@pytest.mark.usefixtures("no_grace")
def test_whoever_floods_the_server_has_their_own_connections_closed() -> None:
    async def test(listener: Listener) -> None:
        reader, writer = await connected(listener)
        writer.write(b"GET /healthz HT")
        await eventually_on_loop(
            "its request has begun", lambda: not all(each.is_idle for each in listener._connections)
        )
        flood = []
        for _ in range(3 * BOUNDS.connections):
            _, attacker = await connected(listener, "127.0.0.2")
            attacker.write(b"GET /healthz HT")
            flood.append(attacker)
        await eventually_on_loop(
            "too many are closed", lambda: listener.closed["connections"] > 2 * BOUNDS.connections
        )
        writer.write(b"TP/1.0\r\n\r\n")
        assert status(await reader.read()) == 200
        for each in (*flood, writer):
            each.close()

    serving(test)


def test_a_client_that_sends_request_after_request_takes_turns_with_others() -> None:
    answers: list[None] = []

    def count() -> HttpReply:
        answers.append(None)
        return HttpReply(200, PLAIN, b"")

    async def test(listener: Listener) -> None:
        _, writer = await connected(listener)
        writer.write(b"GET /counted HTTP/1.1\r\n\r\n" * 200)
        seen = 0
        while seen < 200:
            await asyncio.sleep(0)
            assert len(answers) <= seen + 1
            seen = len(answers)
        writer.close()

    serving(test, {"/counted": count})


class TestOfTooManyConnections:
    """Each case: who is connected, and whose connection is closed for one more."""

    OLD, NEW = -3600.0, 3600.0  # before and within its grace, however slow the test is
    IDLE, ASKS = True, False

    @pytest.mark.parametrize(
        ("clients", "closed"),
        [
            pytest.param(
                [("api", ASKS, OLD)] * 3 + [("b", IDLE, OLD), ("c", IDLE, OLD)],
                ("b", IDLE),
                id="an idle one goes before requests of the address that has more than half",
            ),
            pytest.param(
                [("api", ASKS, NEW)] * 3 + [("b", IDLE, NEW), ("c", IDLE, NEW)],
                ("b", IDLE),
                id="also where all are new",
            ),
            pytest.param(
                [("api", IDLE, OLD)] * 2 + [("b", ASKS, OLD)] * 3 + [("b", IDLE, OLD)],
                ("b", IDLE),
                id="of idle ones, one of the address that has more than half of all",
            ),
            pytest.param(
                [("api", IDLE, OLD), ("b", IDLE, OLD), ("c", IDLE, OLD), ("c", IDLE, OLD)],
                ("c", IDLE),
                id="of idle ones, one of the address that has the most",
            ),
            pytest.param(
                [("api", IDLE, NEW)] + [("b", ASKS, OLD)] * 3,
                ("b", ASKS),
                id="a flood of requests that do not end costs no new client its connection",
            ),
            pytest.param(
                [("api", ASKS, OLD)] + [("b", ASKS, OLD)] * 3,
                ("b", ASKS),
                id="where all ask, one of the address that has more than half",
            ),
            pytest.param(
                [("api", ASKS, OLD), ("b", IDLE, NEW)],
                ("b", IDLE),
                id="within its grace one goes for a handshake, where others ask",
            ),
        ],
    )
    def test_one_goes_that_harms_the_least(
        self, clients: list[tuple[str, bool, float]], closed: tuple[str, bool]
    ) -> None:
        async def test() -> None:
            crowd = Connections(ClientLimits(connections=len(clients)))
            with ExitStack() as stack:
                before = []
                for peer, is_idle, age in clients:
                    connection = stack.enter_context(connection_of(peer))
                    crowd.establish(connection)
                    connection.is_idle = is_idle
                    connection.since += age
                    before.append(connection)
                crowd.establish(stack.enter_context(connection_of("new")))
                (gone,) = set(before) - set(crowd)
                assert (gone.peer, gone.is_idle) == closed
                assert crowd.closed == {"connections": 1}

        asyncio.run(test())


class TestMemoryForBodies:
    UNIT = 2 * SMALL_BODY

    @asynccontextmanager
    async def bodies(
        self,
    ) -> AsyncIterator[tuple[BodyMemory, Callable[..., Awaitable[Connection]]]]:
        """Four units, and a function that has an address ask for some of them."""
        bodies = BodyMemory(4 * self.UNIT, 3600, Connections(BOUNDS))
        with ExitStack() as stack:

            async def ask(peer: str, units: int) -> Connection:
                connection = stack.enter_context(connection_of(peer))
                asking = asyncio.create_task(bodies.reserve(connection, units * self.UNIT))
                stack.callback(asking.cancel)
                await eventually_on_loop(
                    "it waits or has memory",
                    lambda: connection in {*bodies._waiting, *bodies._reserved},
                )
                return connection

            yield bodies, ask

    def test_is_granted_where_it_is_free_though_the_first_in_turn_waits_for_more(self) -> None:
        async def test() -> None:
            async with self.bodies() as (bodies, ask):
                await ask("attacker", 3)
                waiting = await ask("another attacker", 3)
                honest = await ask("api", 1)
                assert honest in bodies._reserved
                assert [*bodies._waiting] == [waiting]

        asyncio.run(test())

    def test_is_never_taken_from_the_first_in_turn_by_those_that_need_less(self) -> None:
        async def test() -> None:
            async with self.bodies() as (bodies, ask):
                holding = await ask("a", 2)
                large = await ask("b", 3)
                await ask("c", 1)
                small = await ask("d", 1)
                assert bodies.free == self.UNIT
                assert [*bodies._waiting] == [large, small]
                bodies.release(holding)
                assert large in bodies._reserved
                assert [*bodies._waiting] == [small]

        asyncio.run(test())

    def test_is_not_granted_again_to_who_was_closed_before_others_had_some(self) -> None:
        async def test() -> None:
            async with self.bodies() as (bodies, ask):
                slow = await ask("attacker", 4)
                again = await ask("attacker", 4)
                honest = await ask("api", 4)
                bodies.release(slow)
                assert honest in bodies._reserved
                assert [*bodies._waiting] == [again]

        asyncio.run(test())

    def test_of_an_address_is_remembered_for_some_addresses_only(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("memqos.serve.body_memory.PEERS", 4)

        async def test() -> None:
            async with self.bodies() as (bodies, ask):
                for number in range(20):
                    bodies.release(await ask(f"{number}", 1 + number % 4))
                    assert len(bodies._turns) <= 4

        asyncio.run(test())


class TestLargeBodies:
    SIZE = 1 << 20
    BOUNDS = ClientLimits(connections=100, body=SIZE, bodies=4 * SIZE)
    HEAD = b"POST /size HTTP/1.1\r\nConnection: close\r\nContent-Length: %d\r\n\r\n" % SIZE

    async def whole(self, listener: Listener) -> bytes:
        return body_of(await sent(listener, self.HEAD + bytes(self.SIZE)))

    @asynccontextmanager
    async def attack(self, listener: Listener, times: int) -> AsyncIterator[None]:
        """All but the last byte of each is sent."""
        before = listener.closed["bytes"]
        attackers = []
        for _ in range(times):
            _, writer = await connected(listener, "127.0.0.2")
            writer.write(self.HEAD + bytes(self.SIZE - 1))
            attackers.append(writer)
        await eventually_on_loop(
            "all but four are closed", lambda: listener.closed["bytes"] >= before + times - 4
        )
        yield
        for writer in attackers:
            writer.transport.abort()

    def test_are_all_answered_however_many_come_at_once(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        for name in ("BODY_SECONDS", "REQUEST_SECONDS", "ANSWER_SECONDS"):
            monkeypatch.setattr(http, name, 60)

        async def test(listener: Listener) -> None:
            answers = await asyncio.gather(*[self.whole(listener) for _ in range(40)])
            assert set(answers) == {b"%d" % self.SIZE}
            assert not listener.closed
            assert listener._bodies.free == self.BOUNDS.bodies

        serving(test, bounds=self.BOUNDS)

    def test_that_never_end_are_dropped_while_whole_ones_are_answered(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(http, "BODY_SECONDS", 0.01)

        async def test(listener: Listener) -> None:
            async with self.attack(listener, 20):
                assert await self.whole(listener) == b"%d" % self.SIZE

        serving(test, bounds=self.BOUNDS)

    def test_leave_nothing_behind_until_the_garbage_collector_comes(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(http, "BODY_SECONDS", 0.01)

        async def test(listener: Listener) -> None:
            tracemalloc.start()
            async with self.attack(listener, 40):
                now, _ = tracemalloc.get_traced_memory()
            assert now < 10 * self.SIZE

        gc.disable()
        try:
            serving(test, bounds=self.BOUNDS)
        finally:
            tracemalloc.stop()
            gc.enable()

    def test_wait_their_turn_behind_an_address_that_has_none(self) -> None:
        async def test(listener: Listener) -> None:
            async with self.attack(listener, 4):
                await eventually_on_loop("all memory is taken", lambda: listener._bodies.free == 0)
                _, waiting = await connected(listener, "127.0.0.2")
                waiting.write(self.HEAD)
                await eventually_on_loop("one waits", lambda: len(listener._bodies._waiting) == 1)
                honest = asyncio.ensure_future(self.whole(listener))
                await eventually_on_loop("two wait", lambda: len(listener._bodies._waiting) == 2)
                (first, *_) = listener._bodies._reserved
                listener._connections.remove(first)
                assert await honest == b"%d" % self.SIZE
                waiting.transport.abort()

        serving(test, bounds=self.BOUNDS)

    def test_that_wait_for_too_long_are_told_to_come_again(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        async def test(listener: Listener) -> None:
            async with self.attack(listener, 4):
                await eventually_on_loop("all memory is taken", lambda: listener._bodies.free == 0)
                reader, writer = await connected(listener)
                writer.write(self.HEAD[:10])
                await eventually_on_loop(
                    "its request has begun", lambda: not [*listener._connections][-1].is_idle
                )
                monkeypatch.setattr(http, "REQUEST_SECONDS", 0.01)
                writer.write(self.HEAD[10:])
                assert status(await reader.read()) == 503
                writer.close()

        serving(test, bounds=self.BOUNDS)


class TestWithoutFileDescriptors:
    def test_an_idle_client_makes_room_for_one_that_asks(self) -> None:
        async def test(listener: Listener) -> None:
            idle = [await connected(listener) for _ in range(3)]
            await eventually_on_loop("all are accepted", lambda: len(listener._connections) == 3)
            with socket.socket() as asking, no_more_descriptors():
                asking.connect(parse_listen_address(listener.address))
                asking.setblocking(False)
                asking.sendall(b"GET /healthz HTTP/1.0\r\n\r\n")
                loop = asyncio.get_running_loop()
                assert status(await loop.sock_recv(asking, 1000)) == 200
            assert listener.closed["descriptors"] == 1
            for _, writer in idle:
                writer.close()

        serving(test)

    def test_clients_are_answered_once_there_are_some_again(
        self, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
    ) -> None:
        monkeypatch.setattr(http, "RETRY_SECONDS", 0.01)

        async def test(listener: Listener) -> None:
            with socket.socket() as asking:
                with no_more_descriptors():
                    asking.connect(parse_listen_address(listener.address))
                    await eventually_on_loop("the failure is logged", lambda: bool(caplog.records))
                asking.setblocking(False)
                asking.sendall(b"GET /healthz HTTP/1.0\r\n\r\n")
                assert status(await asyncio.get_running_loop().sock_recv(asking, 1000)) == 200

        with caplog.at_level(logging.ERROR):
            serving(test)
        assert "Too many open files" in caplog.records[0].getMessage()


def test_those_who_come_all_at_once_are_served_in_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "GRACE_SECONDS", 60)

    async def test(listener: Listener) -> None:
        answers = await asyncio.gather(*[response_to(listener, "/healthz") for _ in range(100)])
        assert {status(answer) for answer in answers} == {200}
        assert not listener.closed

    serving(test, bounds=ClientLimits(connections=4))


def test_many_ask_at_once() -> None:
    async def test(listener: Listener) -> None:
        answers = await asyncio.gather(*[response_to(listener, "/large") for _ in range(10)])
        assert {body_of(answer) for answer in answers} == {b"x" * LARGE}

    serving(test)


def test_a_client_that_leaves_midway_harms_nobody(caplog: pytest.LogCaptureFixture) -> None:
    async def test(listener: Listener) -> None:
        for data in (b"", b"GET /huge HTTP/1.1\r\n\r\n", b"GET"):
            _, writer = await connected(listener)
            writer.write(data)
            await eventually_on_loop("it is connected", lambda: listener._connections)
            writer.transport.abort()
            await eventually_on_loop("it has left", lambda: not listener._connections)
        assert status(await response_to(listener, "/healthz")) == 200

    serving(test)
    assert not caplog.records


def test_an_address_that_is_taken_is_refused_with_a_hint() -> None:
    async def test(listener: Listener) -> None:
        with pytest.raises(Unreachable, match=r"cannot listen on .*does another process listen"):
            await listen(ROUTES, *parse_listen_address(listener.address))

    serving(test)


def test_the_state_is_for_its_owner_alone(tmp_path: Path) -> None:
    path = tmp_path / "run" / "state.sock"

    async def test() -> None:
        listener = await listen_on_socket(state_route(lambda: {"pods": 2}), str(path))
        assert listener.address == str(path)
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        reader, writer = await asyncio.open_unix_connection(str(path))
        writer.write(b"GET /state HTTP/1.0\r\n\r\n")
        answer = await reader.read()
        assert f"Content-Type: {JSON}".encode() in answer
        assert body_of(answer) == b'{"pods":2}\n'
        writer.close()
        with pytest.raises(Unreachable, match="another process listens"):
            await listen_on_socket({}, str(path))
        await listener.close()

    asyncio.run(test())
    assert not path.exists()


def test_the_socket_of_a_killed_agent_is_replaced_and_nothing_else(tmp_path: Path) -> None:
    left, other = tmp_path / "left.sock", tmp_path / "notes"
    with socket.socket(socket.AF_UNIX) as killed:
        killed.bind(str(left))
    other.write_text("mine")

    async def test() -> None:
        listener = await listen_on_socket({}, str(left))
        await listener.close()
        with pytest.raises(InputError, match="not a socket"):
            await listen_on_socket({}, str(other))

    asyncio.run(test())
    assert other.read_text() == "mine"


def test_a_listener_does_not_take_away_the_socket_of_its_successor(tmp_path: Path) -> None:
    path = tmp_path / "state.sock"

    async def test() -> None:
        first = await listen_on_socket({}, str(path))
        path.unlink()
        second = await listen_on_socket({}, str(path))
        await first.close()
        assert path.exists()
        await second.close()

    asyncio.run(test())


def test_every_address_is_reached_over_both_protocols_if_asked_for() -> None:
    async def test() -> None:
        try:
            listener = await listen(ROUTES, "::", 0)
        except Unreachable:
            pytest.skip("there is no IPv6 here")
        port = parse_listen_address(listener.address).port
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"GET /healthz HTTP/1.0\r\n\r\n")
        assert status(await reader.read()) == 200
        writer.close()
        await listener.close()

    asyncio.run(test())


@pytest.mark.parametrize(
    ("text", "host", "port"),
    [
        ("127.0.0.1:9177", "127.0.0.1", 9177),
        ("0.0.0.0:0", "0.0.0.0", 0),
        ("[::1]:65535", "::1", 65535),
        ("localhost:80", "localhost", 80),
    ],
)
def test_an_address_is_a_host_and_a_port(text: str, host: str, port: int) -> None:
    assert parse_listen_address(text) == (host, port)


@pytest.mark.parametrize(
    "text",
    [
        "9177",
        ":9177",
        "127.0.0.1",
        "127.0.0.1:",
        "127.0.0.1:65536",
        "::1:80",
        "[127.0.0.1]:80",
        "node:80",
        "[]:80",
        "256.0.0.1:80",
        "127.0.0.1:٣",
        "127.0.0.1:-1",
        "[fe80::1%eth0]:80",
        "[::1]80",
        "127.0.0.1:80:80",
    ],
)
def test_what_is_no_address_is_refused(text: str) -> None:
    with pytest.raises(InputError) as caught:
        parse_listen_address(text)
    assert caught.value.hint
