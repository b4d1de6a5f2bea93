"""What `memqos audit` asks a live cluster, and what becomes of it where the answer is no."""

from collections.abc import Callable
from typing import Any, Final

from memqos.cli.audit_reading import Survey
from memqos.cli.clusters import LIVE_LIMITS, LIVE_METRICS, LIVE_NODES, LIVE_PODS, LIVE_QUOTAS, Live
from memqos.errors import InputError, Unreachable
from memqos.findings.others import Used
from memqos.host.apiserver.dumping import Paged, Whole
from memqos.host.apiserver.refusals import FORBIDDEN, Refused
from memqos.host.apiserver.resources import (
    EVERYTHING,
    LIMIT_RANGES,
    NODES,
    PODS,
    QUOTAS,
    Resource,
    Selection,
)
from memqos.host.dumps import Source

_POD_METRICS: Final[Resource[Any]] = Resource("metrics.k8s.io", "v1beta1", "pods", dict)
_ABSENT: Final = (404, 503)
"""What is answered for an API that is not there, or nobody stands behind."""


def live_sources(live: Live, expect: Callable[[int], None]) -> list[Source]:
    """The cluster's lists, the small ones first: what may not be read is soon known."""
    server, pods = live.server, live.everywhere
    beside = Selection(pods.namespace)
    return [
        Paged(server, NODES, EVERYTHING, "Node", LIVE_NODES, expect, is_vital=False),
        Paged(server, LIMIT_RANGES, beside, "LimitRange", LIVE_LIMITS, expect, is_vital=False),
        Paged(server, QUOTAS, beside, "ResourceQuota", LIVE_QUOTAS, expect, is_vital=False),
        Paged(server, PODS, pods, "Pod", LIVE_PODS, expect),
    ]


def about_selection(live: Live) -> list[str]:
    """What to know of an audit of some pods only."""
    pods = live.everywhere
    where = f" in namespace {pods.namespace}" if pods.namespace else ""
    labels = f" with {pods.labels}" if pods.labels else ""
    if not where and not labels:
        return []
    return [f"only pods{where}{labels} were read: on every node there may be others"]


def live_usage(live: Live) -> tuple[dict[str, Used], list[InputError], list[str | InputError]]:
    """What pods use by the metrics API; what is wrong with its answer; what to know about it."""
    source = Whole(live.server, _POD_METRICS, live.everywhere, LIVE_METRICS)
    with Survey(1, {}, lambda size, objects: None) as survey:
        try:
            survey.read([source])
        except Refused as error:
            if error.status in _ABSENT:
                return {}, [], ["what pods use is not known: the cluster has no metrics API"]
            if error.status == FORBIDDEN:
                what = f"what pods use is not known, the metrics API says no: {error.what}"
                return {}, [], [InputError(what, hint=error.hint, snippet=error.snippet)]
            return {}, [InputError(error.what, hint=error.hint)], []
        except Unreachable as error:
            return {}, [InputError(error.what, hint=error.hint)], []
        return survey.others().usage, survey.faults, []
