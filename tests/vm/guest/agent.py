"""memqos agent at work in the machine, as a service would be."""

import json
import re
import signal
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, Self

from tests.eventually import PATIENCE, eventually
from tests.vm.guest.support import Cgroup

PORT: Final = 9177


class Agent:
    """The command at work, its pods from a folder."""

    def __init__(self, folder: Path, driver: str) -> None:
        self.folder = folder
        (folder / "pods").mkdir()
        head = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n"
        (folder / "kubelet.yaml").write_text(
            f"{head}featureGates: {{MemoryQoS: true}}\nmemoryReservationPolicy: TieredReservation\n"
            f"memoryThrottlingFactor: 0.5\ncgroupDriver: {driver}\n"
        )
        # No kubelet runs here: one with the gate on would keep the files above pods itself.
        (folder / "gate-off.yaml").write_text(
            f"{head}featureGates: {{MemoryQoS: false}}\ncgroupDriver: {driver}\n"
        )
        self.agent: subprocess.Popen[str] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self.agent is not None:
            self.end(signal.SIGKILL)

    def start(self, **more: object) -> None:
        """Start it, with further options; guard_calm="5s" is --guard-calm 5s, None leaves out."""
        command = [sys.executable, "-m", "memqos.cli.main", "agent", "--mode", "enforce"]
        for name, value in {
            "pods": self.folder / "pods",
            "kubelet": self.folder / "gate-off.yaml",
            "gate": "MemoryQoS=true",
            "policy": "TieredReservation",
            "factor": 0.5,
            "journal": self.folder / "run",
            "state-socket": self.folder / "state.sock",
            "listen": "127.0.0.1:0",
            "release": "1.38",
            "resync": "1h",
            **more,
        }.items():
            if value is not None:
                command += [f"--{name.replace('_', '-')}", str(value)]
        with (self.folder / "log").open("a") as log:
            self.agent = subprocess.Popen(command, stderr=log, text=True)
        eventually("the agent has looked at the node", self.has_looked)

    def end(self, how: signal.Signals) -> int:
        assert self.agent is not None
        self.agent.send_signal(how)
        code = self.agent.wait()
        self.agent = None
        return code

    def has_looked(self) -> bool:
        assert self.agent is not None
        assert self.agent.poll() is None, (self.folder / "log").read_text()
        try:
            return bool(self.state()["levels"])
        except (OSError, ValueError):
            return False

    def state(self) -> dict[str, Any]:
        with socket.socket(socket.AF_UNIX) as client:
            client.connect(str(self.folder / "state.sock"))
            client.sendall(b"GET /state HTTP/1.0\r\n\r\n")
            answer = _received(client)
        found: dict[str, Any] = json.loads(answer.partition(b"\r\n\r\n")[2])
        return found

    def metrics(self, listen: str) -> dict[str, float]:
        """What it answers where it listens: name{labels} → value."""
        host, _, port = listen.partition(":")
        with socket.create_connection((host, int(port))) as client:
            client.sendall(b"GET /metrics HTTP/1.0\r\n\r\n")
            answer = _received(client)
        lines = answer.partition(b"\r\n\r\n")[2].decode().splitlines()
        pairs = (line.rpartition(" ") for line in lines if line and not line.startswith("#"))
        return {name: float(value) for name, _, value in pairs}

    def tell(self, manifest: Mapping[str, Any]) -> None:
        fresh = self.folder / "pods" / f"{manifest['metadata']['name']}.tmp"
        fresh.write_text(json.dumps(manifest))
        fresh.rename(fresh.with_suffix(".json"))

    def reload(self) -> None:
        """Have it look at everything now."""
        assert self.agent is not None
        self.agent.send_signal(signal.SIGHUP)

    def roll_back(self, *options: str) -> None:
        journal = ["--journal", str(self.folder / "run")]
        command = [sys.executable, "-m", "memqos.cli.main", "rollback", *journal, *options]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)


class BareNode(Agent):
    """Bare cgroups laid out as a kubelet does, and an agent beside them."""

    def __init__(self, folder: Path, kubepods: Cgroup) -> None:
        super().__init__(folder, "cgroupfs")
        self.kubepods = kubepods
        self.burstable = kubepods.child("burstable")
        kubepods.child("besteffort")


def get_page(path: str, port: int = PORT) -> tuple[int, str]:
    """What an agent answers at its port; 0 where there is none."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=PATIENCE) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as refused:
        with refused:
            return refused.code, ""
    except OSError:
        return 0, ""


def metric(name: str) -> float:
    """A metric by its name and labels."""
    _, page = get_page("/metrics")
    (found,) = re.findall(rf"^{re.escape(name)} (\S+)$", page, re.MULTILINE)
    return float(found)


def _received(client: socket.socket) -> bytes:
    answer = b""
    while more := client.recv(1 << 16):
        answer += more
    return answer
