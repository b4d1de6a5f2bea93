"""What `memqos why` reads in a cluster: statuses, events, pods of workloads, agents' records."""

from typing import TYPE_CHECKING, Final

import msgspec

from memqos.cli.cluster_access import LiveCluster
from memqos.cli.output import complain
from memqos.errors import InputError, MemqosError, Unreachable
from memqos.kube.pod_history import KubeEvent, PastPod
from memqos.kube.selector import LabelSelector
from memqos.record.cluster_story import ClusterReport
from memqos.record.recent_deaths import Death, list_deaths, with_recorded_usage

if TYPE_CHECKING:
    from memqos.host.agent_endpoint import AgentEndpoints
    from memqos.record.transfer import SentRecords

MOST_DEATHS: Final = 20
_MOST_FETCHED: Final = 10
"""Pods whose records are fetched for a list of deaths."""


class _WorkloadSpec(msgspec.Struct, frozen=True):
    selector: LabelSelector | None = None


class _Workload(msgspec.Struct, frozen=True):
    spec: _WorkloadSpec = _WorkloadSpec()


def read_pod_history(live: LiveCluster, name: str) -> ClusterReport:
    """The pod and the events about it; a right that is missing for one of them is a note."""
    from memqos.host.apiserver.api_errors import ApiError
    from memqos.host.apiserver.pager import get_object, list_objects
    from memqos.host.apiserver.resources import ApiResource, Selection

    server, namespace = live.server, live.namespace
    faults: list[MemqosError] = []
    pod, events = None, list[KubeEvent]()
    try:
        pod = get_object(server, ApiResource("", "v1", "pods", PastPod), name, namespace)
    except ApiError as error:
        faults.append(error)
    try:
        about = Selection(namespace, fields=f"involvedObject.name={name},involvedObject.kind=Pod")
        events = list_objects(server, ApiResource("", "v1", "events", KubeEvent), about).items
    except ApiError as error:
        faults.append(error)
    if len(faults) == 2:
        raise faults[0]
    if pod is None and not events and not faults:
        raise InputError(
            f"there is no pod {name} in namespace {namespace}, and no event about one",
            file=server.where,
            hint="check that -n is the pod's namespace; Events are kept for an hour",
        )
    return ClusterReport(server.where, pod, events, tuple(faults))


def fetch_pod_records(
    agents: "AgentEndpoints", report: ClusterReport, namespace: str, name: str
) -> "SentRecords | MemqosError | None":
    """What the agent of the pod's node has recorded; an error says why there is nothing.

    None where the pod has no node.
    """
    from memqos.host.agent_endpoint import AgentRefusal

    if report.node is None:
        return None
    try:
        return agents.get_pod_records(report.node, namespace, name)
    except AgentRefusal as error:
        return Unreachable(f"there are no records: {error.what}", hint=error.hint)
    except MemqosError as error:
        return Unreachable(
            f"there are no records: {error.what}", hint=error.hint, snippet=error.snippet
        )


def list_workload_pods(live: LiveCluster, path: str) -> list[PastPod]:
    """The pods that a workload's selector selects."""
    data = live.get(path)
    try:
        labels = str(msgspec.json.decode(data, type=_Workload).spec.selector or "")
    except msgspec.DecodeError as error:
        raise InputError(f"its selector cannot be read ({error})", file=path) from None
    if not labels:
        raise InputError(
            "it selects no pods by itself", file=path, hint="name one of its pods or jobs"
        )
    pods = _list_pods(live, labels)
    if not pods:
        raise InputError("it has no pods", file=path, hint=f"its selector is {labels}")
    return pods


def read_recent_deaths(live: LiveCluster, agents: "AgentEndpoints") -> list[Death]:
    """Deaths in the namespace; those by the OOM killer with what was in use, where recorded."""
    deaths = list_deaths(_list_pods(live))[:MOST_DEATHS]
    fetched: dict[str, SentRecords] = {}
    is_reachable = True
    found = []
    for death in deaths:
        is_new = death.is_oom and death.pod not in fetched
        if is_reachable and is_new and len(fetched) < _MOST_FETCHED:
            try:
                fetched[death.pod] = agents.get_pod_records(death.node, live.namespace, death.pod)
            except MemqosError as error:
                complain(error, "note: there are no records: ")
                is_reachable = False
        sent = fetched.get(death.pod)
        found.append(death if sent is None else with_recorded_usage(death, sent.recordings))
    return found


def _list_pods(live: LiveCluster, labels: str | None = None) -> list[PastPod]:
    from memqos.host.apiserver.pager import list_objects
    from memqos.host.apiserver.resources import ApiResource, Selection

    resource = ApiResource("", "v1", "pods", PastPod)
    return list(list_objects(live.server, resource, Selection(live.namespace, labels=labels)).items)
