"""What a pod charges to resource quotas."""

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Final

import msgspec

from memqos.cluster.held import request_charge
from memqos.cluster.held_limits import limit_charge
from memqos.errors import InputError
from memqos.kube.pod import Pod
from memqos.kube.resources import HUGEPAGES, Amounts, is_extended, is_hugepages, is_native
from memqos.kube.shape import shape_of
from memqos.release import Release, Since

_ONE: Final = 1000
COMPUTE_RESOURCES: Final = ("cpu", "memory", "ephemeral-storage")
REQUESTS_PREFIX: Final = "requests."
LIMITS_PREFIX: Final = "limits."
DEVICE_CLASS_PREFIX: Final = "deviceclass.resource.kubernetes.io/"
_TERMINAL_PHASES: Final = frozenset({"Failed", "Succeeded"})


def quota_usage(pod: Pod, release: Release, now: datetime) -> Amounts:
    """What a pod, as it is stored, charges; a pod that has ended counts only as an object."""
    charged = {"count/pods": _ONE}
    if has_ended(pod, now):
        return charged
    shape = shape_of(pod, release)
    requests = request_charge(_without_pod_resources(pod), shape, release)
    return charged | quota_charge(requests, limit_charge(pod, shape, release), release)


def quota_charge(requests: Amounts, limits: Amounts, release: Release) -> Amounts:
    """How quotas name requests and limits: of a pod, or of one container."""
    charged = {"pods": _ONE}
    for name in COMPUTE_RESOURCES:
        if name in requests:
            charged[name] = charged[REQUESTS_PREFIX + name] = requests[name]
        if name in limits:
            charged[LIMITS_PREFIX + name] = limits[name]
    by_request_alone = _BY_REQUEST_ALONE.at(release.minor)
    for name, amount in requests.items():
        if is_hugepages(name):
            charged[name] = charged[REQUESTS_PREFIX + name] = amount
        elif by_request_alone(name):
            charged[REQUESTS_PREFIX + name] = amount
    return charged


def is_pod_quota(name: str) -> bool:
    """Whether a resource of a quota is one that pods are charged for."""
    if name in _POD_QUOTAS or name.startswith((HUGEPAGES, REQUESTS_PREFIX + HUGEPAGES)):
        return True
    return name.startswith(REQUESTS_PREFIX) and (
        not is_native(name) or name.startswith(REQUESTS_PREFIX + DEVICE_CLASS_PREFIX)
    )


def has_ended(pod: Pod, now: datetime) -> bool:
    """Whether a pod ran to its end, or should have been gone by now."""
    if pod.status is not None and pod.status.phase in _TERMINAL_PHASES:
        return True
    deleted, grace = pod.metadata.deletion_timestamp, pod.metadata.deletion_grace_period_seconds
    if deleted is None or grace is None:
        return False
    try:
        since = datetime.fromisoformat(deleted)
    except ValueError:
        raise InputError(
            f"{deleted!r} is not a time",
            field="metadata.deletionTimestamp",
            hint="write it like 2026-01-01T00:00:00Z",
        ) from None
    return now > since + timedelta(seconds=grace)


def _is_device(name: str) -> bool:
    return is_extended(name) or name.startswith(DEVICE_CLASS_PREFIX)


_BY_REQUEST_ALONE: Final[Since[Callable[[str], bool]]] = Since({22: is_extended, 35: _is_device})
"""Resources that cannot be overcommitted: only `requests.` of them is ever charged."""
_POD_QUOTAS: Final = frozenset(
    {
        "count/pods",
        "pods",
        *COMPUTE_RESOURCES,
        *(REQUESTS_PREFIX + name for name in COMPUTE_RESOURCES),
        *(LIMITS_PREFIX + name for name in COMPUTE_RESOURCES),
    }
)


def _without_pod_resources(pod: Pod) -> Pod:
    """Quotas look at what containers report, never at what is reported for the whole pod."""
    if pod.status is None:
        return pod
    status = msgspec.structs.replace(pod.status, resources=None, allocated_resources=None)
    return msgspec.structs.replace(pod, status=status)
