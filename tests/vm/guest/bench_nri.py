"""Figures, not tests: containers that lack values at their first command, and what creation takes.

Started by bench/vm.py, which tells the machine how many pairs and which runtime, and shows
progress.
"""

import json
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import pytest
from tests.eventually import PATIENCE, eventually
from tests.fakes.agent import SteppedNode, a_pod
from tests.fakes.node import memory_folder
from tests.vm.guest.bench_arguments import argument
from tests.vm.guest.nri_node import LIMIT, NRI_DEADLINE, OWN, REQUEST, NriNode
from tests.vm.guest.runtime import Containerd, Handler, RunningPod

from memqos.agent.core.view import node_view
from memqos.agent.events import EventLog
from memqos.agent.nri import NriPlugin
from memqos.kernel.machine import NRI_SOCKET

CREATIONS, EACH = 200, 21
"""Containers with the plugin, those of the pairs included; and how many of them make a pod."""
QUIET: Final = 2
"""Seconds of the machine, which skips those in which nothing happens."""
BRIEF_COMMAND: Final = (
    "read low </sys/fs/cgroup/memory.low; read high </sys/fs/cgroup/memory.high;"
    " echo $low $high >/out/"
)
"""The shell alone, which ends: creations are counted, not processes."""

Report = Callable[[str], None]


@pytest.fixture
def report(capsys: pytest.CaptureFixture[str]) -> Report:
    def report(line: str) -> None:
        with capsys.disabled():
            print(line, flush=True)  # noqa: T201

    return report


@pytest.fixture
def memory() -> Iterator[Path]:
    """A folder in memory, where containerd has its files, too.

    While a machine that counts instructions waits for its disk, its clock jumps to the next timer.
    """
    Path("/var/lib/containerd").mkdir(exist_ok=True)
    subprocess.run(["mount", "-t", "tmpfs", "tmpfs", "/var/lib/containerd"], check=True)
    with memory_folder() as folder:
        yield folder
    subprocess.run(["umount", "--lazy", "/var/lib/containerd"], check=True)


def test_pairs(memory: Path, report: Report) -> None:
    """Creations in turns, with nobody connected and with the agent's plugin."""
    containerd = Containerd("cgroupfs", nri=True)
    pod = RunningPod(containerd, "u1", "Burstable", handler())
    names = tuple(f"c{number}" for number in range(2 * int(argument("pairs"))))
    before = tuple(f"{name}-before" for name in names)
    resources = {"requests": {"memory": str(REQUEST)}, "limits": {"memory": str(LIMIT)}}
    manifest = a_pod(pod.uid, containers=(*names, *before))
    for container in manifest["spec"]["containers"]:
        container["resources"] = resources
    bed = SteppedNode(memory, nri="on")
    bed.pods.manifests[pod.uid] = manifest
    bed.settle()
    out = memory / "out"
    out.mkdir()
    apart: list[float] = []
    plugged: list[float] = []
    found: list[tuple[str, ...]] = []
    for number, pair in enumerate(zip(names[::2], names[1::2], strict=True)):
        # Either goes first every other time: what the one before leaves to do is dealt out evenly.
        for is_plugged, name in zip((number % 2 == 0, number % 2 == 1), pair, strict=True):
            if is_plugged:
                with connected(bed) as plugin:
                    # The first creation after a plugin has come or gone is like no other.
                    seconds_of(pod, f"{name}-before", out)
                    plugged.append(seconds_of(pod, name, out))
                    assert plugin.answers == {"set": 2}
                found += [first_values(out / each) for each in (f"{name}-before", name)]
            else:
                seconds_of(pod, f"{name}-before", out)
                apart.append(seconds_of(pod, name, out))
        report(
            f"PROGRESS pair {len(apart)} of {len(names) // 2}: "
            f"{apart[-1]:.3f} s without, {plugged[-1]:.3f} s with the plugin"
        )
    containerd.kill()
    without = sum(each != OWN for each in found)
    figures = {"apart": apart, "plugged": plugged, "without_values": without}
    report(f"FIGURES {json.dumps(figures)}")


def test_first_values(tmp_path: Path, report: Report) -> None:
    """What the first commands of many containers find, beside an agent at work."""
    node = NriNode(tmp_path, "cgroupfs")
    node.start()
    found: list[tuple[str, ...]] = []
    creations = CREATIONS - 2 * int(argument("pairs"))
    for number in range(0, creations, EACH):
        names = [f"c{each}" for each in range(number, min(number + EACH, creations))]
        pod = node.pod(f"p{number}", handler(), names)
        for name in names:
            node.run(pod, name, f"{BRIEF_COMMAND}$0")
        found += [node.first_values(pod, name) for name in names]
        nri = node.nri()
        report(
            f"PROGRESS {len(found)} of {creations} containers created, "
            f"{sum(each != OWN for each in found)} without values; answers {nri['answers']}, "
            f"the slowest in {nri['slowestAnswer']:.3f} s"
        )
    nri = node.nri()
    node.end(signal.SIGTERM)
    node.stop()
    figures = {
        "creations": len(found),
        "without_values": sum(each != OWN for each in found),
        "answers": nri["answers"],
        "slowest": nri["slowestAnswer"],
    }
    report(f"FIGURES {json.dumps(figures)}")


def handler() -> Handler:
    return "runc" if argument("handler") == "runc" else "crun"


@contextmanager
def connected(bed: SteppedNode) -> Iterator[NriPlugin]:
    """The plugin of an agent that knows the pod."""
    view, is_connected = node_view(bed.core), threading.Event()
    plugin = NriPlugin(
        NRI_SOCKET,
        NRI_DEADLINE,
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


def seconds_of(pod: RunningPod, name: str, out: Path) -> float:
    command = ("/bin/sh", "-c", f"{BRIEF_COMMAND}{name}")
    # What the end of the last container, and the plugin's connection, leave to do is done first.
    time.sleep(QUIET)
    start = time.monotonic()
    pod.container(name, command, {"/out": out}, memory_limit_in_bytes=LIMIT)
    seconds = time.monotonic() - start
    first_values(out / name)
    time.sleep(QUIET)
    # A creation takes longer the more ended containers the pod has.
    pod.remove_container(name)
    return seconds


def first_values(file: Path) -> tuple[str, ...]:
    eventually("it has run", lambda: file.exists() and len(file.read_text().split()) == 2)
    return tuple(file.read_text().split())
