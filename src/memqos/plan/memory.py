"""memory.min, memory.low and memory.high: what Memory QoS sets, release by release.

Each rule that changed is a table from minor version to a small function. The functions take bytes
and return settings; one whose value is None gives the reason why nothing is written.
"""

from typing import Final

import msgspec

from memqos.kube.pod import QosClass
from memqos.plan.setting import MAX, NEEDS_NODE, Rule, Setting
from memqos.release import Since
from memqos.settings.settings import Settings
from memqos.units import format_exact_bytes

MEMORY_QOS_KEP: Final = "KEP-2570"

ContainerProtection = tuple[Setting, Setting]
"""memory.min and memory.low."""


class MemoryResources(msgspec.Struct, frozen=True, gc=False):
    """Memory request and limit of a container or a pod, in bytes; 0 means none."""

    qos: QosClass
    request: int
    limit: int
    under_pod_level: bool
    """For a container: the pod has a pod-level limit. For a pod: it has pod-level resources."""
    claimed: int = 0
    """What DRA claims add to a container's limit, and memory.high is taken from."""


def _of_request(request: int) -> tuple[str, ...]:
    return (f"request = {format_exact_bytes(request)}",)


_TIERED_DIFFERS: Final = (
    f"{MEMORY_QOS_KEP} leaves tiers for later and has HardReservation; kubelet 1.36–1.38 has "
    "TieredReservation"
)
REQUEST_IS_MIN: Final = Rule(
    "min/request",
    "the memory request is never reclaimed",
    f"{MEMORY_QOS_KEP}, Alpha v1.22",
    _of_request,
)
HARD: Final = Rule(
    "min/hard",
    "HardReservation: the memory request is never reclaimed",
    f"{MEMORY_QOS_KEP}, memoryReservationPolicy",
    _of_request,
    differs=f"{MEMORY_QOS_KEP} has HardReservation as a value of memoryReservationPolicy; kubelet "
    "1.36–1.38 refuses it, and takes None and TieredReservation",
)
TIERED_MIN: Final = Rule(
    "min/tiered",
    "TieredReservation: the request of a Guaranteed pod is never reclaimed",
    "kubelet 1.36, memoryReservationPolicy",
    _of_request,
    differs=_TIERED_DIFFERS,
)
TIERED_LOW: Final = Rule(
    "low/tiered",
    "TieredReservation: the request of a pod that is not Guaranteed is reclaimed last",
    "kubelet 1.36, memoryReservationPolicy",
    _of_request,
    differs=_TIERED_DIFFERS,
)
NO_REQUEST: Final = Rule(
    "protection/no-request", "no memory is requested, so none is protected", f"{MEMORY_QOS_KEP}"
)
NOT_RESERVED: Final = Rule(
    "protection/reset",
    "no memory is reserved here, so protection is reset to 0",
    "kubelet 1.36, memoryReservationPolicy",
    lambda policy, request: (f"policy = {policy}", f"request = {format_exact_bytes(request)}"),
    resets=True,
)
OTHER_TIER: Final = Rule(
    "protection/other-tier",
    "the request is protected by the other file (memory.min or memory.low)",
    "kubelet 1.36",
)
NO_LOW: Final = Rule(
    "low/unused", "this release protects with memory.min only", f"{MEMORY_QOS_KEP}"
)
GATE_OFF: Final = Rule(
    "gate-off",
    "MemoryQoS is off, so the kubelet writes nothing here",
    "kubelet 1.22–1.38",
    differs=f"{MEMORY_QOS_KEP} says that memory.min and memory.high are reset when the gate is "
    "turned off; kubelet 1.22–1.36 resets nothing, and 1.37 memory.high of containers and the "
    "protection above pods alone",
)


# One object for all containers: an audit plans a hundred thousand of them.
_NO_REQUEST: Final = Setting(None, NO_REQUEST)
_OTHER_TIER: Final = Setting(None, OTHER_TIER)
_NO_LOW: Final = Setting(None, NO_LOW)


def _min_is_request(resources: MemoryResources, settings: Settings) -> ContainerProtection:
    low = _NO_LOW
    if not resources.request:
        return _NO_REQUEST, low
    return Setting(resources.request, REQUEST_IS_MIN, (resources.request,)), low


def _by_policy(resources: MemoryResources, settings: Settings) -> ContainerProtection:
    request = resources.request
    if request:
        if settings.policy == "TieredReservation":
            if resources.qos == "Guaranteed":
                return Setting(request, TIERED_MIN, (request,)), _OTHER_TIER
            return _OTHER_TIER, Setting(request, TIERED_LOW, (request,))
        if settings.policy == "HardReservation":
            return Setting(request, HARD, (request,)), _NO_LOW
    reset = Setting(0, NOT_RESERVED, (settings.policy, request))
    return reset, reset


# Since 1.36 a container without a reservation is sent 0 for both, so that a resize clears what an
# earlier policy wrote (kuberuntime_container_linux.go, generateLinuxContainerResources).
CONTAINER_PROTECTION: Final = Since({22: _min_is_request, 36: _by_policy})


# Where protection is claimed. At memory.max the pod itself is the reclaim target, and reclaim
# spares what its containers claim (cgroup-v2.rst, memory.min): where the claims add up to the
# limit, page cache cannot be dropped and the pod is killed.

AT_POD: Final = Rule(
    "protection/at-pod",
    "set on the pod only: it protects the containers from other pods, and at the pod's own limit "
    "their page cache can be reclaimed",
    "memqos, placement: pods",
    lambda claim: (f"protection of the container = {format_exact_bytes(claim)}, set on its pod",),
    resets=True,
)
BELOW_LIMIT: Final = Rule(
    "min/below-limit",
    "slightly below the limit, so that page cache can be reclaimed at the limit",
    "memqos, placement: margin",
    lambda request, margin: (
        f"request = limit = {format_exact_bytes(request)}",
        f"margin = {format_exact_bytes(margin)}",
    ),
)
UNPROTECTED_MARGIN: Final = 10
"""One part in so many of a request is left unprotected."""


def place_protection(
    minimum: Setting, low: Setting, resources: MemoryResources, settings: Settings
) -> ContainerProtection:
    """What a container claims of its protection where it is not to claim all of it."""
    if settings.placement == "pods":
        return _at_pod(minimum), _at_pod(low)
    if not resources.limit or not isinstance(minimum.value, int) or minimum.value < resources.limit:
        return minimum, low
    margin = -(-resources.request // UNPROTECTED_MARGIN // settings.page_size) * settings.page_size
    return Setting(resources.request - margin, BELOW_LIMIT, (resources.request, margin)), low


def _at_pod(setting: Setting) -> Setting:
    if not isinstance(setting.value, int) or not setting.value:
        return setting
    return Setting(0, AT_POD, (setting.value,))


def _pod_by_policy(resources: MemoryResources, settings: Settings) -> ContainerProtection:
    if settings.policy == "None" or not resources.request:
        nothing = _NOT_RESERVED_POD if settings.policy == "None" else _NO_REQUEST
        return nothing, nothing
    return _by_policy(resources, settings)


NOT_RESERVED_POD: Final = Rule(
    "protection/none", "policy None: pod cgroups are not changed", "kubelet 1.36"
)
_NOT_RESERVED_POD: Final = Setting(None, NOT_RESERVED_POD)
# ResourceConfigForPod(), kubelet cm/helpers_linux.go: since 1.36 the policy decides.
POD_PROTECTION: Final = Since({22: _min_is_request, 36: _pod_by_policy})


# memory.high


def _share_steps(base: int, base_is: str, factor: float) -> tuple[str, ...]:
    return (
        f"{base_is} = {format_exact_bytes(base)}",
        f"memory.high = {base_is} × factor = {format_exact_bytes(base)} × {factor:g}",
    )


def _above_request_steps(
    request: int, base: int, base_is: str, factor: float, page: int
) -> tuple[str, ...]:
    exact = request + (base - request) * factor
    return (
        f"request = {format_exact_bytes(request)}, {base_is} = {format_exact_bytes(base)}, "
        f"factor = {factor:g}",
        f"request + factor × ({base_is} − request) = {exact:,.0f}",
        f"rounded down to a page of {page} bytes",
    )


SHARE_OF_LIMIT: Final = Rule(
    "high/share-of-limit",
    "throttled above factor × limit",
    f"{MEMORY_QOS_KEP}, Alpha v1.22",
    _share_steps,
)
ABOVE_REQUEST: Final = Rule(
    "high/above-request",
    "throttled above request + factor × (limit − request)",
    f"{MEMORY_QOS_KEP}, Alpha v1.27",
    _above_request_steps,
)
ABOVE_NOTHING: Final = Rule(
    "high/guaranteed-without-memory",
    "throttled above factor × allocatable: a container without request and limit, such as a debug "
    "container, in a Guaranteed pod",
    "kubelet 1.37",
    _above_request_steps,
    differs=f"{MEMORY_QOS_KEP} says that a Guaranteed pod stays exempt from memory.high whatever "
    "ephemeral containers it gets; kubelet 1.22–1.26 and 1.37–1.38 sets it on them",
)
HIGH_UNDER_REQUEST: Final = Rule(
    "high/not-above-request",
    "not set: it would not be above the request",
    MEMORY_QOS_KEP,
    lambda high, request: (f"{format_exact_bytes(high)} ≤ request {format_exact_bytes(request)}",),
)
REQUEST_IS_LIMIT: Final = Rule(
    "high/request-is-limit",
    "not set: request = limit, so nothing is overcommitted",
    f"{MEMORY_QOS_KEP}, Alpha v1.27",
    differs=f"{MEMORY_QOS_KEP}, Case III, takes a limit without a request as request 0, and its "
    "table has memory.high = limit where request = limit; the API server sets a missing request to "
    "the limit, and kubelet 1.27–1.38 writes nothing",
)
NEITHER: Final = Rule(
    "high/neither",
    "not set: the container has neither request nor limit",
    "kubelet 1.27–1.36",
    differs=f"{MEMORY_QOS_KEP} says that BestEffort pods get factor × allocatable; kubelet "
    "1.27–1.36 sets nothing, and 1.37 does as the KEP says",
)
NO_FACTOR: Final = Rule(
    "high/no-factor", "not set: no memoryThrottlingFactor is configured", "kubelet 1.37"
)
POD_LIMIT_INSTEAD: Final = Rule(
    "high/pod-limit",
    "not set: the container has no limit of its own and the pod-level limit applies",
    "kubelet 1.37, KEP-2837",
)
NO_BASE: Final = Rule(
    "high/no-base", "not set: there is no limit, and allocatable memory is 0", MEMORY_QOS_KEP
)
BASE_NEEDS_NODE: Final = Rule(
    "high/needs-node",
    "without a limit it depends on the node's allocatable memory",
    MEMORY_QOS_KEP,
    lambda request: (f"request = {format_exact_bytes(request)}", "allocatable = unknown"),
)
HIGH_RESET: Final = Rule(
    "high/reset",
    "MemoryQoS is off: memory.high is reset to max",
    f"kubelet 1.37, {MEMORY_QOS_KEP}",
    resets=True,
)
NO_POD_HIGH: Final = Rule(
    "high/containers-only",
    "never set on a pod: one container would throttle the others",
    MEMORY_QOS_KEP,
    differs=f"{MEMORY_QOS_KEP} never sets it on a pod, and nor does kubelet 1.22–1.36; kubelet "
    "1.37 does where the pod has pod-level resources",
)
NOT_POD_LEVEL: Final = Rule(
    "high/no-pod-level", "not set: the pod has no pod-level resources", "kubelet 1.37"
)
POD_UNLIMITED: Final = Rule("high/pod-unlimited", "not set: the pod has no limit", "kubelet 1.37")


_REQUEST_IS_LIMIT: Final = Setting(None, REQUEST_IS_LIMIT)
_NEITHER: Final = Setting(None, NEITHER)
_NO_FACTOR: Final = Setting(None, NO_FACTOR)
_POD_LIMIT_INSTEAD: Final = Setting(None, POD_LIMIT_INSTEAD)
_NO_BASE: Final = Setting(None, NO_BASE)
_NO_POD_HIGH: Final = Setting(None, NO_POD_HIGH)
_NOT_POD_LEVEL: Final = Setting(None, NOT_POD_LEVEL)
_POD_UNLIMITED: Final = Setting(None, POD_UNLIMITED)


def _share_of_limit(resources: MemoryResources, settings: Settings) -> Setting:
    if settings.factor is None:
        return _NO_FACTOR
    base, base_is = _base(resources, settings)
    if base is None:
        return Setting(NEEDS_NODE, BASE_NEEDS_NODE, (resources.request,))
    if not base:
        return _NO_BASE
    high = int(base * settings.factor)
    if high > resources.request:
        return Setting(high, SHARE_OF_LIMIT, (base, base_is, settings.factor))
    return Setting(None, HIGH_UNDER_REQUEST, (high, resources.request))


def _above_request(resources: MemoryResources, settings: Settings) -> Setting:
    if resources.request == resources.limit:
        return _REQUEST_IS_LIMIT if resources.request else _NEITHER
    return _between(resources, settings)


def _above_request_or_nothing(resources: MemoryResources, settings: Settings) -> Setting:
    if resources.request == resources.limit and resources.request:
        return _REQUEST_IS_LIMIT
    if resources.under_pod_level and not resources.limit:
        return _POD_LIMIT_INSTEAD
    return _between(resources, settings)


def _between(resources: MemoryResources, settings: Settings) -> Setting:
    request, factor, page = resources.request, settings.factor, settings.page_size
    if factor is None:
        return _NO_FACTOR
    base, base_is = _base(resources, settings)
    if base is None:
        return Setting(NEEDS_NODE, BASE_NEEDS_NODE, (request,))
    if base <= 0:
        return _NO_BASE
    # In double precision and rounded down to a page as in kuberuntime_container_linux.go,
    # generateLinuxContainerResources(): its rounding errors are part of the value.
    high = int((float(request) + (float(base) - float(request)) * factor) // 1 / page) * page
    if high > request:
        is_exempt_in_kep = resources.qos == "Guaranteed" and not request and not resources.limit
        rule = ABOVE_NOTHING if is_exempt_in_kep else ABOVE_REQUEST
        return Setting(high, rule, (request, base, base_is, factor, page))
    return Setting(None, HIGH_UNDER_REQUEST, (high, request))


def _base(resources: MemoryResources, settings: Settings) -> tuple[int | None, str]:
    return (
        (resources.limit + resources.claimed, "limit")
        if resources.limit
        else (settings.memory_allocatable, "allocatable")
    )


# A share of the limit may lie below the request, so 1.27 takes it of what is above the request
# (KEP-2570, Alpha v1.27). 1.37 leaves a container without a limit of its own to the pod-level one.
CONTAINER_HIGH: Final = Since(
    {22: _share_of_limit, 27: _above_request, 37: _above_request_or_nothing}
)


def _never(resources: MemoryResources, settings: Settings) -> Setting:
    return _NO_POD_HIGH


def _of_pod_level(resources: MemoryResources, settings: Settings) -> Setting:
    if not resources.under_pod_level:
        return _NOT_POD_LEVEL
    if not resources.limit:
        return _POD_UNLIMITED
    if resources.request == resources.limit:
        return _REQUEST_IS_LIMIT
    return _between(resources, settings)


# ApplyPodLevelMemoryHigh(), kubelet cm/helpers_linux.go: since 1.37, for pod-level resources alone.
POD_HIGH: Final = Since({22: _never, 37: _of_pod_level})

_UNTOUCHED: Final = Setting(None, GATE_OFF)

# Since 1.37 a kubelet with the gate off sends memory.high=max with every creation and resize, to
# undo what it wrote with the gate on (kuberuntime_container_linux.go).

CONTAINER_OFF: Final[Since[Setting]] = Since({22: _UNTOUCHED, 37: Setting(MAX, HIGH_RESET)})
"""memory.high of a container while MemoryQoS is off."""
OFF: Final = _UNTOUCHED
"""Every other file while MemoryQoS is off."""
