"""Resources of a node that pods have through DRA claims (KEP-5517, alpha).

What a claim holds comes on top of what the containers request. The class ignores it, and so does
the API server: only the scheduler and the kubelet count it.
"""

from collections.abc import Iterable
from typing import Final

from memqos.kube.pod import NodeAllocatableClaimStatus, Pod
from memqos.kube.quantity import milli_of, whole
from memqos.kube.resources import MEMORY, Amounts, is_hugepages
from memqos.release import Release, Since

Claims = tuple[NodeAllocatableClaimStatus, ...]

# In 1.36 the status had one map of resources, which the kubelet ignored.
_COUNTS: Final = Since({22: False, 37: True})


def claims_of(pod: Pod, release: Release) -> Claims:
    """The claims that count in a release."""
    claims = pod.status and pod.status.node_allocatable_resource_claim_statuses
    if not claims or not _COUNTS.at(release.minor):
        return ()
    return claims if release.is_enabled("DRANodeAllocatableResources") else ()


def claimed_by_pod(claims: Claims) -> Amounts:
    """What the claims add to a pod's requests, whether a container refers to them or not."""
    total: Amounts = {}
    for claim in claims:
        users = len(claim.containers or ())
        for mapping in claim.mapping or ():
            _add(total, mapping.name, milli_of(mapping.quantity))
        for overhead in claim.overhead or ():
            per_container = milli_of(overhead.per_container) * users
            _add(total, overhead.name, milli_of(overhead.per_pod) + per_container)
    return total


def container_limits(
    container: str, limits: Amounts, pod_limits: Iterable[str], claims: Claims
) -> Amounts:
    """A container's limits, raised by the claims it refers to.

    Only limits that are set are raised. Hugepages are none without a limit, so a claim sets one,
    unless the pod level does.
    """
    raised = dict(limits)
    for name, amount in _claimed_by_container(container, claims).items():
        if limits.get(name) or (is_hugepages(name) and (name in limits or name not in pod_limits)):
            raised[name] = limits.get(name, 0) + amount
    return raised


def memory_share(container: str, claims: Claims) -> int:
    """Bytes of claimed memory that count as a container's own when its oom score is computed."""
    share = 0
    for claim in claims:
        users = claim.containers or ()
        if container not in users:
            continue
        for mapping in claim.mapping or ():
            if mapping.name == MEMORY:
                share += whole(milli_of(mapping.quantity)) // len(users)
        for overhead in claim.overhead or ():
            if overhead.name == MEMORY:
                share += whole(milli_of(overhead.per_pod)) // len(users)
                share += whole(milli_of(overhead.per_container))
    return share


def add_claimed_limits(limits: Amounts, claimed: Amounts) -> None:
    """Raise a pod's limits by what it claims: where it has one, and always for hugepages."""
    for name, amount in claimed.items():
        if name in limits or is_hugepages(name):
            _add(limits, name, amount)


def _claimed_by_container(container: str, claims: Claims) -> Amounts:
    total: Amounts = {}
    for claim in claims:
        if container in (claim.containers or ()):
            for mapping in claim.mapping or ():
                _add(total, mapping.name, milli_of(mapping.quantity))
            for overhead in claim.overhead or ():
                amount = milli_of(overhead.per_pod) + milli_of(overhead.per_container)
                _add(total, overhead.name, amount)
    return total


def _add(total: Amounts, name: str, amount: int) -> None:
    total[name] = total.get(name, 0) + amount
