"""Writers killed at every moment of their life: how many moments, and what rollback restored."""

from collections.abc import Callable, Iterator
from pathlib import Path

from tests.fakes.crash import VICTIMS
from tests.fakes.node import Node, a_plan, memory_folder
from tests.fakes.stage import Stage, killed_at_every_moment

Action = Callable[[Node], object]


def report() -> Iterator[str]:
    """Kill points of apply, of an apply after another, and of rollback."""
    values = len(a_plan())
    points = restored = 0
    for name, prepare, act in (
        (f"apply of {values} values", Node.read_journal, _applying(1)),
        ("apply of another plan", _applying(1), _applying(2)),
        ("rollback", _applying(1), Node.rollback),
    ):
        found = list(_killed(prepare, act))
        yield f"{name}: killed at {len(found)} moments, restored after {sum(found)}"
        points += len(found)
        restored += sum(found)
    yield f"all: {points} kill points, {restored / points:.0%} restored byte for byte"


def _applying(step: int) -> Action:
    return lambda node: node.apply(node.steps(a_plan(step)))


def _killed(prepare: Action, act: Action) -> Iterator[bool]:
    for victim in VICTIMS:
        with memory_folder() as folder:
            stage = Stage(Path(folder), prepare)
            for killed in killed_at_every_moment(stage, act, victim):
                yield killed.restored
