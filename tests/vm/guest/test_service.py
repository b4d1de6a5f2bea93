"""The agent as a service: installed as the documentation has it, and confined."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest
from tests.eventually import eventually
from tests.vm.guest.agent import get_page
from tests.vm.guest.node import a_pod
from tests.vm.guest.owner_node import dropins, number, scope, systemctl, text
from tests.vm.guest.processes import status_of
from tests.vm.guest.runtime import make_cgroups, remove_cgroup
from tests.vm.guest.support import MI, ROOT

from memqos.lab.vm.topology import Topology
from memqos.plan.names import cgroup_names

MACHINES = {"systemd": Topology(init="systemd")}

FILE: Final = Path("/memqos/deploy/systemd/memqos.service")
PROGRAM: Final = Path("/opt/memqos/bin/memqos")
CONFIGURATION: Final = Path("/etc/memqos/memqos.yaml")
NAMES: Final = cgroup_names("systemd")
POD: Final = NAMES.pod("u0", "Burstable")
LOW: Final = "memory.low"
REQUEST: Final = 16 * MI
KUBELET: Final = "open('/proc/self/comm', 'w').write('kubelet'); import time; time.sleep(3600)"
SYSLOG: Final = 1 << 34
EXPOSURE: Final = 30
"""As systemd-analyze counts, of 100: it is root's, and writes to cgroups."""
OWN: Final = ("/run/memqos", "/var/lib/memqos", "/tmp", "/var/tmp")
SHARED: Final = ("/sys/fs/cgroup", "/run/systemd")
ELSEWHERE: Final = (
    "/",
    "/etc",
    "/usr",
    "/opt/memqos",
    "/run",
    "/var/lib",
    "/sys/kernel",
    "/proc/sys",
)


def configure(mode: str) -> None:
    CONFIGURATION.write_text(
        "apiVersion: memqos.io/v1alpha1\nkind: AgentConfiguration\n"
        f'mode: {mode}\nrelease: "1.38"\npolicy: TieredReservation\ngates: {{MemoryQoS: true}}\n'
    )


@pytest.fixture
def kubelet() -> Iterator[None]:
    """Only its flags show that it leaves MemoryQoS off, so the service has to see them."""
    gates = "--feature-gates=MemoryQoS=false"
    with subprocess.Popen(
        [sys.executable, "-c", KUBELET, gates, "--cgroup-driver=systemd"]
    ) as made:
        yield
        made.kill()


@pytest.fixture
def container() -> Iterator[Path]:
    make_cgroups(NAMES, POD)
    cgroup, process = scope("cri-containerd-u0main.scope", POD.rpartition("/")[2])
    yield cgroup
    process.kill()
    process.wait()
    eventually("the scope is gone", lambda: not cgroup.exists())
    remove_cgroup(POD)


@pytest.fixture
def unit(container: Path, kubelet: None, loopback: None) -> Iterator[str]:
    """What pip would put there leads to this tree."""
    PROGRAM.parent.mkdir(parents=True)
    PROGRAM.write_text('#!/bin/sh\nPYTHONPATH=/memqos/src exec python3 -m memqos "$@"\n')
    PROGRAM.chmod(0o755)
    kill = Path("/usr/bin/kill")
    if not kill.exists():
        kill.symlink_to("busybox")
    pods = CONFIGURATION.parent / "pods"
    pods.mkdir(parents=True)
    resources = {"requests": {"memory": str(REQUEST)}}
    (pods / "u0.json").write_text(json.dumps(a_pod("u0", {"main": resources})))
    configure("enforce")
    shutil.copy(FILE, "/etc/systemd/system")
    systemctl("daemon-reload")
    yield FILE.name
    systemctl("stop", FILE.name)


def output_of(*command: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr
    return done.stdout + done.stderr


def is_writable(pid: int, folder: str) -> bool:
    """Whether a process finds a folder on a file system that lets write."""
    return not os.statvfs(f"/proc/{pid}/root{folder}").f_flag & os.ST_RDONLY


def test_a_service_is_ready_confined_reloaded_and_taken_back(unit: str, container: Path) -> None:
    assert output_of("systemd-analyze", "verify", f"/etc/systemd/system/{unit}") == ""
    output_of("systemd-analyze", "security", f"--threshold={EXPOSURE}", "--no-pager", unit)
    before = dropins()
    systemctl("start", unit)
    assert get_page("/healthz")[0] == 200
    slices = [ROOT / path.removeprefix("/") for path in (POD, NAMES.burstable, NAMES.kubepods)]
    eventually("all is as planned", lambda: [number(x, LOW) for x in slices] == [REQUEST] * 3)
    assert dropins() != before

    shown = dict(line.partition("=")[::2] for line in systemctl("show", unit).splitlines())
    pid = int(shown["MainPID"])
    assert int(status_of(pid)["CapBnd"], 16) == SYSLOG
    assert [path for path in (*OWN, *SHARED) if not is_writable(pid, path)] == []
    assert [path for path in ELSEWHERE if is_writable(pid, path)] == []
    assert shown["WatchdogTimestamp"]
    configure("observe")
    systemctl("reload", unit)
    eventually("the new configuration holds", lambda: 'mode="observe"' in get_page("/metrics")[1])
    output_of(str(PROGRAM), "rollback")
    assert [text(each, LOW) for each in (*slices, container)] == ["0"] * 4
    assert dropins() == before

    systemctl("stop", unit)
    log = output_of("journalctl", "--unit", unit)
    assert "reloaded" in log
    assert "stopped" in log
    assert "is not read" not in log
