"""One pass of an agent: fetch pods, read cgroups, plan, write, and settle. It may block, and runs
off the loop.

It does not wait for a kubelet: requests to that run in a thread of their own, and a pass takes in
the answers that have arrived.
"""

import time
from collections.abc import Callable, Sequence
from typing import Protocol

from memqos.agent.core.node_guard import NodeGuard
from memqos.agent.core.pod_intent import AgentSettings, IntentPlanner
from memqos.agent.core.reconciler import Reconciler
from memqos.agent.node_reader import NodeReader
from memqos.agent.node_writer import NodeWriter
from memqos.agent.pod_source import PodsPending
from memqos.agent.settings_source import KUBELET_PENDING
from memqos.errors import MemqosError
from memqos.kube.pod import Pod
from memqos.plan.levels import files_kept_by


class MonotonicClock(Protocol):
    """Seconds that only go forward."""

    def __call__(self) -> float: ...


def build_reconciler(
    reader: NodeReader, writer: NodeWriter, now: float, guard: NodeGuard | None = None
) -> Reconciler:
    """The core for this machine; raises where the machine cannot be planned."""
    # Before the first request to the kubelet: a restart while that is pending makes the answer old.
    markers = reader.read_restart_markers()
    core = Reconciler(_new_planner(reader, _read_settings(reader, writer)), now, guard)
    core.drift.update_markers(markers, now)
    if reader.configuration.mode == "observe" and (values := writer.count_leftover_values()):
        core.report.log(
            "warning",
            "values written by memqos are in place here: memqos rollback restores the previous "
            "ones",
            values=values,
        )
    return core


def reconfigure(core: Reconciler, reader: NodeReader, writer: NodeWriter, now: float) -> None:
    """Plan by what the configuration and the machine say now."""
    planner = _new_planner(reader, _read_settings(reader, writer))
    if reader.settings_source.is_requested:
        core.note_kubelet_request()
    core.reconfigure(planner, now)


def note_kubelet_reply(core: Reconciler, reader: NodeReader, now: float) -> None:
    """The kubelet has answered: have a pass take it in, of the whole node if that lacked pods."""
    core.schedule.schedule_reply(now)
    if reader.source.lacks_pods and reader.source.has_answer:
        core.resync(now)


def run_pass(
    core: Reconciler,
    reader: NodeReader,
    writer: NodeWriter,
    clock: MonotonicClock,
    random: Callable[[], float] = lambda: 0.5,
) -> bool:
    """Do what is due; whether it was about the whole node, pods included.

    Where it raises, what was to be looked at has not been: the whole node has to be.
    """
    start = time.perf_counter()
    now = clock()
    due = core.take_due(now, random())
    source, settings_source = reader.source, reader.settings_source
    complete = not source.lacks_pods
    pods = None
    if due.fetches_pods or source.has_answer:
        # Pods first: what the cluster says of the node comes with them.
        pods, complete = _fetch_pods(core, reader)
    if due.is_full:
        for why in (writer.rediscover_owners(), source.stale_reason):
            if why is not None:
                core.report.log_error("source", why)
    is_settings_due = settings_source.is_due()
    is_answer_awaited = core.drift.is_requested and settings_source.is_request_pending
    if due.confirms_kubelet and not is_answer_awaited:
        settings_source.refresh()
    if due.is_full or due.fetches_pods or due.confirms_kubelet or is_settings_due:
        is_resolved = _refresh_settings(core, reader, writer, now)
        complete &= is_resolved
        is_fresh = is_resolved and settings_source.is_fresh
        core.confirm(now, answered=is_fresh)
        is_confirmed = is_fresh and core.drift.unconfirmed_since is None
        _settle_kubelet_entries(core, writer, now, answered=is_confirmed)
    if pods is not None:
        core.accept_pods(pods, now)
    if core.bindings is not None:
        core.accept_checkpoint(reader.read_checkpoint(), now)
    writer.bind_creations()
    steps = core.plan_writes(reader.read_cgroups(core.scope(now)), now)
    _restore(core, writer, clock, is_full=due.is_full)
    results, stale = writer.write(steps, core.report) if steps else ([], [])
    core.settle_writes(results, stale, clock())
    writer.compact_journal()
    trigger = "resync" if due.is_full else "event"
    core.report.reconcile_seconds[trigger].observe(time.perf_counter() - start)
    return complete and core.is_full_pass and core.node_intent.has_pods


def _read_settings(reader: NodeReader, writer: NodeWriter) -> AgentSettings:
    """The node's settings; the writer may restore the reserved cgroups that they name."""
    node_settings = reader.node_settings()
    writer.allow_reserved(node_settings)
    return node_settings


def _new_planner(reader: NodeReader, node_settings: AgentSettings) -> IntentPlanner:
    return IntentPlanner(reader.configuration, node_settings, reader.read_own_cgroup())


def _fetch_pods(core: Reconciler, reader: NodeReader) -> tuple[list[Pod] | None, bool]:
    """The pods as far as the source has them, and whether these are all."""
    source = reader.source
    pods = None
    try:
        pods = source.pods()
        faults: Sequence[MemqosError] = source.faults
    except PodsPending:
        return None, not source.lacks_pods
    except MemqosError as error:
        faults = [error]
    for fault in faults:
        core.report.log_error("source", fault)
    return pods, not faults


def _settle_kubelet_entries(
    core: Reconciler, writer: NodeWriter, now: float, *, answered: bool
) -> None:
    """Drop undo entries of files that the kubelet writes itself, once it has said that it does.

    What was written in its place, by an earlier agent perhaps, is to be restored where it does not.
    """
    intent, node_settings = core.node_intent, core.planner.node_settings
    if not answered:
        if any(
            entry.is_unconfirmed or entry.key[:2] in intent.kubelet_managed
            for entry in writer.undo_entries.values()
        ):
            core.request_confirmation(now)
    elif node_settings.kubelet is not None and node_settings.doubt is None:
        files = files_kept_by(node_settings.kubelet, core.planner.names)
        writer.settle_kubelet_entries({place: intent.managed_value(place) for place in files})


def _restore(core: Reconciler, writer: NodeWriter, clock: MonotonicClock, *, is_full: bool) -> None:
    entries = core.due_restores(writer.undo_entries, clock())
    if entries:
        core.settle_restores(writer.restore(entries, core.report), entries, clock())
    elif is_full and not core.pending_restores:
        writer.release_journal()


def _refresh_settings(core: Reconciler, reader: NodeReader, writer: NodeWriter, now: float) -> bool:
    """Plan by the node's settings of now; whether they could be worked out."""
    try:
        node_settings, before = _read_settings(reader, writer), core.planner.node_settings
        if reader.settings_source.is_requested:
            core.note_kubelet_request()
        if node_settings != before:
            # Confirmed before the new settings take effect: they are what the kubelet says now.
            core.confirm(now, answered=reader.settings_source.is_fresh)
            core.reconfigure(_new_planner(reader, node_settings), now)
            if before.doubt != KUBELET_PENDING:
                core.report.log("info", "the node's own configuration has changed")
            core.take_due(now)
        for severity, note in reader.take_settings_notes():
            core.report.log(severity, note)
    except MemqosError as error:
        core.report.log_error("configuration", error)
        return False
    return True
