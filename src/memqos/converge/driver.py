"""The seam between what is to be written and who writes it."""

from typing import Protocol

from memqos.plan.changes import Change


class Driver(Protocol):
    """Writes values where their owner will not undo them."""

    def write(self, change: Change) -> bool:
        """Write one value; False where that took too long and was stopped.

        A value that is not taken raises WriteRefused. Writing it again does no harm.
        """

    def read(self, path: str, file: str) -> str | None:
        """What is there now; None where the cgroup or the file is gone."""
