"""A cgroup for each test, taken away with all that is in it."""

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.vm.guest.support import MI, ROOT, Cgroup

PROGRAMS = 64 * MI


@pytest.fixture
def cgroup() -> Iterator[Cgroup]:
    made = Cgroup.at_root("memqos-test")
    try:
        yield made
    finally:
        made.remove()


@pytest.fixture
def kubepods() -> Iterator[Cgroup]:
    """The cgroup that the cgroupfs driver keeps all pods in."""
    made = Cgroup.at_root("kubepods")
    try:
        yield made
    finally:
        made.remove()


@pytest.fixture
def loopback() -> None:
    """127.0.0.1, for whoever serves there."""
    subprocess.run(["busybox", "ifconfig", "lo", "127.0.0.1", "up"], check=True)


@pytest.fixture
def spared() -> Iterator[None]:
    """The tests outlive a node that runs out of memory, and their programs stay in it.

    Else the machine would spend its time on reading them anew, page by page, before it kills.
    """
    score = Path("/proc/self/oom_score_adj")
    cgroup = Path("/proc/self/cgroup").read_text().strip().removeprefix("0::")
    protection = Path(f"{ROOT}{cgroup}/memory.min")
    before = score.read_text()
    score.write_text("-1000")
    protection.write_text(str(PROGRAMS))
    yield
    protection.write_text("0")
    score.write_text(before)
