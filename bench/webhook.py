"""What a review costs the admission server, beside a server that allows all without reading."""

import asyncio
import json
import multiprocessing
import socket
import time
from collections.abc import Callable, Iterator
from multiprocessing.connection import Connection

from memqos.findings.policy import (
    POLICY_API_VERSION,
    POLICY_KIND,
    AdmissionPolicy,
    ForbidClass,
    LimitRatio,
)
from memqos.kube.admission_review import Response, encode_review
from memqos.release import Release
from memqos.serve.admission import PodReviewer
from memqos.serve.connections import ClientLimits
from memqos.serve.endpoints import JSON, PLAIN, HttpReply
from memqos.serve.http import listen

REQUESTS, ROUNDS = 2_000, 5
MOST = 2.5
UID = "705ab4f5-53f2-4c5e-8f0b-5d1c1b9a1f11"


def report() -> Iterator[str]:
    """Processor time of the server, the best of several rounds in turns."""
    reviewer = PodReviewer(
        AdmissionPolicy(
            POLICY_API_VERSION,
            POLICY_KIND,
            rules=(
                ForbidClass(id="no-best-effort", forbid=("BestEffort",)),
                LimitRatio(id="limit-near-request", most=2),
            ),
        ),
        Release.of(),
    )
    bare = encode_review(Response(UID, True))
    handlers: dict[str, Callable[[bytearray], bytes]] = {
        "allow everything": lambda _body: bare,
        "mutate": lambda body: encode_review(reviewer.mutate(body)),
        "validate": lambda body: encode_review(reviewer.validate(body)),
    }
    body = _review()
    servers = {name: _Server(handler) for name, handler in handlers.items()}
    best = dict.fromkeys(servers, float("inf"))
    try:
        for _ in range(ROUNDS):
            for name, server in servers.items():
                best[name] = min(best[name], server.seconds(body) / REQUESTS)
    finally:
        for server in servers.values():
            server.process.kill()
    yield f"a review of {len(body) / 1024:.1f} KiB, plain HTTP, one connection"
    for name, seconds in best.items():
        ratio = seconds / best["allow everything"]
        bound = "" if name == "allow everything" else f"  (at most {MOST:g})"
        yield f"{name:<20} {seconds * 1e6:6.0f} µs a request  {ratio:5.2f} ×{bound}"


class _Server:
    """A server in a process of its own, and a client of it."""

    def __init__(self, handler: Callable[[bytearray], bytes]) -> None:
        fork = multiprocessing.get_context("fork")
        receiver, sender = fork.Pipe(duplex=False)
        self.process = fork.Process(target=_serve, args=(handler, sender), daemon=True)
        self.process.start()
        self._client = socket.create_connection(("127.0.0.1", receiver.recv()))
        self._answers = self._client.makefile("rb")

    def seconds(self, body: bytes) -> float:
        """Processor time of the server for many requests."""
        head = f"POST /review HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n\r\n"
        request = head.encode() + body
        before = self._cpu()
        for _ in range(REQUESTS):
            self._client.sendall(request)
            assert b'"allowed":true' in self._answer()
        return self._cpu() - before

    def _cpu(self) -> float:
        self._client.sendall(b"GET /cpu HTTP/1.1\r\nHost: x\r\n\r\n")
        return float(self._answer())

    def _answer(self) -> bytes:
        length = 0
        while (line := self._answers.readline()) != b"\r\n":
            if line.startswith(b"Content-Length:"):
                length = int(line.partition(b":")[2])
        return self._answers.read(length)


def _serve(handler: Callable[[bytearray], bytes], sender: Connection) -> None:
    async def run() -> None:
        listener = await listen(
            {"/cpu": lambda: HttpReply(200, PLAIN, repr(time.process_time()).encode())},
            "127.0.0.1",
            0,
            posts={"/review": lambda body: HttpReply(200, JSON, handler(body))},
            bounds=ClientLimits(body=1 << 20),
        )
        sender.send(int(listener.address.rpartition(":")[2]))
        await asyncio.Event().wait()

    asyncio.run(run())


def _review() -> bytes:
    """A typical pod: two containers, their environment, volumes and probes."""
    environment = [{"name": f"SETTING_{index}", "value": f"value-{index}"} for index in range(25)]
    probe = {"httpGet": {"path": "/healthz", "port": 8080}, "periodSeconds": 10}
    containers = [
        {
            "name": name,
            "image": f"registry.example/{name}:1.27.3",
            "env": environment,
            "livenessProbe": probe,
            "readinessProbe": probe,
            "resources": {
                "requests": {"cpu": "250m", "memory": "256Mi"},
                "limits": {"memory": "512Mi"},
            },
            "volumeMounts": [{"name": "token", "mountPath": "/var/run/secrets"}],
        }
        for name in ("app", "proxy")
    ]
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"generateName": "web-", "labels": {"app": "web"}},
        "spec": {"containers": containers, "tolerations": [], "serviceAccountName": "web"},
    }
    request = {
        "uid": UID,
        "kind": {"group": "", "version": "v1", "kind": "Pod"},
        "resource": {"group": "", "version": "v1", "resource": "pods"},
        "namespace": "shop",
        "operation": "CREATE",
        "object": pod,
        "oldObject": None,
    }
    review = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request}
    return json.dumps(review).encode()
