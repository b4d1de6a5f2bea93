"""What an experiment is made of: variants, measures and hypotheses as data, and one function."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple

import msgspec

from memqos.lab.cgroup import ScratchCgroup
from memqos.lab.vm.topology import Topology
from memqos.settings.settings import Placement
from memqos.units import pluralize

MIB: Final = 1 << 20
Figure = int | float | str
Figures = dict[str, Figure]
"""What was measured in one run of one variant, by measure; none where it makes no sense."""
Unit = Literal["count", "bytes", "seconds", "share", "ratio", "text"]
Place = Literal["emulated", "kvm", "here"]
"""QEMU without and with KVM, or the computer itself."""
LabVerdict = Literal["confirmed", "refuted", "mixed", "not tested"]

SMALL_MACHINE: Final = Topology(nodes=(512,), swap=192)


class LabMeasure(msgspec.Struct, frozen=True):
    """One thing that is measured."""

    title: str
    unit: Unit = "count"
    charted: bool = False
    """Whether the report draws it."""


class Variant(msgspec.Struct, frozen=True, kw_only=True):
    """One setting of an experiment."""

    title: str
    kubelet: Mapping[str, Any] = {}
    """Fields of the kubelet's configuration, as in its file."""
    placement: Placement = "containers"
    parameters: Mapping[str, Any] = {}
    """What else differs, by the names that the scenario gives it."""


class Hypothesis(msgspec.Struct, frozen=True, kw_only=True):
    """A statement that a run confirms or refutes."""

    text: str
    variants: tuple[str, ...]
    """Those it is about; it is not tested where one was not run."""
    holds: Callable[[Mapping[str, Figures]], bool]
    untestable: Mapping[Place, str] = {}
    """Where it cannot be tested, and why."""


class Planned(NamedTuple):
    """A value under test: where it was written, and the rule of the planner that decided it."""

    cgroup: str
    file: str
    value: str
    rule: str


class Workbench(NamedTuple):
    """Where one run of one variant takes place."""

    cgroup: ScratchCgroup
    folder: Path
    """For files."""
    planned: list[Planned]
    """Filled by the code that writes planned values."""


class Scenario(msgspec.Struct, frozen=True, kw_only=True):
    """One experiment."""

    name: str
    title: str
    about: str
    """What is done, for a reader of the report."""
    source: str
    """Where the question comes from."""
    memory: int
    """Bytes that bound all of it, the memory.max of its cgroup."""
    swap: int = 0
    machine: Topology = SMALL_MACHINE
    seconds: float = 8
    """Of one run of one variant, about, in an emulated machine."""
    runs_here: bool = True
    """Whether memory.max and memory.swap.max of its cgroup bound it entirely."""
    variants: Mapping[str, Variant]
    measures: Mapping[str, LabMeasure]
    hypotheses: tuple[Hypothesis, ...]
    measure: Callable[[Workbench, Variant], Figures]


def judge(
    hypothesis: Hypothesis, runs: list[Mapping[str, Figures]], place: Place
) -> tuple[LabVerdict, str]:
    """A verdict over all runs, variant → figures each, and how it came about."""
    if place in hypothesis.untestable:
        return "not tested", hypothesis.untestable[place]
    whole = [run for run in runs if all(name in run for name in hypothesis.variants)]
    if not whole:
        return "not tested", f"needs {', '.join(hypothesis.variants)}"
    held = sum(hypothesis.holds(run) for run in whole)
    verdict: LabVerdict = "mixed"
    if held in (0, len(whole)):
        verdict = "confirmed" if held else "refuted"
    return verdict, f"held in {held} of {pluralize(len(whole), 'run')}"
