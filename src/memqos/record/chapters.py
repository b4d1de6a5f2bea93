"""A container's story as values: what happened when, the rule that decided, what prevents it."""

from collections.abc import Iterator
from typing import Final, Literal, NamedTuple

import msgspec

from memqos.errors import MemqosError
from memqos.plan.container import LIMIT
from memqos.plan.rules import EVICTION_RANK, MIN_PROTECTS_CACHE, OOM_NODE
from memqos.plan.setting import Rule
from memqos.record.format import (
    CountRecord,
    EvictionRecord,
    KillRecord,
    LevelRecord,
    LifeRecord,
    PressureRecord,
)
from memqos.record.recordings import SAME_END, RecordIndex, size_of
from memqos.record.usage import describe_kinds, gauge_evidence, kill_usage, level_usage
from memqos.units import duration_words, format_bytes, pluralize

ChapterKind = Literal[
    "throttled",
    "guarded",
    "killed",
    "evicted",
    "resized",
    "changed",
    "pressed",
    "lived",
    "gap",
    "ended",
    "told",
]


class Chapter(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that happened. Times are milliseconds since 1970."""

    at: int
    kind: ChapterKind
    what: str
    """The sentence."""
    evidence: tuple[str, ...] = ()
    until: int | None = None
    rule: str | None = None
    """The rule that decided, by its id."""
    because: str | None = None
    """What that rule says, or why there is none."""
    remedies: tuple[str, ...] = ()


class Story(msgspec.Struct, frozen=True, kw_only=True):
    """All that is known of a container."""

    namespace: str
    pod: str
    container: str
    qos: str
    since: int
    until: int
    records: int
    chapters: tuple[Chapter, ...]
    notes: tuple[str | MemqosError, ...] = ()
    cluster: str = msgspec.field(default="", name="told_by")
    """The cluster whose status and events are part of it; empty where none was queried."""
    sources: tuple[str, ...] = ()
    """What it rests on, where a cluster was queried."""

    @property
    def remedies(self) -> tuple[str, ...]:
        """What would have prevented it, without repetition."""
        return tuple(
            dict.fromkeys(remedy for chapter in self.chapters for remedy in chapter.remedies)
        )


class QuotedRule(NamedTuple):
    """A rule as a chapter quotes it."""

    id: str | None
    text: str | None
    """What the rule says, or why there is none."""


def quote_rule(rule: Rule) -> QuotedRule:
    """A rule that is known."""
    return QuotedRule(rule.id, rule.text)


EVICTION_REMEDY: Final = (
    "a memory request not below its usage, or a higher priority (memqos rank eviction "
    "shows the order)"
)


def limit_rule(*, trapped: bool = False) -> QuotedRule:
    """What kills at a limit; `trapped` is page cache that protection keeps from being reclaimed."""
    return quote_rule(MIN_PROTECTS_CACHE if trapped else LIMIT)


def limit_remedies(limit: int | None, *, trapped: bool = False) -> Iterator[str]:
    """What would have prevented that."""
    if trapped:
        yield (
            "protection set on the pod instead of its containers (placement: pods), or a margin "
            "below the limit"
        )
        return
    above = "" if limit is None else f" above {format_bytes(limit)}"
    yield f"a memory limit{above}, if it needs that much, or fix the leak"


_BEFORE: Final = 600_000
"""Milliseconds before a kill in which growth is looked for."""
_NEARLY_ALL: Final = 0.9
_MUCH: Final = 0.2
_REPORTED_STALL: Final = 100
"""Thousandths of the time that tasks of the node waited for memory; less is not mentioned."""


def kill_chapters(facts: RecordIndex) -> Iterator[Chapter]:
    """Kills that the kernel has reported."""
    for kill in facts.records_of(KillRecord):
        is_limit = kill.constraint == "memcg"
        yield (_limit_kill_chapter if is_limit else _node_kill_chapter)(facts, kill)


def _limit_kill_chapter(facts: RecordIndex, kill: KillRecord) -> Chapter:
    level = facts.level_before(kill.at)
    whose = _whose_limit(facts, kill)
    evidence = [*_rank_evidence(kill)]
    if kill.usage is not None:
        evidence.append(
            f"{size_of(kill.usage)} were in use of {size_of(kill.limit)}; the process had "
            f"{size_of(kill.anon)} of anonymous memory"
        )
    own = kill_usage(kill)
    usage = own if own.rss is not None or level is None else level_usage(level)
    if own.rss is not None or (level is not None and level.kernel is not None):
        evidence.append(f"by kind: {describe_kinds(usage)}")
        evidence += gauge_evidence(usage, kill.limit)
    trapped = level is not None and _is_trapped(level)
    if level is not None:
        grown = _growth_evidence(facts, kill.at)
        if grown:
            evidence.append(grown)
        if trapped:
            evidence.append(
                f"{size_of(level.file)} of page cache could not be reclaimed: memory.min "
                f"{size_of(level.min)} protects all of it up to the limit"
            )
        evidence += _tmpfs_evidence(level)
        evidence += _left_in_pod_evidence(facts, kill, level)
    limit = kill.limit or (level.max if level else None)
    rule = limit_rule(trapped=trapped)
    return Chapter(
        at=kill.at,
        kind="killed",
        what=f"OOM-killed by the kernel: {kill.comm or 'a process'} (pid {kill.pid}), because "
        f"{whose} "
        "was reached" + (f"; {pluralize(kill.along, 'other')} with it" if kill.along else ""),
        evidence=tuple(evidence),
        rule=rule.id,
        because=rule.text,
        remedies=(*_tmpfs_remedies(level), *limit_remedies(limit, trapped=trapped)),
    )


def _whose_limit(facts: RecordIndex, kill: KillRecord) -> str:
    own = {each.cgroup for each in facts.records_of(LifeRecord)}
    if kill.oom_cgroup in own or not kill.oom_cgroup:
        return "the container's memory limit"
    if any(path.startswith(f"{kill.oom_cgroup}/") for path in own):
        return "the memory limit of its pod"
    return f"the memory limit of {kill.oom_cgroup}"


def _is_trapped(level: LevelRecord) -> bool:
    """Whether page cache makes up much of a container that protects all of its memory."""
    full = level.max is not None and level.min >= _NEARLY_ALL * level.max
    return full and level.file >= _MUCH * max(1, level.current)


def _tmpfs_evidence(level: LevelRecord) -> Iterator[str]:
    """Files in a memory-backed volume stay when their writer is killed, and are charged again."""
    if _fills_tmpfs(level):
        yield (
            f"{size_of(level.shmem)} of it were files in memory (memory-backed volumes, "
            f"/dev/shm): files of a volume outlive the container and still count after its "
            f"restart"
        )


def _left_in_pod_evidence(
    facts: RecordIndex, kill: KillRecord, level: LevelRecord
) -> Iterator[str]:
    """A volume's files stay charged to the pod when the cgroup of their writer is removed."""
    own = {each.cgroup for each in facts.records_of(LifeRecord)}
    is_pod = any(path.startswith(f"{kill.oom_cgroup}/") for path in own) and bool(kill.oom_cgroup)
    elsewhere = (kill.usage or 0) - level.current
    if is_pod and elsewhere >= _MUCH * max(1, kill.usage or 0):
        yield (
            f"{size_of(elsewhere)} were charged to the pod and not to this container: to its "
            "other containers, or to files in memory-backed volumes that an earlier container "
            "wrote"
        )


def _tmpfs_remedies(level: LevelRecord | None) -> Iterator[str]:
    if level is not None and _fills_tmpfs(level):
        yield (
            "a sizeLimit on the memory-backed volume well below the memory limit, or an "
            "application that empties the volume at start"
        )


def _fills_tmpfs(level: LevelRecord) -> bool:
    return level.shmem >= _MUCH * max(1, level.current)


def _node_kill_chapter(facts: RecordIndex, kill: KillRecord) -> Chapter:
    node = facts.node_at(kill.at)
    evidence = [*_rank_evidence(kill), f"it had {size_of(kill.anon)} of anonymous memory"]
    if node is not None:
        evidence.append(_node_evidence(node))
    rule = quote_rule(OOM_NODE)
    return Chapter(
        at=kill.at,
        kind="killed",
        what=f"OOM-killed by the kernel: {kill.comm or 'a process'} (pid {kill.pid}), because "
        f"the node was out of memory",
        evidence=tuple(evidence),
        rule=rule.id,
        because=rule.text,
        remedies=(
            "a higher memory request: it lowers oom_score_adj and keeps other pods off the node",
            "eviction thresholds that act before the kernel OOM-kills (memqos rank eviction)",
        ),
    )


def _rank_evidence(kill: KillRecord) -> Iterator[str]:
    if kill.rank is not None:
        score = "" if kill.oom_score_adj is None else f", oom_score_adj {kill.oom_score_adj}"
        points = "" if kill.points is None else f", with a score of {kill.points:,} pages"
        text = f"number {kill.rank} of {kill.candidates} OOM candidates{points}{score}"
        yield text.replace(" -", " −")
    elif kill.oom_score_adj is not None:
        yield f"oom_score_adj {kill.oom_score_adj}".replace(" -", " −")


def _growth_evidence(facts: RecordIndex, at: int) -> str:
    before = [level for level in facts.levels if at - _BEFORE <= level.at < at]
    if len(before) < 2 or before[-1].current <= before[0].current * 1.1:
        return ""
    first, last = before[0], before[-1]
    return (
        f"usage had grown from {size_of(first.current)} to {size_of(last.current)} in the "
        f"{duration_words(last.at - first.at)} before"
    )


def kill_count_chapters(facts: RecordIndex) -> Iterator[Chapter]:
    """Kills that the kernel counted and whose report was not read."""
    reported = [kill.at for kill in facts.records_of(KillRecord)]
    for record in facts.records_of(CountRecord):
        if record.event != "oom_kill" or any(abs(at - record.at) <= SAME_END for at in reported):
            continue
        level, known = facts.level_before(record.at), facts.level_at(record.at)
        trapped = level is not None and _is_trapped(level)
        limit = None if known is None else known.max
        evidence = [f"memory.events: oom_kill +{record.count}; the kernel's report was not read"]
        if level is not None:
            evidence.append(
                f"just before, {size_of(level.current)} were in use of {size_of(level.max)}, "
                f"{size_of(level.anon)} anonymous"
            )
            if level.kernel is not None:
                evidence.append(f"by kind: {describe_kinds(level_usage(level))}")
                evidence += gauge_evidence(level_usage(level), level.max)
            evidence += _tmpfs_evidence(level)
        rule = limit_rule(trapped=trapped)
        yield Chapter(
            at=record.at,
            kind="killed",
            what=f"OOM-killed by the kernel: {pluralize(record.count, 'process', 'processes')}",
            evidence=tuple(evidence),
            rule=rule.id,
            because=rule.text,
            remedies=(*_tmpfs_remedies(level), *limit_remedies(limit, trapped=trapped)),
        )


def eviction_chapters(facts: RecordIndex) -> Iterator[Chapter]:
    """Evictions by the kubelet."""
    rule = quote_rule(EVICTION_RANK)
    for record in facts.records_of(EvictionRecord):
        level, node = facts.level_at(record.at), facts.node_at(record.at)
        evidence = [record.message] if record.message else []
        if level is not None:
            evidence.append(
                f"{size_of(level.current)} were in use, {size_of(level.anon)} anonymous"
            )
        if node is not None:
            evidence.append(_node_evidence(node))
        yield Chapter(
            at=record.at,
            kind="evicted",
            what="evicted by the kubelet",
            evidence=tuple(evidence),
            rule=rule.id,
            because=rule.text,
            remedies=(EVICTION_REMEDY,),
        )


def _node_evidence(node: PressureRecord) -> str:
    waited = ""
    if node.some >= _REPORTED_STALL:
        waited = f", tasks waited {node.some / 10:.0f} % of the time"
    return f"the node had {size_of(node.available)} of {size_of(node.total)} available{waited}"
