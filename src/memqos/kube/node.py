"""A node: what it has, what it keeps back, and what is left for pods."""

from collections.abc import Iterable, Mapping
from typing import Final, Literal

import msgspec

from memqos.errors import InputError
from memqos.kube.kubelet import KubeletConfiguration
from memqos.kube.kubelet.reservations import (
    COMPRESSIBLE,
    KUBE_RESERVED,
    PIDS,
    SYSTEM_RESERVED,
    NodeReservations,
    read_reservations,
)
from memqos.kube.kubelet.thresholds import MEMORY_AVAILABLE, PODS, read_thresholds
from memqos.kube.pod import ObjectMeta, ResourceList
from memqos.kube.quantity import MAX_INT64, NANOS, Quantity
from memqos.kube.resources import CPU, MEMORY, hugepage_size, is_hugepages, legible
from memqos.release import Release, Since

Quantities = dict[str, Quantity]
"""Resource name → quantity."""

NodeCgroupKind = Literal["kubepods", "kube-reserved", "system-reserved"]


class NodeSwapStatus(msgspec.Struct, frozen=True):
    """`status.nodeInfo.swap`, since 1.34."""

    capacity: int | None = None


class NodeSystemInfo(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """`status.nodeInfo`, as far as it decides which rules apply."""

    kubelet_version: str | None = None
    kernel_version: str | None = None
    container_runtime_version: str | None = None
    operating_system: str | None = None
    os_image: str | None = None
    swap: NodeSwapStatus | None = None


class Taint(msgspec.Struct, frozen=True, omit_defaults=True):
    """One entry of `spec.taints`."""

    key: str = ""
    value: str | None = None
    effect: str = ""


class NodeSpec(msgspec.Struct, frozen=True, omit_defaults=True):
    """`spec`, as far as it keeps pods away."""

    taints: tuple[Taint, ...] | None = None


class NodeFeatures(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """`status.features`: what the container runtime supports."""

    supplemental_groups_policy: bool | None = None


class NodeAddress(msgspec.Struct, frozen=True):
    """One entry of `status.addresses`."""

    type: str = ""
    address: str = ""


class DaemonEndpoint(msgspec.Struct, frozen=True):
    """Where one of a node's daemons listens."""

    port: int = msgspec.field(default=0, name="Port")


class DaemonEndpoints(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """`status.daemonEndpoints`."""

    kubelet_endpoint: DaemonEndpoint | None = None


class NodeStatus(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """`status`, as far as it is about resources and the kubelet's address."""

    capacity: ResourceList | None = None
    allocatable: ResourceList | None = None
    node_info: NodeSystemInfo | None = None
    addresses: tuple[NodeAddress, ...] | None = None
    daemon_endpoints: DaemonEndpoints | None = None
    features: NodeFeatures | None = None


class Node(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """A Node as the API server sends it."""

    metadata: ObjectMeta = ObjectMeta()
    status: NodeStatus = NodeStatus()
    spec: NodeSpec | None = None


OS_LABEL: Final = "kubernetes.io/os"
WINDOWS: Final = "windows"


def node_os(node: Node) -> str | None:
    """The operating system that a Node reports; None where it does not."""
    info = node.status.node_info
    reported = (info and info.operating_system) or (node.metadata.labels or {}).get(OS_LABEL)
    # Virtual Kubelet reports `Linux`; its label, which pods select, is in lower case.
    return reported and reported.lower()


class Capacity(msgspec.Struct, frozen=True):
    """What the machine has. `pids` is None where the limit of processes is unknown."""

    cpu: int
    """Thousandths of a core."""
    memory: int
    hugepages: dict[str, int] = {}
    """Resource name → bytes."""
    pids: int | None = None

    @property
    def quantities(self) -> Quantities:
        """By resource name, as a Node lists them: processes are no resource of a Node."""
        return {
            CPU: Quantity.of_milli(self.cpu),
            MEMORY: Quantity.of(self.memory, "BinarySI"),
            **{name: Quantity.of(size, "BinarySI") for name, size in self.hugepages.items()},
        }


class OverReserved(msgspec.Struct, frozen=True):
    """A resource of which more is kept back than there is: the kubelet does not start."""

    resource: str
    reserved: Quantity
    capacity: Quantity


class Allocatable(msgspec.Struct, frozen=True):
    """What is left for pods: as published and as enforced."""

    published: Quantities
    """On the Node, for the scheduler: less reservations, eviction threshold and hugepages."""
    enforced: Quantities
    """On the kubepods cgroup and in memory.high: less reservations alone."""
    reservation: Quantities
    """Everything kept back, eviction threshold included; only resources of which something is."""
    over_reserved: tuple[OverReserved, ...] = ()

    @property
    def published_memory(self) -> int:
        return self.published[MEMORY].value

    @property
    def enforced_memory(self) -> int:
        return self.enforced[MEMORY].value


class NodeCgroup(msgspec.Struct, frozen=True, kw_only=True):
    """What the kubelet sets on a cgroup above the pods or beside them; None: not set."""

    kind: NodeCgroupKind
    name: str
    """The reserved cgroup as configured; "" for kubepods, whose place follows from cgroupRoot."""
    memory_max: int | None = None
    memory_min: int | None = None
    memory_low: int | None = None
    cpu: int | None = None
    """Thousandths of a core, to be weighed against the siblings'."""
    pids_max: int | None = None
    hugepages: dict[int, int] = {}
    """Bytes of a page → bytes."""


class NodeCgroups(msgspec.Struct, frozen=True):
    """The cgroups in the order they are set; the kubelet gives up at one it cannot set."""

    cgroups: tuple[NodeCgroup, ...]
    failed: NodeCgroupKind | None = None
    """Enforced although nothing is reserved for it."""


def capacity_of(node: Node) -> Capacity:
    """The capacity in a Node's status."""
    stated = node.status.capacity
    if not stated or MEMORY not in stated:
        raise InputError(
            "the Node has no memory capacity",
            field="status.capacity",
            hint="read it from a running cluster: kubectl get node NAME -o yaml",
        )
    amounts = {name: amount_in(stated, name, "capacity") for name in stated}
    return Capacity(
        cpu=amounts[CPU].milli if CPU in amounts else 0,
        memory=amounts[MEMORY].value,
        hugepages={name: amounts[name].value for name in amounts if is_hugepages(name)},
    )


def published_memory(node: Node) -> int | None:
    """Allocatable memory in a Node's status; None where it has none."""
    stated = node.status.allocatable or {}
    if stated.get(MEMORY) is None:
        return None
    return amount_in(stated, MEMORY, "allocatable").value


def swap_of(node: Node) -> int | None:
    """Bytes of swap in a Node's status; None where it does not say."""
    info = node.status.node_info
    return info.swap.capacity if info is not None and info.swap is not None else None


def amount_in(amounts: ResourceList, name: str, side: str) -> Quantity:
    """A resource in a Node's status; raise InputError where no machine can have that much."""
    field = f"status.{side}[{name}]"
    try:
        amount = Quantity.parse(amounts[name])
    except InputError as error:
        raise InputError(error.what, field=field, hint=error.hint) from None
    if not 0 <= amount.nano <= MAX_INT64 * NANOS:
        raise InputError(
            f"no node has {legible(name, amount.milli)} of it",
            field=field,
            hint="read it from a running cluster: kubectl get node NAME -o yaml",
        )
    return amount


def before_eviction(capacity: Capacity, published: int, config: KubeletConfiguration) -> int:
    """What a node leaves to pods, as memory.high counts it.

    A Node publishes what is left after the eviction threshold and hugepages, too.
    """
    threshold = eviction_reserve(capacity, config).value
    return min(capacity.memory, published + threshold + sum(capacity.hugepages.values()))


def after_eviction(capacity: Capacity, unreserved: int, config: KubeletConfiguration) -> int:
    """What a Node publishes of the memory that is not reserved."""
    threshold = eviction_reserve(capacity, config).value
    return max(0, unreserved - threshold - sum(capacity.hugepages.values()))


def allocatable(capacity: Capacity, config: KubeletConfiguration, release: Release) -> Allocatable:
    """What a node with this configuration has left for pods."""
    has = capacity.quantities
    reserved = read_reservations(config, release.minor)
    kept_back = {
        name: amount
        for name, amount in _sum(
            (reserved.system, reserved.kube, {MEMORY: eviction_reserve(capacity, config)})
        ).items()
        if name in has and amount.nano
    }
    # GetNodeAllocatableAbsolute() and nodestatus/setters.go: the scheduler's number lacks the hard
    # eviction threshold and, for memory, pre-allocated hugepages; the cgroup's limit does not.
    published = _less(has, kept_back)
    for name, amount in has.items():
        if is_hugepages(name):
            published |= _less({MEMORY: published[MEMORY]}, {MEMORY: amount})
    return Allocatable(
        published=published,
        enforced=_less(has, _sum((reserved.system, reserved.kube))),
        reservation=kept_back,
        over_reserved=tuple(
            OverReserved(name, amount, has[name])
            for name, amount in kept_back.items()
            if has[name] < amount
        ),
    )


def eviction_reserve(capacity: Capacity, config: KubeletConfiguration) -> Quantity:
    """Memory below which the kubelet evicts, and which it therefore does not offer."""
    for threshold in read_thresholds(config.eviction_hard).thresholds:
        if threshold.signal == MEMORY_AVAILABLE:
            return threshold.limit(capacity.memory)
    return Quantity.of(0)


def node_cgroups(capacity: Capacity, config: KubeletConfiguration, release: Release) -> NodeCgroups:
    """What the kubelet sets on kubepods and on the reserved cgroups it is configured to enforce."""
    reserved = read_reservations(config, release.minor)
    cgroups = [_kubepods(capacity, reserved, config, release)] if config.cgroups_per_qos else []
    for enforcement in _ENFORCED_IN_ORDER:
        if enforcement not in config.enforce_node_allocatable:
            continue
        kind = _KIND[enforcement]
        name, amounts = (
            (config.system_reserved_cgroup, reserved.system)
            if kind == "system-reserved"
            else (config.kube_reserved_cgroup, reserved.kube)
        )
        if not amounts:
            return NodeCgroups(tuple(cgroups), failed=kind)
        if enforcement.endswith(COMPRESSIBLE):
            cgroups.append(NodeCgroup(kind=kind, name=name, cpu=_milli(amounts)))
        else:
            cgroups.append(_node_cgroup(kind, name, amounts, release))
    return NodeCgroups(tuple(cgroups))


_KIND: Final[Mapping[str, NodeCgroupKind]] = {
    SYSTEM_RESERVED: "system-reserved",
    KUBE_RESERVED: "kube-reserved",
    SYSTEM_RESERVED + COMPRESSIBLE: "system-reserved",
    KUBE_RESERVED + COMPRESSIBLE: "kube-reserved",
}
_ENFORCED_IN_ORDER: Final = tuple(_KIND)


def _kubepods(
    capacity: Capacity, reserved: NodeReservations, config: KubeletConfiguration, release: Release
) -> NodeCgroup:
    amounts = capacity.quantities
    if capacity.pids is not None:
        amounts[PIDS] = Quantity.of(capacity.pids)
    if PODS in config.enforce_node_allocatable:
        amounts = _less(amounts, _sum((reserved.system, reserved.kube)))
    reset = None if release.is_enabled("MemoryQoS") else _RESET_WHILE_OFF.at(release.minor)
    return NodeCgroup(
        kind="kubepods",
        name="",
        memory_max=_whole(amounts, MEMORY),
        memory_min=reset,
        memory_low=reset,
        cpu=_milli(amounts),
        pids_max=_whole(amounts, PIDS),
        hugepages={
            size: amount.value
            for name, amount in amounts.items()
            if is_hugepages(name) and (size := hugepage_size(name)) is not None
        },
    )


# enforceNodeAllocatableCgroups(), kubelet cm/node_container_manager_linux.go: since 1.37 a kubelet
# with the gate off clears what one with the gate on has left.
_RESET_WHILE_OFF: Final[Since[int | None]] = Since({22: None, 37: 0})


def _node_cgroup(
    kind: NodeCgroupKind, name: str, amounts: Quantities, release: Release
) -> NodeCgroup:
    memory = _whole(amounts, MEMORY)
    return NodeCgroup(
        kind=kind,
        name=name,
        memory_max=memory,
        memory_min=memory if release.is_enabled("MemoryQoS") else None,
        cpu=_milli(amounts),
        pids_max=_whole(amounts, PIDS),
    )


def _whole(amounts: Quantities, name: str) -> int | None:
    return amounts[name].value if name in amounts else None


def _milli(amounts: Quantities) -> int | None:
    return amounts[CPU].milli if CPU in amounts else None


def _sum(lists: Iterable[Mapping[str, Quantity]]) -> Quantities:
    total: Quantities = {}
    for amounts in lists:
        for name, amount in amounts.items():
            total[name] = total[name] + amount if name in total else amount
    return total


def _less(amounts: Quantities, taken: Mapping[str, Quantity]) -> Quantities:
    """What is left of each, never less than nothing."""
    return {
        name: max(amount - taken[name], _NOTHING) if name in taken else amount
        for name, amount in amounts.items()
    }


_NOTHING: Final = Quantity.of(0)
