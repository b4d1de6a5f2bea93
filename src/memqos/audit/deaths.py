"""How containers of a pod ended, as far as memory may be the cause."""

import re
from collections.abc import Iterator
from typing import Final

import msgspec

from memqos.findings.catalogue import POD_EVICTED, POD_EXIT_137, POD_OOM_KILLED, POD_RESTARTS
from memqos.manifests.dumps.objects import Dumped, DumpedStatus

_OOM_KILLED: Final = "OOMKilled"
_EVICTED: Final = b'"Evicted"'
_SIGKILL_EXIT: Final = 137
"""128 + SIGKILL: how a shell, and every container runtime, reports a process that was killed."""
_MANY_RESTARTS: Final = 5
_LOW_RESOURCE: Final = re.compile(rb"low on resource: ([\w-]+)")
"""nodeLowMessageFmt, kubelet eviction/helpers.go."""
_RULE_ORDER: Final = (POD_OOM_KILLED.id, POD_EXIT_137.id, POD_RESTARTS.id)


class PodDeaths(msgspec.Struct, frozen=True, gc=False):
    """The worst that happened to a pod: by which rule, how often, to which container."""

    rule: str
    count: int
    container: str
    """Empty where the pod as a whole ended."""
    last: str
    """How it ended the last time."""


def deaths_of(pod: Dumped) -> PodDeaths | None:
    """What a pod's status reports of deaths; None for nearly all pods."""
    status = pod.status
    if status is None:
        return None
    if status.reason and bytes(status.reason) == _EVICTED:
        found = _LOW_RESOURCE.search(bytes(status.message))
        what = "" if found is None else f"the node was low on {found[1].decode()}"
        return PodDeaths(POD_EVICTED.id, 1, "", what)
    worst: PodDeaths | None = None
    for each in status.container_statuses or ():
        if each.restart_count or each.has_failed:
            worst = _worse(worst, each)
    for each in status.init_container_statuses or ():
        if each.restart_count or each.has_failed:
            worst = _worse(worst, each)
    return worst


def _worse(worst: PodDeaths | None, status: DumpedStatus) -> PodDeaths | None:
    for found in _container_deaths(status):
        key = (_RULE_ORDER.index(found.rule), -found.count)
        if worst is None or key < (_RULE_ORDER.index(worst.rule), -worst.count):
            worst = found
    return worst


def _container_deaths(status: DumpedStatus) -> Iterator[PodDeaths]:
    now = status.state.terminated if status.state is not None else None
    before = status.last_state.terminated if status.last_state is not None else None
    count = (status.restart_count or 0) + (now is not None)
    for ended in (now, before):
        if ended is None:
            continue
        when = f" at {ended.finished_at}" if ended.finished_at else ""
        last = f"{ended.reason or 'ended'} with exit code {ended.exit_code}{when}"
        if ended.reason == _OOM_KILLED:
            yield PodDeaths(POD_OOM_KILLED.id, count, status.name, last)
        elif ended.exit_code == _SIGKILL_EXIT:
            yield PodDeaths(POD_EXIT_137.id, count, status.name, last)
        elif ended.exit_code and count >= _MANY_RESTARTS:
            yield PodDeaths(POD_RESTARTS.id, count, status.name, last)
