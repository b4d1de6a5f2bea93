"""A KubeletConfiguration out of plain data: types are strict, unknown fields are skipped."""

import math
from collections.abc import Callable, Mapping
from typing import Any, Final

import msgspec

from memqos.errors import InputError
from memqos.kube.duration import parse_duration
from memqos.kube.kubelet import ATTRIBUTES, KubeletFault, MemoryReservation, MemorySwapConfiguration
from memqos.kube.quantity import Quantity, Raw

_NAMES: Mapping[str, str] = {
    "*Duration": "containerLogMonitorInterval cpuCFSQuotaPeriod",
    "Duration": """
        cpuManagerReconcilePeriod evictionPressureTransitionPeriod fileCheckFrequency
        httpCheckFrequency imageMaximumGCAge imageMinimumGCAge nodeStatusReportFrequency
        nodeStatusUpdateFrequency runtimeRequestTimeout shutdownGracePeriod
        shutdownGracePeriodCriticalPods streamingConnectionIdleTimeout syncFrequency
        volumeStatsAggPeriod
    """,
    "MemorySwapConfiguration": "memorySwap",
    "[]MemoryReservation": "reservedMemory",
    "[]int32": "tlsCurvePreferences",
    "[]object": "registerWithTaints shutdownGracePeriodByPodPriority",
    "[]string": """
        allowedUnsafeSysctls clusterDNS enforceNodeAllocatable
        preloadedImagesVerificationAllowlist tlsCipherSuites
    """,
    "*bool": """
        cgroupsPerQOS cpuCFSQuota enableControllerAttachDetach enableDebugFlagsHandler
        enableDebuggingHandlers enableProfilingHandler enableServer
        enableSystemLogHandler enableSystemLogQuery failCgroupV1 failSwapOn
        localStorageCapacityIsolation makeIPTablesUtilChains
        mergeDefaultEvictionSettings registerNode seccompDefault serializeImagePulls
        singleProcessOOMKill
    """,
    "bool": """
        enableContentionProfiling kernelMemcgNotification protectKernelDefaults
        rotateCertificates runOnce serverTLSBootstrap
    """,
    "*float64": "memoryThrottlingFactor",
    "*int32": """
        containerLogMaxFiles containerLogMaxWorkers eventRecordQPS healthzPort
        imageGCHighThresholdPercent imageGCLowThresholdPercent iptablesDropBit
        iptablesMasqueradeBit kubeAPIQPS maxParallelImagePulls nodeStatusMaxImages
        oomScoreAdj registryPullQPS
    """,
    "int32": """
        eventBurst evictionMaxPodGracePeriod kubeAPIBurst maxPods
        nodeLeaseDurationSeconds podsPerCore port readOnlyPort registryBurst
    """,
    "*int64": "podPidsLimit",
    "int64": "maxOpenFiles",
    "map[string][]string": "staticPodURLHeader",
    "map[string]bool": "featureGates",
    "map[string]string": """
        cpuManagerPolicyOptions defaultPodSysctls evictionHard evictionMinimumReclaim
        evictionSoft evictionSoftGracePeriod kubeReserved qosReserved systemReserved
        topologyManagerPolicyOptions
    """,
    "object": """
        authentication authorization crashLoopBackOff logging tracing userNamespaces
    """,
    "*string": "resolvConf",
    "string": """
        address cgroupDriver cgroupRoot clusterDomain
        configMapAndSecretChangeDetectionStrategy containerLogMaxSize
        containerRuntimeEndpoint contentType cpuManagerPolicy hairpinMode
        healthzBindAddress imagePullCredentialsVerificationPolicy imageServiceEndpoint
        kubeletCgroups kubeReservedCgroup memoryManagerPolicy memoryReservationPolicy
        podCIDR podLogsDir providerID reservedSystemCPUs showHiddenMetricsForVersion
        staticPodPath staticPodURL systemCgroups systemReservedCgroup tlsCertFile
        tlsMinVersion tlsPrivateKeyFile topologyManagerPolicy topologyManagerScope
        volumePluginDir
    """,
}

KINDS: Mapping[str, str] = {name: kind for kind, names in _NAMES.items() for name in names.split()}

SINCE: Mapping[str, int] = {
    "registerNode": 23,
    "registerWithTaints": 23,
    "shutdownGracePeriodByPodPriority": 23,
    "localStorageCapacityIsolation": 25,
    "tracing": 25,
    "topologyManagerPolicyOptions": 26,
    "containerRuntimeEndpoint": 27,
    "enableSystemLogQuery": 27,
    "imageServiceEndpoint": 27,
    "maxParallelImagePulls": 27,
    "imageMaximumGCAge": 29,
    "containerLogMaxWorkers": 30,
    "containerLogMonitorInterval": 30,
    "podLogsDir": 30,
    "failCgroupV1": 31,
    "crashLoopBackOff": 32,
    "singleProcessOOMKill": 32,
    "imagePullCredentialsVerificationPolicy": 33,
    "mergeDefaultEvictionSettings": 33,
    "preloadedImagesVerificationAllowlist": 33,
    "userNamespaces": 33,
    "memoryReservationPolicy": 36,
    "tlsCurvePreferences": 36,
    "defaultPodSysctls": 37,
}
"""Fields that 1.22 does not have."""


KUBELET_API_VERSION: Final = "kubelet.config.k8s.io/v1beta1"
KUBELET_KIND: Final = "KubeletConfiguration"
_TYPE_META: Final = {"apiVersion": KUBELET_API_VERSION, "kind": KUBELET_KIND}

FieldReader = Callable[[Any, str], Any]
"""A value and the path of its field → the decoded value; raises InputError."""


class DecodedKubelet(msgspec.Struct, frozen=True):
    """What is written, by the struct's names; fields the release does not have; what is wrong."""

    written: dict[str, Any]
    unknown: tuple[str, ...] = ()
    faults: tuple[KubeletFault, ...] = ()


def decode_kubelet(data: object, minor: int) -> DecodedKubelet:
    """Read a document; what counts as not set, such as null, is skipped."""
    if not isinstance(data, Mapping):
        return DecodedKubelet({}, faults=(_fault(_mismatch(data, "", "an object")),))
    written: dict[str, Any] = {}
    unknown: list[str] = []
    faults: list[KubeletFault] = []
    for name, value in data.items():
        kind = KINDS.get(name) if SINCE.get(name, 0) <= minor else None
        try:
            if name in _TYPE_META:
                _type_meta(value, name)
            elif kind is None:
                unknown.append(name)
            else:
                unknown += _unknown_below(name, value)
                found = _read(kind, value, name)
                if found is not None and name in ATTRIBUTES:
                    written[ATTRIBUTES[name]] = found
        except InputError as error:
            faults.append(_fault(error))
    return DecodedKubelet(written, tuple(unknown), tuple(faults))


def _read(kind: str, value: Any, field: str) -> Any:
    """The value of a field; None where it counts as not set."""
    plain = not kind.startswith(("*", "[]", "map"))
    if value is None and not plain:
        return None
    found = _READERS[kind.removeprefix("*")](value, field)
    return None if plain and not found else found


def _fault(error: InputError) -> KubeletFault:
    return KubeletFault("decode", error.field or "", error.what, hint=error.hint)


def _mismatch(value: object, field: str, expected: str) -> InputError:
    return InputError(f"{_describe_value(value)} is not {expected}", field=field)


def _describe_value(value: object) -> str:
    if value is None:
        return "null"
    if isinstance(value, str | int | float):
        return repr(value) if not isinstance(value, bool) else str(value).lower()
    return "an object" if isinstance(value, Mapping) else "a list"


def _type_meta(value: object, field: str) -> None:
    if value not in (None, "", _TYPE_META[field]):
        raise InputError(f"{_describe_value(value)} is not {_TYPE_META[field]}", field=field)


def _string(value: Any, field: str) -> str:
    if value is None or isinstance(value, str):
        return value or ""
    quoted = (
        f'write it in quotes: "{_describe_value(value)}"'
        if isinstance(value, int | float)
        else None
    )
    raise InputError(f"{_describe_value(value)} is not a string", field=field, hint=quoted)


def _bool(value: Any, field: str) -> bool:
    if value is None or isinstance(value, bool):
        return bool(value)
    raise _mismatch(value, field, "true or false")


def _int(bits: int) -> FieldReader:
    limit = 1 << (bits - 1)

    def read(value: Any, field: str) -> int:
        if value is None:
            return 0
        # sigs.k8s.io/yaml turns YAML into JSON first, where 1.0 becomes 1.
        whole = isinstance(value, int | float) and not isinstance(value, bool) and value % 1 == 0
        if not whole or not -limit <= value < limit:
            raise _mismatch(value, field, f"a whole number of {bits} bits")
        return int(value)

    return read


def _float(value: Any, field: str) -> float:
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if not number or not math.isfinite(value):
        raise _mismatch(value, field, "a number")
    return float(value)


def _duration(value: Any, field: str) -> int:
    # metav1.Duration.UnmarshalJSON() decodes null as "", which time.ParseDuration() refuses.
    found = parse_duration(value or "") if value is None or isinstance(value, str) else None
    if found is None:
        raise InputError(
            f"{_describe_value(value)} is not a duration",
            field=field,
            hint="write a number with a unit, such as 90s or 1m30s",
        )
    return found


def _object(value: Any, field: str) -> Mapping[str, Any]:
    if value is None or isinstance(value, Mapping):
        return value or {}
    raise _mismatch(value, field, "an object")


def _list(item: FieldReader) -> FieldReader:
    def read(value: Any, field: str) -> tuple[Any, ...]:
        if not isinstance(value, list | tuple):
            raise _mismatch(value, field, "a list")
        return tuple(item(each, f"{field}[{index}]") for index, each in enumerate(value))

    return read


def _map(item: FieldReader) -> FieldReader:
    def read(value: Any, field: str) -> dict[str, Any]:
        return {key: item(each, f"{field}[{key}]") for key, each in _object(value, field).items()}

    return read


def _quantity(value: Any, field: str) -> Raw:
    """A quantity as written, after it was parsed without error."""
    if isinstance(value, bool) or not (value is None or isinstance(value, str | int | float)):
        raise _mismatch(value, field, "a quantity")
    try:
        Quantity.parse(value)
    except InputError as error:
        raise InputError(error.what, field=field, hint=error.hint) from None
    return value


def _memory_swap(value: Any, field: str) -> MemorySwapConfiguration:
    swap = _object(value, field)
    return MemorySwapConfiguration(_string(swap.get("swapBehavior"), f"{field}.swapBehavior"))


def _memory_reservation(value: Any, field: str) -> MemoryReservation:
    entry = _object(value, field)
    limits = entry.get("limits")
    return MemoryReservation(
        _int(32)(entry.get("numaNode"), f"{field}.numaNode"),
        None if limits is None else _map(_quantity)(limits, f"{field}.limits"),
    )


_READERS: Final[Mapping[str, FieldReader]] = {
    "bool": _bool,
    "string": _string,
    "int32": _int(32),
    "int64": _int(64),
    "float64": _float,
    "Duration": _duration,
    "object": _object,
    "[]string": _list(_string),
    "[]int32": _list(_int(32)),
    "[]object": _list(_object),
    "[]MemoryReservation": _list(_memory_reservation),
    "map[string]string": _map(_string),
    "map[string]bool": _map(_bool),
    "map[string][]string": _map(
        lambda value, field: () if value is None else _list(_string)(value, field)
    ),
    "MemorySwapConfiguration": _memory_swap,
}

_NESTED_FIELDS: Final = {
    "memorySwap": frozenset({"swapBehavior"}),
    "reservedMemory": frozenset({"numaNode", "limits"}),
}


def _unknown_below(name: str, value: object) -> list[str]:
    """Unknown fields within a field that memqos uses."""
    if name not in _NESTED_FIELDS:
        return []
    entries = enumerate(value) if isinstance(value, list | tuple) else ()
    places = [(name, value), *((f"{name}[{index}]", entry) for index, entry in entries)]
    return [
        f"{place}.{key}"
        for place, entry in places
        if isinstance(entry, Mapping)
        for key in entry
        if key not in _NESTED_FIELDS[name]
    ]
