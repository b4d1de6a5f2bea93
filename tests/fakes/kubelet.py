"""A kubelet's endpoint on this machine's loopback, over HTTP or HTTPS."""

import contextlib
import socket
import ssl
import subprocess
import threading
from collections.abc import Iterator, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

Answer = tuple[int, bytes]


class TlsFiles(NamedTuple):
    """A certificate and its key."""

    cert: Path
    key: Path


class FakeKubelet:
    """Answers what it is told to, and remembers what it was asked with."""

    def __init__(self, answers: Mapping[str, Answer | bytes | Any], url: str) -> None:
        self.url = url
        self.request_log: list[tuple[str, dict[str, str]]] = []
        self.answers = dict(answers)
        self.raw: bytes | None = None
        """Sent as it is, instead of any answer."""

    def answer(self, path: str) -> Answer:
        found = self.answers.get(path, (404, b"404 page not found\n"))
        if isinstance(found, tuple):
            return found
        return 200, found if isinstance(found, bytes) else msgspec.json.encode(found)


@contextlib.contextmanager
def fake_kubelet(
    answers: Mapping[str, Any], identity: TlsFiles | None = None, clients: Path | None = None
) -> Iterator[FakeKubelet]:
    """Serve until the block is left; `clients` holds who may ask, where not everybody may."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            kubelet.request_log.append((self.path, dict(self.headers)))
            if kubelet.raw is not None:
                self.wfile.write(kubelet.raw)
                return
            status, body = kubelet.answer(self.path)
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: Any) -> None:
            """Nobody reads it."""

    class Server(ThreadingHTTPServer):
        def handle_error(self, request: Any, client_address: Any) -> None:
            """Clients that hang up are what some tests are about."""

    server = Server(("127.0.0.1", 0), Handler)
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
    kubelet = FakeKubelet(answers, f"{scheme}://127.0.0.1:{server.server_port}")
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield kubelet
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


class SilentKubelet:
    """Accepts, and never says a word."""

    def __init__(self, listener: socket.socket) -> None:
        self._listener = listener
        self.port: int = listener.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        self.connections: list[socket.socket] = []

    @property
    def open(self) -> int:
        """How many wait for an answer."""
        return sum(not _has_ended(each) for each in self.connections)

    def hang_up(self) -> None:
        for each in self.connections:
            each.close()

    def accept(self) -> None:
        """Whoever asks, until the listener is closed."""
        with contextlib.suppress(OSError):
            while True:
                self.connections.append(self._listener.accept()[0])


def _has_ended(connection: socket.socket) -> bool:
    connection.setblocking(False)
    try:
        while connection.recv(4096):
            pass
    except BlockingIOError:
        return False
    except OSError:
        pass
    return True


@contextlib.contextmanager
def silent_kubelet() -> Iterator[SilentKubelet]:
    """A kubelet that is stuck, until the block is left."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        kubelet = SilentKubelet(listener)
        thread = threading.Thread(target=kubelet.accept)
        thread.start()
        try:
            yield kubelet
        finally:
            listener.shutdown(socket.SHUT_RDWR)
            thread.join()
            kubelet.hang_up()


def self_signed(folder: Path, name: str, alternatives: str) -> TlsFiles:
    """A certificate of its own authority; alternatives are such as `DNS:node1,IP:127.0.0.1`."""
    made = TlsFiles(folder / f"{name}.crt", folder / f"{name}.key")
    command = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"]
    command += ["-nodes", "-days", "2", "-subj", f"/CN={name}", "-addext"]
    command += [f"subjectAltName={alternatives}", "-out", str(made.cert), "-keyout", str(made.key)]
    subprocess.run(command, check=True, capture_output=True)
    return made
