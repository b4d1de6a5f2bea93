"""What a live cluster tells of a pod, for `memqos why`."""

from typing import TYPE_CHECKING

from memqos.errors import InputError, MemqosError

if TYPE_CHECKING:
    from memqos.agent.story.live import ClusterReport
    from memqos.cli.clusters import LiveCluster


def read_pod_history(live: "LiveCluster", name: str) -> "ClusterReport":
    """The pod and the events about it; a right that is missing for one of them is a note."""
    from memqos.agent.story.live import ClusterReport
    from memqos.host.apiserver.listing import get_object, list_objects
    from memqos.host.apiserver.refusals import ApiError
    from memqos.host.apiserver.resources import ApiResource, Selection
    from memqos.kube.pod_history import KubeEvent, PastPod

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
            hint="is -n the pod's namespace? Events are kept for an hour",
        )
    return ClusterReport(server.where, pod, events, tuple(faults))
