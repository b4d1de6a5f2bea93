"""Figures, not tests: containers that lack values at their first command, and what creation takes.

Started by bench/vm.py, which passes the number of pairs to the machine.
"""

import json
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.eventually import PATIENCE
from tests.fakes.agent import SteppedNode, a_pod
from tests.vm.guest.bench_arguments import argument
from tests.vm.guest.nri_node import LIMIT, OWN, NriNode
from tests.vm.guest.runtime import RunningPod

from memqos.agent.core.view import node_view
from memqos.agent.events import EventLog
from memqos.agent.nri import NriPlugin
from memqos.kernel.machine import NRI_SOCKET

PODS, EACH = 10, 20


def test_figures(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    node = NriNode(tmp_path, "systemd")
    node.start()
    found = []
    for number in range(PODS):
        names = [f"c{each}" for each in range(EACH)]
        pod = node.pod(f"p{number}", containers=names)
        for name in names:
            node.run(pod, name)
        found += [node.first_values(pod, name) for name in names]
        pod.remove()
    node.end(signal.SIGTERM)
    apart, plugged = pairs_of(RunningPod(node.containerd, "u1", "Burstable"), tmp_path)
    node.stop()
    figures = {
        "creations": len(found),
        "without_values": sum(each != OWN for each in found),
        "apart": apart,
        "plugged": plugged,
    }
    with capsys.disabled():
        print(f"\nFIGURES {json.dumps(figures)}")  # noqa: T201


def pairs_of(pod: RunningPod, folder: Path) -> tuple[list[float], list[float]]:
    """Seconds of creations in turns, with nobody connected and with the agent's plugin."""
    names = tuple(f"c{number}" for number in range(2 * int(argument("pairs"))))
    (folder / "fake").mkdir()
    bed = SteppedNode(folder / "fake", nri="on")
    bed.pods.manifests[pod.uid] = a_pod(pod.uid, containers=names)
    bed.settle()
    apart, plugged = [], []
    for first, second in zip(names[::2], names[1::2], strict=True):
        apart.append(seconds_of(pod, first))
        with connected(bed) as plugin:
            plugged.append(seconds_of(pod, second))
            assert plugin.answers["set"] == 1
    return apart, plugged


@contextmanager
def connected(bed: SteppedNode) -> Iterator[NriPlugin]:
    """The plugin of an agent that knows the pod."""
    view, is_connected = node_view(bed.core), threading.Event()
    plugin = NriPlugin(
        NRI_SOCKET,
        view=lambda: view,
        journal=bed.writer,
        read_usage=lambda _: 0,
        own_cgroup=None,
        log=EventLog("text"),
    )
    plugin.on_connected = is_connected.set
    plugin.start()
    assert is_connected.wait(PATIENCE)
    yield plugin
    plugin.stop()


def seconds_of(pod: RunningPod, name: str) -> float:
    start = time.monotonic()
    pod.container(name, memory_limit_in_bytes=LIMIT)
    return time.monotonic() - start
