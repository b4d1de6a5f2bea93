"""From records to a story: what happened to a container, why, and what would have prevented it."""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Final

import msgspec

from memqos.plan.rules import HIGH_WIDENED, RULES
from memqos.plan.setting import FileSettings
from memqos.record.chapters import (
    Chapter,
    QuotedRule,
    Story,
    eviction_chapters,
    kill_chapters,
    kill_count_chapters,
    quote_rule,
)
from memqos.record.format import (
    GapRecord,
    GuardRecord,
    LevelRecord,
    ResizeRecord,
    ThrottleRecord,
    WriteRecord,
)
from memqos.record.recordings import RecordIndex, Recording, size_of
from memqos.units import duration_words, format_bytes, pluralize

_NEARLY_ALL: Final = 0.9
_MI: Final = 1 << 20
_LARGEST_PAGE: Final = 64 << 10
"""Bytes. The kernel rounds memory.high down to a page, on arm64 and ppc64 one of up to 64Ki."""
_GUARD: Final = (
    "the guard of memqos agent, which raises memory.high for containers that make no progress"
)


PlanLookup = Callable[[str], FileSettings | None]
"""What is planned for a container of the pod, by its name; None where there is no plan to go by."""


def unknown_plan(container: str) -> None:
    """For a pod, a release or settings that are not known."""


def story_of(
    recording: Recording, node: Recording | None = None, planned: PlanLookup = unknown_plan
) -> Story:
    """The story of one container, with the node's own where it matters.

    `planned` has the rules that are not recorded.
    """
    who, records = recording.who, sorted(recording.records, key=lambda record: record.at)
    facts = RecordIndex(who, records, () if node is None else node.records)
    parts = (
        partial(_throttle_chapters, planned=planned),
        _guard_chapters,
        kill_chapters,
        kill_count_chapters,
        eviction_chapters,
        _resize_chapters,
        _write_chapters,
        _gap_chapters,
    )
    chapters = [chapter for chapters_of in parts for chapter in chapters_of(facts)]
    notes = []
    if recording.damaged:
        notes.append(f"{pluralize(recording.damaged, 'byte')} of the record are damaged")
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


def _throttle_chapters(facts: RecordIndex, planned: PlanLookup) -> Iterator[Chapter]:
    episodes: dict[int, list[ThrottleRecord]] = {}
    for record in facts.records_of(ThrottleRecord):
        episodes.setdefault(record.since, []).append(record)
    throttled = [
        _throttle_episode(facts, since, records, planned) for since, records in episodes.items()
    ]
    # One limit is enough for all of them.
    most = max((enough for *_, enough in throttled if enough is not None), default=None)
    for chapter, peak, enough in throttled:
        larger: tuple[str, ...] = ()
        if enough is not None and enough == most:
            larger, most = (_larger_limit(enough, peak),), None
        yield msgspec.structs.replace(chapter, remedies=(*larger, *chapter.remedies))


def _throttle_episode(
    facts: RecordIndex, since: int, records: Sequence[ThrottleRecord], planned: PlanLookup
) -> tuple[Chapter, int, int | None]:
    """An episode, what it used at most, and the limit with which there would have been none."""
    begun, last = records[0], records[-1]
    until = last.at if last.is_over else max(last.at, _last_throttled(facts, last))
    events = last.events
    if not last.is_over:
        events = max(
            events, sum(each.high_events for each in facts.levels if since < each.at <= until)
        )
    level = facts.level_at(since + 1) or LevelRecord(0)
    high = begun.high or level.high or 0
    stays = max(0, begun.anon - begun.swap_room)
    cannot = bool(high) and stays >= _NEARLY_ALL * high
    peak = max(facts.peak(since, until), begun.anon)
    swap = "no swap" if not begun.swap_room else f"{format_bytes(begun.swap_room)} of swap left"
    rule, doubt = _rule_of_write(facts.last_write("memory.high", until)), tuple[str, ...]()
    if rule is None:
        rule, doubt = rule_of_high(planned(facts.who.container), high or None)
    chapter = Chapter(
        at=since,
        kind="throttled",
        what=f"throttled for {duration_words(until - since)}"
        + ("" if last.is_over else ", and still throttled when the records end"),
        evidence=(
            f"{pluralize(events, 'high event')}; at worst nothing ran for "
            f"{last.full / 10:.0f} % of the time",
            f"memory.high {size_of(high)} of a limit of {size_of(level.max)}; "
            f"{size_of(begun.anon)} anonymous, {swap}"
            + (": nothing was left to reclaim" if cannot else ""),
            *doubt,
        ),
        until=until,
        rule=rule.id,
        because=rule.text,
        remedies=tuple(_against_throttling(stuck=cannot and not facts.has_guard_step(since))),
    )
    return chapter, peak, _sufficient_limit(high, level.max, peak)


def _last_throttled(facts: RecordIndex, begun: ThrottleRecord) -> int:
    """When an episode of which no end is recorded was last seen."""
    times = [each.at for each in facts.levels if each.at >= begun.at and each.high_events]
    return max(times, default=begun.at)


def _sufficient_limit(high: int, limit: int | None, peak: int) -> int | None:
    """The limit, in whole MiB, whose memory.high lies above what was used."""
    if not high or not limit or not peak:
        return None
    enough = -(-int(peak * 1.1 * limit / high) // _MI) * _MI
    return enough if enough > limit else None


def _larger_limit(enough: int, peak: int) -> str:
    return (
        f"a memory limit of about {format_bytes(enough)}: memory.high would have been above the "
        f"{format_bytes(peak)} it used"
    )


def _against_throttling(*, stuck: bool) -> Iterator[str]:
    yield 'no memory.high: annotation memqos.io/throttling-factor: "1"'
    if stuck:
        yield f"swap for the node and the pod, or {_GUARD}"


def _guard_chapters(facts: RecordIndex) -> Iterator[Chapter]:
    rule = quote_rule(HIGH_WIDENED)
    for steps in _runs_of_steps(facts.records_of(GuardRecord)):
        first, last = steps[0], steps[-1]
        widens = first.kind == "widen"
        evidence = (
            (
                f"{pluralize(max(each.events for each in steps), 'high event')} a second, nothing "
                f"ran for up to {max(each.full for each in steps) / 10:.0f} % of the time",
            )
            if widens
            else ("the pressure was over",)
        )
        yield Chapter(
            at=first.at,
            kind="guarded",
            what=f"the guard {'raised' if widens else 'lowered'} memory.high from "
            f"{size_of(first.old)} to {_step_text(last)}{_in_steps(steps)}",
            evidence=evidence,
            until=last.at,
            rule=rule.id,
            because=rule.text,
        )


def _step_text(last: GuardRecord) -> str:
    if last.step == last.steps:
        return f"{size_of(last.new)} = memory.max"
    if last.step == 0:
        return f"{size_of(last.new)}, as planned"
    return f"{size_of(last.new)}, step {last.step} of {last.steps}"


def _in_steps(steps: Sequence[GuardRecord]) -> str:
    if len(steps) == 1:
        return ""
    return f", in {len(steps)} steps within {duration_words(steps[-1].at - steps[0].at)}"


def _runs_of_steps(steps: Sequence[GuardRecord]) -> Iterator[list[GuardRecord]]:
    run: list[GuardRecord] = []
    for step in steps:
        if run and step.kind != run[-1].kind:
            yield run
            run = []
        run.append(step)
    if run:
        yield run


def _resize_chapters(facts: RecordIndex) -> Iterator[Chapter]:
    for record in facts.records_of(ResizeRecord):
        parts = [
            f"{name} {_amount_text(old)} → {_amount_text(new)}"
            for name, old, new in (
                ("request", record.old_request, record.new_request),
                ("limit", record.old_limit, record.new_limit),
            )
            if old != new
        ]
        yield Chapter(at=record.at, kind="resized", what=f"resized in place: {', '.join(parts)}")


def _write_chapters(facts: RecordIndex) -> Iterator[Chapter]:
    """Values that were written; the guard's steps are chapters of their own."""
    for record in facts.records_of(WriteRecord):
        if facts.is_guard_step(record) or record.old == record.new:
            continue
        ours = record.by == "memqos"
        by = "memqos" if ours else f"another writer ({record.by})"
        yield Chapter(
            at=record.at,
            kind="changed",
            what=f"{by} set {record.file}: {_value_text(record.old)} → {_value_text(record.new)}",
            rule=record.rule or None,
            because=record.says or None,
        )


def _gap_chapters(facts: RecordIndex) -> Iterator[Chapter]:
    for record in facts.records_of(GapRecord):
        lost = f"{pluralize(record.lost, 'record')} lost, of this container or of others"
        yield Chapter(
            at=record.since,
            kind="gap",
            what=f"no records could be written for {duration_words(record.at - record.since)}: "
            f"{record.why}",
            evidence=(lost if record.lost else "the records were written afterwards",),
            until=record.at,
        )


def _rule_of_write(decided: WriteRecord | None) -> QuotedRule | None:
    if decided is None or not decided.rule:
        return None
    known = RULES.get(decided.rule)
    return QuotedRule(decided.rule, decided.says or (None if known is None else known.text))


def rule_of_high(
    planned: FileSettings | None, high: int | None
) -> tuple[QuotedRule, tuple[str, ...]]:
    """The rule of the planned memory.high, and a doubt where another value is in place."""
    setting = None if planned is None else planned.get("memory.high")
    if setting is None:
        return QuotedRule(None, "the rule is not recorded"), ()
    # An agent's state has values as text; no value is no limit.
    text = str(setting.value)
    plan = int(text) if text.isdecimal() else None
    is_rounded = plan is not None and high is not None and 0 <= plan - high < _LARGEST_PAGE
    if is_rounded or plan == high:
        return quote_rule(setting.rule), ()
    return quote_rule(setting.rule), (
        f"the plan is memory.high {size_of(plan)}: the writer of the current value is not recorded",
    )


def _value_text(text: str) -> str:
    return format_bytes(int(text)) if text.isdecimal() and int(text) else text


def _amount_text(amount: int | None) -> str:
    return "none" if amount is None else format_bytes(amount)
