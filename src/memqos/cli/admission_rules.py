"""What decides about new pods: limit ranges and quotas of namespaces, and a policy."""

from collections.abc import Iterable
from typing import TYPE_CHECKING

import msgspec

from memqos.cli.manifest_reader import ManifestReader, incomplete_input
from memqos.cluster.limit_range import (
    CONTAINER_TYPE,
    POD_TYPE,
    LimitRange,
    LimitRangeAmounts,
    complete_limit_range,
    limit_range_amounts,
)
from memqos.cluster.quota import Quota, ResourceQuota, quota_applies, quota_of
from memqos.errors import InputError, nearest_name
from memqos.findings.policy import AdmissionPolicy, policy_from_document
from memqos.host.manifest_files import load_file
from memqos.kube.shape import amounts_of
from memqos.manifests.documents import Document, read_documents
from memqos.release import Release

if TYPE_CHECKING:
    from memqos.cli.cluster_access import LiveCluster
    from memqos.manifests.objects import Item

_KINDS = ("LimitRange", "ResourceQuota")
_RANGE_TYPES = (CONTAINER_TYPE, POD_TYPE, "PersistentVolumeClaim")
_ANY_NAMESPACE = ""
"""The namespace of objects that do not name one: they apply to every pod."""


class NamespaceState:
    """The limit ranges and quotas of each namespace. Quotas fill as pods are admitted."""

    def __init__(self, default_namespace: str | None = None) -> None:
        self._default_namespace = default_namespace
        self.ranges: dict[str, list[LimitRangeAmounts]] = {}
        self.quotas: dict[str, list[Quota]] = {}
        self.notes: list[str] = []

    @property
    def names(self) -> list[str]:
        """The namespaces that are named."""
        return sorted((self.ranges.keys() | self.quotas.keys()) - {_ANY_NAMESPACE})

    def namespace_of(self, namespace: str | None) -> str:
        """A pod that names none goes to the default, else to the only namespace there is."""
        if namespace or self._default_namespace:
            return namespace or self._default_namespace or ""
        return self.names[0] if len(self.names) == 1 else "default"

    def ranges_in(self, namespace: str) -> list[LimitRangeAmounts]:
        return [*self.ranges.get(namespace, ()), *self.ranges.get(_ANY_NAMESPACE, ())]

    def quotas_in(self, namespace: str) -> list[Quota]:
        return [*self.quotas.get(namespace, ()), *self.quotas.get(_ANY_NAMESPACE, ())]

    def charge(self, namespace: str, new_used: dict[str, dict[str, int]]) -> None:
        """Record what quotas have used now, by their names."""
        for where in {namespace, _ANY_NAMESPACE} & self.quotas.keys():
            self.quotas[where] = [
                msgspec.structs.replace(quota, used=new_used.get(quota.name, quota.used))
                for quota in self.quotas[where]
            ]


def read_namespaces(
    reader: ManifestReader, file: str, release: Release, *, pod_defaults: bool
) -> NamespaceState:
    """The limit ranges and quotas of a file, in its order; faults are counted by the reader."""
    state = NamespaceState()
    _add_items(state, reader, reader.objects([file], _KINDS), release, pod_defaults=pod_defaults)
    return state


def read_live_namespaces(
    reader: ManifestReader,
    live: "LiveCluster",
    namespaces: Iterable[str],
    release: Release,
    *,
    pod_defaults: bool,
) -> NamespaceState:
    """The limit ranges and quotas that a live cluster has in these namespaces."""
    state, faults = NamespaceState(live.namespace), reader.faults
    for namespace in sorted(namespaces):
        for plural in ("limitranges", "resourcequotas"):
            loaded = live.list_in_namespace(plural, namespace)
            items = reader.objects_in(loaded, _KINDS)
            _add_items(state, reader, items, release, pod_defaults=pod_defaults)
    if reader.faults > faults:
        raise incomplete_input(live.server.where)
    return state


def _add_items(
    state: NamespaceState,
    reader: ManifestReader,
    items: Iterable["Item"],
    release: Release,
    *,
    pod_defaults: bool,
) -> None:
    for item in items:
        where = item.namespace or _ANY_NAMESPACE
        try:
            if item.kind == "LimitRange":
                limits = _read_range(item, pod_defaults=pod_defaults)
                state.ranges.setdefault(where, []).append(limits)
            else:
                state.quotas.setdefault(where, []).append(_read_quota(item, release, state.notes))
        except InputError as error:
            reader.refuse(item.with_position(error))


def _read_range(item: "Item", *, pod_defaults: bool) -> LimitRangeAmounts:
    limit_range = item.decode(LimitRange)
    for index, entry in enumerate(limit_range.spec.limits or ()):
        # Others need a domain: validateLimitRangeTypeName(), pkg/apis/core/validation.
        if entry.type not in _RANGE_TYPES and "/" not in entry.type:
            raise InputError(
                f"{entry.type!r} is not a type of limit ranges",
                field=f"spec.limits[{index}].type",
                hint=f"write {nearest_name(entry.type, _RANGE_TYPES) or ', '.join(_RANGE_TYPES)}",
            )
        for name, values in (("default", entry.default), ("defaultRequest", entry.default_request)):
            if entry.type == POD_TYPE and values and not pod_defaults:
                raise InputError(
                    "Forbidden: a range of type Pod has no defaults",
                    field=f"spec.limits[{index}].{name}",
                    hint="--pod-defaults shows what KEP-2837 proposes",
                )
    return complete_limit_range(limit_range_amounts(limit_range))


def _read_quota(item: "Item", release: Release, notes: list[str]) -> Quota:
    stored = item.decode(ResourceQuota)
    amounts_of(stored.spec.hard, "spec.hard")  # errors name what is written
    quota = quota_of(stored)
    if not quota.hard and stored.spec.hard:
        # The resourcequota controller copies spec.hard into status at its first sync
        # (resource_quota_controller.go); before, nothing is counted as used.
        status = msgspec.structs.replace(stored.status, hard=stored.spec.hard)
        quota = quota_of(msgspec.structs.replace(stored, status=status))
        notes.append(f"quota {quota.name} has no status.hard: its spec.hard is used")
    _check_scopes(quota, release)
    return quota


def _check_scopes(quota: Quota, release: Release) -> None:
    from memqos.kube.pod import Pod

    quota_applies(quota, Pod(), release)


def read_policy(file: str) -> AdmissionPolicy:
    """The policy in a file, which holds one document."""
    _, data = load_file(file)
    found = list(read_documents(data, file))
    for document in found:
        if isinstance(document, InputError):
            raise document
    documents = [document for document in found if isinstance(document, Document)]
    if len(documents) != 1:
        raise InputError(f"{len(documents)} documents, where one policy is expected", file=file)
    return policy_from_document(documents[0])
