"""A source that is read by a thread of its own, while somebody looks."""

from collections.abc import Collection, Iterator
from pathlib import Path

import pytest
from tests.eventually import eventually

from memqos.converge import refresher
from memqos.converge.node_plan import PlanOptions
from memqos.converge.node_sources import SnapshotNode
from memqos.converge.refresher import Refresher
from memqos.monitor.instant import NodeInstant, RowQuery

SNAPSHOT = Path(__file__).parents[2] / "tests/nodes/k138-none.json"


class Source(SnapshotNode):
    """A snapshot that counts how often it is read, and fails when it is told to."""

    def __init__(self) -> None:
        super().__init__(str(SNAPSHOT), PlanOptions())
        self.reads = 0
        self.failure: Exception | None = None

    def read(self, visible: Collection[str], query: RowQuery) -> NodeInstant:
        self.reads += 1
        if self.failure is not None:
            raise self.failure
        return super().read(visible, query)


@pytest.fixture
def reading() -> Iterator[tuple[Source, Refresher]]:
    source = Source()
    made = Refresher(source, interval=0.01)
    made.start()
    yield source, made
    made.stop()
    made._thread.join()


def test_an_unforeseen_error_is_shown_and_reading_goes_on(
    reading: tuple[Source, Refresher],
) -> None:
    source, made = reading
    source.failure = ZeroDivisionError("of a hostile file")
    eventually("it is shown", lambda: made.fault == "ZeroDivisionError: of a hostile file")
    source.failure = None
    eventually("it is over", lambda: made.fault is None)


def test_a_request_at_the_moment_in_which_attention_ends_is_not_lost(
    reading: tuple[Source, Refresher], monkeypatch: pytest.MonkeyPatch
) -> None:
    source, made = reading
    monkeypatch.setattr(refresher, "_ATTENTION", 0.05)

    def is_idle() -> bool:
        before = source.reads
        made._thread.join(0.1)
        return source.reads == before

    eventually("nobody looks", is_idle)
    # Whoever looked in time for that, and not yet when the thread began to wait, does not wake it.
    monkeypatch.setattr(made._wake, "set", lambda: None)
    before = source.reads

    def is_read_again() -> bool:
        made.latest((), RowQuery())
        return source.reads > before

    eventually("it is read again", is_read_again)
    monkeypatch.undo()
