"""What experiments report while they run, as lines of JSON between machine and host."""

import msgspec

from memqos.lab.scenario import Figures, Planned


class LabMachine(msgspec.Struct, frozen=True, kw_only=True, tag="machine", rename="camel"):
    """The machine that experiments run on."""

    kernel: str
    system: str
    """The name of its distribution."""
    memory: int
    swap: int
    numa_nodes: int
    processors: int
    python: str
    recursive_protection: bool
    """Whether its cgroups are mounted with memory_recursiveprot."""


class RunStarted(msgspec.Struct, frozen=True, tag="started"):
    """A run of a variant begins."""

    scenario: str
    variant: str
    run: int


class RunMeasured(msgspec.Struct, frozen=True, tag="measured"):
    """A run of a variant has ended."""

    scenario: str
    variant: str
    run: int
    seconds: float
    figures: Figures
    planned: tuple[Planned, ...] = ()
    """Values under test, as they were written."""


class RunFailed(msgspec.Struct, frozen=True, tag="failed"):
    """A run of a variant that could not be measured."""

    scenario: str
    variant: str
    run: int
    why: str


LabEvent = LabMachine | RunStarted | RunMeasured | RunFailed
encode_event = msgspec.json.Encoder().encode
decode_event = msgspec.json.Decoder(LabEvent).decode
