"""A tree of cgroups with many containers in use, their pods, and an agent that answers."""

import json
import os
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from socketserver import UnixStreamServer
from typing import Any

MI = 1 << 20
KUBELET = """
kind: KubeletConfiguration
apiVersion: kubelet.config.k8s.io/v1beta1
cgroupDriver: cgroupfs
featureGates: {MemoryQoS: true}
memoryReservationPolicy: TieredReservation
memoryThrottlingFactor: 0.9
"""


def pod_of(number: int, containers: int = 2, name: str | None = None) -> dict[str, Any]:
    """A Burstable pod whose containers run."""
    names = [f"c{index}" for index in range(containers)]
    resources = {"requests": {"memory": "64Mi"}, "limits": {"memory": f"{256 + number % 7}Mi"}}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name or f"web-{number:04d}",
            "namespace": "shop",
            "uid": f"uid-{number:04d}",
        },
        "spec": {
            "nodeName": "node-1",
            "containers": [
                {"name": each, "image": "example.org/web", "resources": resources} for each in names
            ],
        },
        "status": {
            "phase": "Running",
            "containerStatuses": [
                {"name": each, "containerID": f"containerd://{container_id(number, index)}"}
                for index, each in enumerate(names)
            ],
        },
    }


def container_id(number: int, index: int) -> str:
    return f"{number:032x}{index:032x}"


def container_path(number: int, index: int = 0) -> str:
    return f"/kubepods/burstable/poduid-{number:04d}/{container_id(number, index)}"


class BusyNode:
    """The tree, in a folder."""

    def __init__(
        self, folder: Path, pods: int, containers: int = 2, names: Sequence[str] = ()
    ) -> None:
        self.root = folder / "cgroup"
        self.pods_file = folder / "pods.json"
        self.kubelet_file = folder / "kubelet.yaml"
        self.socket = str(folder / "state.sock")
        self.kubelet_file.write_text(KUBELET)
        items = [
            pod_of(number, containers, names[number] if number < len(names) else None)
            for number in range(pods)
        ]
        self.pods_file.write_text(json.dumps({"kind": "List", "apiVersion": "v1", "items": items}))
        self.root.mkdir(parents=True)
        (self.root / "cgroup.controllers").write_text("memory cpuset\n")
        for path in ("/kubepods", "/kubepods/burstable", "/kubepods/besteffort"):
            self.make(path, pods * MI)
        for number in range(pods):
            self.make(f"/kubepods/burstable/poduid-{number:04d}", 2 * MI * (number + 1))
            for index in range(containers):
                self.make(container_path(number, index), MI * (number + 1), limit=256)

    def make(self, path: str, current: int, limit: int | None = None) -> None:
        """A cgroup that uses so much."""
        files = {
            "memory.current": current,
            "memory.min": 0,
            "memory.low": 64 * MI,
            "memory.high": "max" if limit is None else (limit - 20) * MI,
            "memory.max": "max" if limit is None else limit * MI,
            "memory.events": "low 0\nhigh 0\nmax 0\noom 0\noom_kill 0",
            "memory.stat": f"anon {current // 2}\nfile {current // 2}\nshmem 0\n"
            "inactive_file 0\nworkingset_refault_anon 0\nworkingset_refault_file 0",
            "memory.pressure": "some avg10=0.00 avg60=0.00 avg300=0.00 total=0\n"
            "full avg10=0.00 avg60=0.00 avg300=0.00 total=0",
            "memory.swap.current": 0,
            "memory.swap.max": "max",
            "memory.oom.group": 0,
            "cpu.weight": 100,
            "cpu.max": "max 100000",
            "cpuset.mems": "",
        }
        folder = self.root / path.removeprefix("/")
        os.makedirs(folder, exist_ok=True)
        for file, content in files.items():
            (folder / file).write_text(f"{content}\n")

    def write(self, path: str, file: str, content: object) -> None:
        """What the kernel shows in a file from now on."""
        (self.root / path.removeprefix("/") / file).write_text(f"{content}\n")

    def remove(self, path: str) -> None:
        """The container has ended."""
        folder = self.root / path.removeprefix("/")
        for file in folder.iterdir():
            file.unlink()
        folder.rmdir()

    @property
    def options(self) -> list[str]:
        """Of a command that looks at it."""
        return [
            "--cgroup-root",
            str(self.root),
            "--pods",
            str(self.pods_file),
            "--kubelet",
            str(self.kubelet_file),
            "--release",
            "1.36",
        ]


def state_of(number: int = 1, **more: Any) -> dict[str, Any]:
    """What an agent would answer about one container."""
    path = container_path(number)
    files = {
        "memory.high": {
            "desired": str(200 * MI),
            "actual": str(236 * MI),
            "rule": "high/guard",
            "because": "widened step by step",
            "steps": ["step 2 of 4"],
            "source": "memqos",
        }
    }
    return {
        "version": "0",
        "mode": "enforce",
        "release": "1.36",
        "policy": "TieredReservation",
        "factor": 0.9,
        "converged": True,
        "convergedFor": 90.0,
        "pods": [
            {
                "pod": "shop/web-0001",
                "mode": "enforce",
                "cgroups": [{"path": path, "container": "c0", "files": files}],
            }
        ],
        "guard": {path: 2},
        "usage": {
            "age": 1.0,
            "cgroups": {path: {"current": 9 * MI, "high": 40, "oomKill": 1, "some": 2, "full": 1}},
        },
    } | more


@contextmanager
def agent_answering(socket: str, state: dict[str, Any]) -> Iterator[None]:
    """An agent's socket that answers with a state."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = json.dumps(state).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: Any) -> None:
            pass

        def address_string(self) -> str:
            return "agent"

    if os.path.exists(socket):
        os.unlink(socket)
    with UnixStreamServer(socket, Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
        thread.start()
        try:
            yield
        finally:
            server.shutdown()
            thread.join()
    os.unlink(socket)
