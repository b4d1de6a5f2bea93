"""Whether resource quotas admit a new pod, or the resize of a pod."""

from collections.abc import Sequence
from datetime import datetime
from typing import Final, Literal

import msgspec

from memqos.cluster.quota import (
    LIMITS_PREFIX,
    REQUESTS_PREFIX,
    Quota,
    is_pod_quota,
    quota_applies,
    quota_charge,
    quota_usage,
)
from memqos.kube.aggregate import has_pod_level
from memqos.kube.pod import Pod
from memqos.kube.resources import Amounts
from memqos.kube.shape import shape_of
from memqos.release import Release

QuotaRefusal = Literal["exceeded", "missing_required", "status_unknown"]

REQUIRED_BY_QUOTA: Final = frozenset(
    prefix + name for prefix in ("", REQUESTS_PREFIX, LIMITS_PREFIX) for name in ("cpu", "memory")
)
"""What every container must declare once a quota bounds it."""


class ExceededQuota(msgspec.Struct, frozen=True):
    """One bound of a quota that a pod would exceed, in thousandths."""

    resource: str
    requested: int
    used: int
    hard: int

    @property
    def allowed(self) -> int:
        """What is left of the bound."""
        return max(0, self.hard - self.used)


class MissingResource(msgspec.Struct, frozen=True):
    """A value that a quota requires, and the containers that do not declare it."""

    resource: str
    containers: tuple[str, ...]


class QuotaVerdict(msgspec.Struct, frozen=True, kw_only=True):
    """The verdict of the quotas on a pod.

    `quota` is the one that refuses; `new_used` is what every quota would have used, by its name.
    """

    allowed: bool
    matching: tuple[str, ...]
    reason: QuotaRefusal | None = None
    quota: str | None = None
    exceeded: tuple[ExceededQuota, ...] = ()
    missing: tuple[MissingResource, ...] = ()
    unknown: tuple[str, ...] = ()
    new_used: dict[str, Amounts] = {}


def check_quotas(
    pod: Pod,
    quotas: Sequence[Quota],
    release: Release,
    now: datetime,
    *,
    resized_from: Pod | None = None,
) -> QuotaVerdict:
    """The verdict on a pod, as it would be stored; resizing charges only what is added."""
    matching = [quota for quota in quotas if quota_applies(quota, pod, release)]
    names = tuple(quota.name for quota in matching)
    for quota in matching:
        missing = _missing(quota, pod, release)
        if missing:
            return QuotaVerdict(
                allowed=False,
                matching=names,
                reason="missing_required",
                quota=quota.name,
                missing=missing,
            )
        unknown = tuple(sorted(filter(is_pod_quota, quota.hard.keys() - quota.used.keys())))
        if unknown:
            return QuotaVerdict(
                allowed=False,
                matching=names,
                reason="status_unknown",
                quota=quota.name,
                unknown=unknown,
            )

    requested = quota_usage(pod, release, now)
    added = (
        requested
        if resized_from is None
        else _increase(requested, quota_usage(resized_from, release, now))
    )
    new_used = {quota.name: quota.used for quota in quotas}
    for quota in matching:
        counted = resized_from is not None and quota_applies(quota, resized_from, release)
        delta = _quota_delta(added if counted else requested, quota)
        exceeded = tuple(
            ExceededQuota(name, amount, quota.used.get(name, 0), quota.hard[name])
            for name, amount in sorted(delta.items())
            if quota.used.get(name, 0) + amount > quota.hard[name]
        )
        if exceeded:
            return QuotaVerdict(
                allowed=False,
                matching=names,
                reason="exceeded",
                quota=quota.name,
                exceeded=exceeded,
            )
        new_used[quota.name] = quota.used | {
            name: quota.used.get(name, 0) + amount for name, amount in delta.items()
        }
    return QuotaVerdict(allowed=True, matching=names, new_used=new_used)


def _missing(quota: Quota, pod: Pod, release: Release) -> tuple[MissingResource, ...]:
    shape = shape_of(pod, release)
    # A pod-level value of any resource frees the containers from declaring theirs
    # (quota/v1/evaluator/core/pods.go, Constraints()).
    if release.is_enabled("PodLevelResources") and has_pod_level(shape, release):
        return ()
    containers = (*(pod.spec.containers or ()), *(pod.spec.init_containers or ()))
    declared = [
        (container.name, quota_charge(part.requests, part.limits, release).keys())
        for container, part in zip(
            containers, shape.containers + shape.init_containers, strict=True
        )
    ]
    required = sorted(REQUIRED_BY_QUOTA & quota.hard.keys())
    found = (
        MissingResource(
            resource, tuple(sorted({name for name, has in declared if resource not in has}))
        )
        for resource in required
    )
    return tuple(missing for missing in found if missing.containers)


def _increase(requested: Amounts, before: Amounts) -> Amounts:
    return {name: max(0, amount - before.get(name, 0)) for name, amount in requested.items()}


def _quota_delta(charged: Amounts, quota: Quota) -> Amounts:
    """What counts against a quota: a charge of 0 does not, even where the bound is exceeded."""
    return {name: amount for name, amount in charged.items() if amount and name in quota.hard}
