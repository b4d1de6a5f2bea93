"""Recommendations for pods and workloads: replicas together, and what follows for a node."""

from collections.abc import Iterable, Mapping, Sequence

import msgspec

from memqos.kube.pod import Pod
from memqos.kube.resources import MEMORY, whole
from memqos.kube.shape import shape_of
from memqos.plan.semantics import Planner
from memqos.size.consequences import (
    ContainerLevels,
    MemorySize,
    container_levels,
    levels_of_sizes,
    owner_names,
    resized_pod,
    workload_of,
)
from memqos.size.history import ContainerHistory, HistoryTable, SeriesName
from memqos.size.recommendation import (
    Recommendation,
    SizeOptions,
    recommend,
    recommend_for_pod,
)
from memqos.size.risk import share_of_days_above, share_of_days_evicted


class WorkloadManifest(msgspec.Struct, frozen=True):
    """A pod as written, and the workload that it is the template of."""

    kind: str
    """In lower case, such as `deployment`."""
    name: str
    namespace: str | None
    pod: Pod

    def covers(self, name: SeriesName) -> bool:
        """Whether a series is of one of its pods."""
        if self.namespace is not None and name.namespace != self.namespace:
            return False
        return name.pod == self.name or (self.kind != "pod" and self.name in owner_names(name.pod))


class SizedContainer(msgspec.Struct, frozen=True):
    """A series with its recommendation, and what follows from it."""

    history: ContainerHistory
    recommendation: Recommendation
    levels: ContainerLevels | None = None

    @property
    def throttled_days(self) -> float | None:
        """The share of days of its history above the memory.high that follows; None without one."""
        if self.levels is None or self.levels.replayed.high is None:
            return None
        return share_of_days_above(self.history.need.slots, self.levels.replayed.high)

    @property
    def evicted_days(self) -> float | None:
        """The share of days of its history above the request while its node was under memory
        pressure; None where no source reports that."""
        known = self.history.quantities
        pressure, usage = known.get("pressure"), known.get("usage")
        request = self.recommendation.request
        if pressure is None or usage is None or not pressure.count or request is None:
            return None
        return share_of_days_evicted(usage.slots, pressure.slots, request)


class SizedWorkload(msgspec.Struct, frozen=True, kw_only=True):
    """The containers of one name in all pods of a workload."""

    namespace: str
    workload: str
    container: str
    replicas: tuple[SizedContainer, ...]
    manifest: WorkloadManifest | None = None
    written: MemorySize = MemorySize()
    """What the manifest has now."""

    @property
    def size(self) -> MemorySize | None:
        """What every replica gets: the largest of what they need; None where nothing is known."""
        found = [each.recommendation for each in self.replicas]
        requests = [each.request for each in found if each.request is not None]
        limits = [each.limit for each in found if each.limit is not None]
        return MemorySize(max(requests), max(limits)) if requests and limits else None

    @property
    def deciding(self) -> SizedContainer:
        """The replica that needs most."""
        return max(self.replicas, key=lambda each: each.recommendation.limit or 0)


class PodLevelSize(msgspec.Struct, frozen=True):
    """Resources of a pod as a whole, whose containers peak at different times."""

    namespace: str
    pod: str
    size: MemorySize
    of_containers: int
    """The sum of what the containers would get on their own."""


class SizeReport(msgspec.Struct, frozen=True):
    """All that was found out."""

    containers: tuple[SizedContainer, ...]
    workloads: tuple[SizedWorkload, ...]
    pods: tuple[PodLevelSize, ...]


def size_histories(
    table: HistoryTable,
    options: SizeOptions,
    planner: Planner,
    manifests: Sequence[WorkloadManifest] = (),
) -> SizeReport:
    """Size every container of the table; with manifests, those of their pods alone."""
    by_pod: dict[tuple[str, str], list[tuple[ContainerHistory, Recommendation]]] = {}
    by_manifest: dict[tuple[str, str], WorkloadManifest] = {}
    for history in table.containers.values():
        manifest = next((each for each in manifests if each.covers(history.name)), None)
        if manifests and manifest is None:
            continue
        # A series that names no pod stands for one.
        key = history.name.namespace, history.name.pod or history.name.text
        by_pod.setdefault(key, []).append((history, recommend(history, options)))
        if manifest is not None:
            by_manifest[key] = manifest
    containers = [
        sized
        for key, members in by_pod.items()
        for sized in _with_levels(members, by_manifest.get(key), planner)
    ]
    return SizeReport(
        tuple(containers),
        tuple(_workloads(containers, by_manifest, planner)),
        tuple(_pod_levels(by_pod, options)),
    )


def _with_levels(
    members: Sequence[tuple[ContainerHistory, Recommendation]],
    manifest: WorkloadManifest | None,
    planner: Planner,
) -> Iterable[SizedContainer]:
    sizes = {
        history.name.container or "container": MemorySize(found.request, found.limit)
        for history, found in members
        if found.request is not None
    }
    levels: Mapping[str, ContainerLevels] = {}
    if sizes:
        name = members[0][0].name
        levels = (
            levels_of_sizes(name, sizes, planner)
            if manifest is None
            else container_levels(resized_pod(manifest.pod, sizes), planner)
        )
    for history, found in members:
        yield SizedContainer(history, found, levels.get(history.name.container or "container"))


def _workloads(
    containers: Sequence[SizedContainer],
    manifests: Mapping[tuple[str, str], WorkloadManifest],
    planner: Planner,
) -> Iterable[SizedWorkload]:
    grouped: dict[tuple[str, str, str], list[SizedContainer]] = {}
    for each in containers:
        name = each.history.name
        workload = workload_of(name.pod) if name.pod else name.text
        grouped.setdefault((name.namespace, workload, name.container), []).append(each)
    for (namespace, workload, container), replicas in grouped.items():
        name = replicas[0].history.name
        manifest = manifests.get((name.namespace, name.pod or name.text))
        yield SizedWorkload(
            namespace=namespace,
            workload=workload,
            container=container,
            replicas=tuple(replicas),
            manifest=manifest,
            written=MemorySize()
            if manifest is None
            else _written_size(manifest.pod, container, planner),
        )


def _written_size(pod: Pod, container: str, planner: Planner) -> MemorySize:
    shape = shape_of(pod, planner.settings.release)
    names = [each.name for each in pod.spec.containers or ()]
    if container not in names:
        return MemorySize()
    part = shape.containers[names.index(container)]
    amounts = (part.requests.get(MEMORY), part.limits.get(MEMORY))
    return MemorySize(*[None if each is None else whole(each) for each in amounts])


def _pod_levels(
    by_pod: Mapping[tuple[str, str], Sequence[tuple[ContainerHistory, Recommendation]]],
    options: SizeOptions,
) -> Iterable[PodLevelSize]:
    for (namespace, pod), members in by_pod.items():
        found = recommend_for_pod([history for history, _ in members], options)
        if found is not None:
            total = sum(each.limit or 0 for _, each in members)
            yield PodLevelSize(namespace, pod, MemorySize(*found), total)
