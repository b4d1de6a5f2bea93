"""Sources of histories by what names them: a file, a folder of files or records, a server."""

import os
from collections.abc import Iterator
from typing import Final, NamedTuple

from memqos.errors import InputError
from memqos.host.history_files import HistoryFile, read_files
from memqos.host.record_files import list_record_files, read_recordings
from memqos.record.format import CountRecord, LevelRecord, PressureRecord, Subject
from memqos.record.recordings import Recording
from memqos.size.history import HistorySource, SampleBatch, SeriesName, SeriesQuantity

_EVICTION_THRESHOLD: Final = 100 << 20
"""Bytes of memory.available below which a kubelet evicts, unless it is configured otherwise."""
_SUFFIXES: Final = (".csv", ".csv.gz", ".json", ".json.gz", ".jsonl", ".jsonl.gz")


def history_at(path: str) -> HistorySource:
    """The history in a file, or in a folder: of the flight recorder, or of such files."""
    if not os.path.isdir(path):
        return HistoryFile(path)
    if any(True for _ in list_record_files(path)):
        return RecordedHistory(path)
    files = sorted(name for name in os.listdir(path) if name.endswith(_SUFFIXES))
    if not files:
        raise InputError(
            "there is no history here",
            file=path,
            hint=f"the flight recorder's files, or {', '.join(_SUFFIXES)}",
        )
    return HistoryFolder(tuple(os.path.join(path, name) for name in files))


class HistoryFolder(NamedTuple):
    """Files of a folder by name, such as one of pod metrics a minute."""

    paths: tuple[str, ...]

    def batches(self) -> Iterator[SampleBatch]:
        """The samples of all files."""
        return read_files(self.paths)


class RecordedHistory(NamedTuple):
    """What the flight recorder of an agent has written."""

    folder: str

    def batches(self) -> Iterator[SampleBatch]:
        """All levels of containers, with limits, kills and stalls, and the pressure of the node."""
        names: list[SeriesName] = []
        pressure: list[PressureRecord] = []
        for recording in read_recordings(self.folder):
            if recording.who.is_node:
                pressure += [each for each in recording.records if isinstance(each, PressureRecord)]
            else:
                names.append(_name_of(recording.who))
                yield from _recorded_batches(recording)
        times = [each.at / 1000 for each in pressure]
        values = [float(each.available < _EVICTION_THRESHOLD) for each in pressure]
        for name in dict.fromkeys(names) if pressure else ():
            yield SampleBatch(name, "pressure", times, values)


def _name_of(who: Subject) -> SeriesName:
    text = f"{who.namespace}/{who.pod}/{who.container}"
    return SeriesName(text, who.namespace, who.pod, who.container)


def _recorded_batches(recording: Recording) -> Iterator[SampleBatch]:
    name = _name_of(recording.who)
    levels = [each for each in recording.records if isinstance(each, LevelRecord)]
    times = [each.at / 1000 for each in levels]
    for quantity, values in _level_values(levels):
        yield SampleBatch(name, quantity, times, values)
    yield from _refaults(name, levels)
    limited = [each for each in levels if each.max is not None]
    yield SampleBatch(
        name,
        "limit",
        [each.at / 1000 for each in limited],
        [float(each.max or 0) for each in limited],
    )
    kills = [
        each
        for each in recording.records
        if isinstance(each, CountRecord) and each.event in ("oom_kill", "oom_group_kill")
    ]
    counted, total = [0.0], 0
    for each in kills:
        total += each.count
        counted.append(float(total))
    yield SampleBatch(name, "kills", [0.0, *(each.at / 1000 for each in kills)], counted)


def _level_values(levels: list[LevelRecord]) -> Iterator[tuple[SeriesQuantity, list[float]]]:
    yield "usage", [float(each.current) for each in levels]
    yield "anon", [float(each.anon) for each in levels]
    stalled, total = [], 0
    for each in levels:
        total += each.full
        stalled.append(float(total))
    yield "stalls", stalled


def _refaults(name: SeriesName, levels: list[LevelRecord]) -> Iterator[SampleBatch]:
    """Refaults as a counter, where they were recorded."""
    times, counted, total = [], [], 0
    for each in levels:
        if each.refaults is not None:
            total += each.refaults
            times.append(each.at / 1000)
            counted.append(float(total))
    if times:
        yield SampleBatch(name, "refaults", times, counted)
