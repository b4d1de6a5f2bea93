"""The kubelet's command line: its flags override its configuration files.

Flags and their precedence are those of cmd/kubelet/app (options.go, server.go) in Kubernetes: the
file of `--config`, then each drop-in of `--config-dir` as a JSON merge patch (RFC 7386), then the
flags. A flag replaces its field, but feature gates are merged one by one. There is no flag for
memoryReservationPolicy, memoryThrottlingFactor, memorySwap or singleProcessOOMKill.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import msgspec

from memqos.errors import InputError
from memqos.kube.kubelet.decoding import KINDS

_FIELDS: Final[Mapping[str, str]] = {
    "cgroup-driver": "cgroupDriver",
    "cgroup-root": "cgroupRoot",
    "cgroups-per-qos": "cgroupsPerQOS",
    "cpu-cfs-quota": "cpuCFSQuota",
    "cpu-cfs-quota-period": "cpuCFSQuotaPeriod",
    "enforce-node-allocatable": "enforceNodeAllocatable",
    "eviction-hard": "evictionHard",
    "eviction-max-pod-grace-period": "evictionMaxPodGracePeriod",
    "eviction-minimum-reclaim": "evictionMinimumReclaim",
    "eviction-pressure-transition-period": "evictionPressureTransitionPeriod",
    "eviction-soft": "evictionSoft",
    "eviction-soft-grace-period": "evictionSoftGracePeriod",
    "fail-swap-on": "failSwapOn",
    "feature-gates": "featureGates",
    "kube-reserved": "kubeReserved",
    "kube-reserved-cgroup": "kubeReservedCgroup",
    "memory-manager-policy": "memoryManagerPolicy",
    "pod-max-pids": "podPidsLimit",
    "reserved-cpus": "reservedSystemCPUs",
    "reserved-memory": "reservedMemory",
    "system-reserved": "systemReserved",
    "system-reserved-cgroup": "systemReservedCgroup",
    "topology-manager-policy": "topologyManagerPolicy",
    "topology-manager-policy-options": "topologyManagerPolicyOptions",
    "topology-manager-scope": "topologyManagerScope",
}
"""Flag → the field that it overrides, of those that memqos reads."""
_FILES: Final = ("config", "config-dir")
_GATES: Final = "featureGates"
_BOOLEANS: Final = {
    **dict.fromkeys(("1", "t", "T", "true", "TRUE", "True"), True),
    **dict.fromkeys(("0", "f", "F", "false", "FALSE", "False"), False),
}
"""As Go's strconv.ParseBool reads them."""


class CommandLine(msgspec.Struct, frozen=True, kw_only=True):
    """What a kubelet was started with, as far as it decides about memory."""

    config: str | None = None
    """The file of `--config`."""
    config_dir: str | None = None
    fields: dict[str, Any] = {}
    """Field of a KubeletConfiguration → its value."""
    flags: tuple[str, ...] = ()
    """The flags that these come from."""


def command_line_of(arguments: Sequence[str]) -> CommandLine:
    """Read the arguments after the program's name; flags that decide nothing here are skipped."""
    files: dict[str, str] = {}
    fields: dict[str, Any] = {}
    flags: list[str] = []
    rest = list(reversed(arguments))
    while rest:
        argument = rest.pop()
        if argument == "--":
            break
        if not argument.startswith("-"):
            continue
        name, equals, value = argument.lstrip("-").partition("=")
        # component-base/cli/flag, WordSepNormalizeFunc(): "_" is "-" in the name of a flag.
        name = name.replace("_", "-")
        field = _FIELDS.get(name)
        if field is None and name not in _FILES:
            continue
        if not equals:
            is_switch = field is not None and KINDS[field].endswith("bool") and field != _GATES
            value = "true" if is_switch else rest.pop() if rest else ""
        if field is None:
            files[name] = value
        else:
            fields[field] = _merge(fields.get(field), _value(name, field, value))
            flags.append(f"--{name}")
    return CommandLine(
        config=files.get("config") or None,
        config_dir=files.get("config-dir") or None,
        fields=fields,
        flags=tuple(dict.fromkeys(flags)),
    )


def merge_configuration(
    file: Mapping[str, Any], drop_ins: Sequence[Mapping[str, Any]], line: CommandLine
) -> dict[str, Any]:
    """The configuration that results, as plain data."""
    merged: Any = dict(file)
    for drop_in in drop_ins:
        merged = _patch(merged, drop_in)
    gates = merged.get(_GATES)
    merged |= line.fields
    if isinstance(gates, Mapping) and _GATES in line.fields:
        merged[_GATES] = {**gates, **line.fields[_GATES]}
    return dict(merged)


def _patch(target: Any, patch: Any) -> Any:
    """Merge a drop-in file as the kubelet does: as a JSON merge patch (RFC 7386), null removes."""
    if not isinstance(patch, Mapping):
        return patch
    found = dict(target) if isinstance(target, Mapping) else {}
    for name, value in patch.items():
        if value is None:
            found.pop(name, None)
        else:
            found[name] = _patch(found.get(name), value)
    return found


def _merge(before: Any, value: Any) -> Any:
    """A flag given twice adds to a map or a list, and replaces all else."""
    if isinstance(before, dict):
        return {**before, **value}
    return [*before, *value] if isinstance(before, list) else value


def _value(flag: str, field: str, text: str) -> Any:
    kind = KINDS[field].removeprefix("*")
    if flag in ("eviction-hard", "eviction-soft"):
        return dict(_pairs(flag, text, "<"))
    try:
        return _READERS[kind](flag, text)
    except (KeyError, ValueError):
        raise InputError(f"--{flag}={text} cannot be read: no such value", field=field) from None


def _pairs(flag: str, text: str, separator: str = "=") -> list[tuple[str, str]]:
    found = []
    for each in filter(None, (part.strip() for part in text.split(","))):
        name, between, value = each.partition(separator)
        if not between:
            raise InputError(f"--{flag}={text} cannot be read: no {separator} in {each}")
        found.append((name.strip(), value.strip()))
    return found


def _parse_reserved_memory(flag: str, text: str) -> list[dict[str, Any]]:
    """Such as 0:memory=1Gi,hugepages-1M=2Gi; NUMA nodes are separated by semicolons."""
    found = []
    for each in filter(None, text.split(";")):
        number, _, limits = each.partition(":")
        found.append({"numaNode": int(number), "limits": dict(_pairs(flag, limits))})
    return found


_READERS: Final[Mapping[str, Callable[[str, str], Any]]] = {
    "string": lambda flag, text: text,
    "Duration": lambda flag, text: text,
    "bool": lambda flag, text: _BOOLEANS[text],
    "int32": lambda flag, text: int(text),
    "int64": lambda flag, text: int(text),
    "[]string": lambda flag, text: text.split(",") if text else [],
    "map[string]string": lambda flag, text: dict(_pairs(flag, text)),
    "map[string]bool": lambda flag, text: {
        name: _BOOLEANS[value] for name, value in _pairs(flag, text)
    },
    "[]MemoryReservation": _parse_reserved_memory,
}
