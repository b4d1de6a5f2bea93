"""An agent beside a kubelet that does to real cgroups what real kubelets were seen to do."""

import json
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.eventually import eventually
from tests.fakes.agent import LEVELS, MI, a_pod, container_paths, pod_path
from tests.fakes.beside_kubelet import ABOVE
from tests.fakes.kubelet import FakeKubelet, fake_kubelet, self_signed
from tests.fakes.scripted_kubelet import SYNC, TIERED, ScriptedKubelet, Settings
from tests.vm.guest.agent import BareNode
from tests.vm.guest.support import ROOT, Cgroup

from memqos.lab.vm.topology import Topology

MACHINES = {"small": Topology()}

HIGH = "memory.high"
KEPT = [164 * MI, 64 * MI, 0, 64 * MI]
"""What the kubelet keeps above the two pods."""
NOTHING = [0, 0, 0, 0]


class Node(BareNode):
    """Two pods, their kubelet with its endpoint, and an agent that knows nothing but that."""

    def __init__(
        self, folder: Path, kubepods: Cgroup, settings: Settings, kubelet: FakeKubelet
    ) -> None:
        super().__init__(folder, kubepods)
        self.kubelet = kubelet
        self.scripted = ScriptedKubelet(self.write, settings, 0.0)
        for pod in (a_pod("b1", 64, 128), a_pod("g1", 100, 100)):
            above = self.burstable if LEVELS[1] in pod_path(pod) else self.kubepods
            cgroup = above.child(pod_path(pod).rpartition("/")[2])
            for path in container_paths(pod):
                cgroup.child(path.rpartition("/")[2])
            self.scripted.create(pod)
        self.scripted.run(SYNC)
        self.answer()

    def write(self, path: str, file: str, value: str) -> None:
        (ROOT / path.removeprefix("/") / file).write_text(value)

    def answer(self) -> None:
        """The kubelet tells what it runs with, and what it runs."""
        pods: dict[str, Any] = {"kind": "PodList", "apiVersion": "v1"}
        pods["items"] = list(self.scripted.pods.values())
        version = f'kubernetes_build_info{{git_version="v1.{self.scripted.settings.minor}.0"}} 1\n'
        configuration = yaml.safe_load(self.scripted.settings.configuration)
        self.kubelet.answers = {
            "/pods": json.dumps(pods).encode(),
            "/configz": {"kubeletconfig": {**configuration, "cgroupDriver": "cgroupfs"}},
            "/metrics": version.encode(),
        }
        self.kubelet.raw = None

    def restart(self, settings: Settings) -> None:
        """It zeroes what it keeps, and does not answer yet."""
        self.kubelet.raw = b""
        self.scripted.start(settings, 0.0)

    def start(self, **more: object) -> None:
        super().start(
            pods=self.kubelet.url,
            ca_file=self.folder / "node.crt",
            release=None,
            kubelet=None,
            fight_grace="0s",
            **{"gate": None, "policy": None, "factor": None, **more},
        )
        eventually("all is as planned", self.is_as_planned)

    def is_as_planned(self) -> bool:
        """Whether the kubelet has answered, and both of its pods are as they should be."""
        state = self.state()
        return state["doubt"] is None and len(state["pods"]) == 2 and bool(state["converged"])

    def above(self) -> list[int]:
        return [int((ROOT / path.removeprefix("/") / file).read_text()) for path, file in ABOVE]

    def expect_drops(self, times: int) -> None:
        """Wait until the agent has found so many values zeroed above the pods."""
        log = self.folder / "log"
        eventually(
            "drops are noticed", lambda: log.read_text().count("cause=kubelet-restart") == times
        )

    def expect_value(self, file: Path, amount: int) -> None:
        eventually("it is repaired", lambda: file.read_text() == f"{amount}\n")


@pytest.fixture
def endpoint(tmp_path: Path, loopback: None) -> Iterator[FakeKubelet]:
    with fake_kubelet({}, self_signed(tmp_path, "node", "IP:127.0.0.1")) as made:
        yield made


def test_a_hole_is_closed_when_the_kubelet_answers_and_still_reserves(
    tmp_path: Path, kubepods: Cgroup, endpoint: FakeKubelet
) -> None:
    with Node(tmp_path, kubepods, TIERED, endpoint) as node:
        node.start()
        assert node.above() == KEPT
        for restarts in range(1, 4):
            node.restart(TIERED)
            node.expect_drops(3 * restarts)
            assert node.above() == NOTHING
            node.answer()
            eventually("it is closed", lambda: node.above() == KEPT)
        # An administrator turns it off, and on again.
        node.restart(Settings(policy="None"))
        node.answer()
        eventually("it is known", lambda: node.state()["policy"] == "None")
        assert node.above() == NOTHING
        node.restart(TIERED)
        node.answer()
        node.scripted.run(SYNC)
        eventually("it is known again", lambda: node.state()["policy"] == TIERED.policy)
        assert node.above() == KEPT
        assert not node.state()["leftAlone"]
        assert node.end(signal.SIGTERM) == 0
        # What the kubelet has not confirmed yet is decided by its configuration.
        (tmp_path / "kubelet.yaml").write_text(TIERED.configuration)
        node.roll_back("--kubelet", str(tmp_path / "kubelet.yaml"), "--release", "1.38")
        assert node.above() == KEPT


def test_a_resize_is_repaired_though_nothing_but_the_kernel_tells_of_it(
    tmp_path: Path, kubepods: Cgroup, endpoint: FakeKubelet
) -> None:
    with Node(tmp_path, kubepods, Settings(gate=False), endpoint) as node:
        node.start(gate="MemoryQoS=true", policy="TieredReservation", factor=0.5)
        (path,) = container_paths(a_pod("b1"))
        high = ROOT / path.removeprefix("/") / HIGH
        node.expect_value(high, 96 * MI)
        for limit in (192, 256):
            node.scripted.resize(a_pod("b1", 64, limit))
            node.answer()
            node.expect_value(high, 64 * MI + (limit - 64) * MI // 2)
        assert not node.state()["drift"]
