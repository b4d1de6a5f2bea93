"""The seam between what is to be written and who writes it."""

from collections.abc import Collection, Sequence
from typing import Protocol

from memqos.converge.records import OwnerState
from memqos.plan.changes import Change


class Driver(Protocol):
    """Writes values where their owner will not undo them.

    An owner that does not answer raises Unreachable.
    """

    def batch_key(self, change: Change) -> str:
        """A name; changes that share it are of one owner, and written in one call."""

    def read_owner_state(self, change: Change) -> OwnerState | None:
        """What the owner stores about the change's cgroup; None where it stores nothing."""

    def write(self, changes: Sequence[Change]) -> bool:
        """Write the values of one batch; False where that took too long and was stopped.

        A value that is not taken raises WriteRefused. Writing it again does no harm.
        """

    def restore_owner(
        self, path: str, owner_state: OwnerState, files: Collection[str]
    ) -> Sequence[str]:
        """Have the owner keep what it kept before, once those files are as they were.

        What that changed, for people.
        """

    def read(self, path: str, file: str) -> str | None:
        """The current value; None where the cgroup or the file was removed."""
