"""The agent's own command in a cluster: a node of 250 pods, and a burst of 3,000 watch events.

It is started as a DaemonSet starts it, on a copy of a tree, and enforces, guards, records and posts
Events. CPU time and memory are those of its process, as the kernel counts them.
"""

import http.client
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

from tests.fakes.agent import KUBELET, LEVELS
from tests.fakes.cgroups import FakeKernel

from bench.agent import KERNEL
from bench.apiserver import EVENTS, FOLLOWED, GO, POSTED, a_pod, environment, server

MOST_MB = 60
QUIET = 10.0
"""Seconds without much processor time after which a burst is over."""


def report() -> Iterator[str]:
    """Takes half a minute."""
    memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    with (
        tempfile.TemporaryDirectory(prefix="memqos-bench-", dir=memory) as folder,
        server("gated") as port,
        _Agent(Path(folder), port) as agent,
    ):
        agent.settle()
        at_start = agent.cpu
        yield f"the agent in a cluster, {FOLLOWED} pods × 2 containers, enforcing"
        yield f"  from its start to all values in place  {at_start:6.2f} s of CPU time"
        yield f"  resident memory then                   {agent.memory('VmRSS'):6.1f} MB"
        _ask(port, GO)
        agent.settle()
        cpu = agent.cpu - at_start
        yield f"  through {EVENTS} watch events             {cpu:6.2f} s of CPU time"
        yield f"    an event                             {cpu / EVENTS * 1e6:6.0f} µs"
        yield (
            f"  resident memory then                   {agent.memory('VmRSS'):6.1f} MB  "
            f"(at most {MOST_MB})"
        )
        yield f"    at its peak                          {agent.memory('VmHWM'):6.1f} MB"
        yield f"  Events on pods that were sent          {int(_ask(port, POSTED)):6d}"


class _Agent:
    """`memqos agent` in a process of its own."""

    def __init__(self, folder: Path, port: int) -> None:
        self._folder = folder
        kernel = FakeKernel(folder)
        (kernel.folder / "cgroup.controllers").write_text("cpuset cpu memory\n")
        for path in (*LEVELS, *_cgroups()):
            kernel.make(path, KERNEL)
        (folder / "kubelet.yaml").write_text(KUBELET)
        (folder / "config").write_text(
            "apiVersion: v1\nkind: Config\ncurrent-context: bench\n"
            f"clusters: [{{name: bench, cluster: {{server: 'http://127.0.0.1:{port}'}}}}]\n"
            "users: [{name: bench, user: {}}]\n"
            "contexts: [{name: bench, context: {cluster: bench, user: bench}}]\n"
        )
        self._command = [
            *(sys.executable, "-m", "memqos.cli.main", "agent", "--mode=enforce"),
            *("--gate=MemoryQoS=true", "--policy=TieredReservation", "--factor=0.5"),
            *("--release=1.38", "--log-format=json", "--pods-cluster", "--pods-node-name=node-1"),
            *("--listen=127.0.0.1:0", f"--state-socket={folder}/state.sock"),
            *(f"--cgroup-root={kernel.root}", f"--journal={folder}/run"),
            *(f"--kubelet={folder}/kubelet.yaml", f"--recorder-folder={folder}/records"),
        ]

    def __enter__(self) -> "_Agent":
        with (self._folder / "log").open("wb") as log:
            self.process = subprocess.Popen(
                self._command,
                stderr=log,
                env={**environment(), "KUBECONFIG": str(self._folder / "config")},
            )
        return self

    def __exit__(self, *_: object) -> None:
        self.process.send_signal(signal.SIGTERM)
        self.process.wait()

    def settle(self) -> None:
        """Until it has been nearly idle for a while, and all is as planned."""
        last, since = self.cpu, time.monotonic()
        while time.monotonic() - since < QUIET or not self._is_ready():
            time.sleep(0.5)
            assert self.process.poll() is None, (self._folder / "log").read_text()
            now = self.cpu
            if now - last > 0.1:
                last, since = now, time.monotonic()
        assert not self._pending(), "not all values are in place"

    @property
    def cpu(self) -> float:
        """Seconds of processor time."""
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def memory(self, name: str) -> float:
        """Mega (not mebi) bytes."""
        text = Path(f"/proc/{self.process.pid}/status").read_text()
        return int(text.partition(f"{name}:")[2].split()[0]) * 1024 / 1e6

    def _is_ready(self) -> bool:
        return any("started" in each["message"] for each in self._log())

    def _pending(self) -> float:
        (started,) = [each for each in self._log() if each["message"] == "started"]
        connection = http.client.HTTPConnection(started["metrics"], timeout=60)
        connection.request("GET", "/metrics")
        lines = connection.getresponse().read().decode().splitlines()
        connection.close()
        found = [line for line in lines if line.startswith("memqos_pending_changes{")]
        return sum(float(line.rpartition(" ")[2]) for line in found)

    def _log(self) -> list[dict[str, str]]:
        text = (self._folder / "log").read_text()
        return [json.loads(line) for line in text.splitlines() if line.endswith("}")]


def _cgroups() -> Iterator[str]:
    for number in range(FOLLOWED):
        pod = a_pod(number, number)
        path = f"{LEVELS[1]}/pod{pod['metadata']['uid']}"
        yield path
        for status in pod["status"]["containerStatuses"]:
            yield f"{path}/{status['containerID'].partition('://')[2]}"


def _ask(port: int, path: str) -> bytes:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    connection.request("GET", path)
    body = connection.getresponse().read()
    connection.close()
    return body
