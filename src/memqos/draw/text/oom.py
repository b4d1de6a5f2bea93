"""The order in which the kernel kills, as text and as data."""

from collections.abc import Callable, Iterator
from typing import Any, Final

import msgspec

from memqos.draw.text.lines import Line, Table
from memqos.plan.oom_kill import Candidate, Kill, KillOrder, Spared
from memqos.plan.owners import CgroupOwner, Owners
from memqos.units import format_bytes, pluralize

_SHOWN_ALONG: Final = 3
_DROP: Final = {"adj adds": 6, "uses": 5, "pid": 3}


class OomKillReport(msgspec.Struct, frozen=True, kw_only=True):
    """An order of killing, and the facts it follows from."""

    order: KillOrder
    owners: Owners
    memory: int | None
    """Bytes of RAM, and of swap; None where only their sum is known."""
    swap: int | None
    total: int
    page_size: int
    notes: tuple[str, ...] = ()


def oom_kill_text(found: OomKillReport, shown: int) -> list[Line]:
    """The first to die, with what each counts as."""
    kills = found.order.kills
    rows = [
        ["", "process", "belongs to", "pid", "adj", "uses", "adj adds", "counts as", "oom_score"],
    ]
    for place, kill in enumerate(kills[:shown], 1):
        rows.append(_kill_row(f"{place}", kill, found))
    lines: list[Line] = [Table(rows, left=3, drop=_DROP) if kills else "no process can be killed"]
    if len(kills) > shown:
        lines.append(f"… {len(kills) - shown} more: -o json lists all")
    counts: dict[Spared, int] = {}
    for _, why in found.order.spared:
        counts[why] = counts.get(why, 0) + 1
    if counts:
        words = [_SPARED_WORDS[why](count) for why, count in counts.items()]
        lines.append(f"never killed: {', '.join(words)}")
    return lines


_SPARED_WORDS: Final[dict[Spared, Callable[[int], str]]] = {
    "init": lambda count: "init",
    "kernel thread": lambda count: pluralize(count, "kernel thread"),
    "oom_score_adj -1000": lambda count: f"{count} with oom_score_adj −1000",
}


def _kill_row(place: str, kill: Kill, found: OomKillReport) -> list[str]:
    victim = kill.victim
    process, page = victim.process, found.page_size
    owner = found.owners.of(process.cgroup)
    belongs = str(owner) if owner is not None else process.cgroup or ""
    if owner is not None and owner.qos is not None:
        belongs += f" ({owner.qos})"
    if kill.along:
        belongs += f" + {len(kill.along)} with it"
    return [
        place,
        process.comm,
        belongs,
        "–" if process.pid is None else str(process.pid),
        str(process.oom_score_adj).replace("-", "−"),
        "?" if process.rss is None else format_bytes(victim.pages * page),
        format_bytes(victim.adjustment * page),
        format_bytes(victim.points * page),
        str(victim.score),
    ]


def oom_kill_reasons(found: OomKillReport, shown: int) -> list[str]:
    """How each position is computed."""
    page = found.page_size
    pages = found.total // page
    lines = ["", "why"]
    lines.append(
        f"  RAM and swap {format_bytes(found.total)} = {pages:,} pages of {page}; "
        f"a thousandth is {pages // 1000:,} pages"
    )
    for place, kill in enumerate(found.order.kills[:shown], 1):
        lines.append(
            f"  {place}. {kill.victim.process.comm}{_pid(kill.victim)}: "
            f"{_points_words(kill, found)}"
        )
        lines += [f"     {line}" for line in _group_kill_lines(kill, found.owners)]
    return lines


def _points_words(kill: Kill, found: OomKillReport) -> str:
    victim, process = kill.victim, kill.victim.process
    used = "not measured"
    if process.rss is not None:
        used = (
            f"rss {format_bytes(process.rss)} + swap {format_bytes(process.swap)} + page tables "
            f"{format_bytes(process.page_tables)} = {victim.pages:,}"
        )
    adjustment = (
        f"{process.oom_score_adj} × {found.total // found.page_size // 1000:,} = "
        f"{victim.adjustment:,}"
    )
    return f"{used}; {adjustment}; together {victim.points:,} pages".replace("-", "−")


def _group_kill_lines(kill: Kill, owners: Owners) -> Iterator[str]:
    if not kill.along:
        return
    names = [f"{each.process.comm}{_pid(each)}" for each in kill.along[:_SHOWN_ALONG]]
    more = len(kill.along) - len(names)
    group = kill.victim.process.oom_group
    yield (
        f"memory.oom.group is set on {owners.of(group) or group}: "
        f"{', '.join(names)}{f' and {more} more' if more else ''} with it"
    )


def _pid(candidate: Candidate) -> str:
    return "" if candidate.process.pid is None else f" ({candidate.process.pid})"


def oom_kill_data(found: OomKillReport) -> dict[str, Any]:
    """All of it as plain data, which `--from` reads again."""
    processes = [
        _candidate_data(place, candidate, found)
        for place, kill in enumerate(found.order.kills, 1)
        for candidate in (kill.victim, *kill.along)
    ]
    spared = [msgspec.to_builtins(process) | {"spared": why} for process, why in found.order.spared]
    return {
        "memory": found.memory,
        "swap": found.swap,
        "total": found.total,
        "page_size": found.page_size,
        "notes": list(found.notes),
        "processes": processes + spared,
    }


def _candidate_data(place: int, candidate: Candidate, found: OomKillReport) -> dict[str, Any]:
    owner: CgroupOwner | None = found.owners.of(candidate.process.cgroup)
    return {
        "place": place,
        **msgspec.to_builtins(candidate.process),
        "points": candidate.points,
        "oom_score": candidate.score,
        "pod": None if owner is None else owner.pod,
        "container": None if owner is None else owner.container,
        "qosClass": None if owner is None else owner.qos,
    }
