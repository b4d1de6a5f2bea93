"""What an agent says of what it does, so that a person can follow it."""

from collections.abc import Iterable
from typing import Final

from memqos.agent.core.aims import Aims
from memqos.agent.core.desires import Wish
from memqos.agent.tally import Tally
from memqos.converge.owed import Owed
from memqos.plan.changes import Change

_NAMED: Final = 20
"""So many pods are named in one message."""


def tell_of_wish(tally: Tally, wish: Wish) -> None:
    """What a pod's author should know."""
    for refused in wish.refused:
        tally.say("warning", f"annotation ignored: {refused}", pod=wish.key)
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


def tell_written(tally: Tally, change: Change, value: str, done: str = "written") -> None:
    """One value that is in place."""
    tally.wrote(change)
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
