"""Rules about the machine itself: its kernel, its runtime, its memory."""

from collections.abc import Iterator
from typing import Final

from memqos.findings.catalogue import (
    MACHINE_CGROUP_V2,
    MACHINE_KERNEL,
    MACHINE_PSI,
    MACHINE_RECURSIVE_PROTECTION,
    MACHINE_RUNTIME,
    MACHINE_SWAP,
)
from memqos.findings.facts import NodeFacts, file_number
from memqos.findings.finding import Finding
from memqos.kernel.machine import LAYOUTS, VersionNumbers

OLDEST_KERNEL: Final = (5, 9, 0)
"""With commit b3ff92916af3 a task past memory.high reclaims more before it sleeps, which ends the
livelock that kept the feature from beta (KEP-2570, Latest Update)."""
OLDEST_RUNTIMES: Final[dict[str, VersionNumbers]] = {"containerd": (1, 6, 0), "cri-o": (1, 22, 0)}
"""The first that pass the CRI's unified map on to the cgroup (KEP-2570, version skew)."""


def check_cgroup_version(facts: NodeFacts) -> Iterator[Finding]:
    """Memory QoS needs cgroup v2."""
    found = facts.machine.layout
    if found is None:
        yield Finding(
            MACHINE_CGROUP_V2.id,
            "info",
            "how cgroups are mounted is not known",
            "/proc/mounts",
            (facts.machine.missing.get("mount", "no mounts are known"),),
            "run memqos where /proc/mounts can be read",
        )
    elif found != "v2":
        mounts = (
            f"{mount.type} on {mount.point}"
            for mount in facts.machine.mounts
            if mount.type == "cgroup2" or "memory" in mount.options
        )
        yield Finding(
            MACHINE_CGROUP_V2.id,
            "error",
            f"this machine has {LAYOUTS[found]}, not cgroup v2: no pod can be protected or "
            "throttled here",
            "/sys/fs/cgroup",
            tuple(mounts) or ("no hierarchy with the memory controller is mounted",),
            "boot with systemd.unified_cgroup_hierarchy=1, and cgroup_no_v1=all where there is no "
            "systemd",
        )


def check_kernel_version(facts: NodeFacts) -> Iterator[Finding]:
    """Before 5.9 a cgroup at its memory.high could stop for good."""
    version = facts.machine.kernel_version
    if version is None:
        yield Finding(
            MACHINE_KERNEL.id,
            "info",
            "the kernel's version is not known; memory.high needs 5.9 or newer",
            "kernel",
            (facts.machine.missing.get("kernel", "no version is known"),),
            "compare uname -r",
        )
    elif version < OLDEST_KERNEL:
        yield Finding(
            MACHINE_KERNEL.id,
            "error",
            "this kernel can throttle a container at memory.high for ever: 5.9 mended it",
            "kernel",
            (f"kernel {facts.machine.kernel}",),
            "run kernel 5.9 or newer, or leave the feature gate MemoryQoS off",
        )


def check_runtime_version(facts: NodeFacts) -> Iterator[Finding]:
    """An older runtime ignores the values that the kubelet sends, without an error."""
    found = facts.machine.runtime_version
    oldest = None if found is None else OLDEST_RUNTIMES.get(found[0].lower())
    if found is None or oldest is None:
        yield Finding(
            MACHINE_RUNTIME.id,
            "info",
            "the container runtime is not known; containerd 1.6 and CRI-O 1.22 are the first "
            "to set memory.min, memory.low and memory.high",
            "container runtime",
            (f"runtime: {facts.machine.runtime or 'none found'}",),
            "compare the runtime's --version",
        )
    elif found[1] < oldest:
        yield Finding(
            MACHINE_RUNTIME.id,
            "error",
            "this runtime does not pass memory.min, memory.low and memory.high on to containers",
            "container runtime",
            (facts.machine.runtime or found[0],),
            f"run {found[0]} {oldest[0]}.{oldest[1]} or newer",
        )


def check_swap(facts: NodeFacts) -> Iterator[Finding]:
    """memory.high is kept by reclaim, and without swap anonymous memory cannot be reclaimed."""
    total = facts.machine.swap
    limited = [files for files in facts.cgroups.values() if file_number(files, "memory.high")]
    if total is None:
        return
    barred = sum(file_number(files, "memory.swap.max") == 0 for files in limited)
    if total == 0:
        yield Finding(
            MACHINE_SWAP.id,
            "info",
            "there is no swap: past memory.high only page cache can be reclaimed, and a process "
            "whose anonymous memory grows there is slowed down until it ends or frees some",
            "swap",
            ("SwapTotal: 0", f"cgroups with a memory.high: {len(limited)}"),
            "give what is mostly anonymous memory a larger limit, or the node swap",
        )
    elif barred:
        yield Finding(
            MACHINE_SWAP.id,
            "info",
            "there is swap, but not for containers with a memory.high: past it only their page "
            "cache can be reclaimed",
            "swap",
            (f"SwapTotal: {total}", f"memory.swap.max is 0 in {barred} of {len(limited)}"),
            "set memorySwap.swapBehavior: LimitedSwap if they should swap",
        )


def check_psi(facts: NodeFacts) -> Iterator[Finding]:
    """Without PSI it is not measured how long containers wait for memory."""
    if facts.machine.pressure or any("memory.pressure" in each for each in facts.cgroups.values()):
        return
    why = facts.machine.missing.get("pressure")
    yield Finding(
        MACHINE_PSI.id,
        "info" if why is None else "warning",
        "pressure stall information is not known"
        if why is None
        else "there is no pressure stall information: how long containers wait is not measured",
        "/proc/pressure",
        (why or "none was recorded",),
        "boot with psi=1, on a kernel built with CONFIG_PSI",
    )


def check_recursive_protection(facts: NodeFacts) -> Iterator[Finding]:
    """The mount option decides whether cgroups without a claim are protected."""
    found = facts.machine.recursive_protection
    if found:
        return
    yield Finding(
        MACHINE_RECURSIVE_PROTECTION.id,
        "info",
        "whether memory_recursiveprot is on is not known: taken as off"
        if found is None
        else "mounted without memory_recursiveprot: a container is protected only as far as it "
        "and all above it claim protection themselves",
        "/sys/fs/cgroup",
        tuple(line for line in facts.machine.mount if line.split()[2] == "cgroup2")
        or ("no cgroup v2 mount is known",),
        "mount -o remount,memory_recursiveprot /sys/fs/cgroup, if protection of a pod should "
        "reach containers that claim none",
    )
