"""Audit a cluster: what Memory QoS would do to it, and what is wrong with it. Pure.

>>> from memqos import Release, Settings
>>> from memqos.audit import audit_objects
>>> containers = [{"name": "web", "image": "nginx"}]
>>> pod = {"kind": "Pod", "metadata": {"name": "web"}, "spec": {"containers": containers}}
>>> settings = Settings(release=Release.of("1.36", {"MemoryQoS": True}), factor=0.9)
>>> for finding in audit_objects([pod], settings).findings:
...     print(finding.severity, finding.rule, finding.where)
warning pod/no-request default/web
warning namespace/no-limit-range default
info pod/no-limit default/web

`census` has all that was read, `deaths` how containers ended, `pod_specs` the values of pods with
equal resources, `node_memory` the memory of nodes, `preflight` their software. `pod_counter` adds
pods up to `totals`, of which `cluster_audit` makes an audit of every node and namespace. `rules`
has the findings, `comparison` what differs between two audits, `report` what outputs show.
"""

import sys
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

import msgspec

from memqos import CallablePackage
from memqos.audit.census import (
    BlockPosition,
    Census,
    ClusterObject,
    ClusterObjects,
    MeasuredUsage,
    collect_objects,
)
from memqos.audit.cluster_audit import Audit, audit_totals
from memqos.audit.node_memory import NodeMemory, NodeMemoryEstimator
from memqos.audit.pod_counter import CountRequest, count_pods
from memqos.audit.preflight import node_system
from memqos.audit.rules import ClusterRule, judge_cluster, select_rules
from memqos.audit.totals import ClusterTotals
from memqos.errors import InputError
from memqos.findings.finding import Finding
from memqos.kube.kubelet import KubeletConfiguration, with_defaults
from memqos.kube.pod import Pod
from memqos.manifests.dumps.text import DumpedText
from memqos.release import Release
from memqos.settings.settings import Settings

sys.modules[__name__].__class__ = CallablePackage  # memqos.audit(…) is that of memqos.library

_ALL_RULES: Final = select_rules()


class AuditResult(msgspec.Struct, frozen=True, kw_only=True):
    """An audit, what is found, and what could not be audited."""

    audit: Audit
    findings: tuple[Finding, ...]
    """The worst first."""
    totals: ClusterTotals
    faults: tuple[InputError, ...]


def audit_objects(
    objects: Iterable[dict[str, Any] | Pod | ClusterObject],
    settings: Settings,
    *,
    kubelet: KubeletConfiguration | None = None,
    usage: Mapping[str, MeasuredUsage] | None = None,
    rules: Iterable[str] = _ALL_RULES,
    own_rules: Iterable[ClusterRule] = (),
) -> AuditResult:
    """Audit Kubernetes objects: Pods, Nodes, LimitRanges, ResourceQuotas, PodMetrics, lists.

    They are decoded JSON or memqos's own types, in any order; other kinds are skipped. `kubelet` is
    the configuration of all nodes; without it what they reserve is estimated from their status.
    `usage` is by namespace/name, in addition to the PodMetrics. An object that cannot be read
    becomes a fault, and the others are audited.
    """
    census = Census()
    first: set[str] = set()
    duplicates: dict[BlockPosition, str] = {}
    faults: list[InputError] = []
    for index, each in enumerate(objects):
        data = each if isinstance(each, dict) else _with_kind(each)
        try:
            encoded = msgspec.json.encode(data)
        except TypeError as error:
            faults.append(_fault_in(index, f"it cannot be JSON: {error}"))
            continue
        try:
            uids = census.read_object((0, index), DumpedText(encoded, 1, 1), "")
        except InputError as error:
            faults.append(_fault_in(index, error.what, error.field, error.hint))
            continue
        for place, uid in uids:
            if uid in first:
                duplicates[place] = uid
                faults.append(_fault_in(index, f"the UID {uid} is used by an earlier pod too"))
            first.add(uid)
    for key, used in (usage or {}).items():
        census.merge_usage(key, used)
    config = with_defaults({}, settings.release.minor) if kubelet is None else kubelet
    result = audit_cluster(
        collect_objects(census.other_objects, census.usage),
        NodeMemoryEstimator(config, settings, exact=kubelet is not None),
        settings,
        lambda request: count_pods(census, msgspec.structs.replace(request, duplicates=duplicates)),
        rules=rules,
        own_rules=own_rules,
    )
    faults += [
        InputError(f"pod {name}: {what}", field=field)
        for _, name, what, field in result.totals.unreadable
    ]
    return msgspec.structs.replace(result, faults=(*faults, *result.faults))


def audit_cluster(
    objects: ClusterObjects,
    estimator: NodeMemoryEstimator,
    settings: Settings,
    count: Callable[[CountRequest], ClusterTotals],
    *,
    rules: Iterable[str] = _ALL_RULES,
    own_rules: Iterable[ClusterRule] = (),
    before: Settings | None = None,
    with_rows: bool = False,
    downgrade: Release | None = None,
    server: Release | None = None,
) -> AuditResult:
    """Audit what was read: `count` adds up the pods, in this process or in several.

    `before`, `with_rows` and `downgrade` are those of a `CountRequest`; `server` is the API
    server's release.
    """
    nodes: dict[str, NodeMemory] = {}
    faults: list[InputError] = []
    for name, node in objects.nodes.items():
        try:
            nodes[name] = estimator.memory_of(node)
        except InputError as error:
            faults.append(InputError(f"node {name}: {error.what}", field=error.field))
    totals = count(
        CountRequest(
            settings=settings,
            nodes=nodes,
            usage=objects.usage,
            before=before,
            with_rows=with_rows,
            downgrade=downgrade,
        )
    )
    audit, more = audit_totals(
        totals,
        settings,
        nodes,
        objects.limit_ranges,
        objects.quotas,
        systems={name: node_system(node) for name, node in objects.nodes.items()},
        autoscalers=objects.autoscalers,
        server=None if server is None else server.minor,
    )
    return AuditResult(
        audit=audit,
        findings=judge_cluster(audit, rules, own_rules),
        totals=totals,
        faults=(*faults, *more),
    )


def _with_kind(each: Pod | ClusterObject) -> dict[str, Any]:
    return {**msgspec.to_builtins(each), "kind": type(each).__name__}


def _fault_in(
    index: int, what: str, field: str | None = None, hint: str | None = None
) -> InputError:
    where = f"objects[{index}]"
    return InputError(what, field=where if field is None else f"{where}.{field}", hint=hint)
