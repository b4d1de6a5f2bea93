"""An agent's state as metrics: desired and actual values, the kernel's counts, its own work."""

import os
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from typing import Final, get_args

from memqos.agent import metric_catalogue as names
from memqos.agent.core.guard import GuardStep
from memqos.agent.core.pod_intent import MEMORY_FILES, WRITABLE_FILES
from memqos.agent.core.view import ContestedValue, NodeView
from memqos.agent.kernel_counters import pressure_of
from memqos.agent.metric_catalogue import Metric
from memqos.agent.state import AgentView, NriAnswer, NriView, SamplerView
from memqos.plan.changes import as_stored
from memqos.plan.levels import class_demand, protection_gauges
from memqos.plan.setting import MAX, NEEDS_NODE
from memqos.plan.tree import Cgroup
from memqos.serve.exposition import Family, MetricSample, histograms, labels

_INFINITE: Final = float("inf")
_MOVES: Final[tuple[GuardStep, ...]] = ("widen", "narrow")
_ANSWERS: Final[tuple[NriAnswer, ...]] = get_args(NriAnswer)
_LEVELS: Final = ("node", "burstable", "besteffort")

LabelledCgroups = Sequence[tuple[str, Cgroup]]
"""Cgroups, each after its labels."""


def metric_families(view: AgentView, proc: str = "/proc") -> Iterator[Family]:
    """Everything that is exported, out of what was last published."""
    node = view.node
    cgroups = [
        (_labels(each.pod or "", each.container or ""), each) for each in node.observed_cgroups()
    ]
    yield from _agent_families(view)
    yield from _value_families(node, cgroups)
    yield from _kernel_families(view, cgroups, proc)
    yield from _work_families(node)
    yield from _numa_families(node)
    if view.events is not None:
        yield _single(names.EVENTS_SENT, view.events.sent)
        yield _single(names.EVENTS_DROPPED, view.events.dropped)
    if view.nri is not None:
        yield from _nri_families(view.nri)
    yield from _sampler_families(view.sampler, cgroups)
    if node.configuration.kep_metrics:
        yield from _kep_families(view, cgroups)
    if node.configuration.cadvisor_metrics:
        yield from _cadvisor_families(view, cgroups)


def _family(metric: Metric, samples: Iterable[MetricSample]) -> Family:
    return Family(metric.name, metric.kind, metric.help, samples)


def _single(metric: Metric, value: float, label_text: str = "") -> Family:
    return _family(metric, [MetricSample(label_text, value)])


def _agent_families(view: AgentView) -> Iterator[Family]:
    status, node_settings = view.status, view.node.node_settings
    info = labels(
        version=status.version,
        release=str(node_settings.settings.release),
        mode=view.node.configuration.mode,
        policy=node_settings.settings.policy,
    )
    yield _single(names.AGENT_INFO, 1, info)
    if status.resynced is not None:
        yield _single(names.LAST_RESYNC, status.resynced)
    yield _single(names.SETTINGS_KNOWN, int(node_settings.doubt is None))
    yield _single(names.HIGH_WITHHELD, int(node_settings.high_withheld is not None))
    yield _single(names.RESYNC_SUCCESSFUL, int(status.failing is None))
    yield _single(names.RELOAD_SUCCESSFUL, int(status.reload_fault is None))
    yield _single(names.RELOAD_TIME, status.reloaded)
    yield _single(names.CPU_SECONDS, time.process_time())
    yield _single(names.RESIDENT, _resident_bytes())


def _nri_families(nri: NriView) -> Iterator[Family]:
    yield _single(names.NRI_CONNECTED, int(nri.runtime is not None))
    answers = [MetricSample(labels(answer=each), nri.answers.get(each, 0)) for each in _ANSWERS]
    yield _family(names.NRI_ANSWERS, answers)
    yield _single(names.NRI_SLOWEST, nri.slowest_answer)


def _value_families(node: NodeView, cgroups: LabelledCgroups) -> Iterator[Family]:
    page_size = node.node_settings.settings.page_size
    counts = Counter(change.file for change in node.pending)
    yield _single(names.CONVERGED, int(node.is_converged))
    files = MEMORY_FILES if node.numa is None else WRITABLE_FILES
    yield _family(
        names.PENDING_CHANGES, [MetricSample(labels(file=file), counts[file]) for file in files]
    )
    parents = [
        (labels(level=level), cgroup) for level, cgroup in zip(_LEVELS, node.parents, strict=False)
    ]
    for desired, actual, of in (
        (names.DESIRED, names.ACTUAL, cgroups),
        (names.LEVEL_DESIRED, names.LEVEL_ACTUAL, parents),
    ):
        yield _family(
            desired,
            [
                MetricSample(*each)
                for label_text, cgroup in of
                for each in _planned_values(label_text, cgroup, page_size)
            ],
        )
        yield _family(
            actual,
            [
                MetricSample(_with_file(label_text, file), _bytes(content))
                for label_text, cgroup in of
                if (found := node.files.get(cgroup.path)) is not None
                for file in MEMORY_FILES
                if (content := found.get(file)) is not None
            ],
        )


def _planned_values(label_text: str, cgroup: Cgroup, page_size: int) -> Iterator[tuple[str, float]]:
    for file in MEMORY_FILES:
        setting = cgroup.settings.get(file)
        if setting is not None and setting.value != NEEDS_NODE:
            yield _with_file(label_text, file), _bytes(as_stored(file, setting.value, page_size))


def _kernel_families(view: AgentView, cgroups: LabelledCgroups, proc: str) -> Iterator[Family]:
    counters = view.counters
    found = [
        (label_text, counters[cgroup.path])
        for label_text, cgroup in cgroups
        if cgroup.path in counters
    ]
    yield _family(
        names.MEMORY_CURRENT,
        [
            MetricSample(label_text, each.current)
            for label_text, each in found
            if each.current is not None
        ],
    )
    yield _family(
        names.EVENT_COUNTS,
        [
            MetricSample(_with_label(label_text, "event", event), count)
            for label_text, each in found
            for event, count in each.events.items()
        ],
    )
    yield _family(
        names.PRESSURE,
        [
            MetricSample(_with_label(label_text, "kind", kind), seconds)
            for label_text, each in found
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


def _work_families(node: NodeView) -> Iterator[Family]:
    counts = node.counts
    intents = [pod.intent for pod in node.pods]
    modes = Counter(intent.mode or "unselected" for intent in intents)
    yield _family(
        names.POD_COUNT, [MetricSample(labels(mode=mode), n) for mode, n in sorted(modes.items())]
    )
    yield _single(names.UNRESOLVED, sum(len(intent.unresolved) for intent in intents))
    reserved = [node.files.get(path, {}).get("memory.min", "") for path in node.observed_pods]
    yield _single(names.RESERVED, sum(int(each) for each in reserved if each.isdigit()))
    yield _single(names.RESERVABLE_BYTES, node.reservable)
    yield _family(
        names.UNRESERVED,
        [
            MetricSample(_pod_labels(pod.intent.key), pod.intent.reservation[0])
            for pod in node.pods
            if pod.is_unreserved
        ],
    )
    yield _single(names.RAMPING, len(node.ramps))
    yield _single(names.BACKING_OFF, len(node.backoff))
    yield _family(
        names.DRIFT,
        [
            MetricSample(labels(file=file, cause=cause), count)
            for (file, cause), count in sorted(counts.drifts.items())
        ],
    )
    yield _family(
        names.CONTESTED,
        [MetricSample(_with_file(_labels_of(each), each.drift.file), 1) for each in node.contested],
    )
    yield _family(
        names.WRITE_COUNT,
        [
            MetricSample(labels(file=file, end=end), count)
            for (file, end), count in sorted(counts.writes.items())
        ],
    )
    yield _family(
        names.RESTORE_COUNT,
        [
            MetricSample(labels(file=file, end=end), count)
            for (file, end), count in sorted(counts.restores.items())
        ],
    )
    yield _family(names.WRITE_SECONDS, counts.write_seconds.samples())
    yield _family(
        names.RECONCILE_SECONDS,
        histograms({labels(trigger=name): each for name, each in counts.reconcile_seconds.items()}),
    )
    yield _family(
        names.ERRORS,
        [MetricSample(labels(kind=kind), n) for kind, n in sorted(counts.errors.items())],
    )
    yield _family(
        names.ANNOTATIONS_REFUSED,
        [
            MetricSample(_pod_labels(intent.key), intent.ignored_annotations)
            for intent in intents
            if intent.ignored_annotations
        ],
    )


def _numa_families(node: NodeView) -> Iterator[Family]:
    yield _family(
        names.NUMA_UNBOUND,
        [
            MetricSample(_with_label(_pod_labels(pod.intent.key), "reason", reason), 1)
            for pod in node.pods
            for reason in sorted({notice.reason for notice in pod.notices})
        ],
    )
    numa = node.numa
    if numa is None:
        return
    keys = {pod.intent.path: pod.intent.key for pod in node.pods}
    yield _family(
        names.NUMA_ASSIGNED,
        [
            MetricSample(_with_label(_labels(keys[path], container), "node", str(number)), 1)
            for path, assignments in numa.assignments.items()
            if path in keys
            for container, each in assignments.items()
            for number in each.nodes
        ],
    )
    yield _family(
        names.NUMA_FREE,
        [
            MetricSample(labels(node=str(number), resource=each.name), each.free)
            for number, resources in numa.resources.items()
            for each in resources
        ],
    )
    yield _single(names.NUMA_FAULTS, len(numa.faults))


def _sampler_families(sampler: SamplerView | None, cgroups: LabelledCgroups) -> Iterator[Family]:
    if sampler is None:
        return
    guard = sampler.guard
    if guard is not None:
        yield _family(
            names.GUARD_STEP,
            [
                MetricSample(label_text, guard.widened[cgroup.path])
                for label_text, cgroup in cgroups
                if cgroup.path in guard.widened
            ],
        )
        yield _family(
            names.GUARD_STEPS,
            [MetricSample(labels(kind=kind), guard.steps.get(kind, 0)) for kind in _MOVES],
        )
        yield _single(names.GUARD_EXCLUDED, guard.excluded)
    yield _single(names.KILLS, sampler.kills)
    # A counter that starts at 1 has no increase: those without a kill start at 0.
    kills = {label_text: 0 for label_text, cgroup in cgroups if cgroup.container} | {
        _labels(f"{namespace}/{pod}", container): count
        for (namespace, pod, container), count in sampler.kills_by_container.items()
    }
    yield _family(names.CONTAINER_KILLS, [MetricSample(*each) for each in kills.items()])
    if sampler.recorder is not None:
        yield _single(names.RECORDING, int(sampler.recorder.is_recording))
        yield _single(names.RECORDS_LOST, sampler.recorder.lost)


def _cadvisor_families(view: AgentView, cgroups: LabelledCgroups) -> Iterator[Family]:
    for metric, event in ((names.CADVISOR_HIGH, "high"), (names.CADVISOR_MAX, "max")):
        yield _family(
            metric,
            [
                MetricSample(labelled, view.counters[each.path].events[event])
                for labelled, each in cgroups
                if each.container
                and each.path in view.counters
                and event in view.counters[each.path].events
            ],
        )


def _kep_families(view: AgentView, cgroups: LabelledCgroups) -> Iterator[Family]:
    files, counters = view.node.files, view.counters
    containers = [(label_text, each.path) for label_text, each in cgroups if each.container]
    for metric, file in ((names.KEP_MIN, "memory.min"), (names.KEP_HIGH, "memory.high")):
        yield _family(
            metric,
            [
                MetricSample(label_text, _bytes(files[path][file]))
                for label_text, path in containers
                if file in files[path]
            ],
        )
    yield _family(
        names.KEP_THROTTLED,
        [
            MetricSample(label_text, counters[path].events["high"])
            for label_text, path in containers
            if path in counters and "high" in counters[path].events
        ],
    )
    plans = (pod.intent.plan for pod in view.node.pods)
    demand = class_demand(plan for plan in plans if plan is not None)
    minimum, low = protection_gauges(demand, view.node.node_settings.settings)
    yield _single(names.KEP_NODE_MIN, minimum)
    yield _single(names.KEP_NODE_LOW, low)


@lru_cache(maxsize=1 << 14)
def _labels(key: str, container: str) -> str:
    namespace, _, pod = key.partition("/")
    return labels(namespace=namespace, pod=pod, container=container)


def _pod_labels(key: str) -> str:
    namespace, _, pod = key.partition("/")
    return labels(namespace=namespace, pod=pod)


def _labels_of(contested: ContestedValue) -> str:
    """A cgroup above the pods has its path in the place of a container's name."""
    cgroup = contested.cgroup
    if cgroup is None:
        return labels(namespace="", pod="", container=contested.drift.path)
    return _labels(cgroup.pod or "", cgroup.container or "")


def _with_label(label_text: str, name: str, word: str) -> str:
    """One more label, with one of the kernel's own words: those need no escapes."""
    return f'{label_text},{name}="{word}"'


def _with_file(label_text: str, file: str) -> str:
    return f'{label_text},file="{file}"'


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
