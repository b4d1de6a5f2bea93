"""Changes bound to the very cgroups they were planned for."""

from collections.abc import Container, Iterable, Mapping
from typing import Literal

import msgspec

from memqos.converge.values import kernel_form
from memqos.host.cgroups import CgroupFs
from memqos.plan.changes import Change


class WriteStep(msgspec.Struct, frozen=True):
    """One change, and the inode of the cgroup it is meant for."""

    change: Change
    cgroup: int
    kubelet_managed: bool = False
    """Whether the running kubelet puts this very value there itself, once a minute.

    A kubelet that starts zeroes what it keeps above pods for that minute. To write it early is the
    kubelet's own doing, so it leaves nothing to restore: the zero was not what was there before.
    """


class StaleStep(msgspec.Struct, frozen=True):
    """A step that no longer fits the tree."""

    step: WriteStep
    current: str | None
    """The value that is there instead; None where the cgroup is another one of the same name."""

    def __str__(self) -> str:
        change = self.step.change
        place = f"{change.path}/{change.file}"
        if self.current is None:
            return f"{place}: the cgroup was made anew"
        return f"{place}: {change.old or 'empty'} when planned, {self.current or 'empty'} now"


StepState = Literal["ready", "done", "gone"] | StaleStep
"""A cgroup that is gone has not moved, and a value that is already as planned has not either: so
a plan whose writer was killed can be applied again."""


def steps_of(
    changes: Iterable[Change],
    identities: Mapping[str, int],
    kubelet_managed: Container[tuple[str, str]] = (),
) -> tuple[WriteStep, ...]:
    """Bind changes to cgroups by path → inode; a change whose cgroup is not there is left out."""
    return tuple(
        WriteStep(change, identities[change.path], (change.path, change.file) in kubelet_managed)
        for change in changes
        if change.path in identities
    )


def step_state(step: WriteStep, fs: CgroupFs, page_size: int) -> StepState:
    """Whether the tree is still the one that a step was planned for."""
    change = step.change
    identity = fs.identity(change.path)
    if identity is None:
        return "gone"
    if identity != step.cgroup:
        return StaleStep(step, None)
    value = fs.read(change.path, change.file)
    if value is None:
        return "gone"
    if value == kernel_form(change.file, change.new, page_size):
        return "done"
    return "ready" if value == change.old else StaleStep(step, value)
