"""What follows from a request and a limit: class, protection, throttling, order of killing."""

import re
from collections.abc import Mapping
from typing import Final

import msgspec

from memqos.kube.pod import (
    Container,
    ObjectMeta,
    Pod,
    PodSpec,
    QosClass,
    ResourceList,
    ResourceRequirements,
)
from memqos.kube.resources import MEMORY
from memqos.kube.shape import containers_of
from memqos.plan.semantics import Planner
from memqos.plan.setting import FileValue
from memqos.size.history import SeriesName
from memqos.size.replay import ReplayLevels


class ContainerLevels(msgspec.Struct, frozen=True, kw_only=True):
    """The planned values of one container; a text where the node decides."""

    qos: QosClass
    min: FileValue
    low: FileValue
    high: FileValue
    max: FileValue
    oom_score_adj: FileValue

    @property
    def replayed(self) -> ReplayLevels:
        """The levels as a replay of the past takes them."""
        numbers = [each if isinstance(each, int) else 0 for each in (self.min, self.low)]
        return ReplayLevels(
            protected=max(numbers),
            high=self.high if isinstance(self.high, int) else None,
            max=self.max if isinstance(self.max, int) else None,
        )


class MemorySize(msgspec.Struct, frozen=True):
    """A request and a limit in bytes; None where there is none."""

    request: int | None = None
    limit: int | None = None

    @property
    def resources(self) -> ResourceRequirements:
        requests: ResourceList = {} if self.request is None else {MEMORY: str(self.request)}
        limits: ResourceList = {} if self.limit is None else {MEMORY: str(self.limit)}
        return ResourceRequirements(requests=requests or None, limits=limits or None)


def resized_pod(pod: Pod, sizes: Mapping[str, MemorySize]) -> Pod:
    """The pod as written, its containers' memory replaced where a size is given."""

    def resized(container: Container) -> Container:
        size = sizes.get(container.name)
        if size is None:
            return container
        old = container.resources or ResourceRequirements()
        new = size.resources
        resources = ResourceRequirements(
            requests={**(old.requests or {}), **(new.requests or {})} or None,
            limits={**(old.limits or {}), **(new.limits or {})} or None,
        )
        return msgspec.structs.replace(container, resources=resources)

    spec = pod.spec
    return msgspec.structs.replace(
        pod,
        status=None,
        spec=msgspec.structs.replace(
            spec,
            containers=tuple(map(resized, spec.containers or ())),
            init_containers=tuple(map(resized, spec.init_containers or ())) or None,
        ),
    )


def container_levels(pod: Pod, planner: Planner) -> dict[str, ContainerLevels]:
    """Container → what the plan makes of it; empty where the pod is invalid."""
    plan = planner.semantics(pod).plan
    if plan is None:
        return {}
    found = {}
    for container, planned in zip(containers_of(pod), plan.containers, strict=True):
        values = {file: setting.value for file, setting in planned.settings.items()}
        found[container.name] = ContainerLevels(
            qos=plan.qos,
            min=values.get("memory.min"),
            low=values.get("memory.low"),
            high=values.get("memory.high"),
            max=values.get("memory.max"),
            oom_score_adj=values.get("oom_score_adj"),
        )
    return found


def levels_of_sizes(
    name: SeriesName, sizes: Mapping[str, MemorySize], planner: Planner
) -> dict[str, ContainerLevels]:
    """The same for containers of which nothing but their memory is known."""
    pod = Pod(
        metadata=ObjectMeta(name=name.pod or None, namespace=name.namespace or None),
        spec=PodSpec(
            containers=tuple(
                # One without an image is refused, and a history may name it as no container can be.
                Container(name=f"c{index}", image="any", resources=size.resources)
                for index, size in enumerate(sizes.values())
            )
        ),
    )
    return dict(zip(sizes, container_levels(pod, planner).values(), strict=False))


# Names that controllers give to pods: a ReplicaSet's hash has letters that no word has, after it
# and after a DaemonSet's or Job's name come five of them (apimachinery util/rand), and a
# StatefulSet counts.
_SUFFIX: Final = "[bcdfghjklmnpqrstvwxz2456789]"
_REPLICA: Final = re.compile(rf"-{_SUFFIX}{{7,10}}-{_SUFFIX}{{5}}$")
_OTHER: Final = re.compile(rf"-(?:{_SUFFIX}{{5}}|\d+)$")
# getJobName(), pkg/controller/cronjob/cronjob_controllerv2.go: the Job of a run is named by the
# minute since 1970, here of 2021 to 2046. A date, such as 20260302, is another number.
_CRON_RUN: Final = re.compile(rf"-(?:2[7-9]|3\d)\d{{6}}-{_SUFFIX}{{5}}$")


def workload_of(pod: str) -> str:
    """The name of the workload that a pod belongs to, as its name shows it."""
    for names in (_CRON_RUN, _REPLICA, _OTHER):
        shorter = names.sub("", pod)
        if shorter != pod:
            return shorter
    return pod


def owner_names(pod: str) -> tuple[str, str]:
    """The names of its workload, and of the ReplicaSet or Job that it may have within it."""
    return workload_of(pod), _OTHER.sub("", pod)
