"""Recordings played back: the node at any instant that they cover."""

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from typing import Final

from memqos.monitor.instant import (
    LEVEL_FILES,
    AvailableMemory,
    ContainerRow,
    NodeInstant,
    PlaybackPosition,
)
from memqos.plan.setting import FileSettings, Rule, Setting
from memqos.record.format import (
    CountRecord,
    FlightRecord,
    GuardRecord,
    KillRecord,
    LevelRecord,
    LifeRecord,
    PressureRecord,
    ThrottleRecord,
    WriteRecord,
)
from memqos.record.recordings import Recording

_STALE: Final = 600_000
"""Milliseconds after its last record at which a container counts as removed: an agent records a
level every five minutes."""


class _Track:
    """The records of one container in the order of their times."""

    def __init__(self, recording: Recording) -> None:
        self.who = recording.who
        self.path = "/".join(self.who.key)
        self.records: list[FlightRecord] = sorted(recording.records, key=lambda each: each.at)
        self._times = [each.at for each in self.records]

    def until(self, at: int) -> Sequence[FlightRecord]:
        """What was recorded up to a time."""
        return self.records[: bisect_right(self._times, at)]

    def row_at(self, at: int) -> ContainerRow | None:
        """The container at a time; None where it did not run, or nothing is recorded yet."""
        past = self.until(at)
        level = next((each for each in reversed(past) if isinstance(each, LevelRecord)), None)
        life = next((each for each in reversed(past) if isinstance(each, LifeRecord)), None)
        if level is None or at - past[-1].at > _STALE:
            return None
        if life is not None and life.what == "vanished" and life.at >= level.at:
            return None
        guard = next((each for each in reversed(past) if isinstance(each, GuardRecord)), None)
        who = self.who
        return ContainerRow(
            path=self.path,
            pod=f"{who.namespace}/{who.pod}",
            container=who.container,
            qos=who.qos,
            read_at=level.at,
            current=level.current,
            anon=level.anon,
            file=level.file,
            swap=level.swap,
            min=level.min,
            low=level.low,
            high=level.high,
            max=level.max,
            some=level.some / 10,
            full=level.full / 10,
            high_events=self._high_events(past, level),
            kills=_kills(past),
            guard_step=0 if guard is None else guard.step,
        )

    def settings_at(self, at: int) -> FileSettings:
        """What last decided each level, where that is recorded."""
        found: FileSettings = {}
        for record in self.until(at):
            if isinstance(record, WriteRecord) and record.file in LEVEL_FILES:
                rule = record.rule or f"set by {record.by}"
                found[record.file] = Setting(record.new, Rule(rule, record.says, "recorded"))
        return found

    def _high_events(self, past: Sequence[FlightRecord], level: LevelRecord) -> float:
        """High events a second of the time before a level, and during an episode at least one."""
        levels = [each for each in past if isinstance(each, LevelRecord)]
        before = levels[-2].at if len(levels) > 1 else level.at - 1000
        rate = level.high_events * 1000 / max(1000, level.at - before)
        episode = next((each for each in reversed(past) if isinstance(each, ThrottleRecord)), None)
        if episode is not None and not episode.is_over:
            return max(rate, 1.0)
        return rate if episode is not None and episode.at >= level.at else 0.0


class Playback:
    """All recordings of a node."""

    def __init__(self, recordings: Iterable[Recording], origin: str) -> None:
        every = list(recordings)
        self.origin = origin
        self.recordings = every
        self._node = next((_Track(each) for each in every if each.who.is_node), None)
        self._tracks = [_Track(each) for each in every if not each.who.is_node]
        times = [record.at for each in every for record in each.records]
        self.since = min(times, default=0)
        self.until = max(times, default=0)

    def instant(self, position: PlaybackPosition, at: int) -> NodeInstant:
        """The node at a time."""
        rows = [(track, row) for track in self._tracks if (row := track.row_at(at)) is not None]
        return NodeInstant(
            origin=self.origin,
            at=at,
            rows=tuple(row for _, row in rows),
            memory=self._memory_at(at),
            planned={track.path: track.settings_at(at) for track, _ in rows},
            playback=position,
        )

    def _memory_at(self, at: int) -> AvailableMemory | None:
        past = () if self._node is None else self._node.until(at)
        found = next((each for each in reversed(past) if isinstance(each, PressureRecord)), None)
        if found is None:
            return None
        return AvailableMemory(found.total, found.available, found.some / 10, found.full / 10)


def _kills(past: Iterable[FlightRecord]) -> int:
    """Kills that were reported, or else counted: of one kill there may be both records."""
    reported = counted = 0
    for record in past:
        if isinstance(record, KillRecord):
            reported += 1 + record.along
        elif isinstance(record, CountRecord) and record.event == "oom_kill":
            counted += record.count
    return max(reported, counted)
