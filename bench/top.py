"""`memqos top` over 500 containers at one refresh a second: processor time and memory."""

import fcntl
import os
import pty
import struct
import subprocess
import sys
import termios
import threading
import time
from collections.abc import Iterator
from pathlib import Path

from tests.fakes.busy_node import BusyNode, container_path
from tests.fakes.node import memory_folder

from memqos.converge.live_node import LiveNode
from memqos.converge.node_plan import PlanOptions
from memqos.converge.observation import load_kubelet_config, observe_live
from memqos.converge.observed_rows import OBSERVED_FILES
from memqos.converge.pod_sources import parse_pod_source
from memqos.host.kubelet import KubeletCredentials
from memqos.host.machine import Roots
from memqos.kernel.machine import Machine
from memqos.monitor.instant import RowQuery

PODS = 250
SECONDS = 60
MOST_READING = 5.0
MOST_ALL = 15.0
MOST_MEMORY = 100
SHOWN = 20


def report() -> Iterator[str]:
    """Reading alone, rows on the screen and off it; then the whole program at a terminal."""
    with memory_folder() as folder:
        node = BusyNode(folder, PODS)
        reading = _reading(node)
        yield f"reading, 500 containers, {SHOWN} of them shown: {reading:.2f} % of a core " + (
            f"(at most {MOST_READING:g})"
        )
        processor, memory = _program(folder, node)
        yield f"memqos top at 80 × 24, one refresh a second: {processor:.2f} % of a core " + (
            f"(at most {MOST_ALL:g}), {memory:.0f} MB resident (at most {MOST_MEMORY})"
        )


def _reading(node: BusyNode) -> float:
    """Percent of a core over a minute of readings, a second apart by the source's clock."""
    now = [1_000_000]
    pods = parse_pod_source(str(node.pods_file), KubeletCredentials())
    observation = observe_live(
        pods,
        OBSERVED_FILES,
        roots=Roots(cgroup=str(node.root)),
        configuration=load_kubelet_config(str(node.kubelet_file)),
        machine=Machine(layout="v2", meminfo="MemTotal: 4194304 kB\n", page_size=4096),
    )
    source = LiveNode(
        observation, pods, PlanOptions(release="1.36"), root=str(node.root), clock=lambda: now[0]
    )
    shown = {container_path(number) for number in range(SHOWN)}
    source.read(shown, RowQuery())
    start = time.process_time()
    for _ in range(SECONDS):
        now[0] += 1000
        source.read(shown, RowQuery())
    return (time.process_time() - start) / SECONDS * 100


def _program(folder: Path, node: BusyNode) -> tuple[float, float]:
    """Percent of a core and megabytes of the command, once it shows rows."""
    terminal, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
    command = [sys.executable, "-m", "memqos", "top", *node.options]
    with subprocess.Popen(command, stdin=theirs, stdout=theirs, stderr=theirs) as process:
        os.close(theirs)
        threading.Thread(target=_drain, args=(terminal,), daemon=True).start()
        time.sleep(8)
        before = processor_seconds(process.pid)
        time.sleep(SECONDS)
        used = processor_seconds(process.pid) - before
        status = Path(f"/proc/{process.pid}/status").read_text()
        os.write(terminal, b"q")
        process.wait(20)
    os.close(terminal)
    peak = next(line for line in status.splitlines() if line.startswith("VmHWM"))
    return used / SECONDS * 100, int(peak.split()[1]) / 1024


def _drain(terminal: int) -> None:
    try:
        while os.read(terminal, 1 << 16):
            pass
    except OSError:
        pass


def processor_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
