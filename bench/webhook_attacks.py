"""What attacks on `memqos webhook` cost it: peak memory, and reviews left unanswered."""

import re
import resource
import socket
import ssl
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from http.client import HTTPException, HTTPSConnection
from pathlib import Path

from tests.fakes.kubelet import self_signed
from tests.fakes.reviews import container, review

MOST_MIB = 128
REVIEWS, PATIENCE = 20, 5
"""Honest reviews during an attack, and seconds an API server waits for an answer to one."""
HEAD = "POST /validate HTTP/1.1\r\nHost: x\r\nContent-Length: {}\r\n\r\n"
POLICY = """
apiVersion: memqos.io/v1alpha1
kind: AdmissionPolicy
onError: refuse
rules:
- {id: limits, check: required, of: [limits]}
- {id: near, check: limit-ratio, most: 2}
"""


def report() -> Iterator[str]:
    """A process for each attack, since memory that was once in use may stay."""
    with tempfile.TemporaryDirectory() as folder:
        for name, (attack, files) in ATTACKS.items():
            with _Server(Path(folder), files) as server, ExitStack() as connections:
                attack(server, connections)
                answered = sum(server.refuses_a_pod_without_limits() for _ in range(REVIEWS))
                yield (
                    f"{name:<52} {server.peak():4.0f} MiB at most (asked: {MOST_MIB}), "
                    f"{answered} of {REVIEWS} reviews answered"
                )


class _Server:
    """`memqos webhook` in a process of its own."""

    def __init__(self, folder: Path, files: int) -> None:
        identity = self_signed(folder, "webhook", "IP:127.0.0.1")
        policy = folder / "policy.yaml"
        policy.write_text(POLICY)
        command = [sys.executable, "-m", "memqos", "webhook", "--listen", "127.0.0.1:0"]
        command += ["--policy", str(policy)]
        command += ["--tls-cert", str(identity.cert), "--tls-key", str(identity.key)]
        self._process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
        resource.prlimit(self._process.pid, resource.RLIMIT_NOFILE, (files, files))
        assert self._process.stderr is not None
        found = re.search(r"127\.0\.0\.1:(\d+)", self._process.stderr.readline())
        assert found is not None
        self.address = "127.0.0.1", int(found[1])
        self.trust = ssl.create_default_context(cafile=str(identity.cert))

    def __enter__(self) -> "_Server":
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.communicate()

    def peak(self) -> float:
        """The most memory it ever had resident, in MiB."""
        status = Path(f"/proc/{self._process.pid}/status").read_text()
        found = re.search(r"VmHWM:\s*(\d+) kB", status)
        assert found is not None
        return int(found[1]) / 1024

    def refuses_a_pod_without_limits(self) -> bool:
        """Whether an honest review gets the answer it should."""
        with suppress(OSError, HTTPException):
            return b"has no memory in its limits" in self.review(
                review({"containers": [container()]})
            )
        return False

    def review(self, body: bytes, patience: float = PATIENCE) -> bytes:
        """The answer to a review over a connection of its own."""
        connection = HTTPSConnection(*self.address, context=self.trust, timeout=patience)
        try:
            connection.request("POST", "/validate", body)
            return connection.getresponse().read()
        finally:
            connection.close()

    def connect(self) -> ssl.SSLSocket:
        """A connection after its handshake."""
        plain = socket.create_connection(self.address, timeout=PATIENCE)
        return self.trust.wrap_socket(plain, server_hostname="127.0.0.1")


def _nothing(_server: _Server, _connections: ExitStack) -> None:
    """What it takes by itself."""


def _without_hello(server: _Server, connections: ExitStack) -> None:
    for _ in range(2000):
        client = connections.enter_context(socket.socket())
        client.setblocking(False)  # a full backlog would block connect(2)
        client.connect_ex(server.address)


def _stalled_hello(server: _Server, connections: ExitStack) -> None:
    """The first bytes of a handshake, after which a server has memory for all of it."""
    for _ in range(2000):
        client = connections.enter_context(socket.create_connection(server.address))
        with suppress(OSError):
            client.sendall(b"\x16\x03\x01\x02\x00\x01")


def _idle(server: _Server, connections: ExitStack) -> None:
    for _ in range(600):
        with suppress(OSError):
            connections.enter_context(server.connect())


def _slow_bodies(server: _Server, connections: ExitStack) -> None:
    """All but the end of many bodies at once."""
    piece = b" " * (8 << 20)

    def send(_: int) -> None:
        with suppress(OSError):
            client = connections.enter_context(server.connect())
            client.sendall(HEAD.format(len(piece)).encode() + piece[:-100_000])

    with ThreadPoolExecutor(200) as pool:
        pool.map(send, range(200))


def _large_review(server: _Server, _connections: ExitStack) -> None:
    """As many containers as fit, each of which breaks rules."""
    body = review({"containers": ["CONTAINERS"]})
    containers = b",".join([b"{}"] * 1_600_000)
    with suppress(OSError, HTTPException):
        server.review(body.replace(b'"CONTAINERS"', containers), patience=60)


def _largest_reviews(server: _Server, _connections: ExitStack) -> None:
    """As large as any that is read, and all of it text that is decoded."""
    labels = {f"key-{index}": "x" * 180 for index in range(95_000)}
    metadata = {"name": "web", "labels": labels}
    body = review({}, object={"metadata": metadata, "spec": {"containers": [container()]}})
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda _: server.review(body, patience=60), range(12)))


def _wide_text(server: _Server, _connections: ExitStack) -> None:
    """A text of which one character makes every other take four bytes."""
    name = "x" * 19_900_000 + "\U0001f600"
    spec = {"containers": [{**container(), "name": name}]}
    body = review(spec).replace(rb"\ud83d\ude00", "\U0001f600".encode())
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda _: server.review(body, patience=60), range(4)))


def _long_refusal(server: _Server, connections: ExitStack) -> None:
    """Refusals of many containers that the client does not read."""
    spec = {"containers": [{**container(), "name": f"c{index}"} for index in range(20_000)]}
    body = review(spec)
    for _ in range(100):
        with suppress(OSError):
            client = connections.enter_context(server.connect())
            client.sendall(HEAD.format(len(body)).encode() + body)


def _distinct_texts(server: _Server, _connections: ExitStack) -> None:
    """Quantities and names that are sent once, to fill caches."""
    for turn in range(100):
        limits = {f"{'x' * 200}.example.com/{turn}-{n}": f"1{turn}{n}e900" for n in range(200)}
        spec = {"containers": [container(limits=limits)]}
        spec["containers"] += [container(limits={"memory": f"{turn}.{n}e990"}) for n in range(700)]
        with suppress(OSError, HTTPException):
            server.review(review(spec))


FILES = 4096
ATTACKS: dict[str, tuple[Callable[[_Server, ExitStack], None], int]] = {
    "none": (_nothing, FILES),
    "2,000 connections without a TLS hello": (_without_hello, FILES),
    "the same, with 64 file descriptors": (_without_hello, 64),
    "2,000 connections that stall in their handshake": (_stalled_hello, FILES),
    "600 idle connections after their handshake": (_idle, FILES),
    "200 bodies of 8 MiB that never end": (_slow_bodies, FILES),
    "a review of 4.8 MB with 1,600,000 containers": (_large_review, FILES),
    "12 reviews of 19 MB with 95,000 labels, 4 at a time": (_largest_reviews, FILES),
    "4 reviews of 20 MB, one text with an emoji": (_wide_text, FILES),
    "100 refusals of 20,000 containers that nobody reads": (_long_refusal, FILES),
    "90,000 quantities and names never met again": (_distinct_texts, FILES),
}
"""What is done → how, and how many file descriptors the server may have."""
