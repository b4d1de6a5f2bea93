"""An API server's pods: the first list beside a bare download, and what following a node costs.

The server is a process of its own that sends bytes it made before, so that what is measured is the
client. Pods are as large as those of a cluster: most of what is sent is of no concern to memqos.
"""

import http.client
import json
import os
import resource
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple
from urllib.parse import parse_qsl, urlsplit

import msgspec

from memqos.kube.pod import Pod

PODS = 5_000
PAGE = 500
ROUNDS = 15
MOST = 1.5
FOLLOWED = 250
EVENTS = 3_000
MOST_MIB = 60
PROJECT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
LIST = "/api/v1/pods"
GO, POSTED = "/go", "/posted"


class _Page(msgspec.Struct):
    metadata: dict[str, str]
    items: list[Pod]
    kind: str = ""


class _Cost(NamedTuple):
    """Seconds of wall clock and of CPU; the latter do not depend on other processes."""

    wall: float
    cpu: float


def report() -> Iterator[str]:
    """Best of several rounds, taken in turns; memory and CPU time of a process of its own."""
    into_pods = msgspec.json.Decoder(_Page)
    with server() as port:
        _list(port)
        bare, ours = _best_in_turns(lambda: _download(port, into_pods.decode), lambda: _list(port))
        (plain,) = _best_in_turns(lambda: _download(port, _plain), rounds=1)
        size = _download(port, into_pods.decode) / 1e6
        yield f"first list of {PODS} pods, {size:.1f} MB in pages of {PAGE}     clock       CPU"
        yield f"  http.client and json.loads            {_cost_text(plain)}"
        yield f"  http.client and the same decoder      {_cost_text(bare)}"
        yield f"  memqos                                {_cost_text(ours)}"
        yield (
            f"    beside the same decoder             {ours.wall / bare.wall:7.2f} ×  "
            f"{ours.cpu / bare.cpu:7.2f} ×   (at most {MOST:g})"
        )
        yield f"following a node of {FOLLOWED} pods through {EVENTS} events"
        yield from _child("follow", str(port)).splitlines()


def _best_in_turns(*actions: Callable[[], object], rounds: int = ROUNDS) -> list[_Cost]:
    best = [_Cost(float("inf"), float("inf"))] * len(actions)
    for _ in range(rounds):
        for index, act in enumerate(actions):
            wall, cpu = time.perf_counter(), time.process_time()
            result = act()
            cost = _Cost(time.perf_counter() - wall, time.process_time() - cpu)
            best[index] = _Cost(*map(min, best[index], cost))
            del result
    return best


def _cost_text(cost: _Cost) -> str:
    return f"{cost.wall * 1000:7.1f} ms  {cost.cpu * 1000:7.1f} ms"


def _plain(data: bytes) -> _Page:
    return _Page(**json.loads(data))


def _download(port: int, decode: Callable[[bytes], _Page]) -> int:
    """Download all pages, decode and keep them; their bytes."""
    size, token = 0, ""
    pages: list[_Page] = []
    connection = http.client.HTTPConnection("127.0.0.1", port)
    while not pages or token:
        query = f"?limit={PAGE}" + (f"&continue={token}" if token else "")
        connection.request("GET", LIST + query)
        data = connection.getresponse().read()
        size += len(data)
        pages.append(decode(data))
        token = pages[-1].metadata.get("continue", "")
    connection.close()
    return size


def _list(port: int) -> int:
    from memqos.host.apiserver.pager import list_objects
    from memqos.host.apiserver.resources import POD_RESOURCE as RESOURCE

    server = _client(port)
    found = list_objects(server, RESOURCE)
    server.close()
    assert len(found.items) == PODS
    return PODS


def _client(port: int) -> Any:
    from memqos.host.apiserver.client import ApiClient
    from memqos.host.apiserver.kubeconfig import Cluster, ClusterAccess, User

    return ApiClient(ClusterAccess(Cluster(server=f"http://127.0.0.1:{port}"), User(), "a bench"))


def _follow(port: int) -> None:
    from memqos.converge.cluster_node import WatchedNode

    before = _resident()
    changes = 0

    def count() -> None:
        nonlocal changes
        changes += 1

    source = WatchedNode(_client(port), "node-1", on_change=count)
    source.start()
    source.wait()
    began = time.process_time()
    while source.version != str(PODS + EVENTS):
        time.sleep(0.05)
    spent = time.process_time() - began
    assert len(source.pods()) == FOLLOWED
    print(f"  resident memory of the process       {_resident():7.1f} MiB  (at most {MOST_MIB})")
    print(f"    of which before the first request  {before:7.1f} MiB")
    print(f"  CPU time for all events              {spent * 1000:7.1f} ms")
    print(f"    a change                           {spent / changes * 1e6:7.1f} µs")
    source.stop()


def _resident() -> float:
    with open("/proc/self/statm", encoding="ascii") as file:
        return int(file.read().split()[1]) * resource.getpagesize() / (1 << 20)


@contextmanager
def server(*options: str) -> Iterator[int]:
    """Its port; a `gated` server sends events only after a request for /go."""
    process = subprocess.Popen(
        [sys.executable, "-m", "bench.apiserver", "serve", *options],
        cwd=PROJECT,
        stdout=subprocess.PIPE,
        text=True,
        env=environment(),
    )
    try:
        assert process.stdout is not None
        yield int(process.stdout.readline())
    finally:
        process.kill()
        process.wait()


def _child(*arguments: str) -> str:
    return subprocess.run(
        [sys.executable, "-m", "bench.apiserver", *arguments],
        cwd=PROJECT,
        stdout=subprocess.PIPE,
        text=True,
        check=True,
        env=environment(),
    ).stdout


def environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": os.pathsep.join([f"{PROJECT}/src", *sys.path])}


def a_pod(number: int, version: int, phase: str = "Running") -> dict[str, Any]:
    """A pod with all the fields that memqos does not read."""
    fields: dict[str, Any] = {f"f:field-{index}": {".": {}, "f:value": {}} for index in range(40)}
    probe = {"httpGet": {"path": "/healthz", "port": 8080}, "periodSeconds": 10}
    names = ("app", "proxy")
    return {
        "metadata": {
            "name": f"web-{number}",
            "namespace": f"team-{number % 40}",
            "uid": f"{number:08x}-2222-4333-8444-555555555555",
            "resourceVersion": str(version),
            "creationTimestamp": "2026-01-01T00:00:00Z",
            "labels": {"app": "web", "pod-template-hash": "6d4cf56db6"},
            "annotations": {"example.com/checksum": "0123456789abcdef" * 4},
            "ownerReferences": [{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web"}],
            "managedFields": [
                {"manager": name, "operation": "Update", "fieldsType": "FieldsV1",
                 "fieldsV1": {"f:spec": fields}}
                for name in ("kube-controller-manager", "kubelet")
            ],
        },
        "spec": {
            "nodeName": "node-1",
            "serviceAccountName": "default",
            "volumes": [{"name": f"v{i}", "configMap": {"name": f"c{i}"}} for i in range(4)],
            "tolerations": [{"key": "node.kubernetes.io/not-ready", "operator": "Exists"}],
            "containers": [
                {
                    "name": name,
                    "image": f"registry.example.com/team/{name}@sha256:{'0' * 64}",
                    "env": [{"name": f"VAR_{i}", "value": "value" * 5} for i in range(12)],
                    "resources": {
                        "requests": {"cpu": "250m", "memory": f"{256 + number % 64}Mi"},
                        "limits": {"memory": "1Gi"},
                    },
                    "volumeMounts": [{"name": f"v{i}", "mountPath": f"/v{i}"} for i in range(4)],
                    "livenessProbe": probe,
                    "readinessProbe": probe,
                }
                for name in names
            ],
        },
        "status": {
            "phase": phase,
            "qosClass": "Burstable",
            "conditions": [
                {"type": kind, "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"}
                for kind in ("Initialized", "Ready", "ContainersReady", "PodScheduled")
            ],
            "containerStatuses": [
                {"name": name, "containerID": f"containerd://{number:063x}{index}", "ready": True,
                 "state": {"running": {"startedAt": "2026-01-01T00:00:00Z"}}}
                for index, name in enumerate(names)
            ],
        },
    }  # fmt: skip


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    pages: dict[tuple[bool, str], bytes]
    events: list[bytes]
    gate: threading.Event
    """Nothing happens before it is open."""
    posted = 0

    def do_GET(self) -> None:
        parts = urlsplit(self.path)
        query = dict(parse_qsl(parts.query))
        if parts.path == GO:
            self.gate.set()
        if parts.path in (GO, POSTED):
            self._answer(b"%d" % type(self).posted)
            return
        if "watch" in query:
            self._watch(parts.path)
            return
        of_node = "fieldSelector" in query
        body = self.pages[of_node, query.get("continue", "")] if parts.path == LIST else _NODES
        self._answer(body)

    def do_POST(self) -> None:
        """Events on pods."""
        self.rfile.read(int(self.headers["Content-Length"]))
        type(self).posted += 1
        self._answer(b"{}")

    def _answer(self, body: bytes) -> None:
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def _watch(self, path: str) -> None:
        self.send_response(200)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        self.wfile.flush()
        self.gate.wait()
        for event in self.events if path == LIST else ():
            self.wfile.write(b"%x\r\n%s\r\n" % (len(event), event))
        time.sleep(3600)

    def log_message(self, format: str, *args: Any) -> None:
        """Not logged."""


_NODES = msgspec.json.encode(
    {"metadata": {"resourceVersion": "1"}, "items": [{"metadata": {"name": "node-1"}}]}
)


def _serve(*, gated: bool) -> None:
    _Handler.gate = threading.Event()
    if not gated:
        _Handler.gate.set()
    all_pods = [a_pod(number, number) for number in range(PODS)]
    pages = {}
    for start in range(0, PODS, PAGE):
        metadata = {"resourceVersion": str(PODS)}
        if start + PAGE < PODS:
            metadata["continue"] = str(start + PAGE)
        page = {"kind": "PodList", "metadata": metadata, "items": all_pods[start : start + PAGE]}
        pages[False, str(start) if start else ""] = msgspec.json.encode(page)
    few = {"metadata": {"resourceVersion": str(PODS)}, "items": all_pods[:FOLLOWED]}
    pages[True, ""] = msgspec.json.encode(few)
    phases = ("Pending", "Running")
    _Handler.pages = pages
    _Handler.events = [
        msgspec.json.encode(
            {
                "type": "MODIFIED",
                "object": a_pod(
                    number % FOLLOWED, PODS + number, phases[number // FOLLOWED % len(phases)]
                ),
            }
        )
        + b"\n"
        for number in range(1, EVENTS + 1)
    ]
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
    print(server.server_port, flush=True)
    server.serve_forever()


if __name__ == "__main__":
    if sys.argv[1] == "serve":
        _serve(gated="gated" in sys.argv)
    else:
        _follow(int(sys.argv[2]))
