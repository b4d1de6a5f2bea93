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
    "memqos_converged", "gauge", (), "1 if the last reconcile left nothing to write."
)
PENDING_CHANGES: Final = Metric(
    "memqos_pending_changes", "gauge", ("file",), "Values that differ from the plan."
)
POD_COUNT: Final = Metric(
    "memqos_pods", "gauge", ("mode",), "Pods of the node, by how the agent treats them."
)
UNRESOLVED: Final = Metric(
    "memqos_unresolved", "gauge", (), "Pods and containers without a known cgroup."
)
DESIRED: Final = Metric(
    "memqos_desired_bytes", "gauge", _OF_FILE, "Planned value of a cgroup file; max is +Inf."
)
ACTUAL: Final = Metric(
    "memqos_actual_bytes", "gauge", _OF_FILE, "Current value of a cgroup file; max is +Inf."
)
LEVEL_DESIRED: Final = Metric(
    "memqos_level_desired_bytes",
    "gauge",
    ("level", "file"),
    "Planned value of a cgroup above the pods (node, burstable, besteffort); max is +Inf.",
)
LEVEL_ACTUAL: Final = Metric(
    "memqos_level_actual_bytes",
    "gauge",
    ("level", "file"),
    "Current value of a cgroup above the pods (node, burstable, besteffort); max is +Inf.",
)
MEMORY_CURRENT: Final = Metric("memqos_memory_current_bytes", "gauge", _OF_CGROUP, "Memory in use.")
EVENT_COUNTS: Final = Metric(
    "memqos_memory_events_total",
    "counter",
    (*_OF_CGROUP, "event"),
    "Counters of memory.events.",
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
    "memqos_reservable_bytes", "gauge", (), "The maximum of that sum (minShare)."
)
UNRESERVED: Final = Metric(
    "memqos_left_out_bytes",
    "gauge",
    ("namespace", "pod"),
    "Requests not reserved because the sum would exceed its maximum.",
)
RAMPING: Final = Metric(
    "memqos_ramping", "gauge", (), "Values of memory.high that are being lowered in steps."
)
BACKING_OFF: Final = Metric(
    "memqos_backing_off", "gauge", (), "Cgroups not written for a while because a write failed."
)
DRIFT: Final = Metric(
    "memqos_drift_total",
    "counter",
    ("file", "cause"),
    "Values changed by another writer (drift), by likely cause.",
)
CONTESTED: Final = Metric(
    "memqos_left_alone",
    "gauge",
    _OF_FILE,
    "1 for a value that another writer changed too often: it is no longer restored.",
)
WRITE_COUNT: Final = Metric(
    "memqos_writes_total", "counter", ("file", "end"), "Writes of values, by result."
)
RESTORE_COUNT: Final = Metric(
    "memqos_given_back_total",
    "counter",
    ("file", "end"),
    "Previous values restored where memqos no longer writes, by result: written, conflict "
    "(another writer changed the value since, and it stays), or the failure.",
)
WRITE_SECONDS: Final = Metric("memqos_write_seconds", "histogram", (), "How long a write took.")
RECONCILE_SECONDS: Final = Metric(
    "memqos_reconcile_seconds",
    "histogram",
    ("trigger",),
    "Time to read, plan and write, by trigger: an event or a resync.",
)
ERRORS: Final = Metric(
    "memqos_errors_total",
    "counter",
    ("kind",),
    "Errors: source, read, write, journal, configuration, numa or other.",
)
ANNOTATIONS_REFUSED: Final = Metric(
    "memqos_annotations_refused",
    "gauge",
    ("namespace", "pod"),
    "Annotations of a pod that are ignored because they are invalid or exceed the policy.",
)
NUMA_ASSIGNED: Final = Metric(
    "memqos_numa_assigned",
    "gauge",
    (*_OF_CGROUP, "node"),
    "1 for each NUMA node that is assigned to a container.",
)
NUMA_UNBOUND: Final = Metric(
    "memqos_numa_left_alone",
    "gauge",
    ("namespace", "pod", "reason"),
    "1 for a pod whose memory is not bound to NUMA nodes, by reason.",
)
NUMA_FREE: Final = Metric(
    "memqos_numa_free_bytes",
    "gauge",
    ("node", "resource"),
    "Memory and huge pages of a NUMA node that are not assigned.",
)
NUMA_FAULTS: Final = Metric(
    "memqos_numa_faults",
    "gauge",
    (),
    "Problems that prevent the assignment of NUMA nodes, or its update from the kubelet's state.",
)
GUARD_STEP: Final = Metric(
    "memqos_guard_step",
    "gauge",
    _OF_CGROUP,
    "Steps by which the guard has raised memory.high of a container that made no progress.",
)
GUARD_STEPS: Final = Metric(
    "memqos_guard_steps_total", "counter", ("kind",), "Steps of the guard: widen or narrow."
)
GUARD_EXCLUDED: Final = Metric(
    "memqos_guard_excluded",
    "gauge",
    (),
    "Containers that are not throttled, as they have mostly anonymous memory and no swap.",
)
KILLS: Final = Metric("memqos_oom_kills_total", "counter", (), "OOM kills reported by the kernel.")
CONTAINER_KILLS: Final = Metric(
    "memqos_container_oom_kills_total",
    "counter",
    _OF_CGROUP,
    "Processes of a container OOM-killed by the kernel since the agent's start; container is "
    "empty if it is unknown which container of the pod it was.",
)
RECORDING: Final = Metric(
    "memqos_recording",
    "gauge",
    (),
    "1 if records are written, 0 if that fails, as on a full disk.",
)
RECORDS_LOST: Final = Metric(
    "memqos_records_lost_total", "counter", (), "Records that could not be written."
)
EVENTS_SENT: Final = Metric(
    "memqos_events_sent_total", "counter", (), "Events on pods that the API server accepted."
)
EVENTS_DROPPED: Final = Metric(
    "memqos_events_dropped_total",
    "counter",
    (),
    "Events on pods that were dropped, or could not be sent.",
)
NRI_CONNECTED: Final = Metric(
    "memqos_nri_connected",
    "gauge",
    (),
    "1 if the agent is connected to the runtime as an NRI plugin; only with nri: on.",
)
NRI_ANSWERS: Final = Metric(
    "memqos_nri_containers_total",
    "counter",
    ("answer",),
    "Containers created or resized over NRI, by result: set, unchanged, unknown, "
    "observed, withheld, failed or late.",
)
NRI_SLOWEST: Final = Metric(
    "memqos_nri_slowest_answer_seconds",
    "gauge",
    (),
    "The longest time that the runtime has waited for a response since the agent's start.",
)
LAST_RESYNC: Final = Metric(
    "memqos_last_resync_timestamp_seconds",
    "gauge",
    (),
    "Time of the last successful resync of the whole node.",
)
SETTINGS_KNOWN: Final = Metric(
    "memqos_settings_known",
    "gauge",
    (),
    "1 if the running kubelet's release and configuration are known, or configured without "
    "contradiction; 0 if they are a guess, so that even an enforcing agent writes nothing.",
)
HIGH_WITHHELD: Final = Metric(
    "memqos_memory_high_withheld",
    "gauge",
    (),
    "1 if memory.high is neither set nor reset, because the kernel is older than 5.9 and "
    "allowOldKernel is off; otherwise 0.",
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
    "1 if the last read of the configuration succeeded, 0 if an older configuration is in use.",
)
RELOAD_TIME: Final = Metric(
    "memqos_configuration_last_reload_success_timestamp_seconds",
    "gauge",
    (),
    "Time at which the configuration in use was read.",
)
CPU_SECONDS: Final = Metric(
    "memqos_process_cpu_seconds_total", "counter", (), "CPU time of the agent itself."
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
    "How many times a container was throttled at memory.high.",
)
KEP_NODE_MIN: Final = Metric(
    "kubelet_memory_qos_node_memory_min_bytes",
    "gauge",
    (),
    "Requests reserved as memory.min: of Guaranteed pods under TieredReservation, of all pods "
    "under HardReservation and before 1.36.",
)
KEP_NODE_LOW: Final = Metric(
    "kubelet_memory_qos_node_memory_low_bytes",
    "gauge",
    (),
    "Requests of Burstable pods, if reserved as memory.low.",
)

KEP_METRICS: Final = (KEP_MIN, KEP_HIGH, KEP_THROTTLED, KEP_NODE_MIN, KEP_NODE_LOW)
"""Exported by option alone, since a kubelet may export them too."""

CADVISOR_HIGH: Final = Metric(
    "container_memory_events_high_total",
    "counter",
    _OF_CGROUP,
    "How many times a container was throttled at memory.high.",
)
CADVISOR_MAX: Final = Metric(
    "container_memory_events_max_total",
    "counter",
    _OF_CGROUP,
    "How many times a container was about to exceed memory.max.",
)

CADVISOR_METRICS: Final = (CADVISOR_HIGH, CADVISOR_MAX)
"""Exported by option alone: a kubelet exports them since 1.37."""

ALL_METRICS: Final[dict[str, Metric]] = {
    value.name: value for value in list(globals().values()) if isinstance(value, Metric)
}
