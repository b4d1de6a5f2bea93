"""From records to a story: what happened to a container, why, and what would have prevented it."""

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from typing import Final, TypeVar

from memqos.agent.record_format import (
    Changed,
    Counted,
    Evicted,
    Guarded,
    Killed,
    Level,
    Lived,
    Paused,
    Pressed,
    Record,
    Resized,
    Throttled,
    Who,
)
from memqos.agent.recorder import Recording
from memqos.draw.amounts import counted
from memqos.draw.scale import short_size
from memqos.findings.chapters import Chapter, Story

_NEAR: Final = 15_000
"""Milliseconds within which a count and a report are taken for the same kill."""
_BEFORE: Final = 600_000
"""How far back growth before a kill is looked at."""
_MOSTLY: Final = 0.9
_MUCH: Final = 0.2
_SHORT: Final = 100
"""Thousandths of the time waited on the node for memory that are worth telling."""
_MI: Final = 1 << 20

_Kind = TypeVar("_Kind", bound=Record)

_GUARD: Final = "the guard of memqos agent, which widens memory.high for who cannot progress"


def story_of(recording: Recording, node: Recording | None = None) -> Story:
    """The story of one container, with the node's own where it matters."""
    who, records = recording.who, sorted(recording.records, key=lambda record: record.at)
    facts = _Facts(who, records, () if node is None else node.records)
    tellers = (
        _throttling,
        _guarding,
        _kills,
        _counted_kills,
        _evictions,
        _resizes,
        _changes,
        _gaps,
    )
    chapters = [chapter for tell in tellers for chapter in tell(facts)]
    notes = []
    if recording.damaged:
        notes.append(f"{counted(recording.damaged, 'byte')} of the record are damaged")
    return Story(
        namespace=who.namespace,
        pod=who.pod,
        container=who.container,
        qos=who.qos,
        since=records[0].at if records else 0,
        until=records[-1].at if records else 0,
        records=len(records),
        chapters=tuple(sorted(chapters, key=lambda chapter: chapter.at)),
        notes=tuple(notes),
    )


class _Facts:
    """Records by kind, and how things stood at a time."""

    def __init__(self, who: Who, records: Sequence[Record], node: Iterable[Record]) -> None:
        self.who = who
        self._records = records
        self.levels = self.of(Level)
        self._times = [level.at for level in self.levels]
        self.pressed = [record for record in node if isinstance(record, Pressed)]

    def of(self, kind: type[_Kind]) -> list[_Kind]:
        return [record for record in self._records if isinstance(record, kind)]

    def level_at(self, at: int) -> Level | None:
        """The last level before a time, or else the first after it."""
        if not self.levels:
            return None
        return self.levels[max(0, bisect_right(self._times, at) - 1)]

    def peak(self, since: int, until: int) -> int:
        return max([each.current for each in self.levels if since <= each.at <= until], default=0)

    def decided(self, file: str, at: int) -> Changed | None:
        """Who last set a file before a time, where that is recorded."""
        return max(
            (each for each in self.of(Changed) if each.file == file and each.at <= at),
            key=lambda each: each.at,
            default=None,
        )

    def guarded(self, since: int) -> bool:
        """Whether the guard was there from a time on."""
        return any(step.at >= since for step in self.of(Guarded))

    def node_at(self, at: int) -> Pressed | None:
        near = [each for each in self.pressed if abs(each.at - at) <= 4 * _NEAR]
        return min(near, key=lambda each: each.available, default=None)


def _throttling(facts: _Facts) -> Iterator[Chapter]:
    episodes: dict[int, list[Throttled]] = {}
    for record in facts.of(Throttled):
        episodes.setdefault(record.since, []).append(record)
    for since, (begun, *rest) in episodes.items():
        last = rest[-1] if rest else begun
        until = last.at if last.is_over else max(last.at, _last_throttled(facts, last))
        events = last.events
        if not last.is_over:
            events = max(
                events,
                sum(each.high_events for each in facts.levels if since < each.at <= until),
            )
        level = facts.level_at(since + 1) or Level(0)
        high = begun.high or level.high or 0
        limit = level.max
        stays = max(0, begun.anon - begun.swap_room)
        cannot = bool(high) and stays >= _MOSTLY * high
        peak = max(facts.peak(since, until), begun.anon)
        decided = facts.decided("memory.high", until)
        swap = "no swap" if not begun.swap_room else f"{short_size(begun.swap_room)} of swap left"
        evidence = [
            f"{counted(events, 'high event')}; at worst nothing ran for "
            f"{last.full / 10:.0f} % of the time",
            f"memory.high {_size(high)} of a limit of {_size(limit)}; "
            f"{_size(begun.anon)} anonymous, {swap}"
            + (": nothing was left to reclaim" if cannot else ""),
        ]
        yield Chapter(
            since,
            "throttled",
            f"throttled for {_duration(until - since)}"
            + ("" if last.is_over else ", and still so when the record ends"),
            tuple(evidence),
            until,
            *_rule(decided),
            remedies=tuple(
                _against_throttling(high, limit, peak, stuck=cannot and not facts.guarded(since))
            ),
        )


def _last_throttled(facts: _Facts, begun: Throttled) -> int:
    """When an episode of which no end is recorded was last seen."""
    seen = [each.at for each in facts.levels if each.at >= begun.at and each.high_events]
    return max(seen, default=begun.at)


def _against_throttling(high: int, limit: int | None, peak: int, *, stuck: bool) -> Iterator[str]:
    if high and limit and peak:
        enough = -(-int(peak * 1.1 * limit / high) // _MI) * _MI
        if enough > limit:
            yield (
                f"a memory limit of about {short_size(enough)}: memory.high would have been above "
                f"the {short_size(peak)} it used"
            )
    yield 'memory.high kept off it: annotation memqos.io/throttling-factor: "1"'
    if stuck:
        yield f"swap for the node and the pod, or {_GUARD}"


def _guarding(facts: _Facts) -> Iterator[Chapter]:
    for steps in _runs(facts.of(Guarded)):
        first, last = steps[0], steps[-1]
        widens = first.kind == "widen"
        verb = "widened" if widens else "narrowed"
        top = f" = memory.max after step {last.step} of {last.steps}"
        evidence = (
            (
                f"{counted(max(each.events for each in steps), 'high event')} a second, nothing "
                f"ran for up to {max(each.full for each in steps) / 10:.0f} % of the time",
            )
            if widens
            else ("the pressure was gone",)
        )
        yield Chapter(
            first.at,
            "guarded",
            f"the guard {verb} memory.high from {_size(first.old)} to {_size(last.new)}"
            + (top if last.step == last.steps else f", step {last.step} of {last.steps}")
            + ("" if last.at == first.at else f", within {_duration(last.at - first.at)}"),
            evidence,
            last.at,
            "high/guard",
            "memory.high is widened step by step where a container cannot progress, and narrowed "
            "when that has passed",
        )


def _runs(steps: Sequence[Guarded]) -> Iterator[list[Guarded]]:
    run: list[Guarded] = []
    for step in steps:
        if run and step.kind != run[-1].kind:
            yield run
            run = []
        run.append(step)
    if run:
        yield run


def _kills(facts: _Facts) -> Iterator[Chapter]:
    for kill in facts.of(Killed):
        teller = _killed_at_limit if kill.constraint == "memcg" else _killed_with_node
        yield teller(facts, kill)


def _killed_at_limit(facts: _Facts, kill: Killed) -> Chapter:
    level = facts.level_at(kill.at - 1)
    whose = _whose_limit(facts, kill)
    evidence = [*_rank(kill)]
    if kill.usage is not None:
        evidence.append(
            f"{_size(kill.usage)} were in use of {_size(kill.limit)}; the process held "
            f"{_size(kill.anon)} of anonymous memory"
        )
    trapped = level is not None and _is_trapped(level)
    if level is not None:
        grown = _growth(facts, kill.at)
        if grown:
            evidence.append(grown)
        if trapped:
            evidence.append(
                f"{_size(level.file)} of page cache could not be reclaimed: memory.min "
                f"{_size(level.min)} protects all of it up to the limit"
            )
    limit = kill.limit or (level.max if level else None)
    return Chapter(
        kill.at,
        "killed",
        f"killed by the kernel: {kill.comm or 'a process'} (pid {kill.pid}), because {whose} was "
        "reached" + (f"; {counted(kill.along, 'other')} with it" if kill.along else ""),
        tuple(evidence),
        None,
        "min/protects-own-cache" if trapped else "max/limit",
        "a pod at its limit cannot reclaim what its containers' own memory.min protects"
        if trapped
        else "a cgroup at memory.max with nothing left to reclaim loses a process",
        tuple(_against_limit(limit, trapped=trapped)),
    )


def _whose_limit(facts: _Facts, kill: Killed) -> str:
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


def _against_limit(limit: int | None, *, trapped: bool) -> Iterator[str]:
    if trapped:
        yield (
            "protection claimed by the pod instead of its containers (placement: pods), or a "
            "margin below the limit"
        )
        return
    above = "" if limit is None else f" above {short_size(limit)}"
    yield f"a memory limit{above}, if it really needs that much, or an end to what grows"


def _killed_with_node(facts: _Facts, kill: Killed) -> Chapter:
    node = facts.node_at(kill.at)
    evidence = [*_rank(kill), f"it held {_size(kill.anon)} of anonymous memory"]
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


def _growth(facts: _Facts, at: int) -> str:
    before = [level for level in facts.levels if at - _BEFORE <= level.at < at]
    if len(before) < 2 or before[-1].current <= before[0].current * 1.1:
        return ""
    return (
        f"usage had grown from {_size(before[0].current)} to {_size(before[-1].current)} in the "
        f"{_duration(before[-1].at - before[0].at)} before"
    )


def _counted_kills(facts: _Facts) -> Iterator[Chapter]:
    """Kills of which the kernel's report was not to be had."""
    reported = [kill.at for kill in facts.of(Killed)]
    for record in facts.of(Counted):
        if record.event != "oom_kill" or any(abs(at - record.at) <= _NEAR for at in reported):
            continue
        level = facts.level_at(record.at - 1)
        trapped = level is not None and _is_trapped(level)
        limit = None if level is None else level.max
        evidence = [f"memory.events: oom_kill +{record.count}; the kernel's report was not read"]
        if level is not None:
            evidence.append(
                f"just before, {_size(level.current)} were in use of {_size(level.max)}, "
                f"{_size(level.anon)} anonymous"
            )
        yield Chapter(
            record.at,
            "killed",
            f"killed by the kernel: {counted(record.count, 'process', 'processes')}",
            tuple(evidence),
            None,
            "max/limit",
            "a cgroup at memory.max with nothing left to reclaim loses a process",
            tuple(_against_limit(limit, trapped=trapped)),
        )


def _evictions(facts: _Facts) -> Iterator[Chapter]:
    for record in facts.of(Evicted):
        level, node = facts.level_at(record.at), facts.node_at(record.at)
        evidence = [record.message] if record.message else []
        if level is not None:
            evidence.append(f"{_size(level.current)} were in use, {_size(level.anon)} anonymous")
        if node is not None:
            evidence.append(_of_node(node))
        yield Chapter(
            record.at,
            "evicted",
            "evicted by the kubelet",
            tuple(evidence),
            None,
            "eviction/rank",
            "pods that use more than they request go first, then those of lower priority",
            (
                "a memory request no lower than what it uses, or a higher priority "
                "(memqos rank eviction shows the order)",
            ),
        )


def _resizes(facts: _Facts) -> Iterator[Chapter]:
    for record in facts.of(Resized):
        parts = [
            f"{name} {_set(old)} → {_set(new)}"
            for name, old, new in (
                ("request", record.old_request, record.new_request),
                ("limit", record.old_limit, record.new_limit),
            )
            if old != new
        ]
        yield Chapter(record.at, "resized", f"resized in place: {', '.join(parts)}")


def _changes(facts: _Facts) -> Iterator[Chapter]:
    """Values that somebody set; the guard's steps are told as such."""
    for record in facts.of(Changed):
        if record.rule == "high/guard":
            continue
        ours = record.by == "memqos"
        by = "memqos" if ours else f"somebody else ({record.by})"
        yield Chapter(
            record.at,
            "changed",
            f"{by} set {record.file}: {_value(record.old)} → {_value(record.new)}",
            rule=record.rule or None,
            because=record.says or None,
        )


def _gaps(facts: _Facts) -> Iterator[Chapter]:
    for record in facts.of(Paused):
        yield Chapter(
            record.since,
            "gap",
            f"nothing could be recorded for {_duration(record.at - record.since)}: {record.why}",
            (f"{counted(record.lost, 'record')} lost",) if record.lost else (),
            record.at,
        )


def _rule(decided: Changed | None) -> tuple[str | None, str | None]:
    if decided is None or not decided.rule:
        return "high/above-request", "throttled from a share of what lies between request and limit"
    return decided.rule, decided.says


def _of_node(node: Pressed) -> str:
    waited = f", tasks waited {node.some / 10:.0f} % of the time" if node.some >= _SHORT else ""
    return f"the node had {_size(node.available)} of {_size(node.total)} available{waited}"


def _value(text: str) -> str:
    return short_size(int(text)) if text.isdecimal() and int(text) else text


def _set(amount: int | None) -> str:
    return "none" if amount is None else short_size(amount)


def _size(amount: int | None) -> str:
    return "max" if amount is None else short_size(amount)


def _duration(milliseconds: int) -> str:
    seconds = round(milliseconds / 1000)
    if seconds < 60:
        return f"{seconds} s"
    minutes, seconds = divmod(seconds, 60)
    if minutes < 60:
        return f"{minutes} min {seconds} s" if seconds else f"{minutes} min"
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if minutes else f"{hours} h"
