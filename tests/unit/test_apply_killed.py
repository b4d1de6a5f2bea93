"""A writer killed at any moment leaves nothing that rollback cannot take back."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.fakes.crash import VICTIMS, Victim, is_killed
from tests.fakes.node import Node, a_plan, memory_folder
from tests.fakes.stage import Stage, alone, killed_at_every_moment, rolled_back


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
