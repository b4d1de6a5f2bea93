"""The pod and the container that a cgroup belongs to, by its path."""

from collections.abc import Iterable, Mapping, Sequence

import msgspec

from memqos.kube.pod import Pod, QosClass
from memqos.plan.names import CgroupNames, CgroupPlace
from memqos.plan.tree import cgroup_uid, container_ids, pod_key

SANDBOX_NAME = "(sandbox)"
"""The pause container: the pod's status names every other one by its ID."""
_SHORT_ID = 12


class CgroupOwner(msgspec.Struct, frozen=True):
    """A pod, by namespace/name or else by its UID, and the container if there is one."""

    pod: str
    container: str | None
    qos: QosClass | None

    def __str__(self) -> str:
        return self.pod if self.container is None else f"{self.pod} {self.container}"


class _PodNames(msgspec.Struct, frozen=True):
    key: str
    containers: Mapping[str, str]
    """Bare container ID → name."""


class Owners:
    """Finds owners on a node laid out in one of these ways, with the names of these pods."""

    def __init__(self, layouts: Sequence[CgroupNames], pods: Iterable[Pod] = ()) -> None:
        self._layouts = layouts
        self._pods = {
            uid: _PodNames(
                pod_key(pod),
                {id.partition("://")[2]: name for name, id in container_ids(pod).items()},
            )
            for pod in pods
            if (uid := cgroup_uid(pod)) is not None
        }

    def of(self, path: str | None) -> CgroupOwner | None:
        """The owner of a cgroup; None where it is no part of a pod."""
        for names in self._layouts if path is not None else ():
            assert path is not None
            place = _recognise(names, path)
            if place is not None and place.pod_uid is not None:
                return self._owner(place, place.pod_uid)
        return None

    def _owner(self, place: CgroupPlace, uid: str) -> CgroupOwner:
        pod = self._pods.get(uid)
        if pod is None:
            container = place.container_id and place.container_id[:_SHORT_ID]
            return CgroupOwner(f"pod {uid}", container, place.qos_class)
        if place.container_id is None:
            return CgroupOwner(pod.key, None, place.qos_class)
        name = pod.containers.get(place.container_id, SANDBOX_NAME)
        return CgroupOwner(pod.key, name, place.qos_class)


def _recognise(names: CgroupNames, path: str) -> CgroupPlace | None:
    """What a cgroup is, or the nearest above it: containers may make cgroups of their own."""
    while path:
        place = names.recognise(path)
        if place is not None:
            return place
        path = path.rpartition("/")[0]
    return None
