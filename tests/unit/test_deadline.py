"""Actions in a thread that somebody waits for only so long."""

import threading
from collections.abc import Iterator

import pytest
from tests.eventually import PATIENCE, eventually

from memqos.agent.deadline import DeadlinePassed, DeadlineThread


class Slow:
    """An action that ends when it is told to."""

    def __init__(self) -> None:
        self.may_end = threading.Event()

    def __call__(self) -> str:
        assert self.may_end.wait(PATIENCE)
        return "late"


@pytest.fixture
def hasty() -> Iterator[DeadlineThread]:
    """Waits for nothing that has to wait itself."""
    made = DeadlineThread("hasty", 0.01)
    made.start()
    yield made
    made.stop()


@pytest.fixture
def patient() -> Iterator[DeadlineThread]:
    made = DeadlineThread("patient", PATIENCE)
    made.start()
    yield made
    made.stop()


def test_a_result_in_time_is_not_revoked(patient: DeadlineThread) -> None:
    revoked: list[str] = []
    assert patient.run(lambda: "done", lambda: revoked.append("done")) == "done"
    assert patient.run(lambda: "again", lambda: revoked.append("again")) == "again"
    assert revoked == []


def test_an_error_is_raised_where_somebody_waits(patient: DeadlineThread) -> None:
    def fail() -> None:
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        patient.run(fail, fail)
    with pytest.raises(ValueError, match="no"):
        patient.run_always(fail)


def test_a_late_result_is_revoked_and_nothing_is_begun_meanwhile(hasty: DeadlineThread) -> None:
    slow, done = Slow(), list[str]()
    with pytest.raises(DeadlinePassed):
        hasty.run(slow, lambda: done.append("revoked"))
    with pytest.raises(DeadlinePassed):
        hasty.run(lambda: done.append("begun"), lambda: None)
    hasty.run_always(lambda: done.append("always"))
    assert done == []
    slow.may_end.set()
    eventually("all has ended", lambda: len(done) == 2)
    assert done == ["revoked", "always"]


def test_after_a_revocation_that_fails_it_goes_on(hasty: DeadlineThread) -> None:
    def fail() -> None:
        raise ValueError("no")

    slow, done = Slow(), list[str]()
    with pytest.raises(DeadlinePassed):
        hasty.run(slow, fail)
    slow.may_end.set()
    hasty.run_always(lambda: done.append("next"))
    eventually("the next action has run", lambda: done)
