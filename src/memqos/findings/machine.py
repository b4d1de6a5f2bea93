"""Rules about the machine itself: its kernel, its runtime, its memory."""

from collections.abc import Iterator
from typing import Final

from memqos.findings.catalogue import (
    MACHINE_CGROUP_V2,
    MACHINE_KERNEL,
    MACHINE_NRI,
    MACHINE_PSI,
    MACHINE_RECURSIVE_PROTECTION,
    MACHINE_RUNTIME,
    MACHINE_SWAP,
    MACHINE_THRASHING,
    MACHINE_ZRAM,
)
from memqos.findings.facts import NodeFacts, file_number
from memqos.findings.finding import Finding, Severity
from memqos.kernel.file_formats import parse_keyed, stall_of
from memqos.kernel.machine import LAYOUTS, OLDEST_SAFE_KERNEL, VersionNumbers
from memqos.manifests.agent_state import NriState
from memqos.plan.changes import Files

OLDEST_RUNTIMES: Final[dict[str, VersionNumbers]] = {"containerd": (1, 6, 0), "cri-o": (1, 22, 0)}
"""The first that pass the CRI's unified map on to the cgroup (KEP-2570, version skew)."""

_OLDEST_WITH_NRI: Final[dict[str, VersionNumbers]] = {"containerd": (1, 7, 0), "cri-o": (1, 26, 0)}
_NEVER: Final = (1 << 31, 0, 0)
_HOW_TO_TURN_ON: Final = {
    "containerd": 'in /etc/containerd/config.toml, under [plugins."io.containerd.nri.v1.nri"], set '
    "disable = false (the default from 2.0 on), then restart containerd",
    "cri-o": "in /etc/crio/crio.conf, under [crio.nri], set enable_nri = true (the default from "
    "1.30 on), then restart crio",
}


def check_cgroup_version(facts: NodeFacts) -> Iterator[Finding]:
    """Memory QoS needs cgroup v2."""
    found = facts.machine.layout
    if found is None:
        yield Finding(
            MACHINE_CGROUP_V2.id,
            "info",
            "the cgroup version is unknown",
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
            "the kernel version is unknown; memory.high needs 5.9 or newer",
            "kernel",
            (facts.machine.missing.get("kernel", "no version is known"),),
            "check it with uname -r",
        )
    elif version < OLDEST_SAFE_KERNEL:
        yield Finding(
            MACHINE_KERNEL.id,
            "error",
            "this kernel can hang a container at memory.high permanently: fixed in 5.9",
            "kernel",
            (f"kernel {facts.machine.kernel}",),
            "run kernel 5.9 or newer; until then set memoryThrottlingFactor: 1.0 in the kubelet's "
            "configuration, so that nothing is throttled below its limit, and "
            "memoryReservationPolicy: None, so that nothing is reserved, or turn the feature gate "
            "MemoryQoS off",
        )


def check_runtime_version(facts: NodeFacts) -> Iterator[Finding]:
    """An older runtime ignores the values that the kubelet sends, without an error."""
    found = facts.machine.runtime_version
    oldest = None if found is None else OLDEST_RUNTIMES.get(found[0].lower())
    if found is None or oldest is None:
        yield Finding(
            MACHINE_RUNTIME.id,
            "info",
            "the container runtime is unknown; containerd 1.6 and CRI-O 1.22 are the first "
            "to set memory.min, memory.low and memory.high",
            "container runtime",
            (f"runtime: {facts.machine.runtime or 'none found'}",),
            "check it with the runtime's --version",
        )
    elif found[1] < oldest:
        yield Finding(
            MACHINE_RUNTIME.id,
            "error",
            "this container runtime does not set memory.min, memory.low and memory.high",
            "container runtime",
            (facts.machine.runtime or found[0],),
            f"run {found[0]} {oldest[0]}.{oldest[1]} or newer",
        )


def check_nri(facts: NodeFacts) -> Iterator[Finding]:
    """Whether containers can have their values from the start."""
    nri, found = facts.nri, facts.machine.runtime_version
    if nri is None:
        return
    runtime = facts.machine.runtime or "the runtime is unknown"
    plugin = None if facts.agent is None else facts.agent.nri
    is_wanted = plugin is not None and plugin.mode == "on"
    is_connected = plugin is not None and plugin.runtime is not None
    if nri.mode is None and not is_connected:
        name = "" if found is None else found[0].lower()
        if is_wanted or (found is not None and found[1] >= _OLDEST_WITH_NRI.get(name, _NEVER)):
            yield Finding(
                MACHINE_NRI.id,
                "warning" if is_wanted else "info",
                "NRI is off: containers get their values after they have started",
                nri.socket,
                (runtime, "there is no socket", *_agent_line(plugin)),
                _HOW_TO_TURN_ON.get(name, "turn NRI on in the runtime's configuration"),
            )
        return
    is_open = nri.mode is not None and nri.mode & 0o022 and nri.folder_mode & 0o011
    is_contested = plugin is not None and plugin.contested
    evidence = [
        f"{runtime}; the agent's nriSocket is another one"
        if nri.mode is None
        else f"{runtime}; socket {nri.mode:04o} in a folder {nri.folder_mode:04o}",
        "plugins connected: "
        + ("not known" if nri.plugins is None else ", ".join(nri.plugins) or "none"),
        *[f"started by the runtime: {name}" for name in nri.installed],
        *_agent_line(plugin),
    ]
    if is_contested:
        what = "another NRI plugin seems to set the same values as memqos: memqos sets none"
        fix = "remove the other plugin, or set nri: off in the agent's configuration"
    elif is_open:
        what = (
            "users other than root can connect as an NRI plugin, and so change every new container"
        )
        fix = f"chmod 0700 {nri.socket.rpartition('/')[0]}"
    elif is_connected:
        what, fix = "NRI is on, and the agent is a plugin: containers start with values", "none"
    elif is_wanted:
        what = "the agent is not connected over NRI: containers get their values after their start"
        fix = "stop a second agent of this node, if there is one; else restart the runtime"
    else:
        what = "NRI is on, and no agent uses it: containers get their values after their start"
        fix = "set nri: on in the agent's configuration"
    is_broken = is_wanted and not is_connected
    severity: Severity = "warning" if is_contested or is_open or is_broken else "info"
    yield Finding(MACHINE_NRI.id, severity, what, nri.socket, tuple(evidence), fix)


def _agent_line(plugin: NriState | None) -> tuple[str, ...]:
    if plugin is None or plugin.mode != "on":
        return ()
    if plugin.runtime is not None:
        return ("the agent: connected",)
    return (f"the agent: not connected: {plugin.problem or 'it is connecting'}",)


def check_swap(facts: NodeFacts) -> Iterator[Finding]:
    """Without swap, the reclaim that enforces memory.high cannot take anonymous memory."""
    total = facts.machine.swap
    limited = [files for files in facts.cgroups.values() if file_number(files, "memory.high")]
    if total is None:
        return
    barred = sum(file_number(files, "memory.swap.max") == 0 for files in limited)
    if total == 0:
        yield Finding(
            MACHINE_SWAP.id,
            "info",
            "there is no swap: above memory.high only page cache can be reclaimed, and a process "
            "whose anonymous memory grows is throttled until it ends or frees memory",
            "swap",
            ("SwapTotal: 0", f"cgroups with a memory.high: {len(limited)}"),
            "raise the limit of containers with mostly anonymous memory, or add swap to the node",
        )
    elif barred:
        yield Finding(
            MACHINE_SWAP.id,
            "info",
            "there is swap, but not for containers with a memory.high: above it only their page "
            "cache can be reclaimed",
            "swap",
            (f"SwapTotal: {total}", f"memory.swap.max is 0 in {barred} of {len(limited)}"),
            "set memorySwap.swapBehavior: LimitedSwap if they should swap",
        )


def check_zram(facts: NodeFacts) -> Iterator[Finding]:
    """What is swapped to zram stays in memory."""
    compressed = [name for name in facts.machine.swap_devices if "/zram" in name]
    if compressed:
        yield Finding(
            MACHINE_ZRAM.id,
            "info",
            "swap is compressed memory (zram): swapped memory stays in RAM and is not charged to "
            "a container",
            "swap",
            (f"/proc/swaps: {', '.join(compressed)}", f"SwapTotal: {facts.machine.swap}"),
            MACHINE_ZRAM.fix,
        )


_THRASHING_REFAULTS: Final = 100
"""Anonymous pages a second that are read back."""
_THRASHING_STALL: Final = 10.0
"""Percent of ten seconds in which nothing of the cgroup ran for want of memory."""


def check_thrashing(facts: NodeFacts) -> Iterator[Finding]:
    """Refaults of anonymous pages, while PSI shows that nothing runs."""
    if facts.later is None:
        return
    parents = {path.rpartition("/")[0] for path in facts.cgroups}
    for path, files in facts.later.cgroups.items():
        if path in parents or path not in facts.cgroups:
            continue
        refaults = _refaults(files) - _refaults(facts.cgroups[path])
        rate = refaults / max(facts.later.seconds, 0.1)
        stalled = stall_of(files.get("memory.pressure", "")).full.avg10
        if rate >= _THRASHING_REFAULTS and stalled >= _THRASHING_STALL:
            yield Finding(
                MACHINE_THRASHING.id,
                "warning",
                "it is swap thrashing: it waits for pages it has just swapped out",
                facts.display_name(path),
                (
                    f"memory.stat: workingset_refault_anon +{rate:.0f} a second",
                    f"memory.pressure: full avg10={stalled:.0f}",
                ),
                MACHINE_THRASHING.fix,
            )


def _refaults(files: Files) -> int:
    return parse_keyed(files.get("memory.stat", "")).get("workingset_refault_anon", 0)


def check_psi(facts: NodeFacts) -> Iterator[Finding]:
    """Without PSI it is not measured how long containers wait for memory."""
    if facts.machine.pressure or any("memory.pressure" in each for each in facts.cgroups.values()):
        return
    why = facts.machine.missing.get("pressure")
    yield Finding(
        MACHINE_PSI.id,
        "info" if why is None else "warning",
        "pressure stall information (PSI) is unknown"
        if why is None
        else "there is no pressure stall information (PSI): the time that containers wait is not "
        "measured",
        "/proc/pressure",
        (why or "none was recorded",),
        "run memqos doctor on the node, or take a new snapshot"
        if why is None
        else "boot with psi=1, on a kernel built with CONFIG_PSI",
    )


def check_recursive_protection(facts: NodeFacts) -> Iterator[Finding]:
    """The mount option decides whether cgroups without a claim are protected."""
    found = facts.machine.recursive_protection
    if found:
        return
    yield Finding(
        MACHINE_RECURSIVE_PROTECTION.id,
        "info",
        "it is unknown whether memory_recursiveprot is on: assumed off"
        if found is None
        else "cgroup v2 is mounted without memory_recursiveprot: a container is protected only "
        "as far as it and its ancestors have protection of their own",
        "/sys/fs/cgroup",
        tuple(line for line in facts.machine.mount if line.split()[2] == "cgroup2")
        or ("no cgroup v2 mount is known",),
        "mount -o remount,memory_recursiveprot /sys/fs/cgroup, if protection of a pod should "
        "extend to containers without protection of their own",
    )
