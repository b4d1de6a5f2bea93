"""What an agent says of what it does, so that a person can follow it."""

from collections.abc import Iterable
from typing import Final

from memqos.agent.core.drift import Drift
from memqos.agent.core.guard import WIDENED
from memqos.agent.core.node_intent import Aims
from memqos.agent.core.pod_intent import Wish
from memqos.agent.tally import Tally
from memqos.converge.settings import PROTECTION
from memqos.converge.undo import Owed
from memqos.draw.scale import short_size
from memqos.kernel.nodelists import named_nodes, nodes_in
from memqos.plan.changes import DEFAULTS, Change
from memqos.plan.cpuset import MEMS
from memqos.plan.names import outer

_NAMED: Final = 20
"""So many pods are named in one message."""


def tell_of_wish(tally: Tally, wish: Wish) -> None:
    """What a pod's author should know."""
    if tally.is_news(wish.key, wish.refused) and wish.refused:
        refused = "; ".join(wish.refused)
        more = wish.ignored - len(wish.refused)
        which = f"{refused}; and {more} more" if more else refused
        many = "annotation" if wish.ignored == 1 else f"{wish.ignored} annotations"
        tally.say("warning", f"{many} ignored: {which}", pod=wish.key)
        tally.announce(wish.pod, "AnnotationIgnored", which)
    for unresolved in wish.unresolved:
        container = {} if unresolved.container is None else {"container": unresolved.container}
        tally.say("debug", f"unresolved: {unresolved.why}", pod=wish.key, **container)


def tell_left_out(tally: Tally, aims: Aims, changed: Iterable[str]) -> None:
    """Whose memory.min is not reserved from now on, and whose is again."""
    for is_out, words in (
        (True, "memory.min not reserved: the sum would pass its share of memory"),
        (False, "memory.min reserved again"),
    ):
        named = sorted(
            wish.key
            for path in changed
            if (path in aims.left_out) == is_out and (wish := aims.by_path.get(path)) is not None
        )
        if named:
            more = "" if len(named) <= _NAMED else " …"
            pods = ", ".join(named[:_NAMED]) + more
            tally.say("warning" if is_out else "info", words, pods=pods, limit=aims.limit)


def tell_conflict(tally: Tally, debt: Owed, found: str) -> None:
    """A value that is not given back."""
    tally.returned[debt.file, "conflict"] += 1
    tally.say(
        "warning",
        "not given back: changed by others since",
        place=f"{debt.path}/{debt.file}",
        found=found,
        before=debt.original,
    )


def tell_written(
    tally: Tally, change: Change, value: str, now: float, done: str = "written"
) -> None:
    """One value that is in place."""
    tally.wrote(change, now)
    of = {"pod": change.pod, "container": change.container}
    tally.say(
        "info",
        done,
        place=f"{change.path}/{change.file}",
        old=change.old,
        new=value,
        rule=change.setting.rule.id,
        **{name: whose for name, whose in of.items() if whose is not None},
    )


def announce_written(
    tally: Tally, wish: Wish | None, change: Change, value: str, drift: Drift | None
) -> None:
    """Have a pod's cluster told of a value that is in place; nothing of one taken back."""
    if wish is None:
        return
    of, amount = change.container or "the pod", _amount(change.file, value)
    if drift is not None and (drift.found, drift.held) == (change.old, value):
        found = _amount(change.file, drift.found)
        what = f"{change.file} of {of} put back to {amount}: it was {found} ({drift.cause})"
        tally.announce(wish.pod, "MemoryDrifted", what)
    elif change.file == MEMS or value == DEFAULTS.get(change.file):
        return
    elif change.file in PROTECTION:
        tally.announce(wish.pod, "MemoryProtected", f"{change.file} {amount} of {of}")
    elif change.setting.rule is not WIDENED:
        tally.announce(wish.pod, "ThrottleLimitSet", f"memory.high {amount} of {of}")
    elif change.raises:
        what = f"memory.high of {of} widened to {amount}: at less it could not progress"
        tally.announce(wish.pod, "GuardWidened", what)
    else:
        what = f"memory.high of {of} narrowed to {amount}: the pressure is gone"
        tally.announce(wish.pod, "GuardNarrowed", what)


def announce_contested(tally: Tally, wish: Wish | None, drift: Drift) -> None:
    """Have a pod's cluster told that a value is no longer put back."""
    if wish is None:
        return
    path = outer(drift.path)
    of = next((each.container for each in wish.cgroups if each.path == path), None) or "the pod"
    found, held = _amount(drift.file, drift.found), _amount(drift.file, drift.held)
    what = (
        f"{drift.file} of {of} is left at {found}: others change it again and again "
        f"({drift.cause}), though it should be {held}"
    )
    tally.announce(wish.pod, "MemoryContested", what)


def _amount(file: str, content: str) -> str:
    if file == MEMS:
        return named_nodes(nodes_in(content)) if content else "any node"
    return short_size(int(content)) if content.isdigit() else content
