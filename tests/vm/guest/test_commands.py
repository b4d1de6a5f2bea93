"""The commands on a node of this machine: what they say, and what the kernel does then."""

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from click.testing import CliRunner
from tests.builders import stanza
from tests.eventually import eventually
from tests.vm.guest.agent import Agent
from tests.vm.guest.node import RELEASE, Node, a_pod
from tests.vm.guest.support import MI, ROOT, Cgroup

from memqos.cli.main import cli
from memqos.host.cgroups import read_tree
from memqos.lab.node import protection_is_recursive
from memqos.lab.vm.topology import Topology
from memqos.plan.changes import MANAGED

MACHINES = {"plain": Topology()}

# No whole number of pages, so that the kernel rounds.
BURSTABLE = stanza("16000001", "120000001")
GUARANTEED = stanza("24000003", "24000003", cpu=(1, 1))
OPTIONS = "nosuid,nodev,noexec,nsdelegate"
THROTTLED = {"throttling/now", "throttling/livelock"}


class Said(NamedTuple):
    code: int
    out: str
    err: str


class Shell:
    """Types commands about one node."""

    def __init__(self, node: Node, folder: Path) -> None:
        self.node = node
        self._journal = ("--journal", str(folder / "journal"))
        flags = ("--kubelet", str(node.kubelet), "--release", RELEASE)
        self._terms = ("--pods", str(node.pods), *flags)

    def plan(self, *arguments: str) -> Said:
        return memqos("plan", *arguments, *self._terms)

    def apply(self, *arguments: str) -> Said:
        return memqos("apply", "--yes", *arguments, *self._terms, *self._journal)

    def apply_saved(self, plan: Path) -> Said:
        return in_a_process_of_its_own("apply", "--yes", str(plan), *self._journal)

    def rollback(self) -> Said:
        return memqos("rollback", *self._journal)

    def doctor(self, seconds: float = 0.1) -> dict[str, dict[str, Any]]:
        done = memqos("doctor", "--seconds", str(seconds), "-o", "json", *self._terms)
        assert done.code in (0, 2), done.err
        return {each["rule"]: each for each in json.loads(done.out)["findings"]}


def memqos(*arguments: str) -> Said:
    """In this process: a new one takes seconds to import in the machine."""
    done = CliRunner().invoke(cli, arguments, standalone_mode=False, catch_exceptions=False)
    return Said(done.return_value or 0, done.stdout, done.stderr)


def in_a_process_of_its_own(*arguments: str) -> Said:
    command = [sys.executable, "-m", "memqos.cli.main", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return Said(done.returncode, done.stdout, done.stderr)


@pytest.fixture
def shell(kubepods: Cgroup, tmp_path: Path) -> Shell:
    pods = [a_pod("burstable", {"app": BURSTABLE}), a_pod("guaranteed", {"app": GUARANTEED})]
    return Shell(Node(tmp_path, kubepods, pods), tmp_path)


def values() -> dict[str, dict[str, str]]:
    return read_tree(str(ROOT), MANAGED, ["/kubepods"]).cgroups


def test_a_node_is_converged_by_apply_and_as_before_after_rollback(
    shell: Shell, tmp_path: Path
) -> None:
    before, plan = values(), tmp_path / "plan.json"
    planned = shell.plan("--out", str(plan), "-o", "json")
    assert planned.code == 2
    changes = json.loads(planned.out)["changes"]
    high = shell.node.container("burstable", "app")
    assert {change["file"] for change in changes} == {"memory.min", "memory.low", "memory.high"}

    applied = shell.apply_saved(plan)
    assert applied.code == 0, applied.err
    assert applied.out.endswith(f"{len(changes)} written\n")
    now = values()
    assert [now[c["path"]][c["file"]] for c in changes] == [c["new"] for c in changes]
    assert high.number("memory.high") % 4096 == 0 < 120000001 % 4096

    again = shell.plan()
    assert (again.code, again.out.splitlines()[-1]) == (0, "converged: nothing to change")
    assert shell.apply().out == "converged: nothing to change\n"

    assert shell.rollback().out == f"{len(changes)} restored\n"
    assert values() == before
    assert shell.rollback().out == "nothing to restore\n"


def test_a_container_past_its_applied_memory_high_is_throttled_and_doctor_sees_it(
    shell: Shell,
) -> None:
    app = shell.node.container("burstable", "app")
    assert shell.apply().code == 0
    high = app.number("memory.high")
    assert 0 < high < app.number("memory.max")
    workload = app.workload()
    workload.hold(high - 24 * MI)
    assert app.events()["high"] == 0
    workload.ask(28 * MI)
    eventually("it is throttled", lambda: app.events()["high"] > 50)
    found: dict[str, Any] = {}

    def is_found() -> bool:
        """A machine that has much else to do may see no event between two looks."""
        seen = shell.doctor(seconds=1)
        found.update({rule: seen[rule] for rule in THROTTLED & seen.keys()})
        return bool(found)

    eventually("doctor sees it", is_found)
    assert {each["where"] for each in found.values()} == {"default/burstable app"}
    assert workload.alive
    assert app.events()["oom_kill"] == 0
    assert shell.rollback().code == 0
    eventually("it goes on", workload.answered)


def test_memory_high_below_what_cannot_be_reclaimed_is_withheld_unless_forced(
    shell: Shell,
) -> None:
    app = shell.node.container("burstable", "app")
    app.workload().hold(110 * MI)
    withheld = shell.apply()
    assert withheld.code == 2
    assert "withheld: /kubepods/burstable/podburstable/burstableapp/memory.high" in withheld.err
    assert app.read("memory.high") == "max"
    forced = shell.apply("--force")
    assert forced.code == 0, forced.err
    assert app.number("memory.high") < app.number("memory.current")
    assert shell.rollback().code == 0
    assert app.read("memory.high") == "max"


def test_what_an_agent_keeps_is_converged_and_what_it_leaves_behind_is_not_called_stale(
    shell: Shell, tmp_path: Path, loopback: None
) -> None:
    """By the defaults of a kubelet, whose gate is off, all of its values would be taken back."""
    folder = tmp_path / "agent"
    folder.mkdir()
    journal = ("--journal", str(folder / "run"))
    places = ("--agent", str(folder / "state.sock"), *journal)
    with Agent(folder, "cgroupfs") as agent:
        agent.start(pods=shell.node.pods)
        app = shell.node.container("burstable", "app")
        eventually("it throttles", lambda: app.read("memory.high") != "max")
        eventually("it has set its values", lambda: agent.state()["converged"])
        kept = memqos("plan", *places)
        assert (kept.code, kept.out.splitlines()[-1]) == (0, "converged: nothing to change")
        assert "as planned by the agent on this node: enforce" in kept.out
        assert memqos("plan", *places, "--no-agent").code == 2
    done = memqos("doctor", "--seconds", "0.1", "-o", "json", *places)
    found = {each["rule"]: each for each in json.loads(done.out)["findings"]}
    assert "tree/stale" not in found
    assert "no agent manages them" in found["agent/unmanaged"]["what"]
    assert memqos("rollback", *journal).code == 0
    again = memqos("doctor", "--seconds", "0.1", "-o", "json", *places)
    assert "agent/unmanaged" not in again.out


def test_doctor_names_the_cgroup_that_withholds_the_memory_controller(shell: Shell) -> None:
    assert "tree/memory-controller" not in shell.doctor()
    for path in ("kubepods/burstable/podburstable", "kubepods/burstable"):
        (ROOT / path / "cgroup.subtree_control").write_text("-memory")
    found = shell.doctor()["tree/memory-controller"]
    assert found["where"] == "/kubepods/burstable"
    assert found["severity"] == "error"


@pytest.mark.parametrize("recursive", [True, False])
def test_doctor_tells_how_the_mount_hands_on_protection(shell: Shell, recursive: bool) -> None:
    app = shell.node.container("burstable", "app")
    shell.node.pod("burstable").write(memory_low=32 * MI)
    shell.node.cgroups["/kubepods/burstable"].write(memory_low=32 * MI)
    shell.node.cgroups["/kubepods"].write(memory_low=64 * MI)
    app.workload().hold(24 * MI)
    shell.node.container("guaranteed", "app").workload().hold(8 * MI)
    with mounted(recursive=recursive):
        found = shell.doctor()
    assert ("machine/recursive-protection" in found) is not recursive
    assert ("protection/unasked-low" in found) is recursive
    if recursive:
        assert found["protection/unasked-low"]["evidence"][0].startswith("default/guaranteed: ")


@contextmanager
def mounted(*, recursive: bool) -> Iterator[None]:
    """The cgroups mounted with or without memory_recursiveprot."""
    before = protection_is_recursive()
    _remount(recursive)
    try:
        assert protection_is_recursive() is recursive
        yield
    finally:
        _remount(before)


def _remount(recursive: bool) -> None:
    options = f"remount,{OPTIONS}{',memory_recursiveprot' if recursive else ''}"
    subprocess.run(["mount", "-o", options, "cgroup2", str(ROOT)], check=True)
