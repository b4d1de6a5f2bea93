"""How containers end: killed at a limit, killed with the node, evicted; and who is to blame."""

from collections.abc import Iterator
from typing import Final

from memqos.agent.recorder.records import Counted, Evicted, Killed, Level, Lived, Pressed
from memqos.agent.story.facts import SAME_END, Facts, duration, size_of
from memqos.agent.story.rules import AGAINST_EVICTION, EVICTION, against_limit, at_limit
from memqos.draw.amounts import counted
from memqos.findings.chapters import Chapter

_BEFORE: Final = 600_000
"""How far back growth before a kill is looked at."""
_MOSTLY: Final = 0.9
_MUCH: Final = 0.2
_SHORT: Final = 100
"""Thousandths of the time waited on the node for memory that are worth telling."""


def kills(facts: Facts) -> Iterator[Chapter]:
    """Kills that the kernel has reported."""
    for kill in facts.of(Killed):
        teller = _killed_at_limit if kill.constraint == "memcg" else _killed_with_node
        yield teller(facts, kill)


def _killed_at_limit(facts: Facts, kill: Killed) -> Chapter:
    level = facts.level_at(kill.at - 1)
    whose = _whose_limit(facts, kill)
    evidence = [*_rank(kill)]
    if kill.usage is not None:
        evidence.append(
            f"{size_of(kill.usage)} were in use of {size_of(kill.limit)}; the process held "
            f"{size_of(kill.anon)} of anonymous memory"
        )
    trapped = level is not None and _is_trapped(level)
    if level is not None:
        grown = _growth(facts, kill.at)
        if grown:
            evidence.append(grown)
        if trapped:
            evidence.append(
                f"{size_of(level.file)} of page cache could not be reclaimed: memory.min "
                f"{size_of(level.min)} protects all of it up to the limit"
            )
    limit = kill.limit or (level.max if level else None)
    return Chapter(
        kill.at,
        "killed",
        f"killed by the kernel: {kill.comm or 'a process'} (pid {kill.pid}), because {whose} was "
        "reached" + (f"; {counted(kill.along, 'other')} with it" if kill.along else ""),
        tuple(evidence),
        None,
        *at_limit(trapped=trapped),
        tuple(against_limit(limit, trapped=trapped)),
    )


def _whose_limit(facts: Facts, kill: Killed) -> str:
    own = {each.cgroup for each in facts.of(Lived)}
    if kill.oom_cgroup in own or not kill.oom_cgroup:
        return "the container's memory limit"
    if any(path.startswith(f"{kill.oom_cgroup}/") for path in own):
        return "the memory limit of its pod"
    return f"the memory limit of {kill.oom_cgroup}"


def _is_trapped(level: Level) -> bool:
    """Whether page cache makes up much of a container that protects all of its memory."""
    full = level.max is not None and level.min >= _MOSTLY * level.max
    return full and level.file >= _MUCH * max(1, level.current)


def _killed_with_node(facts: Facts, kill: Killed) -> Chapter:
    node = facts.node_at(kill.at)
    evidence = [*_rank(kill), f"it held {size_of(kill.anon)} of anonymous memory"]
    if node is not None:
        evidence.append(_of_node(node))
    return Chapter(
        kill.at,
        "killed",
        f"killed by the kernel: {kill.comm or 'a process'} (pid {kill.pid}), because the whole "
        "node was out of memory",
        tuple(evidence),
        None,
        "oom/node",
        "the process that counts most is killed: memory in use, and oom_score_adj thousandths of "
        "the node's memory",
        (
            "a higher memory request: it lowers oom_score_adj and keeps others off the node",
            "eviction thresholds that act before the kernel has to (memqos rank eviction)",
        ),
    )


def _rank(kill: Killed) -> Iterator[str]:
    if kill.rank is not None:
        score = "" if kill.oom_score_adj is None else f", oom_score_adj {kill.oom_score_adj}"
        points = "" if kill.points is None else f", which counted as {kill.points:,} pages"
        told = f"number {kill.rank} of {kill.candidates} that could be killed{points}{score}"
        yield told.replace(" -", " −")
    elif kill.oom_score_adj is not None:
        yield f"oom_score_adj {kill.oom_score_adj}".replace(" -", " −")


def _growth(facts: Facts, at: int) -> str:
    before = [level for level in facts.levels if at - _BEFORE <= level.at < at]
    if len(before) < 2 or before[-1].current <= before[0].current * 1.1:
        return ""
    first, last = before[0], before[-1]
    return (
        f"usage had grown from {size_of(first.current)} to {size_of(last.current)} in the "
        f"{duration(last.at - first.at)} before"
    )


def counted_kills(facts: Facts) -> Iterator[Chapter]:
    """Kills of which the kernel's report was not to be had."""
    reported = [kill.at for kill in facts.of(Killed)]
    for record in facts.of(Counted):
        if record.event != "oom_kill" or any(abs(at - record.at) <= SAME_END for at in reported):
            continue
        level = facts.level_at(record.at - 1)
        trapped = level is not None and _is_trapped(level)
        limit = None if level is None else level.max
        evidence = [f"memory.events: oom_kill +{record.count}; the kernel's report was not read"]
        if level is not None:
            evidence.append(
                f"just before, {size_of(level.current)} were in use of {size_of(level.max)}, "
                f"{size_of(level.anon)} anonymous"
            )
        yield Chapter(
            record.at,
            "killed",
            f"killed by the kernel: {counted(record.count, 'process', 'processes')}",
            tuple(evidence),
            None,
            *at_limit(trapped=trapped),
            tuple(against_limit(limit, trapped=trapped)),
        )


def evictions(facts: Facts) -> Iterator[Chapter]:
    """Evictions by the kubelet."""
    for record in facts.of(Evicted):
        level, node = facts.level_at(record.at), facts.node_at(record.at)
        evidence = [record.message] if record.message else []
        if level is not None:
            evidence.append(
                f"{size_of(level.current)} were in use, {size_of(level.anon)} anonymous"
            )
        if node is not None:
            evidence.append(_of_node(node))
        yield Chapter(
            record.at,
            "evicted",
            "evicted by the kubelet",
            tuple(evidence),
            None,
            *EVICTION,
            (AGAINST_EVICTION,),
        )


def _of_node(node: Pressed) -> str:
    waited = f", tasks waited {node.some / 10:.0f} % of the time" if node.some >= _SHORT else ""
    return f"the node had {size_of(node.available)} of {size_of(node.total)} available{waited}"
