"""A writer killed at any moment leaves nothing that rollback cannot take back."""

from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path

import pytest
from msgspec import structs
from tests.fakes.crash import VICTIMS, Victim, is_killed
from tests.fakes.node import Node, a_plan, memory_folder
from tests.fakes.stage import Stage, alone, killed_at_every_moment, rolled_back

from memqos.converge.journal import hierarchy_of, open_journal
from memqos.converge.rollback import KubeletFiles, RollbackResult
from memqos.converge.steps import WriteStep


@pytest.fixture
def folder() -> Iterator[Path]:
    with memory_folder() as folder:
        yield folder


def kill_at_every_moment(
    stage: Stage, act: Callable[[Node], object], victim: Victim, every: int = 1
) -> int:
    """How many moments there were; after each of them the tree was as it had been."""
    moments = 0
    for killed in killed_at_every_moment(stage, act, victim, every):
        assert killed.restored, f"killed at moment {killed.moment}"
        moments += 1
    return moments


@pytest.mark.parametrize("victim", VICTIMS)
def test_apply_killed_at_any_moment_is_taken_back_whole(folder: Path, victim: Victim) -> None:
    stage = Stage(folder)
    steps = stage.set().steps(a_plan())
    assert len(steps) == 40
    moments = kill_at_every_moment(stage, lambda node: node.apply(steps), victim)
    assert moments > 3 * len(steps)


@pytest.mark.parametrize("victim", VICTIMS)
def test_a_second_apply_killed_at_any_moment_is_taken_back_to_before_the_first(
    folder: Path, victim: Victim
) -> None:
    stage = Stage(folder, lambda node: node.apply(node.steps(a_plan(1))))
    steps = stage.set().steps(a_plan(2))[::3]
    moments = kill_at_every_moment(stage, lambda node: node.apply(steps), victim)
    assert moments > 3 * len(steps)


@pytest.mark.parametrize("victim", VICTIMS)
def test_rollback_killed_at_any_moment_is_ended_by_the_next(folder: Path, victim: Victim) -> None:
    stage = Stage(folder, lambda node: node.apply(node.steps(a_plan())))
    moments = kill_at_every_moment(stage, lambda node: node.rollback(), victim)
    assert moments > len(a_plan())


def test_rollback_killed_after_apply_was_killed_is_ended_by_the_next(folder: Path) -> None:
    for index, moment in enumerate(range(10, 130, 30)):

        def interrupted(node: Node, moment: int = moment) -> None:
            steps = node.steps(a_plan())
            assert is_killed(lambda: node.apply(steps), moment, "family", node.kernel)

        inner = folder / str(index)
        inner.mkdir()
        stage = Stage(inner, interrupted)
        assert kill_at_every_moment(stage, lambda node: node.rollback(), "family", every=7)


def test_another_plan_after_apply_was_killed_is_taken_back_to_before_the_first(
    folder: Path,
) -> None:
    stage = Stage(folder)
    steps = stage.set().steps(a_plan(1))
    for moment in range(8, 130, 10):
        node = stage.set()
        assert is_killed(lambda node=node: node.apply(steps), moment, "family", node.kernel)  # type: ignore[misc]
        alone(lambda node=node: node.apply(node.steps(a_plan(2))))  # type: ignore[misc]
        assert rolled_back(node)
        assert node.kernel.contents() == stage.original


def test_apply_killed_can_be_ended_with_the_same_plan(folder: Path) -> None:
    stage = Stage(folder)
    steps = stage.set().steps(a_plan())
    stage.set().apply(steps)
    ended = Node(stage.folder).kernel.contents()
    for moment in range(8, 130, 30):
        node = stage.set()
        assert is_killed(lambda node=node: node.apply(steps), moment, "family", node.kernel)  # type: ignore[misc]
        assert not alone(lambda node=node: node.apply(steps)).stale  # type: ignore[misc]
        assert node.kernel.contents() == ended


class TestAWriteInTheKubeletsPlace:
    """Killed at any moment, by what is known of the kubelet when it is rolled back."""

    OF_KUBELET = frozenset((path, "memory.min") for path in ("/kubepods", "/kubepods/burstable"))
    NAMES = frozenset(f"{path}/{file}".removeprefix("/") for path, file in OF_KUBELET)

    def steps(self, node: Node) -> list[WriteStep]:
        return [
            structs.replace(
                step, kubelet_managed=(step.change.path, step.change.file) in self.OF_KUBELET
            )
            for step in node.steps(a_plan())
            if (step.change.path, step.change.file) in self.OF_KUBELET or step.change.level == "pod"
        ]

    def settle(self, node: Node, kubelet_files: frozenset[tuple[str, str]]) -> None:
        with open_journal(node.journal_folder, hierarchy_of(node.kernel, node.boot)) as journal:
            journal.settle_kubelet_entries(kubelet_files, lambda _entry: True)

    def left(self, node: Node, stage: Stage) -> set[str]:
        now = node.kernel.contents()
        return {name for name, content in stage.original.items() if now[name] != content}

    def kill(
        self, stage: Stage, act: Callable[[Node], object], kubelet_files: KubeletFiles
    ) -> Iterator[tuple[Node, RollbackResult, set[str]]]:
        """The node after each rollback, and the files that had other values before it."""
        for moment in count():
            node = stage.set()
            if not is_killed(lambda node=node: act(node), moment, "family", node.kernel):  # type: ignore[misc]
                assert moment > 5
                return
            before = self.left(node, stage)
            yield node, alone(lambda node=node: node.rollback(kubelet_files=kubelet_files)), before  # type: ignore[misc]

    def test_is_restored_where_the_kubelet_does_not_keep_it(self, folder: Path) -> None:
        stage = Stage(folder)
        steps = self.steps(stage.set())
        for node, _, _ in self.kill(stage, lambda node: node.apply(steps), ()):
            assert self.left(node, stage) == set()
            assert not node.journal.exists()

    def test_stays_where_the_kubelet_keeps_it(self, folder: Path) -> None:
        stage = Stage(folder)
        steps = self.steps(stage.set())
        for node, done, before in self.kill(stage, lambda node: node.apply(steps), self.OF_KUBELET):
            assert self.left(node, stage) == before & self.NAMES
            assert {each.state for each in done.not_written} <= {"kubelet", "restored"}
            assert not node.journal.exists()

    def test_is_left_to_a_person_where_nobody_knows(self, folder: Path) -> None:
        stage = Stage(folder)
        steps = self.steps(stage.set())
        for node, done, before in self.kill(stage, lambda node: node.apply(steps), None):
            unconfirmed = [each.entry for each in done.not_written if each.state == "unconfirmed"]
            names = {f"{each.path}/{each.file}".removeprefix("/") for each in unconfirmed}
            assert self.left(node, stage) == before & self.NAMES == names
            assert node.journal.exists() == bool(names)
            node.rollback(force=True)
            assert self.left(node, stage) == set()

    @pytest.mark.parametrize("keeps", [True, False])
    def test_that_is_being_settled_is_settled_by_rollback(self, folder: Path, keeps: bool) -> None:
        files: frozenset[tuple[str, str]] = self.OF_KUBELET if keeps else frozenset()
        stage = Stage(folder, lambda node: node.apply(self.steps(node)))
        for node, _, _ in self.kill(stage, lambda node: self.settle(node, files), files):
            assert self.left(node, stage) == (self.NAMES if keeps else set())
            assert not node.journal.exists()
