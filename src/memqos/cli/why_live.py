"""What a live cluster tells of a pod, for `memqos why`."""

from typing import TYPE_CHECKING

from memqos.errors import InputError, MemqosError

if TYPE_CHECKING:
    from memqos.agent.story.live import Told
    from memqos.cli.clusters import Live


def told_of(live: "Live", name: str) -> "Told":
    """The pod and the events about it; a right that is missing for one of them is a note."""
    from memqos.agent.story.live import Told
    from memqos.host.apiserver.listing import found, listed
    from memqos.host.apiserver.refusals import Refused
    from memqos.host.apiserver.resources import Resource, Selection
    from memqos.kube.pod_history import Event, PastPod

    server, namespace = live.server, live.namespace
    faults: list[MemqosError] = []
    pod, events = None, list[Event]()
    try:
        pod = found(server, Resource("", "v1", "pods", PastPod), name, namespace)
    except Refused as error:
        faults.append(error)
    try:
        about = Selection(namespace, fields=f"involvedObject.name={name},involvedObject.kind=Pod")
        events = listed(server, Resource("", "v1", "events", Event), about).items
    except Refused as error:
        faults.append(error)
    if len(faults) == 2:
        raise faults[0]
    if pod is None and not events and not faults:
        raise InputError(
            f"there is no pod {name} in namespace {namespace}, and no event about one",
            file=server.where,
            hint="is -n the pod's namespace? Events are kept for an hour",
        )
    return Told(server.where, pod, events, tuple(faults))
