"""A writer killed at any moment leaves nothing that rollback cannot take back."""

import itertools
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

import pytest
from tests.fakes.crash import VICTIMS, Victim, is_killed
from tests.fakes.node import Node, a_plan, memory_folder

from memqos.host.lock import Locked

Found = TypeVar("Found")
PATIENCE = 30.0
"""Seconds; a process that a killed writer has left behind holds the lock until it is done."""


@pytest.fixture
def folder() -> Iterator[Path]:
    with memory_folder() as folder:
        yield folder


class Stage:
    """A node that is put back to where it was before every performance."""

    def __init__(self, folder: Path, prepare: Callable[[Node], object] = Node.reading) -> None:
        self.folder = folder / "node"
        self.folder.mkdir()
        node = Node(self.folder)
        self.original = node.kernel.contents()
        prepare(node)
        self.prepared = node.kernel.contents()
        self.journal = node.journal.read_bytes() if node.journal.exists() else None

    def set(self) -> Node:
        node = Node(self.folder)
        for name, content in node.kernel.contents().items():
            if content != self.prepared[name]:
                (node.kernel.folder / name).write_bytes(self.prepared[name])
        shutil.rmtree(node.journal_folder, ignore_errors=True)
        if self.journal is not None:
            Path(node.journal_folder).mkdir(mode=0o700)
            node.journal.write_bytes(self.journal)
        return node


def alone(action: Callable[[], Found]) -> Found:
    """Act as soon as nobody writes any more."""
    end = time.monotonic() + PATIENCE
    while True:
        try:
            return action()
        except Locked:
            assert time.monotonic() < end
            time.sleep(0.002)


def rolled_back(node: Node) -> None:
    done = alone(node.rollback)
    assert {result.end for result in done.results} <= {"written"}
    assert {each.state for each in done.rest} <= {"restored"}


def kill_at_every_moment(
    stage: Stage, act: Callable[[Node], object], victim: Victim, every: int = 1
) -> int:
    """How many moments there were; after each of them the tree was as it had been."""
    for count, moment in enumerate(itertools.count(0, every)):
        node = stage.set()
        killed = is_killed(lambda node=node: act(node), moment, victim, node.kernel)  # type: ignore[misc]
        if killed:
            rolled_back(node)
            assert node.kernel.contents() == stage.original, f"killed at moment {moment}"
            assert not node.journal.exists()
        else:
            return count
    raise AssertionError("time has no end")


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
    steps = stage.set().steps(a_plan(2))
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
        rolled_back(node)
        assert node.kernel.contents() == stage.original


def test_apply_killed_can_be_ended_with_the_same_plan(folder: Path) -> None:
    stage = Stage(folder)
    steps = stage.set().steps(a_plan())
    stage.set().apply(steps)
    ended = Node(stage.folder).kernel.contents()
    for moment in range(8, 130, 30):
        node = stage.set()
        assert is_killed(lambda node=node: node.apply(steps), moment, "family", node.kernel)  # type: ignore[misc]
        assert not alone(lambda node=node: node.apply(steps)).moved  # type: ignore[misc]
        assert node.kernel.contents() == ended
