"""From records to a story: what happened to a container, why, and what would have prevented it."""

from collections.abc import Iterator, Sequence
from typing import Final

from memqos.agent.recorder.files import Recording
from memqos.agent.recorder.records import Changed, Guarded, Level, Paused, Resized, Throttled
from memqos.agent.story.ends import counted_kills, evictions, kills
from memqos.agent.story.facts import Facts, duration, size_of
from memqos.draw.amounts import counted
from memqos.draw.scale import short_size
from memqos.findings.chapters import Chapter, Story

_MOSTLY: Final = 0.9
_MI: Final = 1 << 20
_GUARD: Final = "the guard of memqos agent, which widens memory.high for who cannot progress"


def story_of(recording: Recording, node: Recording | None = None) -> Story:
    """The story of one container, with the node's own where it matters."""
    who, records = recording.who, sorted(recording.records, key=lambda record: record.at)
    facts = Facts(who, records, () if node is None else node.records)
    tellers = (
        _throttling,
        _guarding,
        kills,
        counted_kills,
        evictions,
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


def _throttling(facts: Facts) -> Iterator[Chapter]:
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
            f"memory.high {size_of(high)} of a limit of {size_of(limit)}; "
            f"{size_of(begun.anon)} anonymous, {swap}"
            + (": nothing was left to reclaim" if cannot else ""),
        ]
        yield Chapter(
            since,
            "throttled",
            f"throttled for {duration(until - since)}"
            + ("" if last.is_over else ", and still so when the record ends"),
            tuple(evidence),
            until,
            *_rule(decided),
            remedies=tuple(
                _against_throttling(high, limit, peak, stuck=cannot and not facts.guarded(since))
            ),
        )


def _last_throttled(facts: Facts, begun: Throttled) -> int:
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


def _guarding(facts: Facts) -> Iterator[Chapter]:
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
            f"the guard {verb} memory.high from {size_of(first.old)} to {size_of(last.new)}"
            + (top if last.step == last.steps else f", step {last.step} of {last.steps}")
            + ("" if last.at == first.at else f", within {duration(last.at - first.at)}"),
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


def _resizes(facts: Facts) -> Iterator[Chapter]:
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


def _changes(facts: Facts) -> Iterator[Chapter]:
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


def _gaps(facts: Facts) -> Iterator[Chapter]:
    for record in facts.of(Paused):
        yield Chapter(
            record.since,
            "gap",
            f"nothing could be recorded for {duration(record.at - record.since)}: {record.why}",
            (f"{counted(record.lost, 'record')} lost",) if record.lost else (),
            record.at,
        )


def _rule(decided: Changed | None) -> tuple[str | None, str | None]:
    if decided is None or not decided.rule:
        return "high/above-request", "throttled from a share of what lies between request and limit"
    return decided.rule, decided.says


def _value(text: str) -> str:
    return short_size(int(text)) if text.isdecimal() and int(text) else text


def _set(amount: int | None) -> str:
    return "none" if amount is None else short_size(amount)
