"""Resource names and amounts: what the rules of a pod are computed on.

Inside memqos an amount is a whole number of thousandths, as the API server stores quantities, so
that sums and comparisons are those of plain integers. `whole()` gives bytes back.
"""

import re
from functools import lru_cache
from typing import Final

import msgspec

from memqos.errors import InputError
from memqos.kube.quantity import MAX_INT64, MILLI, Quantity, int64_value, whole
from memqos.release import Since

CPU: Final = "cpu"
MEMORY: Final = "memory"
HUGEPAGES: Final = "hugepages-"

Amounts = dict[str, int]
"""Resource name → thousandths."""


class Resources(msgspec.Struct, frozen=True, gc=False):
    """Requests and limits of one container, or of a pod."""

    requests: Amounts
    limits: Amounts


NO_RESOURCES: Final = Resources({}, {})

_ALWAYS_OF_CONTAINERS: Final = frozenset({CPU, MEMORY, "ephemeral-storage"})
_QUOTA_ONLY: Final = frozenset(
    f"{side}.{name}"
    for side in ("requests", "limits")
    for name in (CPU, MEMORY, "ephemeral-storage")
)
_COUNTED: Final = frozenset(
    {
        "pods",
        "resourcequotas",
        "services",
        "replicationcontrollers",
        "secrets",
        "configmaps",
        "persistentvolumeclaims",
        "services.nodeports",
        "services.loadbalancers",
    }
)
_STANDARD: Final = _ALWAYS_OF_CONTAINERS | _QUOTA_ONLY | _COUNTED | {"storage", "requests.storage"}
_PAST_SUFFIXES: Final = 10**21 * 1000
_NAME_PART: Final = re.compile(r"([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]", re.ASCII)
_SUBDOMAIN: Final = re.compile(
    r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*", re.ASCII
)


def memory_in(amounts: Amounts) -> int:
    """Bytes of memory in a resource list, as far as they fit into the kubelet's int64."""
    return storable(whole(amounts.get(MEMORY, 0)))


def kubelet_memory(amounts: Amounts) -> int:
    """Bytes of memory in a resource list as the kubelet reads them, overflow included."""
    return int64_value(whole(amounts.get(MEMORY, 0)))


def storable(amount: int) -> int:
    """The amount, or 0 where it does not fit into an int64.

    Kubernetes takes larger ones, which its components then cut to 64 bits: of 1e64 and all greater
    powers of ten nothing is left, so the scheduler places such a pod anywhere and the kubelet sets
    nothing for it. So memqos protects nothing by such a number.
    """
    return amount if 0 <= amount <= MAX_INT64 else 0


def is_hugepages(name: str) -> bool:
    """Whether the name is that of a hugepage size."""
    return name.startswith(HUGEPAGES)


def _cpu_and_memory(name: str) -> bool:
    return name in (CPU, MEMORY)


def _cpu_memory_and_hugepages(name: str) -> bool:
    return name in (CPU, MEMORY) or name.startswith(HUGEPAGES)


# component-helpers resource/helpers.go, IsSupportedPodLevelResource(): hugepages since 1.33.
POD_LEVEL: Final = Since({22: _cpu_and_memory, 33: _cpu_memory_and_hugepages})
"""Which resources a pod-level stanza may set."""


def is_native(name: str) -> bool:
    """Kubernetes' own resources, in contrast to extended ones."""
    return "/" not in name or "kubernetes.io/" in name


@lru_cache(maxsize=1024)
def is_extended(name: str) -> bool:
    """Resources of device plugins and the like."""
    if is_native(name) or name.startswith("requests."):
        return False
    return not qualified_name_faults(f"requests.{name}")


def is_overcommitable(name: str) -> bool:
    """Whether a request may be smaller than its limit."""
    return is_native(name) and not is_hugepages(name)


def is_counted_in_wholes(name: str) -> bool:
    """Whether fractions of the resource make no sense."""
    return name in _COUNTED or is_extended(name)


def is_of_containers(name: str) -> bool:
    """Standard resources a container may request."""
    return name in _ALWAYS_OF_CONTAINERS or is_hugepages(name)


def is_standard(name: str) -> bool:
    """Kubernetes' own names, which have no domain."""
    return name in _STANDARD or is_hugepages(name) or name.startswith("requests.hugepages-")


@lru_cache(maxsize=1024)
def is_dns_label(name: str) -> bool:
    """Whether a text is a DNS label as Kubernetes takes them: lower case, 63 characters."""
    return len(name) <= 63 and "." not in name and _SUBDOMAIN.fullmatch(name) is not None


def qualified_name_faults(name: str) -> list[str]:
    """What keeps a text from being a qualified name (`domain/name`), one sentence a fault."""
    parts = name.split("/")
    if len(parts) > 2:
        return ["may have one '/' only"]
    faults = []
    if len(parts) == 2:
        domain = parts[0]
        if not domain:
            faults.append("the part before '/' is empty")
        else:
            if len(domain) > 253:
                faults.append("the part before '/' is longer than 253 characters")
            if not _SUBDOMAIN.fullmatch(domain):
                faults.append("the part before '/' is not a DNS subdomain")
    local = parts[-1]
    if not local:
        faults.append("the name part is empty")
    elif len(local) > 63:
        faults.append("the name part is longer than 63 characters")
    if not _NAME_PART.fullmatch(local):
        faults.append("the name part must be alphanumerics, '-', '_' or '.', and end in the first")
    return faults


@lru_cache(maxsize=256)
def hugepage_size(name: str) -> int | None:
    """Bytes of one page of a hugepage resource; None where the name has no positive size."""
    try:
        size = Quantity.parse_bare(name.removeprefix(HUGEPAGES))
    except InputError:
        return None
    if size.nano <= 0 or size.milli % 1000:
        return None
    return size.value


@lru_cache(maxsize=256)
def hugepage_file_size(name: str) -> str | None:
    """How cgroup file names spell the page size of a hugepage resource: `2MB`, `1GB`."""
    size = hugepage_size(name)
    if size is None:
        return None
    for unit, text in ((1 << 30, "GB"), (1 << 20, "MB"), (1 << 10, "KB")):
        if size >= unit:
            return f"{size // unit}{text}" if not size % unit else None
    return None


def format_amount(name: str, amount: int, unit: int = 1) -> str:
    """An amount as Kubernetes would print it: memory in binary units, the rest in decimal ones.

    It is in thousandths, or in parts of which `unit` make a thousandth. Past all suffixes
    Kubernetes prints those two without the suffix they would need; a power of ten is what it keeps
    of a quantity that was written with one.
    """
    return _quantity(name, amount, unit).canonical


def legible(name: str, milli: int) -> str:
    """The same in messages, where a long number is rounded to a power of ten."""
    return _quantity(name, milli).legible


def _quantity(name: str, amount: int, unit: int = 1) -> Quantity:
    nano = amount * (MILLI // unit)
    if not -_PAST_SUFFIXES * MILLI < nano < _PAST_SUFFIXES * MILLI:
        return Quantity(nano, "DecimalExponent")
    binary = name == MEMORY or is_hugepages(name) or name.endswith("storage")
    return Quantity(nano, "BinarySI" if binary else "DecimalSI")


__all__ = [
    "CPU",
    "HUGEPAGES",
    "MEMORY",
    "NO_RESOURCES",
    "POD_LEVEL",
    "Amounts",
    "Resources",
    "format_amount",
    "hugepage_file_size",
    "hugepage_size",
    "is_counted_in_wholes",
    "is_dns_label",
    "is_extended",
    "is_hugepages",
    "is_native",
    "is_of_containers",
    "is_overcommitable",
    "is_standard",
    "kubelet_memory",
    "legible",
    "memory_in",
    "qualified_name_faults",
    "storable",
    "whole",
]
