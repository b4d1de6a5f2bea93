"""An agent's state as metrics: desired and actual, the kernel's counts, and its own doing."""

import os
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import Final

from memqos.agent import metric_names as names
from memqos.agent.core.guard import Step
from memqos.agent.core.pod_intent import FILES, KEPT
from memqos.agent.core.reconciler import Reconciler
from memqos.agent.kernel_counters import Sample as Counts
from memqos.agent.kernel_counters import pressure_of
from memqos.agent.metric_names import Metric
from memqos.agent.sampler import Witness
from memqos.agent.status import Status
from memqos.plan.changes import stored
from memqos.plan.levels import demand_of
from memqos.plan.setting import MAX, NEEDS_NODE
from memqos.plan.terms import KNOWS_POLICY
from memqos.plan.tree import Cgroup
from memqos.serve.exposition import Family, Sample, histograms, labels

_INFINITE: Final = float("inf")
_MOVES: Final[tuple[Step, ...]] = ("widen", "narrow")
_LEVELS: Final = ("node", "burstable", "besteffort")


def families(status: Status, proc: str = "/proc") -> Iterator[Family]:
    """Everything that is exported, out of what is known now."""
    core = status.core
    cgroups = _cgroups(core)
    yield from _about_agent(status)
    yield from _about_values(core, cgroups)
    yield from _about_kernel(status, cgroups, proc)
    yield from _about_work(core)
    yield from _about_numa(core)
    if status.announcer is not None:
        yield _one(names.EVENTS_SENT, status.announcer.poster.sent)
        yield _one(names.EVENTS_DROPPED, status.announcer.poster.dropped)
    yield from _about_containers(status.witness, cgroups)
    if core.configuration.kep_metrics:
        yield from _of_kep(status, cgroups)


def _family(metric: Metric, samples: Iterable[Sample]) -> Family:
    return Family(metric.name, metric.kind, metric.help, samples)


def _one(metric: Metric, value: float, labelled: str = "") -> Family:
    return _family(metric, [Sample(labelled, value)])


def _about_agent(status: Status) -> Iterator[Family]:
    core = status.core
    terms = core.desires.ground.terms
    info = labels(
        version=status.version,
        release=str(terms.release),
        mode=core.configuration.mode,
        policy=terms.policy,
    )
    yield _one(names.AGENT_INFO, 1, info)
    if status.resynced is not None:
        yield _one(names.LAST_RESYNC, status.resynced)
    yield _one(names.SETTINGS_KNOWN, int(core.desires.ground.doubt is None))
    yield _one(names.RESYNC_SUCCESSFUL, int(status.failing is None))
    yield _one(names.RELOAD_SUCCESSFUL, int(status.reload_refused is None))
    yield _one(names.RELOAD_TIME, status.reloaded)
    yield _one(names.CPU, time.process_time())
    yield _one(names.RESIDENT, _resident())


def _cgroups(core: Reconciler) -> list[tuple[str, Cgroup]]:
    """The pods' cgroups that are there, each with its labels."""
    known = core.cgroups
    return [
        (_labels(cgroup.pod or "", cgroup.container or ""), cgroup)
        for pod in tuple(known.pods)
        for cgroup in core.aims.of(pod)
        if cgroup.path in known
    ]


def _is_left(core: Reconciler, path: str) -> bool:
    """Whether what differs at a cgroup is to be written: not at a pod that is only observed, unless
    all are."""
    pod = core.cgroups.pod_of(path)
    wish = None if pod is None else core.aims.by_path.get(pod)
    return core.configuration.mode == "observe" or wish is None or wish.mode == "enforce"


def _about_values(core: Reconciler, cgroups: list[tuple[str, Cgroup]]) -> Iterator[Family]:
    page, known = core.desires.page_size, core.cgroups.by_path
    above = list(zip(_LEVELS, core.aims.above_now, strict=False))
    pending = [change for changes in tuple(core.pending.values()) for change in changes]
    counts = Counter(change.file for change in pending)
    yield _one(names.CONVERGED, int(not any(_is_left(core, change.path) for change in pending)))
    files = FILES if core.bindings is None else KEPT
    yield _family(
        names.PENDING_CHANGES, [Sample(labels(file=file), counts[file]) for file in files]
    )
    levelled = [(labels(level=level), cgroup) for level, cgroup in above]
    for desired, actual, of in (
        (names.DESIRED, names.ACTUAL, cgroups),
        (names.LEVEL_DESIRED, names.LEVEL_ACTUAL, levelled),
    ):
        yield _family(
            desired,
            [Sample(*each) for labelled, cgroup in of for each in _desired(labelled, cgroup, page)],
        )
        yield _family(
            actual,
            [
                Sample(_with_file(labelled, file), _bytes(content))
                for labelled, cgroup in of
                if (found := known.get(cgroup.path)) is not None
                for file in FILES
                if (content := found.files.get(file)) is not None
            ],
        )


def _desired(labelled: str, cgroup: Cgroup, page: int) -> Iterator[tuple[str, float]]:
    for file in FILES:
        setting = cgroup.settings.get(file)
        if setting is not None and setting.value != NEEDS_NODE:
            yield _with_file(labelled, file), _bytes(stored(file, setting.value, page))


def _about_kernel(status: Status, cgroups: list[tuple[str, Cgroup]], proc: str) -> Iterator[Family]:
    samples = status.samples
    found: list[tuple[str, Counts]] = [
        (labelled, samples[cgroup.path]) for labelled, cgroup in cgroups if cgroup.path in samples
    ]
    yield _family(
        names.CURRENT,
        [Sample(labelled, each.current) for labelled, each in found if each.current is not None],
    )
    yield _family(
        names.EVENTS,
        [
            Sample(_with(labelled, "event", event), count)
            for labelled, each in found
            for event, count in each.events.items()
        ],
    )
    yield _family(
        names.PRESSURE,
        [
            Sample(_with(labelled, "kind", kind), seconds)
            for labelled, each in found
            for kind, seconds in each.pressure.items()
        ],
    )
    yield _family(
        names.NODE_PRESSURE,
        [
            Sample(labels(kind=kind), seconds)
            for kind, seconds in pressure_of(_text(f"{proc}/pressure/memory")).items()
        ],
    )


def _about_work(core: Reconciler) -> Iterator[Family]:
    tally, aims, schedule = core.tally, core.aims, core.schedule
    wishes = tuple(aims.wishes.values())
    modes = Counter(wish.mode or "unselected" for wish in wishes)
    pods = tuple(core.cgroups.pods)
    out = [wish for path in aims.left_out if (wish := aims.by_path.get(path)) is not None]
    yield _family(names.PODS, [Sample(labels(mode=mode), n) for mode, n in sorted(modes.items())])
    yield _one(names.UNRESOLVED, sum(len(wish.unresolved) for wish in wishes))
    yield _one(names.RESERVED, sum(core.cgroups.number(path, "memory.min") for path in pods))
    yield _one(names.RESERVABLE, aims.limit)
    yield _family(names.LEFT_OUT, [Sample(_pod_labels(wish.key), wish.claims[0]) for wish in out])
    yield _one(names.RAMPING, len(schedule.ramps))
    yield _one(names.BACKING_OFF, len(schedule.backoff.until))
    yield _family(
        names.DRIFT,
        [
            Sample(labels(file=file, cause=cause), count)
            for (file, cause), count in sorted(tally.drifts.items())
        ],
    )
    yield _family(
        names.LEFT_ALONE,
        [
            Sample(_with_file(_labels_at(core, path), file), 1)
            for path, file in tuple(core.foreign.fights.left_alone)
        ],
    )
    yield _family(
        names.WRITES,
        [
            Sample(labels(file=file, end=end), count)
            for (file, end), count in sorted(tally.writes.items())
        ],
    )
    yield _family(
        names.GIVEN_BACK,
        [
            Sample(labels(file=file, end=end), count)
            for (file, end), count in sorted(tally.returned.items())
        ],
    )
    yield _family(names.WRITE_SECONDS, tally.write_seconds.samples())
    yield _family(
        names.RECONCILE_SECONDS,
        histograms({labels(trigger=name): each for name, each in tally.reconcile_seconds.items()}),
    )
    yield _family(
        names.ERRORS,
        [Sample(labels(kind=kind), n) for kind, n in sorted(tally.errors.items())],
    )
    yield _family(
        names.ANNOTATIONS_REFUSED,
        [Sample(_pod_labels(wish.key), wish.ignored) for wish in wishes if wish.ignored],
    )


def _about_numa(core: Reconciler) -> Iterator[Family]:
    yield _family(
        names.NUMA_LEFT_ALONE,
        [
            Sample(_with(_pod_labels(wish.key), "reason", reason), 1)
            for path, wish in tuple(core.aims.by_path.items())
            for reason in sorted({notice.reason for notice in core.aims.notices(path)})
        ],
    )
    bindings = core.bindings
    if bindings is None:
        return
    assigned, wishes = bindings.assigned, core.aims.by_path
    yield _family(
        names.NUMA_ASSIGNED,
        [
            Sample(_with(_labels(wishes[path].key, container), "node", str(node)), 1)
            for path, of_pod in tuple(assigned.items())
            if path in wishes
            for container, each in of_pod.items()
            for node in each.nodes
        ],
    )
    state = bindings.assigner.state
    yield _family(
        names.NUMA_FREE,
        [
            Sample(labels(node=str(number), resource=resource), table.free)
            for number, node in (state.nodes.items() if state is not None else ())
            for resource, table in node.memory.items()
        ],
    )
    yield _one(names.NUMA_FAULTS, len(bindings.faults))


def _about_containers(
    witness: Witness | None, cgroups: list[tuple[str, Cgroup]]
) -> Iterator[Family]:
    if witness is None:
        return
    if witness.guard is not None:
        steps = witness.guard.widened
        yield _family(
            names.GUARD_STEP,
            [
                Sample(labelled, steps[cgroup.path])
                for labelled, cgroup in cgroups
                if cgroup.path in steps
            ],
        )
        yield _family(
            names.GUARD_STEPS,
            [Sample(labels(kind=kind), witness.moves[kind]) for kind in _MOVES],
        )
        yield _one(names.GUARD_EXCLUDED, len(witness.guard.excluded))
    yield _one(names.KILLS, witness.deaths.count)
    if witness.recorder is not None:
        yield _one(names.RECORDING, int(witness.recorder.fault is None))
        yield _one(names.RECORDS_LOST, witness.recorder.lost)


def _of_kep(status: Status, cgroups: list[tuple[str, Cgroup]]) -> Iterator[Family]:
    known = status.core.cgroups
    containers = [(labelled, each.path) for labelled, each in cgroups if each.container]
    for metric, file in ((names.KEP_MIN, "memory.min"), (names.KEP_HIGH, "memory.high")):
        yield _family(
            metric,
            [
                Sample(labelled, _bytes(found.files[file]))
                for labelled, path in containers
                if (found := known.by_path.get(path)) is not None and file in found.files
            ],
        )
    yield _family(
        names.KEP_THROTTLED,
        [
            Sample(labelled, status.samples[path].events["high"])
            for labelled, path in containers
            if path in status.samples and "high" in status.samples[path].events
        ],
    )
    minimum, low = _reserved_by_class(status.core)
    yield _one(names.KEP_NODE_MIN, minimum)
    yield _one(names.KEP_NODE_LOW, low)


def _reserved_by_class(core: Reconciler) -> tuple[int, int]:
    """What Guaranteed pods have of memory.min and Burstable pods of memory.low.

    As a kubelet sums it up: what the pods request, not what is found in cgroups. kubepods itself
    holds more, since the memory.min of a kubelet there covers Burstable pods too.
    """
    terms = core.desires.ground.terms
    if not terms.release.enabled("MemoryQoS"):
        return 0, 0
    policy = terms.policy if KNOWS_POLICY.at(terms.release.minor) else "HardReservation"
    wishes = tuple(core.aims.wishes.values())
    demand = demand_of(wish.plan for wish in wishes if wish.plan is not None)
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
    pod = core.cgroups.pod_of(path)
    for cgroup in core.aims.of(pod) if pod is not None else ():
        if cgroup.path == path:
            return _labels(cgroup.pod or "", cgroup.container or "")
    return labels(namespace="", pod="", container=path)


def _with(labelled: str, name: str, word: str) -> str:
    """One more label, with one of the kernel's own words: those need no escapes."""
    return f'{labelled},{name}="{word}"'


def _with_file(labelled: str, file: str) -> str:
    return f'{labelled},file="{file}"'


def _bytes(content: str) -> float:
    if content == MAX:
        return _INFINITE
    return int(content) if content.isdigit() else 0


def _text(file: str) -> str:
    try:
        with open(file, encoding="ascii") as opened:
            return opened.read()
    except OSError:
        return ""


def _resident() -> int:
    fields = _text("/proc/self/statm").split()
    return int(fields[1]) * os.sysconf("SC_PAGE_SIZE") if len(fields) > 1 else 0
