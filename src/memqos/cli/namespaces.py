"""The limit ranges and quotas that hold in namespaces, out of a file."""

from collections.abc import Iterable
from typing import TYPE_CHECKING

import msgspec

from memqos.cli.reading import Reader
from memqos.cluster.limitrange import POD, LimitRange, Range, completed, range_of
from memqos.cluster.quota import Quota, ResourceQuota, applies, quota_of
from memqos.errors import InputError
from memqos.release import Release

if TYPE_CHECKING:
    from memqos.cli.clusters import Live
    from memqos.manifests.objects import Item

_KINDS = ("LimitRange", "ResourceQuota")
ANYWHERE = ""
"""The namespace of objects that do not name one: they hold for every pod."""


class Namespaces:
    """What holds where. Quotas grow as pods are admitted."""

    def __init__(self, home: str | None = None) -> None:
        self._home = home
        self.ranges: dict[str, list[Range]] = {}
        self.quotas: dict[str, list[Quota]] = {}
        self.notes: list[str] = []

    @property
    def names(self) -> list[str]:
        """The namespaces that are named."""
        return sorted((self.ranges.keys() | self.quotas.keys()) - {ANYWHERE})

    def of_pod(self, namespace: str | None) -> str:
        """Where a pod goes that may not say it: home, else to the only namespace there is."""
        if namespace or self._home:
            return namespace or self._home or ""
        return self.names[0] if len(self.names) == 1 else "default"

    def ranges_in(self, namespace: str) -> list[Range]:
        return [*self.ranges.get(namespace, ()), *self.ranges.get(ANYWHERE, ())]

    def quotas_in(self, namespace: str) -> list[Quota]:
        return [*self.quotas.get(namespace, ()), *self.quotas.get(ANYWHERE, ())]

    def charge(self, namespace: str, new_used: dict[str, dict[str, int]]) -> None:
        """Take over what quotas have used now, by their names."""
        for where in {namespace, ANYWHERE} & self.quotas.keys():
            self.quotas[where] = [
                msgspec.structs.replace(quota, used=new_used.get(quota.name, quota.used))
                for quota in self.quotas[where]
            ]


def read_namespaces(
    reader: Reader, file: str, release: Release, *, pod_defaults: bool
) -> Namespaces:
    """The limit ranges and quotas of a file, in its order; faults are counted by the reader."""
    state = Namespaces()
    _add(state, reader, reader.objects([file], _KINDS), release, pod_defaults=pod_defaults)
    return state


def live_namespaces(
    reader: Reader,
    live: "Live",
    namespaces: Iterable[str],
    release: Release,
    *,
    pod_defaults: bool,
) -> Namespaces:
    """The limit ranges and quotas that a live cluster has in these namespaces."""
    state, faults = Namespaces(live.namespace), reader.faults
    for namespace in sorted(namespaces):
        for plural in ("limitranges", "resourcequotas"):
            loaded = live.in_namespace(plural, namespace)
            items = reader.objects_in(loaded, _KINDS)
            _add(state, reader, items, release, pod_defaults=pod_defaults)
    if reader.faults > faults:
        raise InputError("no answer without all of it", file=live.server.where, hint="see above")
    return state


def _add(
    state: Namespaces,
    reader: Reader,
    items: Iterable["Item"],
    release: Release,
    *,
    pod_defaults: bool,
) -> None:
    for item in items:
        where = item.namespace or ANYWHERE
        try:
            if item.kind == "LimitRange":
                limits = _range(item, pod_defaults=pod_defaults)
                state.ranges.setdefault(where, []).append(limits)
            else:
                state.quotas.setdefault(where, []).append(_quota(item, release, state.notes))
        except InputError as error:
            reader.refuse(item.located(error))


def _range(item: "Item", *, pod_defaults: bool) -> Range:
    limit_range = item.decode(LimitRange)
    for index, entry in enumerate(limit_range.spec.limits or ()):
        for name, values in (("default", entry.default), ("defaultRequest", entry.default_request)):
            if entry.type == POD and values and not pod_defaults:
                raise InputError(
                    "Forbidden: a range of type Pod has no defaults",
                    field=f"spec.limits[{index}].{name}",
                    hint="--pod-defaults shows what KEP-2837 proposes",
                )
    return completed(range_of(limit_range))


def _quota(item: "Item", release: Release, notes: list[str]) -> Quota:
    stored = item.decode(ResourceQuota)
    quota = quota_of(stored)
    if not quota.hard and stored.spec.hard:
        # The controller takes the bounds over; what is used nobody knows before it has counted.
        status = msgspec.structs.replace(stored.status, hard=stored.spec.hard)
        quota = quota_of(msgspec.structs.replace(stored, status=status))
        notes.append(f"quota {quota.name} has no status.hard: its spec.hard is taken")
    _check_scopes(quota, release)
    return quota


def _check_scopes(quota: Quota, release: Release) -> None:
    from memqos.kube.pod import Pod

    applies(quota, Pod(), release)
