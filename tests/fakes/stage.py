"""A node put back to where it was before every performance, and writers killed on it."""

import gc
import itertools
import shutil
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple, TypeVar

from tests.eventually import eventually
from tests.fakes.crash import Victim, is_killed
from tests.fakes.node import Node

from memqos.host.lock import Locked

T = TypeVar("T")


class Stage:
    """The node, and what `prepare` makes of it before the curtain rises."""

    def __init__(self, folder: Path, prepare: Callable[[Node], object] = Node.read_journal) -> None:
        self.folder = folder / "node"
        self.folder.mkdir()
        node = Node(self.folder)
        self.original = node.kernel.contents()
        prepare(node)
        self.prepared = node.kernel.contents()
        self.journal = node.journal.read_bytes() if node.journal.exists() else None
        # A process that is forked would get a copy of each page that its garbage collector sees.
        gc.collect()
        gc.freeze()

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


class Killed(NamedTuple):
    """A writer that was killed, and what was left once rollback had been there."""

    moment: int
    restored: bool
    """Whether the tree was, byte for byte, as before memqos first wrote."""


def killed_at_every_moment(
    stage: Stage, act: Callable[[Node], object], victim: Victim, every: int = 1
) -> Iterator[Killed]:
    """Kill the writer at each moment of its life, and take back what it did."""
    for moment in itertools.count(0, every):
        node = stage.set()
        if not is_killed(lambda node=node: act(node), moment, victim, node.kernel):  # type: ignore[misc]
            return
        settled = rolled_back(node) and not node.journal.exists()
        yield Killed(moment, settled and node.kernel.contents() == stage.original)


def rolled_back(node: Node) -> bool:
    """Roll back; whether nothing was left and nobody was in the way."""
    done = alone(node.rollback)
    ends, states = (
        {result.outcome for result in done.results},
        {each.state for each in done.not_written},
    )
    return ends <= {"written"} and states <= {"restored"}


def alone(action: Callable[[], T]) -> T:
    """Act as soon as nobody writes any more."""
    done: list[T] = []

    def is_done() -> bool:
        with suppress(Locked):
            done.append(action())
        return bool(done)

    # A process that a killed writer has left behind holds the lock until it is done.
    eventually("nobody else writes", is_done)
    return done[0]
