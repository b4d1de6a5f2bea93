"""Plans written to a real kernel, and taken back."""

from pathlib import Path

import pytest
from tests.builders import stanza
from tests.eventually import PATIENCE, eventually
from tests.fakes.crash import VICTIMS, is_killed
from tests.vm.guest.node import RELEASE, Node, a_pod
from tests.vm.guest.support import MI, Cgroup

from memqos.converge.apply import ApplyResult, apply
from memqos.converge.cgroup_writer import read_write_options
from memqos.converge.direct_driver import DirectDriver
from memqos.converge.journal import hierarchy_of, open_journal
from memqos.converge.node_plan import NodePlan, PlanOptions, plan_observation
from memqos.converge.rollback import RollbackResult, rollback
from memqos.converge.steps import WriteResult, WriteStep, steps_of
from memqos.host.cgroups import CgroupFs, read_tree
from memqos.host.lock import Locked
from memqos.host.machine import read_machine
from memqos.lab.vm.topology import Topology
from memqos.plan.changes import MANAGED, Change
from memqos.plan.names import kind_of
from memqos.plan.setting import Rule, Setting
from memqos.plan.tree import Level

MACHINES = {"two-nodes": Topology(nodes=(640, 640), distances=((10, 21), (21, 10)), swap=512)}

SETTING = Setting(None, Rule("test", "because the test says so", "the test"))
PODS = 3


class Writer:
    """memqos at work on the cgroups of this machine."""

    def __init__(self, folder: Path) -> None:
        self.folder = str(folder / "journal")
        self.fs = CgroupFs()
        self.machine = read_machine()
        assert self.machine.boot_id
        self.reserved: set[str] = set()
        self.hierarchy = hierarchy_of(self.fs, self.machine.boot_id)

    def step(self, cgroup: Path, file: str, new: str) -> WriteStep:
        old = (cgroup / file).read_text().strip()
        path = str(cgroup).removeprefix(self.fs.root)
        level: Level = kind_of(path) or "reserved"
        if level == "reserved":
            self.reserved.add(path)
        return WriteStep(
            Change(path=path, file=file, old=old, new=new, level=level, setting=SETTING),
            cgroup.stat().st_ino,
        )

    def apply(
        self, *steps: WriteStep, timeout: float = PATIENCE, force: bool = False
    ) -> ApplyResult:
        options = read_write_options(force=force)
        with open_journal(self.folder, self.hierarchy) as journal:
            return apply(steps, self.fs, DirectDriver(self.fs, timeout), journal, options)

    def rollback(self) -> RollbackResult:
        options = read_write_options()
        with open_journal(self.folder, self.hierarchy) as journal:
            driver = DirectDriver(self.fs, PATIENCE)
            return rollback(self.fs, driver, journal, options, reserved=self.reserved)

    def has_rolled_back(self) -> bool:
        """False while a process that was left behind still writes."""
        try:
            self.rollback()
        except Locked:
            return False
        return True

    def files(self, below: str) -> dict[str, str | None]:
        return {
            f"{path}/{file}": self.fs.read(path, file)
            for path in read_tree(self.fs.root, (), [below]).cgroups
            for file in MANAGED
        }


@pytest.fixture
def writer(tmp_path: Path) -> Writer:
    return Writer(tmp_path)


def ends(applied: ApplyResult) -> dict[str, str]:
    """Path/file → how it ended."""
    return {f"{r.change.path}/{r.change.file}": r.outcome for r in applied.results}


class TestAPlannedNode:
    """Requests and limits that are no whole number of pages, on containers that run."""

    @pytest.fixture
    def node(self, kubepods: Cgroup, tmp_path: Path) -> Node:
        pods = [
            a_pod(
                f"u{index}",
                {
                    "a": stanza(4_000_001 + index, 50_000_003),
                    "b": stanza(9_000_017, 77_777_777 + index),
                },
            )
            for index in range(PODS)
        ]
        node = Node(tmp_path, kubepods, pods)
        for index in range(PODS):
            for name in ("a", "b"):
                node.container(f"u{index}", name).workload().hold(MI)
        return node

    def plan(self, node: Node) -> tuple[NodePlan, tuple[WriteStep, ...]]:
        observation = node.observe()
        plan = plan_observation(observation, PlanOptions(release=RELEASE))
        return plan, steps_of(plan.comparison.changes, observation.identities)

    def test_is_converged_after_apply_and_as_before_after_rollback(
        self, writer: Writer, node: Node
    ) -> None:
        before = writer.files("/kubepods")
        plan, steps = self.plan(node)
        assert len(steps) == len(plan.comparison.changes) > 2 * PODS
        assert set(ends(writer.apply(*steps)).values()) == {"written"}
        assert node.plan().comparison.changes == ()
        assert writer.files("/kubepods") != before
        writer.rollback()
        assert writer.files("/kubepods") == before

    def test_is_as_before_after_its_writer_was_killed(self, writer: Writer, node: Node) -> None:
        before = writer.files("/kubepods")
        _, steps = self.plan(node)
        killed = 0
        for moment in range(0, 4 * len(steps), 5):
            victim = VICTIMS[moment % 2]
            killed += is_killed(lambda: writer.apply(*steps), moment, victim, writer.fs)
            eventually("nobody writes", writer.has_rolled_back)
            assert writer.files("/kubepods") == before
        assert killed > len(steps) / 2


class TestAWrite:
    def test_that_is_refused_is_reported_and_the_rest_goes_on(
        self, writer: Writer, cgroup: Cgroup
    ) -> None:
        kubepods = cgroup.child("kubepods")
        one, two = kubepods.child("pod1"), kubepods.child("pod2")
        applied = writer.apply(
            writer.step(one.path, "cpuset.mems", "7"),
            writer.step(two.path, "cpuset.mems", "0,1"),
            writer.step(one.path, "memory.min", "5000"),
        )
        assert ends(applied) == {
            f"{one.name}/cpuset.mems": "refused",
            f"{two.name}/cpuset.mems": "written",
            f"{one.name}/memory.min": "written",
        }
        (refused,) = [result for result in applied.results if result.outcome == "refused"]
        assert refused.detail == f"{kubepods.name} has no node 7: it may use 0-1"
        assert (two.read("cpuset.mems"), one.read("memory.min")) == ("0-1", "4096")
        writer.rollback()
        assert (two.read("cpuset.mems"), one.read("memory.min")) == ("", "0")

    def test_to_a_cgroup_that_has_vanished_is_no_fault(
        self, writer: Writer, cgroup: Cgroup
    ) -> None:
        stays = cgroup.child("stays")
        leaves = cgroup.path / "leaves"
        leaves.mkdir()
        steps = [writer.step(path, "memory.low", "8192") for path in (stays.path, leaves)]
        leaves.rmdir()
        assert ends(writer.apply(*steps)) == {
            f"{stays.name}/memory.low": "written",
            f"{cgroup.name}/leaves/memory.low": "gone",
        }

    def test_to_another_cgroup_of_the_same_name_is_never_made(
        self, writer: Writer, cgroup: Cgroup
    ) -> None:
        child = cgroup.child("child")
        step = writer.step(child.path, "memory.low", "8192")
        child.path.rmdir()
        child.path.mkdir()
        assert len(writer.apply(step).stale) == 1
        assert child.read("memory.low") == "0"


class TestMemoryHighBelowUsage:
    def test_is_stopped_in_time_and_holds_all_the_same(
        self, writer: Writer, cgroup: Cgroup
    ) -> None:
        child = cgroup.child("child")
        child.workload().hold(400 * MI)
        step = writer.step(child.path, "memory.high", str(16 * MI))
        # Little next to what 384 MiB take, and more only where a write has not even begun by then.
        timeout, results = 0.02, list[WriteResult]()

        def has_begun() -> bool:
            nonlocal timeout
            timeout *= 2
            try:
                results[:] = writer.apply(step, timeout=timeout).results
            except Locked:  # by the process of the last write
                return False
            return results[0].outcome != "stopped"

        eventually("a write has begun", has_begun)
        (result,) = results
        assert (result.outcome, result.writer_blocked) == ("written", True)
        assert child.number("memory.high") == 16 * MI
        writer.rollback()
        assert child.read("memory.high") == "max"

    def test_reclaims_to_swap_when_there_is_time(self, writer: Writer, cgroup: Cgroup) -> None:
        child = cgroup.child("child")
        child.workload().hold(64 * MI)
        (result,) = writer.apply(writer.step(child.path, "memory.high", str(32 * MI))).results
        assert (result.outcome, result.detail) == ("written", None)
        assert child.number("memory.swap.current") > 24 * MI
        # Kernel 7.2 leaves what it has just swapped out in the swap cache, and charged, until it
        # reclaims again.
        assert child.number("memory.current") - child.counts("memory.stat")["swapcached"] <= 32 * MI

    def test_is_withheld_where_memory_cannot_leave(self, writer: Writer, cgroup: Cgroup) -> None:
        child = cgroup.child("child")
        (child.path / "memory.swap.max").write_text("0")
        child.workload().hold(64 * MI)
        step = writer.step(child.path, "memory.high", str(32 * MI))
        assert set(ends(writer.apply(step)).values()) == {"withheld"}
        assert child.read("memory.high") == "max"
        assert child.events()["high"] == 0
        assert set(ends(writer.apply(step, force=True)).values()) == {"written"}
        assert child.number("memory.high") == 32 * MI
        writer.rollback()

    def test_is_written_where_only_page_cache_has_to_go(
        self, writer: Writer, cgroup: Cgroup, tmp_path: Path
    ) -> None:
        child = cgroup.child("child")
        (child.path / "memory.swap.max").write_text("0")
        child.cache(tmp_path / "file", 64 * MI)
        assert child.number("memory.current") > 48 * MI
        assert set(
            ends(writer.apply(writer.step(child.path, "memory.high", str(16 * MI)))).values()
        ) == {"written"}
        assert child.number("memory.current") <= 16 * MI
