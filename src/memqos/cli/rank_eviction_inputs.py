"""What `memqos rank eviction` ranks: pods and usage, out of files, a snapshot or a cluster."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

import click

from memqos.cli.cluster_access import CLUSTER, LIVE_METRICS, LIVE_PODS, LiveCluster
from memqos.cli.manifest_reader import ManifestReader
from memqos.cli.output import complain
from memqos.cluster.eviction_order import PodMemoryUsage
from memqos.cluster.eviction_signals import SignalObservation
from memqos.draw.text.eviction import full_pod_name
from memqos.errors import InputError
from memqos.kube.kubelet.thresholds import ALLOCATABLE_MEMORY, MEMORY_AVAILABLE
from memqos.kube.pod import Pod
from memqos.kube.qos import qos_class
from memqos.kube.shape import shape_of
from memqos.release import Release
from memqos.settings.facts import NodeFacts, facts_of_snapshot
from memqos.units import name_some, pluralize

if TYPE_CHECKING:
    from memqos.cluster.usage_report import UsageReport


class EvictionInputs(NamedTuple):
    """What is known of the node."""

    pods: tuple[Pod, ...]
    usage: Mapping[str, PodMemoryUsage]
    observations: Mapping[str, SignalObservation]
    notes: tuple[str, ...]
    node: NodeFacts = NodeFacts()
    """What the settings of its kubelet follow from."""
    faults: int = 0
    """Pods that could not be read; an error was printed for each."""
    meminfo: str = ""
    """Of a snapshot: what memory.available follows from depends on the release."""
    hugepages: int = 0
    """Bytes set aside for them."""

    def observed_by(self, release: Release) -> Mapping[str, SignalObservation]:
        """The signals as a kubelet of this release observes them."""
        if not self.meminfo or MEMORY_AVAILABLE in self.observations:
            return self.observations
        from memqos.cluster.eviction_signals import node_observation

        node = node_observation(self.meminfo, self.hugepages, release)
        return {MEMORY_AVAILABLE: node, **self.observations}

    def with_available(self, available: int) -> "EvictionInputs":
        """The same with so much memory available on the node."""
        seen = self.observations.get(MEMORY_AVAILABLE)
        used = sum([each.working_set or 0 for each in self.usage.values()])
        capacity = available + used if seen is None else max(seen.capacity, available)
        observed = SignalObservation(available, capacity, capacity_known=seen is not None)
        return self._replace(observations={**self.observations, MEMORY_AVAILABLE: observed})


def read_eviction_inputs(
    pods: str | None, usage: str | None, snapshot: str | None, live: LiveCluster
) -> EvictionInputs:
    """What the options name; pods of one node alone."""
    if pods == CLUSTER or (pods is None and live.is_chosen):
        if snapshot is not None:
            raise click.UsageError("a snapshot has its own pods: remove the cluster options")
        if live.node_name is None:
            raise click.UsageError("--node-name is missing: each node evicts on its own")
        return _inputs_of_cluster(live, usage)
    if (pods is None) == (snapshot is None):
        raise click.UsageError("give --pods and --usage, or --snapshot")
    if snapshot is not None:
        given = _inputs_of_snapshot(snapshot, measured=usage is None)
    elif usage is None:
        raise click.UsageError("--pods needs --usage: the memory usage of the pods")
    else:
        assert pods is not None
        given = _inputs_of_pods(pods)
    if usage is not None:
        used = _read_usage(usage)
        given = given._replace(
            usage=used.pods,
            observations={**given.observations, **used.observations},
            notes=given.notes + _sum_notes(used),
        )
    nodes = sorted({pod.spec.node_name for pod in given.pods if pod.spec.node_name})
    if len(nodes) > 1:
        raise InputError(
            f"pods of {len(nodes)} nodes: {name_some(nodes)}, and each node evicts on its own",
            file=pods or snapshot,
            hint="take one: kubectl get pods -A --field-selector spec.nodeName=NAME -o yaml",
        )
    return given


def _inputs_of_cluster(live: LiveCluster, usage: str | None) -> EvictionInputs:
    node = live.get_node()
    info = node.status.node_info
    given = _inputs_of_pods(LIVE_PODS, live)
    used = _read_usage(LIVE_METRICS if usage is None else usage, live)
    usages = used.pods
    if usage is None:
        # The metrics API answers for all nodes at once.
        known = {full_pod_name(pod) for pod in given.pods}
        usages = {name: each for name, each in usages.items() if name in known}
    return given._replace(
        usage=usages,
        observations=used.observations,
        notes=given.notes + _sum_notes(used),
        node=NodeFacts(
            version=None if info is None else info.kubelet_version,
            version_source="the node's kubelet",
        ),
    )


def _inputs_of_pods(file: str, live: LiveCluster | None = None) -> EvictionInputs:
    """The pods alone; those that cannot be read have no place among the others."""
    reader = ManifestReader(live)
    found: list[Pod] = []
    for template, pod in reader.pods([file]):
        try:
            shape_of(pod, Release.of())
            found.append(pod)
        except InputError as error:
            reader.refuse(template.with_position(error))
    if not found:
        reader.require_no_faults(file)
    return EvictionInputs(tuple(found), {}, {}, _unread_notes(reader.faults), faults=reader.faults)


def _unread_notes(faults: int) -> tuple[str, ...]:
    return (f"not ranked: {pluralize(faults, 'pod')} that cannot be read",) if faults else ()


def _read_usage(file: str, live: LiveCluster | None = None) -> "UsageReport":
    from memqos.cluster.usage_report import UsageReport, read_usage_report
    from memqos.host.manifest_files import load_file
    from memqos.manifests.documents import read_documents

    if live is not None and live.is_object_path(file):
        ((name, data),) = live.load(file)
        if isinstance(data, InputError):
            raise data
    else:
        name, data = load_file(file)
    pods: dict[str, PodMemoryUsage] = {}
    observations: dict[str, SignalObservation] = {}
    summed = False
    for document in read_documents(data, name):
        if isinstance(document, InputError):
            raise document
        report = read_usage_report(document)
        pods |= report.pods
        observations |= report.observations
        summed |= report.summed
    return UsageReport(pods, observations, summed=summed)


def _sum_notes(used: "UsageReport") -> tuple[str, ...]:
    if not used.summed:
        return ()
    return ("usage is summed over containers; the kubelet counts the pod's sandbox too",)


def _inputs_of_snapshot(file: str, *, measured: bool) -> EvictionInputs:
    from memqos.cluster.eviction_signals import pods_observation, working_set
    from memqos.host.snapshots import load_snapshot, snapshot_cgroup_names, snapshot_settings
    from memqos.plan.tree import cgroup_uid

    snapshot = load_snapshot(file)
    # The classes of pods, and so the names of their cgroups, follow from the node as it runs.
    release = snapshot_settings(snapshot, file).settings.release
    names = snapshot_cgroup_names(snapshot, file)
    usage = {}
    pods: list[Pod] = []
    for pod in snapshot.running:
        try:
            uid, shape = cgroup_uid(pod), shape_of(pod, release)
        except InputError as error:
            what = f"{full_pod_name(pod)}: {error.what}"
            complain(InputError(what, file=file, field=error.field, hint=error.hint))
            continue
        pods.append(pod)
        if uid is not None and measured:
            used = working_set(snapshot.cgroups.get(names.pod(uid, qos_class(shape, release)), {}))
            if used is not None:
                usage[full_pod_name(pod)] = PodMemoryUsage(used)
    of_pods = pods_observation(snapshot.cgroups.get(names.kubepods, {}))
    notes: tuple[str, ...] = ()
    if measured and not usage:
        notes = ("the snapshot has no memory.current of pods: give their usage with --usage",)
    faults = len(snapshot.running) - len(pods)
    return EvictionInputs(
        pods=tuple(pods),
        usage=usage,
        observations={} if of_pods is None else {ALLOCATABLE_MEMORY: of_pods},
        notes=notes + _unread_notes(faults),
        node=facts_of_snapshot(snapshot, file),
        faults=faults,
        meminfo=snapshot.meminfo or "",
        hugepages=sum([pages.size * pages.total for pages in snapshot.machine.huge_pages]),
    )
