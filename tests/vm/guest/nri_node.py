"""A node whose runtime has NRI on, with an agent that is its plugin."""

import signal
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from tests.eventually import PATIENCE, eventually
from tests.vm.guest.agent import Agent
from tests.vm.guest.owner_node import text
from tests.vm.guest.runtime import Containerd, Handler, RunningPod
from tests.vm.guest.support import MI

from memqos.host.nri.messages import NriContainer, RuntimeInfo
from memqos.host.nri.mux import ConnectionEnded
from memqos.host.nri.plugin import NriConnection, unreachable_over_nri
from memqos.kernel.machine import NRI_SOCKET
from memqos.plan.names import Driver

LOW: Final = "memory.low"
HIGH: Final = "memory.high"
REQUEST: Final = 16 * MI
LIMIT: Final = 48 * MI
OWN: Final = (str(REQUEST), str((REQUEST + LIMIT) // 2))
"""memory.low and memory.high by the agent's plan."""
NRI_DEADLINE: Final = 10.0
"""Seconds; everything in the machine takes some twenty times as long, or longer on a busy host."""
FIRST_COMMAND: Final = (
    "cat /sys/fs/cgroup/memory.low /sys/fs/cgroup/memory.high >/out/$0; exec sleep 2147483647"
)


class NriNode(Agent):
    """Pods are made known to the agent before their containers are created, as by a kubelet."""

    def __init__(self, folder: Path, driver: Driver) -> None:
        super().__init__(folder, driver)
        self.driver = driver
        self.containerd = Containerd(driver, nri=True)
        self.out = folder / "out"
        self.out.mkdir()

    def start(self, **more: object) -> None:
        super().start(nri="on", nri_deadline=f"{NRI_DEADLINE}s", **more)
        eventually("the agent is connected", lambda: self.nri()["runtime"])

    def nri(self) -> dict[str, Any]:
        found: dict[str, Any] = self.state()["nri"]
        return found

    def count_adjusted(self) -> int:
        """Answers that set values, as of the last turn: the state is published at its end."""
        found: int = self.nri()["answers"].get("set", 0)
        return found

    def pod(
        self, uid: str, handler: Handler = "runc", containers: Sequence[str] = ("main",)
    ) -> RunningPod:
        """A pod that the agent knows of."""
        self.tell(self.manifest(uid, containers))
        made = RunningPod(self.containerd, uid, "Burstable", handler)
        if self.agent is not None:
            self.wait_until_known(uid)
        return made

    def manifest(
        self, uid: str, containers: Sequence[str] = ("main",), limit: int = LIMIT
    ) -> dict[str, Any]:
        resources = {"requests": {"memory": str(REQUEST)}, "limits": {"memory": str(limit)}}
        return {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": uid, "uid": uid},
            "spec": {
                "containers": [
                    {"name": name, "image": "i", "resources": resources} for name in containers
                ]
            },
        }

    def wait_until_known(self, uid: str) -> None:
        eventually("the agent knows it", lambda: uid in self.known_pods())

    def known_pods(self) -> set[str]:
        return {pod["pod"].partition("/")[2] for pod in self.state()["pods"]}

    def run(self, pod: RunningPod, name: str = "main", script: str = FIRST_COMMAND) -> Path:
        """Start a container, whose first command writes down what it has."""
        command = ("/bin/sh", "-c", script, f"{pod.uid}-{name}")
        return pod.container(name, command, {"/out": self.out}, memory_limit_in_bytes=LIMIT)

    def first_values(self, pod: RunningPod, name: str = "main") -> tuple[str, ...]:
        """What the first command of a container has found."""
        found = self.out / f"{pod.uid}-{name}"
        eventually("it has run", lambda: found.exists() and len(found.read_text().split()) == 2)
        return tuple(found.read_text().split())

    def stop(self) -> None:
        if self.agent is not None:
            self.end(signal.SIGKILL)
        self.containerd.kill()


class OtherPlugin:
    """A plugin beside the agent, which gives every new container the same values."""

    def __init__(self, patience: float = PATIENCE, **values: str) -> None:
        self.values = {f"memory.{file}": value for file, value in values.items()}
        self._listed = threading.Event()
        self.connection = NriConnection(NRI_SOCKET, "other", "20", self)
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()
        if not self._listed.wait(patience):
            self.close()
            raise ConnectionEnded("the runtime does not answer")

    @property
    def is_connected(self) -> bool:
        return self._thread.is_alive()

    def close(self) -> None:
        self.connection.hang_up()
        self._thread.join()

    def configure(self, runtime: RuntimeInfo) -> None: ...

    def synchronize(self, containers: list[NriContainer]) -> None:
        self._listed.set()

    def create(self, container: NriContainer) -> Mapping[str, str]:
        return self.values

    def update(self, container: NriContainer) -> Mapping[str, str]:
        return {}

    def note_created(self, container: str) -> None: ...

    def note_started(self, container: str) -> None: ...

    def note_stopped(self, container: str) -> None: ...

    def note_failure(self, error: Exception) -> None: ...

    def _serve(self) -> None:
        try:
            self.connection.serve()
        except ConnectionEnded:
            return


class UpdatingPlugin:
    """A plugin that updates containers, and connects again to a runtime that was restarted."""

    def __init__(self) -> None:
        self._plugin = OtherPlugin()

    def update_containers(self, updates: Mapping[str, Mapping[str, str]], timeout: float) -> None:
        if not self._plugin.is_connected:
            try:
                self._plugin = OtherPlugin(patience=10)
            except ConnectionEnded as error:
                raise unreachable_over_nri(f"is not connected: {error}") from None
        self._plugin.connection.update_containers(updates, timeout)


def values(cgroup: Path) -> tuple[str, str]:
    return text(cgroup, LOW), text(cgroup, HIGH)
