"""What a virtual machine is made of, as data; part of the machine's own world too."""

from typing import Final, Literal

from msgspec import Struct

Init = Literal["tiny", "systemd"]
Suite = Literal["bookworm", "trixie", "forky"]
"""Debian 12, 13 and what will be 14."""
Accel = Literal["tcg", "kvm"]
"""Emulated, or run by the processor."""
DEBIAN: Final[dict[str, Suite]] = {"12": "bookworm", "13": "trixie", "testing": "forky"}
"""Suites by the words of --debian."""
SUITES: Final = tuple(DEBIAN.values())


class Topology(Struct, frozen=True, kw_only=True):
    """One machine. Memory is in MiB, times are in seconds of the host.

    Everything in the machine takes some twenty times as long as outside, so times are bounds
    against hanging and say nothing about speed.
    """

    suite: Suite = "bookworm"
    """The Debian that its kernel, runtimes and Python are of."""

    nodes: tuple[int, ...] = (1024,)
    """The memory of each NUMA node; processors are dealt out over the nodes in turn."""

    distances: tuple[tuple[int, ...], ...] = ()
    """From each node to each, as /sys/devices/system/node/node*/distance shows them."""

    cpus: int = 2
    swap: int = 0
    init: Init = "tiny"
    recursive_protection: bool = True
    """Whether cgroups are mounted with memory_recursiveprot."""

    deployment: bool = False
    """Whether memqos's image and the rendered overlays are there, in `deployment`."""

    counts_instructions: bool = False
    """Whether its clock goes on by 1 ns an instruction, however busy the host is. One processor."""

    kernel_arguments: tuple[str, ...] = ()
    seconds_a_test: int = 1800
    seconds_in_all: int = 3600
