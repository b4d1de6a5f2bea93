"""What an agent says of what it does, so that a person can follow it."""

from collections.abc import Iterable
from typing import Final

from memqos.agent.core.drift import Drift
from memqos.agent.core.guard import HIGH_WIDENED
from memqos.agent.core.node_intent import NodeIntent
from memqos.agent.core.pod_intent import PodIntent
from memqos.agent.tally import Report
from memqos.converge.settings import PROTECTION_FILES
from memqos.converge.undo import UndoEntry
from memqos.draw.scale import short_size
from memqos.kernel.nodelists import describe_nodes, nodes_in
from memqos.plan.changes import DEFAULTS, Change
from memqos.plan.cpuset import MEMS
from memqos.plan.names import outer

_NAMED: Final = 20
"""So many pods are named in one message."""


def report_pod_intent(report: Report, intent: PodIntent) -> None:
    """What a pod's author should know."""
    if (
        report.has_new_refusals(intent.key, intent.refused_annotations)
        and intent.refused_annotations
    ):
        refused = "; ".join(intent.refused_annotations)
        more = intent.ignored_annotations - len(intent.refused_annotations)
        which = f"{refused}; and {more} more" if more else refused
        many = (
            "annotation"
            if intent.ignored_annotations == 1
            else f"{intent.ignored_annotations} annotations"
        )
        report.log("warning", f"{many} ignored: {which}", pod=intent.key)
        report.announce(intent.pod, "AnnotationIgnored", which)
    for unresolved in intent.unresolved:
        container = {} if unresolved.container is None else {"container": unresolved.container}
        report.log("debug", f"unresolved: {unresolved.why}", pod=intent.key, **container)


def report_unreserved(report: Report, node_intent: NodeIntent, changed: Iterable[str]) -> None:
    """Whose memory.min is not reserved from now on, and whose is again."""
    for is_out, words in (
        (True, "memory.min not reserved: the sum would pass its share of memory"),
        (False, "memory.min reserved again"),
    ):
        named = sorted(
            wish.key
            for path in changed
            if (path in node_intent.unreserved) == is_out
            and (wish := node_intent.by_path.get(path)) is not None
        )
        if named:
            more = "" if len(named) <= _NAMED else " …"
            pods = ", ".join(named[:_NAMED]) + more
            report.log(
                "warning" if is_out else "info", words, pods=pods, limit=node_intent.reservable
            )


def report_restore_conflict(report: Report, entry: UndoEntry, found: str) -> None:
    """A value that is not given back."""
    report.restores[entry.file, "conflict"] += 1
    report.log(
        "warning",
        "not given back: changed by others since",
        place=f"{entry.path}/{entry.file}",
        found=found,
        before=entry.original,
    )


def report_write(
    report: Report, change: Change, value: str, now: float, done: str = "written"
) -> None:
    """One value that is in place."""
    report.note_write(change, now)
    of = {"pod": change.pod, "container": change.container}
    report.log(
        "info",
        done,
        place=f"{change.path}/{change.file}",
        old=change.old,
        new=value,
        rule=change.setting.rule.id,
        **{name: whose for name, whose in of.items() if whose is not None},
    )


def announce_written(
    report: Report, intent: PodIntent | None, change: Change, value: str, drift: Drift | None
) -> None:
    """Have a pod's cluster told of a value that is in place; nothing of one taken back."""
    if intent is None:
        return
    of, amount = change.container or "the pod", _amount(change.file, value)
    if drift is not None and (drift.found, drift.expected) == (change.old, value):
        found = _amount(change.file, drift.found)
        what = f"{change.file} of {of} put back to {amount}: it was {found} ({drift.cause})"
        report.announce(intent.pod, "MemoryDrifted", what)
    elif change.file == MEMS or value == DEFAULTS.get(change.file):
        return
    elif change.file in PROTECTION_FILES:
        report.announce(intent.pod, "MemoryProtected", f"{change.file} {amount} of {of}")
    elif change.setting.rule is not HIGH_WIDENED:
        report.announce(intent.pod, "ThrottleLimitSet", f"memory.high {amount} of {of}")
    elif change.raises:
        what = f"memory.high of {of} widened to {amount}: at less it could not progress"
        report.announce(intent.pod, "GuardWidened", what)
    else:
        what = f"memory.high of {of} narrowed to {amount}: the pressure is gone"
        report.announce(intent.pod, "GuardNarrowed", what)


def announce_contested(report: Report, intent: PodIntent | None, drift: Drift) -> None:
    """Have a pod's cluster told that a value is no longer put back."""
    if intent is None:
        return
    path = outer(drift.path)
    of = next((each.container for each in intent.cgroups if each.path == path), None) or "the pod"
    found, held = _amount(drift.file, drift.found), _amount(drift.file, drift.expected)
    what = (
        f"{drift.file} of {of} is left at {found}: others change it again and again "
        f"({drift.cause}), though it should be {held}"
    )
    report.announce(intent.pod, "MemoryContested", what)


def _amount(file: str, content: str) -> str:
    if file == MEMS:
        return describe_nodes(nodes_in(content)) if content else "any node"
    return short_size(int(content)) if content.isdigit() else content
