"""kubeReserved and systemReserved: what a node keeps back from its pods."""

import re
from collections.abc import Callable, Mapping
from typing import Final

import msgspec

from memqos.errors import InputError
from memqos.kube.kubelet import KubeletConfiguration, KubeletFault
from memqos.kube.quantity import MILLI, Quantity, whole
from memqos.kube.resources import CPU, MEMORY
from memqos.release import Since

KUBE_RESERVED: Final = "kube-reserved"
SYSTEM_RESERVED: Final = "system-reserved"
COMPRESSIBLE: Final = "-compressible"
"""The three of enforceNodeAllocatable; the last, appended to either, leaves all but cpu free."""

PIDS: Final = "pid"
RESERVABLE_RESOURCES: Final = (CPU, MEMORY, "ephemeral-storage", PIDS)

_MICRO: Final = 1000
"""Nanos in a millionth."""
_CPUS: Final = re.compile(r"\+?([0-9]+)(?:-\+?([0-9]+))?", re.ASCII)


class NodeReservations(msgspec.Struct, frozen=True):
    """The two lists, resource name → quantity. None of the quantities is negative."""

    kube: dict[str, Quantity]
    system: dict[str, Quantity]
    faults: tuple[KubeletFault, ...] = ()


def read_reservations(config: KubeletConfiguration, minor: int) -> NodeReservations:
    """Both lists. CPUs named by reservedSystemCPUs take the place of any amount of cpu."""
    faults: list[KubeletFault] = []

    def read(field: str, amounts: Mapping[str, str]) -> dict[str, Quantity]:
        found = {name: _amount(f"{field}[{name}]", name, text) for name, text in amounts.items()}
        faults.extend(fault for fault in found.values() if isinstance(fault, KubeletFault))
        return {name: q for name, q in found.items() if isinstance(q, Quantity)}

    kube = read("kubeReserved", config.kube_reserved)
    system = read("systemReserved", config.system_reserved)
    cpus = cpu_count(config.reserved_system_cpus)
    if cpus:
        kube.pop(CPU, None)
        system[CPU] = Quantity.of(cpus)
    rounded = _CPU_ROUNDING.at(minor)
    for amounts in (kube, system):
        if CPU in amounts:
            amounts[CPU] = rounded(amounts[CPU])
    return NodeReservations(kube, system, tuple(faults))


def cpu_count(cpus: str) -> int | None:
    """How many CPUs a list such as `0-3,8` names; None where it is no such list."""
    if not cpus:
        return 0
    named: set[int] = set()
    for part in cpus.split(","):
        bounds = _CPUS.fullmatch(part)
        if bounds is None:
            return None
        first, last = int(bounds[1]), int(bounds[2] or bounds[1])
        if first > last:
            return None
        named.update(range(first, last + 1))
    return len(named)


def _amount(field: str, name: str, text: str) -> Quantity | KubeletFault:
    if name not in RESERVABLE_RESOURCES:
        return KubeletFault(
            "start",
            field,
            "cannot be reserved",
            hint=f"reservable are {', '.join(RESERVABLE_RESOURCES)}",
        )
    try:
        quantity = Quantity.parse_bare(text)
    except InputError as error:
        return KubeletFault("start", field, error.what, hint=error.hint)
    if quantity.nano < 0:
        return KubeletFault("start", field, f"{text!r} is negative")
    return quantity


def _as_written(cpu: Quantity) -> Quantity:
    return cpu


def _nearest_thousandth(cpu: Quantity) -> Quantity:
    return Quantity((whole(cpu.nano, _MICRO) + 500) // 1000 * MILLI, cpu.format)


# parseResourceList(), cmd/kubelet/app/server.go, rounds since 1.37 (commit e0a651d42e5): a Node's
# status has thousandths of a core, and with a finer reservation it looked changed at every report.
_CPU_ROUNDING: Final[Since[Callable[[Quantity], Quantity]]] = Since(
    {22: _as_written, 37: _nearest_thousandth}
)
