"""Every metric an agent may export: name, kind, labels, and what it means."""

from typing import Final, NamedTuple

from memqos.serve.exposition import MetricKind


class Metric(NamedTuple):
    """What is promised of a name."""

    name: str
    kind: MetricKind
    labels: tuple[str, ...]
    help: str


_OF_CGROUP: Final = ("namespace", "pod", "container")
"""container is empty for the pod's own cgroup."""
_OF_FILE: Final = (*_OF_CGROUP, "file")

AGENT_INFO: Final = Metric(
    "memqos_agent_info",
    "gauge",
    ("version", "release", "mode", "policy"),
    "Always 1: the agent's version, the release and policy it plans for, and its mode.",
)
CONVERGED: Final = Metric(
    "memqos_converged", "gauge", (), "1 where nothing was left to write at the last look."
)
PENDING_CHANGES: Final = Metric(
    "memqos_pending_changes", "gauge", ("file",), "Values that are not as planned."
)
POD_COUNT: Final = Metric(
    "memqos_pods", "gauge", ("mode",), "Pods of the node by how they are treated."
)
UNRESOLVED: Final = Metric(
    "memqos_unresolved", "gauge", (), "Pods and containers that no cgroup could be found for."
)
DESIRED: Final = Metric(
    "memqos_desired_bytes", "gauge", _OF_FILE, "What a cgroup file should hold; max is +Inf."
)
ACTUAL: Final = Metric(
    "memqos_actual_bytes", "gauge", _OF_FILE, "What a cgroup file holds; max is +Inf."
)
LEVEL_DESIRED: Final = Metric(
    "memqos_level_desired_bytes",
    "gauge",
    ("level", "file"),
    "What a cgroup above the pods (node, burstable, besteffort) should hold; max is +Inf.",
)
LEVEL_ACTUAL: Final = Metric(
    "memqos_level_actual_bytes",
    "gauge",
    ("level", "file"),
    "What a cgroup above the pods (node, burstable, besteffort) holds; max is +Inf.",
)
MEMORY_CURRENT: Final = Metric("memqos_memory_current_bytes", "gauge", _OF_CGROUP, "Memory in use.")
EVENT_COUNTS: Final = Metric(
    "memqos_memory_events_total",
    "counter",
    (*_OF_CGROUP, "event"),
    "The kernel's counts of memory.events.",
)
PRESSURE: Final = Metric(
    "memqos_memory_pressure_seconds_total",
    "counter",
    (*_OF_CGROUP, "kind"),
    "Time in which some or all of the tasks waited for memory.",
)
NODE_PRESSURE: Final = Metric(
    "memqos_node_memory_pressure_seconds_total",
    "counter",
    ("kind",),
    "Time in which some or all of the node's tasks waited for memory.",
)
RESERVED: Final = Metric(
    "memqos_reserved_bytes", "gauge", (), "The sum of memory.min over the node's pods."
)
RESERVABLE_BYTES: Final = Metric(
    "memqos_reservable_bytes", "gauge", (), "What that sum may come to at most."
)
UNRESERVED: Final = Metric(
    "memqos_left_out_bytes",
    "gauge",
    ("namespace", "pod"),
    "Requests not reserved because the sum would have come to too much.",
)
RAMPING: Final = Metric(
    "memqos_ramping", "gauge", (), "Values of memory.high on their way down, step by step."
)
BACKING_OFF: Final = Metric(
    "memqos_backing_off", "gauge", (), "Cgroups left for a while because writing to them failed."
)
DRIFT: Final = Metric(
    "memqos_drift_total",
    "counter",
    ("file", "cause"),
    "Values found changed by somebody else, by what the evidence points to.",
)
CONTESTED: Final = Metric(
    "memqos_left_alone",
    "gauge",
    _OF_FILE,
    "1 for a value that somebody else changed too often: it is no longer put back.",
)
WRITE_COUNT: Final = Metric(
    "memqos_writes_total", "counter", ("file", "end"), "Values written, and how that ended."
)
RESTORE_COUNT: Final = Metric(
    "memqos_given_back_total",
    "counter",
    ("file", "end"),
    "Prior values put back where memqos no longer writes, and how that ended: written, conflict "
    "where others have changed them since and theirs stay, or what failed.",
)
WRITE_SECONDS: Final = Metric("memqos_write_seconds", "histogram", (), "How long a write took.")
RECONCILE_SECONDS: Final = Metric(
    "memqos_reconcile_seconds",
    "histogram",
    ("trigger",),
    "How long it took to look, plan and write, by what set it off: an event or a resync.",
)
ERRORS: Final = Metric(
    "memqos_errors_total",
    "counter",
    ("kind",),
    "What went wrong: source, read, write, journal, configuration, numa or other.",
)
ANNOTATIONS_REFUSED: Final = Metric(
    "memqos_annotations_refused",
    "gauge",
    ("namespace", "pod"),
    "Annotations of a pod that are ignored because they are wrong or ask for too much.",
)
NUMA_ASSIGNED: Final = Metric(
    "memqos_numa_assigned",
    "gauge",
    (*_OF_CGROUP, "node"),
    "1 for each NUMA node that a container is assigned.",
)
NUMA_UNBOUND: Final = Metric(
    "memqos_numa_left_alone",
    "gauge",
    ("namespace", "pod", "reason"),
    "1 for a pod whose memory is not bound to NUMA nodes, by the reason.",
)
NUMA_FREE: Final = Metric(
    "memqos_numa_free_bytes",
    "gauge",
    ("node", "resource"),
    "What is not assigned of a NUMA node's memory and huge pages.",
)
NUMA_FAULTS: Final = Metric(
    "memqos_numa_faults",
    "gauge",
    (),
    "What keeps NUMA nodes from being assigned, or from being assigned as the kubelet says now.",
)
GUARD_STEP: Final = Metric(
    "memqos_guard_step",
    "gauge",
    _OF_CGROUP,
    "How far the guard has widened memory.high of a container that could not progress, in steps.",
)
GUARD_STEPS: Final = Metric(
    "memqos_guard_steps_total", "counter", ("kind",), "Steps of the guard: widen or narrow."
)
GUARD_EXCLUDED: Final = Metric(
    "memqos_guard_excluded",
    "gauge",
    (),
    "Containers that are not throttled, being mostly anonymous memory without swap.",
)
KILLS: Final = Metric(
    "memqos_oom_kills_total", "counter", (), "Out-of-memory kills that the kernel has reported."
)
RECORDING: Final = Metric(
    "memqos_recording",
    "gauge",
    (),
    "1 where records are kept, 0 where that fails, as on a full disk.",
)
RECORDS_LOST: Final = Metric(
    "memqos_records_lost_total", "counter", (), "Records that could not be kept."
)
EVENTS_SENT: Final = Metric(
    "memqos_events_sent_total", "counter", (), "Events on pods that the API server has taken."
)
EVENTS_DROPPED: Final = Metric(
    "memqos_events_dropped_total",
    "counter",
    (),
    "Events on pods that were too many, or could not be sent.",
)
NRI_CONNECTED: Final = Metric(
    "memqos_nri_connected",
    "gauge",
    (),
    "1 where the agent is connected to the runtime as an NRI plugin; only with nri: on.",
)
NRI_ANSWERS: Final = Metric(
    "memqos_nri_containers_total",
    "counter",
    ("answer",),
    "Containers created or resized over NRI, by what they were given: set, unchanged, unknown, "
    "observed, withheld or failed.",
)
NRI_SLOWEST: Final = Metric(
    "memqos_nri_slowest_answer_seconds",
    "gauge",
    (),
    "The longest that the runtime has waited for an answer since the agent's start.",
)
LAST_RESYNC: Final = Metric(
    "memqos_last_resync_timestamp_seconds",
    "gauge",
    (),
    "When the whole node was last looked at with success.",
)
SETTINGS_KNOWN: Final = Metric(
    "memqos_settings_known",
    "gauge",
    (),
    "1 where the running kubelet's release and configuration are known, or stated without "
    "contradiction; 0 where they are a guess, so that even an enforcing agent writes nothing.",
)
HIGH_WITHHELD: Final = Metric(
    "memqos_memory_high_withheld",
    "gauge",
    (),
    "1 where memory.high is neither set nor reset, since the kernel is older than 5.9 and "
    "allowOldKernel is off; 0 elsewhere.",
)
RESYNC_SUCCESSFUL: Final = Metric(
    "memqos_last_resync_successful",
    "gauge",
    (),
    "1 unless a pass failed and no resync of the whole node has succeeded since.",
)
RELOAD_SUCCESSFUL: Final = Metric(
    "memqos_configuration_last_reload_successful",
    "gauge",
    (),
    "1 where the configuration could be read the last time, 0 where an older one is in force.",
)
RELOAD_TIME: Final = Metric(
    "memqos_configuration_last_reload_success_timestamp_seconds",
    "gauge",
    (),
    "When the configuration in force was read.",
)
CPU_SECONDS: Final = Metric(
    "memqos_process_cpu_seconds_total", "counter", (), "Processor time of the agent itself."
)
RESIDENT: Final = Metric(
    "memqos_process_resident_memory_bytes", "gauge", (), "Memory of the agent itself."
)

KEP_MIN: Final = Metric(
    "kubelet_memory_qos_memory_min_bytes", "gauge", _OF_CGROUP, "memory.min of a container."
)
KEP_HIGH: Final = Metric(
    "kubelet_memory_qos_memory_high_bytes", "gauge", _OF_CGROUP, "memory.high of a container."
)
KEP_THROTTLED: Final = Metric(
    "kubelet_memory_qos_throttle_events_total",
    "counter",
    _OF_CGROUP,
    "How often a container was throttled at memory.high.",
)
KEP_NODE_MIN: Final = Metric(
    "kubelet_memory_qos_node_memory_min_bytes",
    "gauge",
    (),
    "What is requested and reserved as memory.min: by Guaranteed pods under TieredReservation, by "
    "all pods under HardReservation and before 1.36.",
)
KEP_NODE_LOW: Final = Metric(
    "kubelet_memory_qos_node_memory_low_bytes",
    "gauge",
    (),
    "What Burstable pods request, if that is reserved as memory.low.",
)

KEP_METRICS: Final = (KEP_MIN, KEP_HIGH, KEP_THROTTLED, KEP_NODE_MIN, KEP_NODE_LOW)
"""Exported by option alone, since a kubelet may export them too."""

CADVISOR_HIGH: Final = Metric(
    "container_memory_events_high_total",
    "counter",
    _OF_CGROUP,
    "How often a container was throttled at memory.high.",
)
CADVISOR_MAX: Final = Metric(
    "container_memory_events_max_total",
    "counter",
    _OF_CGROUP,
    "How often a container was about to exceed memory.max.",
)

CADVISOR_METRICS: Final = (CADVISOR_HIGH, CADVISOR_MAX)
"""Exported by option alone: a kubelet exports them since 1.37."""

ALL_METRICS: Final[dict[str, Metric]] = {
    value.name: value for value in list(globals().values()) if isinstance(value, Metric)
}
