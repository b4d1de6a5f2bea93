"""A Prometheus server as a history: parts, TLS, tokens, and answers that are none."""

import json
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from tests.commands import Done, memqos
from tests.fakes.client import with_openssl
from tests.fakes.kubelet import TlsFiles, self_signed

MIB = 1 << 20
UNTIL = "1772445600"


class Prometheus:
    """What a server was asked, and how it answers."""

    def __init__(self) -> None:
        self.url = ""
        self.asked: list[dict[str, str]] = []
        self.credentials: list[str | None] = []
        self.token: str | None = None
        """What it demands."""
        self.redirect: str | None = None


class _Handler(BaseHTTPRequestHandler):
    """Answers range queries of usage with 100 MiB, and refuses too many points as Prometheus."""

    fake: Prometheus

    def do_GET(self) -> None:
        credentials = self.headers.get("Authorization")
        self.fake.credentials.append(credentials)
        if self.fake.redirect is not None:
            self._answer(302, {}, Location=self.fake.redirect)
        elif self.fake.token is not None and credentials != f"Bearer {self.fake.token}":
            self._answer(401, {})
        else:
            self._answer_query()

    def _answer_query(self) -> None:
        query = {key: each[0] for key, each in parse_qs(urlsplit(self.path).query).items()}
        self.fake.asked.append(query)
        start, end, step = (float(query[key]) for key in ("start", "end", "step"))
        points = int((end - start) // step) + 1
        if points > 11_000:
            error = "exceeded maximum resolution of 11,000 points per timeseries"
            self._answer(400, {"status": "error", "errorType": "bad_data", "error": error})
            return
        amount = 100 * MIB if "working_set" in query["query"] else None
        amount = 1 if "MemoryPressure" in query["query"] else amount
        result = [
            {
                "metric": {"namespace": "shop", "pod": "web-0", "container": "app"},
                "values": [[start + index * step, str(amount)] for index in range(points)],
            }
        ]
        data = {"resultType": "matrix", "result": [] if amount is None else result}
        self._answer(200, {"status": "success", "data": data})

    def _answer(self, status: int, answer: dict[str, Any], **headers: str) -> None:
        body = json.dumps(answer).encode()
        self.send_response(status)
        for name, value in {"Content-Length": str(len(body)), **headers}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Clients that refuse its certificate hang up."""


@contextmanager
def prometheus(
    identity: TlsFiles | None = None, clients: Path | None = None
) -> Iterator[Prometheus]:
    """Serve until the block is left; with an identity over TLS."""
    fake = Prometheus()
    with _Server(("127.0.0.1", 0), type("Handler", (_Handler,), {"fake": fake})) as server:
        if identity is not None:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(identity.cert, identity.key)
            if clients is not None:
                context.verify_mode = ssl.CERT_REQUIRED
                context.load_verify_locations(clients)
            server.socket = context.wrap_socket(
                server.socket, server_side=True, do_handshake_on_connect=False
            )
        scheme = "http" if identity is None else "https"
        fake.url = f"{scheme}://127.0.0.1:{server.server_port}"
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield fake
        finally:
            server.shutdown()
            thread.join()


def size(url: str, *arguments: str, days: str = "0.2") -> Done:
    return memqos(
        "size", "--history", url, "--days", days, "--until", UNTIL, "-o", "json", *arguments
    )


@pytest.fixture
def identity(tmp_path: Path) -> TlsFiles:
    return self_signed(tmp_path, "prometheus", "IP:127.0.0.1")


@pytest.fixture
def token(tmp_path: Path) -> str:
    file = tmp_path / "token"
    file.write_text("secret\n")
    return str(file)


def test_it_is_asked_in_parts_that_it_accepts() -> None:
    with prometheus() as server:
        done = size(server.url, "-n", "shop", "--step", "5", days="2")
    (series,) = done.data["series"]
    assert series["samples"] == 2 * 86_400 // 5 + 1
    usage = [each for each in server.asked if "working_set" in each["query"]]
    assert len(usage) == 4
    assert all('namespace="shop"' in each["query"] for each in server.asked)
    assert not any("earlier than the one before" in note for note in series["notes"])


def test_an_address_where_nothing_listens_is_said_in_words() -> None:
    done = size("http://127.0.0.1:1")
    assert done.code == 1
    assert done.err.startswith("memqos: http://127.0.0.1:1: connection refused – is this")


def test_a_server_without_tls_is_said_in_words() -> None:
    with prometheus() as server:
        done = size(server.url.replace("http:", "https:"))
    assert done.code == 1
    assert ": wrong version number – is this" in done.err


def test_the_pressure_of_the_node_is_asked_for() -> None:
    with prometheus() as server:
        (series,) = size(server.url).data["series"]
    assert series["evictedDays"] == 0


@with_openssl
def test_a_token_goes_to_a_server_whose_certificate_is_trusted(
    identity: TlsFiles, token: str
) -> None:
    with prometheus(identity) as server:
        server.token = "secret"
        done = size(server.url, "--ca-file", str(identity.cert), "--token-file", token)
    assert done.code == 0
    assert done.data["series"][0]["series"] == "shop/web-0/app"
    assert set(server.credentials) == {"Bearer secret"}


@with_openssl
@pytest.mark.parametrize("is_other_authority", [True, False])
def test_no_token_goes_to_a_server_whose_certificate_is_not_trusted(
    tmp_path: Path, identity: TlsFiles, token: str, is_other_authority: bool
) -> None:
    other = self_signed(tmp_path, "other", "IP:127.0.0.1")
    authority = ("--ca-file", str(other.cert)) if is_other_authority else ()
    with prometheus(identity) as server:
        done = size(server.url, *authority, "--token-file", token)
    assert done.code == 1
    assert server.url in done.err
    assert "certificate" in done.err
    assert not server.credentials


@with_openssl
def test_a_certificate_for_another_name_is_refused(tmp_path: Path, token: str) -> None:
    identity = self_signed(tmp_path, "elsewhere", "DNS:elsewhere.example")
    with prometheus(identity) as server:
        done = size(server.url, "--ca-file", str(identity.cert), "--token-file", token)
    assert done.code == 1
    assert not server.credentials


@with_openssl
def test_a_client_certificate_is_shown_to_a_server_that_demands_one(
    tmp_path: Path, identity: TlsFiles
) -> None:
    own = self_signed(tmp_path, "memqos", "DNS:memqos")
    authority = ("--ca-file", str(identity.cert))
    with prometheus(identity, clients=own.cert) as server:
        refused = size(server.url, *authority)
        done = size(
            server.url, *authority, "--client-cert", str(own.cert), "--client-key", str(own.key)
        )
    assert refused.code == 1
    assert done.code == 0


@with_openssl
def test_a_missing_or_wrong_token_is_said_and_never_shown(
    tmp_path: Path, identity: TlsFiles, token: str
) -> None:
    with prometheus(identity) as server:
        server.token = "another"
        trusted = ("--ca-file", str(identity.cert))
        for arguments in (trusted, (*trusted, "--token-file", token)):
            done = size(server.url, *arguments)
            assert done.code == 1
            assert f"{server.url}: access denied (401)" in done.err
            assert "--token-file" in done.err
            assert "secret" not in done.err


@with_openssl
def test_a_redirect_is_not_followed_with_a_token(identity: TlsFiles, token: str) -> None:
    with prometheus() as elsewhere, prometheus(identity) as server:
        server.redirect = elsewhere.url
        done = size(server.url, "--ca-file", str(identity.cert), "--token-file", token)
    assert done.code == 1
    assert "it answered 302" in done.err
    assert not elsewhere.credentials


def test_credentials_are_never_sent_without_tls(token: str) -> None:
    with prometheus() as server:
        done = size(server.url, "--token-file", token)
    assert done.code == 1
    assert "credentials are never sent without TLS" in done.err
    assert "secret" not in done.err
    assert not server.credentials


def test_a_server_that_does_not_answer_is_named() -> None:
    done = memqos("size", "--history", "http://127.0.0.1:1")
    assert done.code == 1
    assert "http://127.0.0.1:1: " in done.err
