"""One pass of an agent: ask, look, judge, write, take in. It may block, and runs off the loop.

It does not wait for a kubelet: that is asked by a thread of its own, and a pass takes in its
answers.
"""

import time
from collections.abc import Callable, Sequence
from typing import Protocol

from memqos.agent.core.node_guard import NodeGuard
from memqos.agent.core.pod_intent import IntentPlanner
from memqos.agent.core.reconciler import Reconciler
from memqos.agent.node_writer import NodeWriter
from memqos.agent.pod_source import PodsPending, has_answer, lacks_pods, stale_source_reason
from memqos.agent.settings_source import KUBELET_PENDING
from memqos.converge.pod_sources import faults_of
from memqos.errors import MemqosError
from memqos.kube.pod import Pod


class MonotonicClock(Protocol):
    """Seconds that only go forward."""

    def __call__(self) -> float: ...


def build_reconciler(node: NodeWriter, now: float, guard: NodeGuard | None = None) -> Reconciler:
    """The core for this machine; raises where the machine cannot be planned."""
    core = Reconciler(
        IntentPlanner(node.configuration, node.node_settings(), node.read_own_cgroup()), now, guard
    )
    if node.configuration.mode == "observe" and (values := node.count_leftover_values()):
        core.report.log(
            "warning",
            "values of memqos are in place here: memqos rollback gives them back",
            values=values,
        )
    return core


def reconfigure(core: Reconciler, node: NodeWriter, now: float) -> None:
    """Work under what the hand's configuration and the machine say now."""
    desires = IntentPlanner(node.configuration, node.node_settings(), node.read_own_cgroup())
    if node.is_requested:
        core.note_kubelet_request()
    core.reconfigure(desires, now)


def note_kubelet_reply(core: Reconciler, node: NodeWriter, now: float) -> None:
    """The kubelet has answered: have a pass take it in, of the whole node if that lacked pods."""
    core.schedule.schedule_reply(now)
    if lacks_pods(node.source) and has_answer(node.source):
        core.resync(now)


def run_pass(
    core: Reconciler,
    node: NodeWriter,
    clock: MonotonicClock,
    random: Callable[[], float] = lambda: 0.5,
) -> bool:
    """Do what is due; whether it was about the whole node, pods included.

    Where it raises, what was to be looked at has not been: the whole node has to be.
    """
    begun = time.perf_counter()
    now = clock()
    due = core.take_due(now, random())
    complete = not lacks_pods(node.source)
    pods = None
    if due.fetches_pods or has_answer(node.source):
        # Pods first: what the cluster says of the node comes with them.
        pods, complete = _fetch_pods(core, node)
    if due.is_full:
        for missed in (node.rediscover_owners(), stale_source_reason(node.source)):
            if missed is not None:
                core.report.log_error("source", missed)
    is_ground_due = node.is_settings_due()
    if due.confirms_kubelet and not (core.drift.is_requested and node.is_request_pending):
        node.refresh()
    if due.is_full or due.fetches_pods or due.confirms_kubelet or is_ground_due:
        is_grounded = _refresh_settings(core, node, now)
        complete &= is_grounded
        core.confirm(now, answered=is_grounded and node.is_fresh)
        is_confirmed = is_grounded and node.is_fresh and core.drift.unconfirmed_since is None
        _drop_kubelet_entries(core, node, now, answered=is_confirmed)
    if pods is not None:
        core.accept_pods(pods, now)
    if core.bindings is not None:
        core.accept_checkpoint(node.read_checkpoint(), now)
    steps = core.plan_writes(node.read_cgroups(core.scope(now)), now)
    _restore(core, node, clock, whole=due.is_full)
    results, moved = node.write(steps, core.report) if steps else ([], [])
    core.settle_writes(results, moved, clock())
    trigger = "resync" if due.is_full else "event"
    core.report.reconcile_seconds[trigger].observe(time.perf_counter() - begun)
    return complete and core.is_full_pass and core.node_intent.has_pods


def _fetch_pods(core: Reconciler, node: NodeWriter) -> tuple[list[Pod] | None, bool]:
    """The pods as far as the source tells them, and whether it tells all of them."""
    pods = None
    try:
        pods = node.pods()
        faults: Sequence[MemqosError] = faults_of(node.source)
    except PodsPending:
        return None, not lacks_pods(node.source)
    except MemqosError as error:
        faults = [error]
    for fault in faults:
        core.report.log_error("source", fault)
    return pods, not faults


def _drop_kubelet_entries(
    core: Reconciler, node: NodeWriter, now: float, *, answered: bool
) -> None:
    """Forget what was in files that the kubelet keeps itself, once it has said that it does."""
    kept = core.node_intent.kubelet_managed
    if not any(key[:2] in kept for key in node.undo_entries):
        return
    if answered:
        node.drop_kubelet_entries(kept)
    else:
        core.request_confirmation(now)


def _restore(core: Reconciler, node: NodeWriter, clock: MonotonicClock, *, whole: bool) -> None:
    owed = core.due_restores(node.undo_entries, clock())
    if owed:
        core.settle_restores(node.restore(owed, core.report), owed, clock())
    elif whole and not core.pending_restores:
        node.release_journal()


def _refresh_settings(core: Reconciler, node: NodeWriter, now: float) -> bool:
    try:
        node_settings, before = node.node_settings(), core.planner.node_settings
        if node.is_requested:
            core.note_kubelet_request()
        if node_settings != before:
            # Confirmed before the new settings take effect: they are what the kubelet says now.
            core.confirm(now, answered=node.is_fresh)
            core.reconfigure(
                IntentPlanner(node.configuration, node_settings, node.read_own_cgroup()), now
            )
            if before.doubt != KUBELET_PENDING:
                core.report.log("info", "the node's own configuration has changed")
            core.take_due(now)
        for severity, note in node.take_settings_notes():
            core.report.log(severity, note)
    except MemqosError as error:
        core.report.log_error("configuration", error)
        return False
    return True
