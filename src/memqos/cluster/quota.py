"""Resource quotas, and which of them apply to a pod."""

from collections.abc import Callable, Iterator
from datetime import datetime
from typing import Final

import msgspec

from memqos.cluster.charged import limit_charge, request_charge
from memqos.errors import InputError
from memqos.kube.pod import Affinity, ObjectMeta, Pod, PodAffinityTerm, ResourceList
from memqos.kube.qos import qos_class
from memqos.kube.resources import HUGEPAGES, Amounts, is_extended, is_hugepages, is_native
from memqos.kube.shape import amounts_of, shape_of
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
    # PodUsageFunc(), quota/v1/evaluator/core/pods.go, does not count what DRA claims add.
    shape = msgspec.structs.replace(shape_of(pod, release), claimed={})
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
    """Whether a pod has ended, or its time to end after deletion is over."""
    if pod.status is not None and pod.status.phase in _TERMINAL_PHASES:
        return True
    deleted, grace = pod.metadata.deletion_timestamp, pod.metadata.deletion_grace_period_seconds
    if deleted is None or grace is None:
        return False
    try:
        return (now - datetime.fromisoformat(deleted)).total_seconds() > grace
    except (ValueError, TypeError):  # TypeError: a time without its zone
        raise InputError(
            f"{deleted!r} is not a time",
            field="metadata.deletionTimestamp",
            hint="write it like 2026-01-01T00:00:00Z",
        ) from None


def _is_device(name: str) -> bool:
    return is_extended(name) or name.startswith(DEVICE_CLASS_PREFIX)


_BY_REQUEST_ALONE: Final[Since[Callable[[str], bool]]] = Since({22: is_extended, 35: _is_device})
"""Resources that cannot be overcommitted: only `requests.` of them is ever charged; since 1.35
also devices of a DRA class (quota/v1/evaluator/core/pods.go, isExtendedResourceNameForQuota)."""
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
    """Quotas count what containers report, never what is reported for the whole pod."""
    if pod.status is None:
        return pod
    status = msgspec.structs.replace(pod.status, resources=None, allocated_resources=None)
    return msgspec.structs.replace(pod, status=status)


class ScopeSelectorTerm(msgspec.Struct, frozen=True, rename="camel"):
    """One entry of `spec.scopeSelector.matchExpressions`."""

    scope_name: str = ""
    operator: str = "Exists"
    values: tuple[str, ...] | None = None


class ScopeSelector(msgspec.Struct, frozen=True, rename="camel"):
    """`spec.scopeSelector`."""

    match_expressions: tuple[ScopeSelectorTerm, ...] | None = None


class ResourceQuotaSpec(msgspec.Struct, frozen=True, rename="camel"):
    """`spec` of a quota."""

    hard: ResourceList | None = None
    scopes: tuple[str, ...] | None = None
    scope_selector: ScopeSelector | None = None


class ResourceQuotaStatus(msgspec.Struct, frozen=True):
    """`status` of a quota: the enforced bounds, and what is used of them."""

    hard: ResourceList | None = None
    used: ResourceList | None = None


class ResourceQuota(msgspec.Struct, frozen=True):
    """A ResourceQuota."""

    metadata: ObjectMeta = ObjectMeta()
    spec: ResourceQuotaSpec = ResourceQuotaSpec()
    status: ResourceQuotaStatus = ResourceQuotaStatus()


class Quota(msgspec.Struct, frozen=True):
    """A quota as numbers: what admission compares."""

    name: str
    hard: Amounts
    used: Amounts
    terms: tuple[ScopeSelectorTerm, ...] = ()


def quota_of(quota: ResourceQuota) -> Quota:
    """A quota as numbers. Admission uses its status, which a controller updates."""
    spec, selector = quota.spec, quota.spec.scope_selector
    return Quota(
        quota.metadata.name or "",
        hard=amounts_of(quota.status.hard, "status.hard"),
        used=amounts_of(quota.status.used, "status.used"),
        terms=tuple(ScopeSelectorTerm(scope) for scope in spec.scopes or ())
        + ((selector.match_expressions or ()) if selector is not None else ()),
    )


def quota_applies(quota: Quota, pod: Pod, release: Release) -> bool:
    """Whether a quota counts a pod: it bounds what pods charge, and all its scopes match."""
    return any(map(is_pod_quota, quota.hard)) and all(
        [matches_scope(term, pod, release) for term in quota.terms]
    )


def matches_scope(term: ScopeSelectorTerm, pod: Pod, release: Release) -> bool:
    """Whether a pod is in a scope; no pod is in a scope that is not about pods."""
    matches = _SCOPE_MATCHERS.get(term.scope_name)
    return matches is not None and matches(term, pod, release)


def _terminating(_: ScopeSelectorTerm, pod: Pod, __: Release) -> bool:
    deadline = pod.spec.active_deadline_seconds
    return deadline is not None and deadline >= 0


def _not_terminating(term: ScopeSelectorTerm, pod: Pod, release: Release) -> bool:
    return not _terminating(term, pod, release)


def _best_effort(_: ScopeSelectorTerm, pod: Pod, release: Release) -> bool:
    return qos_class(shape_of(pod, release), release) == "BestEffort"


def _not_best_effort(term: ScopeSelectorTerm, pod: Pod, release: Release) -> bool:
    return not _best_effort(term, pod, release)


def _priority_class(term: ScopeSelectorTerm, pod: Pod, _: Release) -> bool:
    matches = _OPERATORS.get(term.operator)
    if matches is None:
        raise InputError(
            f"{term.operator!r} is not an operator of a scope selector",
            field="spec.scopeSelector.matchExpressions",
            hint=f"the operators are {', '.join(_OPERATORS)}",
        )
    return matches(pod.spec.priority_class_name or None, term.values or ())


def _cross_namespace_affinity(_: ScopeSelectorTerm, pod: Pod, __: Release) -> bool:
    affinity = pod.spec.affinity
    # An empty selector counts as well: it selects every namespace, where a missing one selects
    # the pod's own (quota/v1/evaluator/core/pods.go, crossNamespacePodAffinityTerm).
    return affinity is not None and any(
        term.namespaces or term.namespace_selector is not None for term in _affinity_terms(affinity)
    )


def _affinity_terms(affinity: Affinity) -> Iterator[PodAffinityTerm]:
    for side in (affinity.pod_affinity, affinity.pod_anti_affinity):
        if side is not None:
            yield from side.required_during_scheduling_ignored_during_execution or ()
            for weighted in side.preferred_during_scheduling_ignored_during_execution or ():
                yield weighted.pod_affinity_term


_ScopeMatcher = Callable[[ScopeSelectorTerm, Pod, Release], bool]

_SCOPE_MATCHERS: Final[dict[str, _ScopeMatcher]] = {
    "Terminating": _terminating,
    "NotTerminating": _not_terminating,
    "BestEffort": _best_effort,
    "NotBestEffort": _not_best_effort,
    "PriorityClass": _priority_class,
    "CrossNamespacePodAffinity": _cross_namespace_affinity,
}
QUOTA_SCOPES: Final = tuple(_SCOPE_MATCHERS)
"""The scopes that are about pods. Only PriorityClass uses the operator."""

_OPERATORS: Final[dict[str, Callable[[str | None, tuple[str, ...]], bool]]] = {
    "In": lambda name, values: name in values,
    "NotIn": lambda name, values: name not in values,
    "Exists": lambda name, values: name is not None,
    "DoesNotExist": lambda name, values: name is None,
}
