"""A replay of the past in words, and as data."""

from collections.abc import Iterator, Sequence
from typing import Any, Final

import msgspec

from memqos.draw.text.lines import Line, Table
from memqos.settings.enablement import Enablement
from memqos.size.consequences import ContainerLevels
from memqos.size.history import SeriesName
from memqos.size.replay import Episode, Excess, ReplayResult
from memqos.units import duration_words, format_bytes, format_time, pluralize

_MAX_NAME: Final = 26
_MAX_EPISODES: Final = 5
_CLOCK: Final = 10_000_000.0
"""Seconds: an earlier time is counted from the start of a trace."""


class ReplayedContainer(msgspec.Struct, frozen=True):
    """One series under one or two settings."""

    name: SeriesName
    levels: tuple[ContainerLevels, ...]
    results: tuple[ReplayResult, ...]


class BacktestReport(msgspec.Struct, frozen=True):
    """All series, and the settings that were replayed."""

    settings: tuple[str, ...]
    """A title for each."""
    enablement: tuple[Enablement, ...]
    """Whether Memory QoS is on in each."""
    containers: tuple[ReplayedContainer, ...]
    skipped: tuple[str, ...] = ()
    """Series of which neither request nor limit is known."""


_DROP: Final = {"days": 4, "protected": 5}


def backtest_text(report: BacktestReport, *, why: bool) -> Iterator[Line]:
    """A row for each container and setting, then the episodes."""
    for index, title in enumerate(report.settings):
        rows = [["container", "high", "max", "throttled", "days", "protected", "killed"]]
        rows += [_row(each, index) for each in ordered_containers(report.containers)]
        yield ""
        yield title
        yield Table(rows, drop=_DROP)
        yield total_line(report, index)
        for each in ordered_containers(report.containers) if why else ():
            yield from (f"  {line}" for line in episode_lines(each, index))
    if len(report.settings) == 2:
        yield ""
        yield comparison_line(report)
    for name in report.skipped:
        yield f"{name}: no request or limit is known, so it is not replayed"


def ordered_containers(containers: Sequence[ReplayedContainer]) -> list[ReplayedContainer]:
    """Those that were killed first, then those that were throttled longest."""
    return sorted(
        containers,
        key=lambda each: (-each.results[0].killed.count, -each.results[0].throttled.seconds),
    )


def _row(each: ReplayedContainer, index: int) -> list[str]:
    name, *cells = container_cells(each, index)
    return [name if len(name) <= _MAX_NAME else "…" + name[1 - _MAX_NAME :], *cells]


def container_cells(each: ReplayedContainer, index: int) -> list[str]:
    """A row of the table: levels, shares of the time, counts."""
    result, levels = each.results[index], each.levels[index]
    return [
        each.name.text,
        _level(levels.high),
        _level(levels.max),
        _share(result.throttled.seconds, result.seconds),
        f"{result.throttled.days}/{result.days}",
        _share(result.protected, result.seconds),
        str(result.killed.count) if result.killed.count else "–",
    ]


def _level(value: int | str | None) -> str:
    return format_bytes(value) if isinstance(value, int) else "–" if value is None else value


def _share(seconds: float, total: float) -> str:
    if not seconds or not total:
        return "–"
    return f"{seconds / total:.1%}" if seconds / total >= 0.001 else "<0.1%"


def total_line(report: BacktestReport, index: int) -> str:
    """All containers under one setting."""
    results = [each.results[index] for each in report.containers]
    days = sum(each.days for each in results)
    throttled = sum(each.throttled.days for each in results)
    killed = sum(each.killed.days for each in results)
    return (
        f"{pluralize(days, 'container-day')}: throttled on {throttled:,}, killed on {killed:,} "
        f"({pluralize(sum(each.killed.count for each in results), 'kill')})"
    )


def episode_lines(each: ReplayedContainer, index: int) -> Iterator[str]:
    """When it was killed or throttled, the first few times of each."""
    result = each.results[index]
    for what, excess in (("killed", result.killed), ("throttled", result.throttled)):
        for episode in excess.episodes[:_MAX_EPISODES]:
            yield f"{each.name.text} {what} {_moment(episode)}"
        if excess.count > _MAX_EPISODES:
            yield f"… {excess.count - _MAX_EPISODES:,} more times {what}"


def _moment(episode: Episode) -> str:
    start = (
        format_time(int(episode.start * 1000))
        if episode.start >= _CLOCK
        else f"after {episode.start / 3600:.1f} h"
    )
    length = duration_words(int((episode.end - episode.start) * 1000))
    return f"{start}, for {length}, at {format_bytes(int(episode.peak))}"


def comparison_line(report: BacktestReport) -> str:
    """What the second setting changes."""
    before, after = ([each.results[index] for each in report.containers] for index in range(2))
    throttled = sum(each.throttled.seconds for each in after) - sum(
        each.throttled.seconds for each in before
    )
    killed = sum(each.killed.count for each in after) - sum(each.killed.count for each in before)
    more = "longer" if throttled >= 0 else "shorter"
    return (
        f"the second setting compared with the first: throttled "
        f"{duration_words(int(abs(throttled) * 1000))} {more}, "
        + pluralize(abs(killed), "more kill" if killed >= 0 else "fewer kill")
    )


def backtest_data(report: BacktestReport) -> dict[str, Any]:
    """All of it for scripts."""
    return {
        "settings": list(report.settings),
        "enablement": [each.data for each in report.enablement],
        "series": [
            {
                "series": each.name.text,
                "results": [
                    _result_data(result, levels)
                    for result, levels in zip(each.results, each.levels, strict=True)
                ],
            }
            for each in report.containers
        ],
        "skipped": list(report.skipped),
    }


def _result_data(result: ReplayResult, levels: ContainerLevels) -> dict[str, Any]:
    return {
        "class": levels.qos,
        "memory.high": levels.high,
        "memory.max": levels.max,
        "protected_bytes": result.levels.protected,
        "seconds": result.seconds,
        "days": result.days,
        "throttled": _excess_data(result.throttled),
        "killed": _excess_data(result.killed),
        "protected_seconds": result.protected,
    }


def _excess_data(excess: Excess) -> dict[str, Any]:
    data: dict[str, Any] = msgspec.to_builtins(excess)
    return data
