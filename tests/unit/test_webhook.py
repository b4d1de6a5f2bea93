"""The admission server over real TLS: it answers who asks properly, and outlives who does not."""

import asyncio
import json
import os
import shutil
import signal
import ssl
import subprocess
import sys
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from http.client import HTTPSConnection
from pathlib import Path
from typing import Any

import pytest
from tests.commands import ROOT, memqos
from tests.eventually import PATIENCE
from tests.fakes.client import with_openssl
from tests.fakes.kubelet import TlsFiles, self_signed
from tests.fakes.reviews import UID, container, review

from memqos.cli import webhook as command
from memqos.errors import InputError
from memqos.findings.policy import POLICY_API_VERSION, POLICY_KIND, AdmissionPolicy, ForbidClass
from memqos.release import Release
from memqos.serve.admission import (
    MUTATE,
    REVIEW_SIZE_LIMIT,
    VALIDATE,
    WEBHOOK_LIMITS,
    PodReviewer,
    Webhook,
)
from memqos.serve.certificates import Certificate
from memqos.serve.endpoints import PLAIN, HttpReply, ListenAddress
from memqos.serve.http import REQUEST_SECONDS, Listener, listen

pytestmark = with_openssl
BEST_EFFORT = review({"containers": [container()]})
FINE = review({"containers": [container(requests={"memory": "1Gi"})]})
POLICY = AdmissionPolicy(
    POLICY_API_VERSION, POLICY_KIND, rules=(ForbidClass(id="no-be", forbid=("BestEffort",)),)
)


@pytest.fixture(scope="module")
def identity(tmp_path_factory: pytest.TempPathFactory) -> TlsFiles:
    return self_signed(tmp_path_factory.mktemp("pki"), "webhook", "IP:127.0.0.1")


class Client:
    """Somebody who trusts one certificate."""

    def __init__(self, listener: Listener, identity: TlsFiles) -> None:
        host, _, port = listener.address.rpartition(":")
        self.address = host, int(port)
        self.trust = ssl.create_default_context(cafile=str(identity.cert))

    def ask(self, path: str, body: bytes | None, **headers: str) -> tuple[int, bytes]:
        connection = HTTPSConnection(*self.address, context=self.trust, timeout=PATIENCE)
        try:
            method = "GET" if body is None else "POST"
            connection.request(method, path, body, {"Content-Type": "application/json", **headers})
            answer = connection.getresponse()
            return answer.status, answer.read()
        finally:
            connection.close()

    def verdict(self, path: str, body: bytes) -> dict[str, Any]:
        status, answer = self.ask(path, body)
        assert status == 200
        response: dict[str, Any] = json.loads(answer)["response"]
        assert response["uid"] == UID
        return response

    async def connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        return await asyncio.open_connection(*self.address, ssl=self.trust)


def serving(identity: TlsFiles, test: Callable[[Client, Webhook], Awaitable[None]]) -> None:
    async def run() -> None:
        webhook = Webhook(PodReviewer(POLICY, Release.of("1.36")))
        certificate = Certificate(str(identity.cert), str(identity.key))
        listener = await webhook.listen(ListenAddress("127.0.0.1", 0), certificate)
        try:
            async with asyncio.timeout(PATIENCE):
                await test(Client(listener, identity), webhook)
        finally:
            await listener.close()

    asyncio.run(run())


def asking(identity: TlsFiles, test: Callable[[Client], None]) -> None:
    """A client in a thread of its own, as it is not made for a loop."""

    async def in_thread(client: Client, _webhook: Webhook) -> None:
        await asyncio.to_thread(test, client)

    serving(identity, in_thread)


def test_reviews_are_answered(identity: TlsFiles) -> None:
    def test(client: Client) -> None:
        refused = client.verdict(VALIDATE, BEST_EFFORT)
        assert refused["status"]["message"] == "no-be: the pod is BestEffort"
        assert client.verdict(VALIDATE, FINE)["allowed"]
        assert client.verdict(MUTATE, BEST_EFFORT)["allowed"]
        assert client.ask("/healthz", None) == (200, b"ok\n")
        _, metrics = client.ask("/metrics", None)
        assert b'memqos_webhook_reviews_total{path="/validate",verdict="refused"} 1' in metrics

    asking(identity, test)


@pytest.mark.parametrize(
    ("path", "body", "status"),
    [
        (VALIDATE, b"", 400),
        (VALIDATE, b"{", 400),
        (VALIDATE, b"{}", 400),
        (VALIDATE, b"[" * 1_000_000, 400),
        (VALIDATE, None, 405),
        ("/healthz", b"{}", 405),
        ("/elsewhere", b"{}", 404),
    ],
)
def test_what_is_no_review_gets_a_proper_answer(
    identity: TlsFiles, path: str, body: bytes | None, status: int
) -> None:
    def test(client: Client) -> None:
        assert client.ask(path, body)[0] == status
        assert client.ask("/healthz", None)[0] == 200

    asking(identity, test)


def test_a_body_that_is_too_large_is_refused_before_it_is_read(identity: TlsFiles) -> None:
    async def test(client: Client, _webhook: Webhook) -> None:
        reader, writer = await client.connect()
        writer.write(
            b"POST /validate HTTP/1.1\r\nContent-Length: %d\r\n\r\n" % (REVIEW_SIZE_LIMIT + 1)
        )
        assert (await reader.readline()).startswith(b"HTTP/1.1 413 ")
        writer.transport.abort()

    serving(identity, test)


def test_a_body_of_unknown_length_is_refused(identity: TlsFiles) -> None:
    async def test(client: Client, _webhook: Webhook) -> None:
        reader, writer = await client.connect()
        writer.write(b"POST /validate HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n")
        assert (await reader.readline()).startswith(b"HTTP/1.1 411 ")
        writer.transport.abort()

    serving(identity, test)


def test_a_body_is_asked_for_where_the_client_waits(identity: TlsFiles) -> None:
    async def test(client: Client, _webhook: Webhook) -> None:
        reader, writer = await client.connect()
        head = b"POST /validate HTTP/1.1\r\nExpect: 100-continue\r\nContent-Length: %d\r\n\r\n"
        writer.write(head % len(FINE))
        assert await reader.readuntil(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
        writer.write(FINE)
        assert await reader.readline() == b"HTTP/1.1 200 OK\r\n"
        writer.transport.abort()

    serving(identity, test)


def test_a_client_that_never_finishes_is_let_go_and_holds_nobody_up(
    identity: TlsFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert REQUEST_SECONDS <= 10
    monkeypatch.setattr("memqos.serve.http.REQUEST_SECONDS", 0.5)

    async def test(client: Client, _webhook: Webhook) -> None:
        slow = [await client.connect() for _ in range(5)]
        for _, writer in slow:
            writer.write(b"POST /validate HTTP/1.1\r\nContent-Length: 100\r\n\r\n{")
        assert (await asyncio.to_thread(client.verdict, VALIDATE, FINE))["allowed"]
        for reader, writer in slow:
            assert await reader.read() == b""
            writer.close()

    serving(identity, test)


class TestAnAnswerOverTLS:
    """One of a size that is more than any buffer takes at once."""

    SIZE = 4 << 20

    def whole(self, identity: TlsFiles, test: Callable[[Client], Awaitable[None]]) -> None:
        async def run() -> None:
            certificate = Certificate(str(identity.cert), str(identity.key))
            listener = await listen(
                {"/large": lambda: HttpReply(200, PLAIN, bytes(self.SIZE))},
                "127.0.0.1",
                0,
                tls=lambda: certificate.context,
            )
            try:
                async with asyncio.timeout(PATIENCE):
                    await test(Client(listener, identity))
            finally:
                await listener.close()

        asyncio.run(run())

    def test_is_whole_every_time_over_one_connection(self, identity: TlsFiles) -> None:
        def ask(client: Client) -> None:
            connection = HTTPSConnection(*client.address, context=client.trust, timeout=PATIENCE)
            for _ in range(10):
                connection.request("GET", "/large")
                assert connection.getresponse().read() == bytes(self.SIZE)
            connection.close()

        async def test(client: Client) -> None:
            await asyncio.to_thread(ask, client)

        self.whole(identity, test)

    def test_waits_for_a_client_that_reads_slowly(self, identity: TlsFiles) -> None:
        async def test(client: Client) -> None:
            reader, writer = await client.connect()
            writer.write(b"GET /large HTTP/1.1\r\nConnection: close\r\n\r\n")
            await reader.readuntil(b"\r\n\r\n")
            read = 0
            while piece := await reader.read(100_000):
                read += len(piece)
                await asyncio.sleep(0)
            assert read == self.SIZE
            writer.close()

        self.whole(identity, test)


def test_clients_without_a_tls_hello_hold_nobody_up(identity: TlsFiles) -> None:
    async def test(client: Client, webhook: Webhook) -> None:
        connections = [await asyncio.open_connection(*client.address) for _ in range(600)]
        for _ in range(5):
            assert (await asyncio.to_thread(client.verdict, VALIDATE, FINE))["allowed"]
        assert webhook._closed["handshakes"] >= 600 - WEBHOOK_LIMITS.handshakes
        _, metrics = await asyncio.to_thread(client.ask, "/metrics", None)
        assert b'memqos_webhook_connections_closed_total{limit="handshakes"}' in metrics
        for _, writer in connections:
            writer.close()

    serving(identity, test)


def test_the_largest_review_of_a_pod_that_etcd_stores_is_judged(identity: TlsFiles) -> None:
    """Go's JSON writes `<` as six bytes; the review of a resize holds the pod twice."""
    spec = {"containers": [container()], "hostname": "HOSTNAME"}
    body = review(spec, oldObject={"spec": spec})
    body = body.replace(b"HOSTNAME", b"\\u003c" * (3 << 19))

    def test(client: Client) -> None:
        assert client.verdict(VALIDATE, body)["status"]["code"] == 403

    assert 18 << 20 < len(body) <= REVIEW_SIZE_LIMIT
    asking(identity, test)


def test_many_at_once_each_get_their_own_answer(identity: TlsFiles) -> None:
    def test(client: Client) -> None:
        bodies = [BEST_EFFORT if index % 3 else FINE for index in range(120)]
        with ThreadPoolExecutor(16) as pool:
            answers = pool.map(lambda body: client.verdict(VALIDATE, body)["allowed"], bodies)
            assert list(answers) == [body is FINE for body in bodies]

    asking(identity, test)


class TestACertificate:
    def test_is_taken_again_once_its_files_change(self, tmp_path: Path) -> None:
        first = self_signed(tmp_path, "first", "IP:127.0.0.1")
        second = self_signed(tmp_path, "second", "IP:127.0.0.1")
        used = TlsFiles(tmp_path / "tls.crt", tmp_path / "tls.key")
        _install(first, used)
        certificate = Certificate(str(used.cert), str(used.key))
        webhook = Webhook(PodReviewer(POLICY, Release.of("1.36")))

        async def run() -> None:
            listener = await webhook.listen(ListenAddress("127.0.0.1", 0), certificate)
            try:
                old, new = Client(listener, first), Client(listener, second)
                assert not certificate.refresh()
                assert (await asyncio.to_thread(old.ask, "/healthz", None))[0] == 200
                _install(second, used)
                assert certificate.refresh()
                assert (await asyncio.to_thread(new.ask, "/healthz", None))[0] == 200
                with pytest.raises(ssl.SSLCertVerificationError):
                    await asyncio.to_thread(old.ask, "/healthz", None)
                _install(TlsFiles(first.cert, second.key), used)
                for _ in range(2):
                    with pytest.raises(InputError, match="do not match"):
                        certificate.refresh()
                    assert (await asyncio.to_thread(new.ask, "/healthz", None))[0] == 200
                used.key.unlink()
                with pytest.raises(InputError, match="no such file"):
                    certificate.refresh()
                assert (await asyncio.to_thread(new.ask, "/healthz", None))[0] == 200
                _install(first, used)
                assert certificate.refresh()
                assert (await asyncio.to_thread(old.ask, "/healthz", None))[0] == 200
            finally:
                await listener.close()

        asyncio.run(run())

    def test_that_is_missing_or_wrong_is_reported_before_anything_listens(
        self, tmp_path: Path, identity: TlsFiles
    ) -> None:
        def refusal(cert: Path, key: Path) -> str:
            done = memqos("webhook", "--tls-cert", str(cert), "--tls-key", str(key))
            assert done.code == 1
            return done.err

        assert "no such file" in refusal(tmp_path / "none.crt", identity.key)
        junk = tmp_path / "junk.pem"
        junk.write_text("junk")
        assert "do not match" in refusal(identity.cert, junk)


class TestAReload:
    def test_of_a_policy_that_fails_is_tried_again(self, tmp_path: Path) -> None:
        policy = tmp_path / "policy.yaml"
        head = f"apiVersion: {POLICY_API_VERSION}\nkind: {POLICY_KIND}\n"
        policy.write_text(f"{head}mode: warn\n")
        files = command._AdmissionFiles(str(policy), None, Release.of("1.36"))
        assert files.load().policy.mode == "warn"
        assert not files.have_changed()
        policy.write_text(f"{head}mode: none\n")
        for _ in range(2):
            assert files.have_changed()
            with pytest.raises(InputError, match="mode"):
                files.load()
        policy.write_text(f"{head}mode: refuse\n")
        assert files.have_changed()
        assert files.load().policy.mode == "refuse"

    def test_that_fails_in_the_same_way_is_reported_once(
        self, capsys: pytest.CaptureFixture[str]
    ) -> None:
        results: list[bool | Exception] = [
            InputError("it is wrong"),
            InputError("it is wrong"),
            OSError(24, "Too many open files"),
            True,
            InputError("it is wrong"),
        ]

        def refresh() -> bool:
            result = results.pop(0)
            if isinstance(result, Exception):
                raise result
            return result

        complaints: dict[str, str] = {}
        while results:
            command._refresh("the policy", refresh, complaints)
        assert [line.partition(": ")[2] for line in capsys.readouterr().err.splitlines()] == [
            "it is wrong",
            "[Errno 24] Too many open files",
            "",
            "it is wrong",
        ]


def _install(what: TlsFiles, to: TlsFiles) -> None:
    """As a mounted secret changes: all at once, and under another inode."""
    for source, target in zip(what, to, strict=True):
        fresh = target.with_suffix(".new")
        shutil.copy(source, fresh)
        os.replace(fresh, target)


def test_the_command_serves_until_it_is_told_to_stop(identity: TlsFiles, tmp_path: Path) -> None:
    policy = tmp_path / "policy.yaml"
    policy.write_text(
        f"apiVersion: {POLICY_API_VERSION}\nkind: {POLICY_KIND}\n"
        "rules: [{id: no-be, check: class, forbid: [BestEffort]}]\n"
    )
    arguments = ["--listen", "127.0.0.1:0", "--policy", str(policy)]
    files = ["--tls-cert", str(identity.cert), "--tls-key", str(identity.key)]
    process = subprocess.Popen(
        [sys.executable, "-m", "memqos", "webhook", *arguments, *files],
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
    )
    try:
        assert process.stderr is not None
        line = process.stderr.readline()
        host, _, port = (
            line.removeprefix("listening on https://").partition(": ")[0].rpartition(":")
        )
        trust = ssl.create_default_context(cafile=str(identity.cert))
        connection = HTTPSConnection(host, int(port), context=trust, timeout=PATIENCE)
        connection.request("POST", VALIDATE, BEST_EFFORT)
        assert b"no-be" in connection.getresponse().read()
        process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENCE) == 0
        connection.close()
    finally:
        process.kill()
        process.communicate()


@pytest.mark.parametrize("listen", ["8443", ":8443", "example.com:8443"])
def test_an_address_that_cannot_be_is_refused(identity: TlsFiles, listen: str) -> None:
    files = ["--tls-cert", str(identity.cert), "--tls-key", str(identity.key)]
    done = memqos("webhook", "--listen", listen, *files)
    assert done.code == 1
    assert "127.0.0.1" in done.err or "localhost" in done.err
