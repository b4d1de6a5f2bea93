"""An agent's state as metrics: desired and actual, the kernel's counts, and its own doing."""

import os
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import Final

from memqos.agent import metric_catalogue as names
from memqos.agent.core.guard import GuardStep
from memqos.agent.core.pod_intent import MEMORY_FILES, WRITABLE_FILES
from memqos.agent.core.reconciler import Reconciler
from memqos.agent.kernel_counters import CgroupCounters as Counts
from memqos.agent.kernel_counters import pressure_of
from memqos.agent.metric_catalogue import Metric
from memqos.agent.sampler import Sampler
from memqos.agent.state import AgentStatus
from memqos.plan.changes import as_stored
from memqos.plan.levels import class_demand
from memqos.plan.setting import MAX, NEEDS_NODE
from memqos.plan.tree import Cgroup
from memqos.serve.exposition import Family, MetricSample, histograms, labels
from memqos.settings.settings import KNOWS_POLICY

_INFINITE: Final = float("inf")
_MOVES: Final[tuple[GuardStep, ...]] = ("widen", "narrow")
_LEVELS: Final = ("node", "burstable", "besteffort")


def metric_families(status: AgentStatus, proc: str = "/proc") -> Iterator[Family]:
    """Everything that is exported, out of what is known now."""
    core = status.core
    cgroups = _cgroups_with_labels(core)
    yield from _agent_families(status)
    yield from _value_families(core, cgroups)
    yield from _kernel_families(status, cgroups, proc)
    yield from _work_families(core)
    yield from _numa_families(core)
    if status.announcer is not None:
        yield _single(names.EVENTS_SENT, status.announcer.poster.sent)
        yield _single(names.EVENTS_DROPPED, status.announcer.poster.dropped)
    yield from _container_families(status.sampler, cgroups)
    if core.configuration.kep_metrics:
        yield from _kep_families(status, cgroups)


def _family(metric: Metric, samples: Iterable[MetricSample]) -> Family:
    return Family(metric.name, metric.kind, metric.help, samples)


def _single(metric: Metric, value: float, labelled: str = "") -> Family:
    return _family(metric, [MetricSample(labelled, value)])


def _agent_families(status: AgentStatus) -> Iterator[Family]:
    core = status.core
    terms = core.planner.node_settings.settings
    info = labels(
        version=status.version,
        release=str(terms.release),
        mode=core.configuration.mode,
        policy=terms.policy,
    )
    yield _single(names.AGENT_INFO, 1, info)
    if status.resynced is not None:
        yield _single(names.LAST_RESYNC, status.resynced)
    yield _single(names.SETTINGS_KNOWN, int(core.planner.node_settings.doubt is None))
    yield _single(names.RESYNC_SUCCESSFUL, int(status.failing is None))
    yield _single(names.RELOAD_SUCCESSFUL, int(status.reload_fault is None))
    yield _single(names.RELOAD_TIME, status.reloaded)
    yield _single(names.CPU_SECONDS, time.process_time())
    yield _single(names.RESIDENT, _resident_bytes())


def _cgroups_with_labels(core: Reconciler) -> list[tuple[str, Cgroup]]:
    """The pods' cgroups that are there, each with its labels."""
    known = core.observed
    return [
        (_labels(cgroup.pod or "", cgroup.container or ""), cgroup)
        for pod in tuple(known.pods)
        for cgroup in core.node_intent.cgroups_of(pod)
        if cgroup.path in known
    ]


def _is_writable(core: Reconciler, path: str) -> bool:
    """Whether what differs at a cgroup is to be written: not at a pod that is only observed, unless
    all are."""
    pod = core.observed.pod_of(path)
    intent = None if pod is None else core.node_intent.by_path.get(pod)
    return core.configuration.mode == "observe" or intent is None or intent.mode == "enforce"


def _value_families(core: Reconciler, cgroups: list[tuple[str, Cgroup]]) -> Iterator[Family]:
    page, known = core.planner.page_size, core.observed.by_path
    above = list(zip(_LEVELS, core.node_intent.last_parent_cgroups, strict=False))
    pending = [change for changes in tuple(core.pending.values()) for change in changes]
    counts = Counter(change.file for change in pending)
    yield _single(
        names.CONVERGED, int(not any(_is_writable(core, change.path) for change in pending))
    )
    files = MEMORY_FILES if core.bindings is None else WRITABLE_FILES
    yield _family(
        names.PENDING_CHANGES, [MetricSample(labels(file=file), counts[file]) for file in files]
    )
    levelled = [(labels(level=level), cgroup) for level, cgroup in above]
    for desired, actual, of in (
        (names.DESIRED, names.ACTUAL, cgroups),
        (names.LEVEL_DESIRED, names.LEVEL_ACTUAL, levelled),
    ):
        yield _family(
            desired,
            [
                MetricSample(*each)
                for labelled, cgroup in of
                for each in _values_as_planned(labelled, cgroup, page)
            ],
        )
        yield _family(
            actual,
            [
                MetricSample(_with_file(labelled, file), _bytes(content))
                for labelled, cgroup in of
                if (found := known.get(cgroup.path)) is not None
                for file in MEMORY_FILES
                if (content := found.files.get(file)) is not None
            ],
        )


def _values_as_planned(labelled: str, cgroup: Cgroup, page: int) -> Iterator[tuple[str, float]]:
    for file in MEMORY_FILES:
        setting = cgroup.settings.get(file)
        if setting is not None and setting.value != NEEDS_NODE:
            yield _with_file(labelled, file), _bytes(as_stored(file, setting.value, page))


def _kernel_families(
    status: AgentStatus, cgroups: list[tuple[str, Cgroup]], proc: str
) -> Iterator[Family]:
    samples = status.counters
    found: list[tuple[str, Counts]] = [
        (labelled, samples[cgroup.path]) for labelled, cgroup in cgroups if cgroup.path in samples
    ]
    yield _family(
        names.MEMORY_CURRENT,
        [
            MetricSample(labelled, each.current)
            for labelled, each in found
            if each.current is not None
        ],
    )
    yield _family(
        names.EVENT_COUNTS,
        [
            MetricSample(_with_label(labelled, "event", event), count)
            for labelled, each in found
            for event, count in each.events.items()
        ],
    )
    yield _family(
        names.PRESSURE,
        [
            MetricSample(_with_label(labelled, "kind", kind), seconds)
            for labelled, each in found
            for kind, seconds in each.pressure.items()
        ],
    )
    yield _family(
        names.NODE_PRESSURE,
        [
            MetricSample(labels(kind=kind), seconds)
            for kind, seconds in pressure_of(_read_text(f"{proc}/pressure/memory")).items()
        ],
    )


def _work_families(core: Reconciler) -> Iterator[Family]:
    report, node_intent, schedule = core.report, core.node_intent, core.schedule
    intents = tuple(node_intent.intents.values())
    modes = Counter(wish.mode or "unselected" for wish in intents)
    pods = tuple(core.observed.pods)
    out = [
        wish
        for path in node_intent.unreserved
        if (wish := node_intent.by_path.get(path)) is not None
    ]
    yield _family(
        names.POD_COUNT, [MetricSample(labels(mode=mode), n) for mode, n in sorted(modes.items())]
    )
    yield _single(names.UNRESOLVED, sum(len(wish.unresolved) for wish in intents))
    yield _single(names.RESERVED, sum(core.observed.number(path, "memory.min") for path in pods))
    yield _single(names.RESERVABLE_BYTES, node_intent.reservable)
    yield _family(
        names.UNRESERVED, [MetricSample(_pod_labels(wish.key), wish.reservation[0]) for wish in out]
    )
    yield _single(names.RAMPING, len(schedule.ramps))
    yield _single(names.BACKING_OFF, len(schedule.backoff.until))
    yield _family(
        names.DRIFT,
        [
            MetricSample(labels(file=file, cause=cause), count)
            for (file, cause), count in sorted(report.drifts.items())
        ],
    )
    yield _family(
        names.CONTESTED,
        [
            MetricSample(_with_file(_labels_at(core, path), file), 1)
            for path, file in tuple(core.drift.fights.contested)
        ],
    )
    yield _family(
        names.WRITE_COUNT,
        [
            MetricSample(labels(file=file, end=end), count)
            for (file, end), count in sorted(report.writes.items())
        ],
    )
    yield _family(
        names.RESTORE_COUNT,
        [
            MetricSample(labels(file=file, end=end), count)
            for (file, end), count in sorted(report.restores.items())
        ],
    )
    yield _family(names.WRITE_SECONDS, report.write_seconds.samples())
    yield _family(
        names.RECONCILE_SECONDS,
        histograms({labels(trigger=name): each for name, each in report.reconcile_seconds.items()}),
    )
    yield _family(
        names.ERRORS,
        [MetricSample(labels(kind=kind), n) for kind, n in sorted(report.errors.items())],
    )
    yield _family(
        names.ANNOTATIONS_REFUSED,
        [
            MetricSample(_pod_labels(wish.key), wish.ignored_annotations)
            for wish in intents
            if wish.ignored_annotations
        ],
    )


def _numa_families(core: Reconciler) -> Iterator[Family]:
    yield _family(
        names.NUMA_UNBOUND,
        [
            MetricSample(_with_label(_pod_labels(wish.key), "reason", reason), 1)
            for path, wish in tuple(core.node_intent.by_path.items())
            for reason in sorted({notice.reason for notice in core.node_intent.notices_of(path)})
        ],
    )
    bindings = core.bindings
    if bindings is None:
        return
    assigned, intents = bindings.assignments, core.node_intent.by_path
    yield _family(
        names.NUMA_ASSIGNED,
        [
            MetricSample(_with_label(_labels(intents[path].key, container), "node", str(node)), 1)
            for path, of_pod in tuple(assigned.items())
            if path in intents
            for container, each in of_pod.items()
            for node in each.nodes
        ],
    )
    state = bindings.assigner.state
    yield _family(
        names.NUMA_FREE,
        [
            MetricSample(labels(node=str(number), resource=resource), table.free)
            for number, node in (state.nodes.items() if state is not None else ())
            for resource, table in node.memory.items()
        ],
    )
    yield _single(names.NUMA_FAULTS, len(bindings.faults))


def _container_families(
    sampler: Sampler | None, cgroups: list[tuple[str, Cgroup]]
) -> Iterator[Family]:
    if sampler is None:
        return
    if sampler.guard is not None:
        steps = sampler.guard.widened
        yield _family(
            names.GUARD_STEP,
            [
                MetricSample(labelled, steps[cgroup.path])
                for labelled, cgroup in cgroups
                if cgroup.path in steps
            ],
        )
        yield _family(
            names.GUARD_STEPS,
            [MetricSample(labels(kind=kind), sampler.guard_moves[kind]) for kind in _MOVES],
        )
        yield _single(names.GUARD_EXCLUDED, len(sampler.guard.excluded))
    yield _single(names.KILLS, sampler.oom_kills.count)
    if sampler.recorder is not None:
        yield _single(names.RECORDING, int(sampler.recorder.fault is None))
        yield _single(names.RECORDS_LOST, sampler.recorder.lost)


def _kep_families(status: AgentStatus, cgroups: list[tuple[str, Cgroup]]) -> Iterator[Family]:
    known = status.core.observed
    containers = [(labelled, each.path) for labelled, each in cgroups if each.container]
    for metric, file in ((names.KEP_MIN, "memory.min"), (names.KEP_HIGH, "memory.high")):
        yield _family(
            metric,
            [
                MetricSample(labelled, _bytes(found.files[file]))
                for labelled, path in containers
                if (found := known.by_path.get(path)) is not None and file in found.files
            ],
        )
    yield _family(
        names.KEP_THROTTLED,
        [
            MetricSample(labelled, status.counters[path].events["high"])
            for labelled, path in containers
            if path in status.counters and "high" in status.counters[path].events
        ],
    )
    minimum, low = _protection_by_class(status.core)
    yield _single(names.KEP_NODE_MIN, minimum)
    yield _single(names.KEP_NODE_LOW, low)


def _protection_by_class(core: Reconciler) -> tuple[int, int]:
    """What Guaranteed pods have of memory.min and Burstable pods of memory.low.

    As a kubelet sums it up: what the pods request, not what is found in cgroups. kubepods itself
    holds more, since the memory.min of a kubelet there covers Burstable pods too.
    """
    terms = core.planner.node_settings.settings
    if not terms.release.is_enabled("MemoryQoS"):
        return 0, 0
    policy = terms.policy if KNOWS_POLICY.at(terms.release.minor) else "HardReservation"
    intents = tuple(core.node_intent.intents.values())
    demand = class_demand(wish.plan for wish in intents if wish.plan is not None)
    return (
        0 if policy == "None" else demand.guaranteed,
        demand.burstable if policy == "TieredReservation" else 0,
    )


@lru_cache(maxsize=1 << 14)
def _labels(key: str, container: str) -> str:
    namespace, _, pod = key.partition("/")
    return labels(namespace=namespace, pod=pod, container=container)


def _pod_labels(key: str) -> str:
    namespace, _, pod = key.partition("/")
    return labels(namespace=namespace, pod=pod)


def _labels_at(core: Reconciler, path: str) -> str:
    """Those of a cgroup; one above the pods goes by its path in the place of a container's name."""
    pod = core.observed.pod_of(path)
    for cgroup in core.node_intent.cgroups_of(pod) if pod is not None else ():
        if cgroup.path == path:
            return _labels(cgroup.pod or "", cgroup.container or "")
    return labels(namespace="", pod="", container=path)


def _with_label(labelled: str, name: str, word: str) -> str:
    """One more label, with one of the kernel's own words: those need no escapes."""
    return f'{labelled},{name}="{word}"'


def _with_file(labelled: str, file: str) -> str:
    return f'{labelled},file="{file}"'


def _bytes(content: str) -> float:
    if content == MAX:
        return _INFINITE
    return int(content) if content.isdigit() else 0


def _read_text(file: str) -> str:
    try:
        with open(file, encoding="ascii") as opened:
            return opened.read()
    except OSError:
        return ""


def _resident_bytes() -> int:
    fields = _read_text("/proc/self/statm").split()
    return int(fields[1]) * os.sysconf("SC_PAGE_SIZE") if len(fields) > 1 else 0
