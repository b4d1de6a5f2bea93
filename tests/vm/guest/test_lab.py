"""Experiments on the machine itself: what they show, and that nothing of them is left."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.eventually import eventually
from tests.vm.guest.support import ROOT, Cgroup

from memqos.lab.runner import SCRATCH_PREFIX
from memqos.lab.vm.topology import Topology

MACHINES = {"two-nodes": Topology(nodes=(640, 640), distances=((10, 21), (21, 10)), swap=512)}

COMMAND = (sys.executable, "-m", "memqos", "lab", "run", "hard-reservation", "--here")


@pytest.fixture(autouse=True)
def nothing_left() -> Iterator[None]:
    yield
    eventually("nothing is left", lambda: leftovers() == [])


def leftovers() -> list[Path]:
    """Cgroups and files of experiments, and what runs in such a cgroup."""
    running = [
        path.parent
        for path in Path("/proc").glob("[0-9]*/cgroup")
        if f"/{SCRATCH_PREFIX}" in read(path)
    ]
    folders = (ROOT, Path("/var/tmp"))
    found = [path for folder in folders for path in folder.glob(f"{SCRATCH_PREFIX}*")]
    return [*found, *running]


def read(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:  # the process has just ended
        return ""


def test_an_experiment_runs_in_a_scratch_cgroup() -> None:
    done = subprocess.run(
        [*COMMAND, "--yes", "-o", "json"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert report["place"] == "here"
    [scenario] = report["scenarios"]
    assert [each["verdict"] for each in scenario["hypotheses"]] == ["confirmed", "confirmed"]
    planned = {tuple(each) for each in scenario["variants"]["hard"]["planned"]}
    assert ("/kubepods/burstable/podapp/appapp", "memory.min", str(72 << 20), "min/hard") in planned


@pytest.mark.parametrize("ending", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
@pytest.mark.parametrize("moment", ["as it starts", "as a program runs"])
def test_one_that_is_ended_at_any_moment_leaves_nothing(
    ending: signal.Signals, moment: str
) -> None:
    with subprocess.Popen([*COMMAND, "--yes", "--runs", "50"], stderr=subprocess.PIPE) as command:
        scratch = ROOT / f"{SCRATCH_PREFIX}{command.pid}"
        what = scratch if moment == "as it starts" else scratch / "run/node/kubepods/burstable"
        eventually("it has begun", lambda: what.exists() or command.poll() is not None)
        assert command.poll() is None
        command.send_signal(ending)
        command.communicate()
    assert command.returncode == (130 if ending != signal.SIGKILL else -signal.SIGKILL)


def test_nothing_is_run_without_a_yes() -> None:
    done = subprocess.run(COMMAND, input="n\n", capture_output=True, text=True, check=False)
    assert done.returncode == 130
    assert "Run on this computer" in done.stderr


def test_nothing_is_run_beside_pods(kubepods: Cgroup) -> None:
    done = subprocess.run([*COMMAND, "--yes"], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert f"{kubepods.path} exists: this is a node" in done.stderr


def test_nothing_is_run_without_root() -> None:
    done = subprocess.run(
        [*COMMAND, "--yes"],
        capture_output=True,
        text=True,
        check=False,
        user="nobody",
        env={**os.environ, "HOME": "/"},
    )
    assert done.returncode == 1
    assert "--here writes cgroups, which takes root" in done.stderr
