"""What `memqos audit` reads of a live cluster, and what it does without a permission."""

from collections.abc import Callable
from typing import Any, Final

from memqos.audit.census import MeasuredUsage
from memqos.cli.cluster_access import (
    LIVE_AUTOSCALERS,
    LIVE_LIMITS,
    LIVE_METRICS,
    LIVE_NODES,
    LIVE_PODS,
    LIVE_QUOTAS,
    LiveCluster,
)
from memqos.cluster.autoscaling import HorizontalPodAutoscaler
from memqos.errors import InputError, Unreachable
from memqos.host.apiserver.api_errors import FORBIDDEN, ApiError
from memqos.host.apiserver.dumping import PagedList, WholeList
from memqos.host.apiserver.resources import (
    EVERYTHING,
    LIMIT_RANGE_RESOURCE,
    NODE_RESOURCE,
    POD_RESOURCE,
    QUOTA_RESOURCE,
    ApiResource,
    Selection,
)
from memqos.host.census_reader import CensusReader
from memqos.host.dumps import DumpSource

_POD_METRICS: Final[ApiResource[Any]] = ApiResource("metrics.k8s.io", "v1beta1", "pods", dict)
_AUTOSCALERS: Final = ApiResource(
    "autoscaling", "v2", "horizontalpodautoscalers", HorizontalPodAutoscaler
)
_ABSENT_STATUSES: Final = (404, 503)
"""404 without an APIService, 503 from the aggregator for one whose Service has no endpoint
(kube-aggregator, handler_proxy.go)."""


def cluster_lists(live: LiveCluster, expect: Callable[[int], None]) -> list[DumpSource]:
    """The cluster's lists, the small ones first: a right that is missing shows early."""
    server, pods = live.server, live.pod_selection
    in_namespace = Selection(pods.namespace)
    return [
        PagedList(
            server=server,
            resource=resource,
            selection=selection,
            kind=kind,
            name=name,
            expect=expect,
            is_required=resource is POD_RESOURCE,
        )
        for resource, selection, kind, name in (
            (NODE_RESOURCE, EVERYTHING, "Node", LIVE_NODES),
            (LIMIT_RANGE_RESOURCE, in_namespace, "LimitRange", LIVE_LIMITS),
            (QUOTA_RESOURCE, in_namespace, "ResourceQuota", LIVE_QUOTAS),
            (POD_RESOURCE, pods, "Pod", LIVE_PODS),
        )
    ]


def read_autoscalers(
    live: LiveCluster,
) -> tuple[list[HorizontalPodAutoscaler], list[str | InputError]]:
    """The horizontal autoscalers; without the right to list them a note, for all else is there."""
    source = PagedList(
        server=live.server,
        resource=_AUTOSCALERS,
        selection=Selection(live.pod_selection.namespace),
        kind="HorizontalPodAutoscaler",
        name=LIVE_AUTOSCALERS,
        expect=lambda count: None,
    )
    with CensusReader(1, {}, lambda size, objects: None) as census:
        try:
            census.read([source])
        except ApiError as error:
            what = "HorizontalPodAutoscalers are not checked: "
            if error.status in _ABSENT_STATUSES:
                return [], [f"{what}the cluster has no autoscaling/v2"]
            return [], [InputError(what + error.what, hint=error.hint, snippet=error.snippet)]
        return census.cluster_objects().autoscalers, [*census.faults]


def selection_notes(live: LiveCluster) -> list[str]:
    """A note where an audit covers some pods only."""
    pods = live.pod_selection
    where = f" in namespace {pods.namespace}" if pods.namespace else ""
    labels = f" with {pods.labels}" if pods.labels else ""
    if not where and not labels:
        return []
    return [f"only pods{where}{labels} were read: nodes may run other pods"]


def read_metrics_usage(
    live: LiveCluster,
) -> tuple[dict[str, MeasuredUsage], list[InputError], list[str | InputError]]:
    """What pods use by the metrics API; the faults of its answer; notes for the report."""
    source = WholeList(live.server, _POD_METRICS, live.pod_selection, LIVE_METRICS)
    with CensusReader(1, {}, lambda size, objects: None) as census:
        try:
            census.read([source])
        except ApiError as error:
            if error.status in _ABSENT_STATUSES:
                return {}, [], ["usage of pods is unknown: the cluster has no metrics API"]
            if error.status == FORBIDDEN:
                what = f"usage of pods is unknown: the metrics API refuses: {error.what}"
                return {}, [], [InputError(what, hint=error.hint, snippet=error.snippet)]
            return {}, [InputError(error.what, hint=error.hint)], []
        except Unreachable as error:
            return {}, [InputError(error.what, hint=error.hint)], []
        return census.cluster_objects().usage, census.faults, []
