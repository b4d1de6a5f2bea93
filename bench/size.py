"""How well `memqos size` recommends, walking forward in time, and how fast it reads.

    python bench/size.py --traces DIR [--resamples N] [--svg FILE]

DIR holds traces as `series,t_seconds,usage_bytes[,limit_bytes][,max_bytes]`, `.csv` or `.csv.gz`;
none belong to the project. Generated workloads are scored too. At nine points of every series each
recommender sees what came before, and is scored by what comes after:

- slack: what is requested and not used, as a share of what is used;
- violations: the share of samples above the recommendation, and how many of the tries have any;
- kills: times that usage rises above the recommendation, per container and day;
- churn: by how much a recommendation changes from one try to the next.
"""

import argparse
import math
import os
import random
import resource
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final, NamedTuple

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

from memqos.host.history_files import HistoryFile
from memqos.size.consequences import workload_of
from memqos.size.history import FEWEST_SAMPLES, HistoryTable, SampleBatch, SeriesHistory
from memqos.size.need import need_of
from memqos.size.recommendation import SizeOptions, recommend, round_up
from memqos.size.risk import estimated_risk

MIB: Final = 1 << 20
DAY: Final = 86_400.0
SHARES: Final = tuple(tenth / 10 for tenth in range(1, 10))
STREAMED_SERIES, STREAMED_POINTS = 1_000, 8_640


class Series(NamedTuple):
    """A usage over time."""

    name: str
    times: list[float]
    values: list[float]


def of_memqos(times: Sequence[float], values: Sequence[float]) -> float:
    """As `memqos size --guaranteed` recommends."""
    history = SeriesHistory()
    history.add(times, values, None)
    return round_up(need_of(history.slots).level)


def of_vpa(times: Sequence[float], values: Sequence[float]) -> float:
    """The Vertical Pod Autoscaler's target, by its published defaults.

    Peaks of 24 hours in a histogram (first bucket 10 MB, each 5 % wider), weights halved every 24
    hours; the end of the bucket of the 90th percentile, 15 % on top, 250 MiB at least.
    """
    peaks: dict[int, float] = {}
    for at, value in zip(times, values, strict=True):
        day = int(at // DAY)
        peaks[day] = max(peaks.get(day, 0.0), value)
    weights: dict[int, float] = {}
    for day, peak in peaks.items():
        bucket = 0 if peak < 1e7 else int(math.log(peak * 0.05 / 1e7 + 1) / math.log(1.05))
        weights[bucket] = weights.get(bucket, 0.0) + 2.0 ** (day - max(peaks))
    total, reached, last = sum(weights.values()), 0.0, 0
    for last in sorted(weights):
        reached += weights[last]
        if reached >= 0.9 * total:
            break
    return max(1e7 * (1.05 ** (last + 1) - 1) / 0.05 * 1.15, 250 * MIB)


def of_krr(_times: Sequence[float], values: Sequence[float]) -> float:
    """Robusta's krr, simple strategy: the peak and 15 %, 100 MiB at least."""
    return max(max(values) * 1.15, 100 * MIB)


def of_peak(_times: Sequence[float], values: Sequence[float]) -> float:
    """The peak and 15 %."""
    return max(values) * 1.15


def of_autopilot(times: Sequence[float], values: Sequence[float]) -> float:
    """Autopilot's moving window, as its paper describes it for jobs that tolerate some kills.

    Peaks of 5 minutes, weights halved every 48 hours, the 98th percentile and 15 %.
    """
    peaks: dict[int, float] = {}
    for at, value in zip(times, values, strict=True):
        slot = int(at // 300)
        peaks[slot] = max(peaks.get(slot, 0.0), value)
    latest = max(peaks)
    ranked = sorted(
        (value, 2.0 ** ((slot - latest) * 300 / (2 * DAY))) for slot, value in peaks.items()
    )
    total, reached = sum(weight for _, weight in ranked), 0.0
    for value, weight in ranked:
        reached += weight
        if reached >= 0.98 * total:
            return value * 1.15
    return ranked[-1][0] * 1.15


RECOMMENDERS: Final[dict[str, Callable[[Sequence[float], Sequence[float]], float]]] = {
    "memqos": of_memqos,
    "VPA": of_vpa,
    "krr": of_krr,
    "max + 15 %": of_peak,
    "Autopilot": of_autopilot,
}


class Score:
    """What one recommender comes to on one dataset."""

    def __init__(self) -> None:
        self.slack = self.used = self.seconds = 0.0
        self.above = self.samples = self.kills = self.tries = self.violated = 0
        self.changes: list[float] = []

    def count(self, level: float, times: Sequence[float], values: Sequence[float]) -> None:
        over = [value > level for value in values]
        self.slack += sum(level - value for value in values if value < level)
        self.used += sum(values)
        self.above += sum(over)
        self.samples += len(values)
        self.kills += sum(
            now and not before for before, now in zip([False, *over], over, strict=False)
        )
        self.seconds += times[-1] - times[0]
        self.tries += 1
        self.violated += any(over)

    def add(self, other: "Score") -> None:
        """Count what another series came to as well."""
        self.slack += other.slack
        self.used += other.used
        self.seconds += other.seconds
        self.above += other.above
        self.samples += other.samples
        self.kills += other.kills
        self.tries += other.tries
        self.violated += other.violated
        self.changes += other.changes

    @property
    def slack_share(self) -> float:
        return self.slack / self.used

    @property
    def violation_share(self) -> float:
        return self.above / self.samples

    def cells(self) -> list[str]:
        churn = sum(self.changes) / max(len(self.changes), 1)
        return [
            f"{self.slack_share:.3f}",
            f"{self.violation_share:.3%}",
            f"{self.violated}/{self.tries}",
            f"{self.kills / max(self.seconds / DAY, 1e-9):.3f}",
            f"{churn:.1%}",
        ]


Scores = dict[str, Score]
"""Recommender → what it comes to."""


def walk_forward(series: Series) -> Scores:
    """Every recommender at every point of a series."""
    scores = {name: Score() for name in RECOMMENDERS}
    before: dict[str, float] = {}
    start, span = series.times[0], series.times[-1] - series.times[0]
    for share in SHARES:
        cut = sum(at <= start + share * span for at in series.times)
        past, rest = series.values[:cut], series.values[cut:]
        if cut < FEWEST_SAMPLES or not rest or not max(past) or not max(rest):
            continue
        for name, recommended in RECOMMENDERS.items():
            level = recommended(series.times[:cut], past)
            scores[name].count(level, series.times[cut:], rest)
            if name in before:
                scores[name].changes.append(abs(level / before[name] - 1))
            before[name] = level
    return scores


def together(parts: Iterable[Scores]) -> Scores:
    """The scores of several series."""
    scores = {name: Score() for name in RECOMMENDERS}
    for part in parts:
        for name, score in part.items():
            scores[name].add(score)
    return scores


def count_wins(by_workload: Sequence[Scores], resamples: int) -> int:
    """How often the verdict is good for as many workloads drawn with replacement.

    What another sample of the same cluster might say: a handful of series decides.
    """
    chance = random.Random(1)
    draws = (chance.choices(by_workload, k=len(by_workload)) for _ in range(resamples))
    return sum(is_better(together(drawn)) for drawn in draws)


def generated(seed: int = 1) -> dict[str, list[Series]]:
    """A week of workloads of each kind, every 5 minutes, three sizes of each."""
    chance = random.Random(seed)
    found: dict[str, list[Series]] = {}
    for kind, shape in _SHAPES.items():
        for size in (64, 512, 4096):
            times = [300.0 * index for index in range(2016)]
            values = [
                size * MIB * max(0.0, shape(at, chance) + chance.gauss(0, 0.01)) for at in times
            ]
            found.setdefault(f"generated {kind}", []).append(
                Series(f"{kind}-{size}", times, values)
            )
    return found


_SHAPES: Final[dict[str, Callable[[float, random.Random], float]]] = {
    "steady": lambda at, chance: 0.5,
    "diurnal": lambda at, chance: 0.5 + 0.3 * math.sin(2 * math.pi * at / DAY),
    "leak": lambda at, chance: 0.3 + 0.1 * at / DAY,
    "sawtooth": lambda at, chance: 0.3 + 0.4 * (at % 5400) / 5400,
    "burst": lambda at, chance: 0.3 + (chance.random() if chance.random() < 0.005 else 0.0),
    "batch": lambda at, chance: 0.8 if at % DAY < 3600 else 0.05,
    "restart": lambda at, chance: 0.3 + 0.2 * min(1.0, at % (1.5 * DAY) / DAY),
}


def read_traces(folder: str) -> Iterator[tuple[str, list[Series]]]:
    """The datasets in a folder."""
    for name in sorted(os.listdir(folder)):
        if name.endswith((".csv", ".csv.gz")) and not name.startswith("manifest"):
            series: dict[str, Series] = {}
            for batch in HistoryFile(os.path.join(folder, name)).batches():
                if batch.quantity == "usage":
                    text = batch.name.text
                    found = series.setdefault(text, Series(text, [], []))
                    found.times.extend(batch.times)
                    found.values.extend(batch.values)
            yield name.partition(".csv")[0], list(series.values())


def _comparison(scores: Scores) -> tuple[bool, bool]:
    """Whether memqos has less slack than VPA and krr, and no more violations than either."""
    own, others = scores["memqos"], (scores["VPA"], scores["krr"])
    return (
        own.slack_share < min(each.slack_share for each in others),
        own.violation_share <= min(each.violation_share for each in others),
    )


def is_better(scores: Scores) -> bool:
    """Less slack than VPA and krr at no more violations than either."""
    return all(_comparison(scores))


def verdict(scores: Scores) -> str:
    """The same in words."""
    less_slack, no_more = _comparison(scores)
    slack = "less slack than both" if less_slack else "not less slack than both"
    return f"{slack}, {'no more' if no_more else 'more'} violations than either"


def calibration(datasets: Sequence[Sequence[Series]]) -> Iterator[str]:
    """The risk that was said against the share of days that came out, in classes."""
    bounds = (0.01, 0.02, 0.03, 0.05, 1.0)
    counts = {bound: [0.0, 0.0, 0.0] for bound in bounds}
    for series in (each for dataset in datasets for each in dataset):
        for share in SHARES:
            cut = int(len(series.times) * share)
            if cut < 4 * FEWEST_SAMPLES or not max(series.values[:cut]):
                continue
            history = SeriesHistory()
            history.add(series.times[:cut], series.values[:cut], None)
            said, level = estimated_risk(history.slots), need_of(history.slots).level
            found = counts[next(bound for bound in bounds if said <= bound)]
            found[0] += 1
            found[1] += said
            found[2] += _days_above(level, series.times[cut:], series.values[cut:])
    for bound, (tries, said, came) in counts.items():
        if tries:
            yield (
                f"risk up to {bound:.0%}: {tries:.0f} tries, "
                f"said {said / tries:.2%} of days, came {came / tries:.2%}"
            )


def _days_above(level: float, times: Sequence[float], values: Sequence[float]) -> float:
    """The share of days with a sample above; a rest shorter than four days has four parts."""
    length = min(DAY, (times[-1] - times[0] + 1) / 4)
    peaks: dict[int, float] = {}
    for at, value in zip(times, values, strict=True):
        day = int((at - times[0]) / length)
        peaks[day] = max(peaks.get(day, 0.0), value)
    return sum(peak > level for peak in peaks.values()) / len(peaks)


def streaming(series: int = STREAMED_SERIES, points: int = STREAMED_POINTS) -> Iterator[str]:
    """The reader alone, then with recommendations, on a CSV of 30 days every 5 minutes."""
    bare = _streamed_seconds(
        series, points, lambda batches: sum(len(each.times) for each in batches)
    )
    full = _streamed_seconds(series, points, _size_all)
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10
    yield (
        f"{series:,} series × {points:,} points: reader {bare:.1f} s, size {full:.1f} s, "
        f"{full / bare:.2f} ×; {memory} MiB at most"
    )


def _size_all(batches: Iterator[SampleBatch]) -> object:
    table = HistoryTable()
    table.read(batches)
    return [recommend(each, SizeOptions(guaranteed=True)) for each in table.containers.values()]


def _streamed_seconds(
    series: int, points: int, use: Callable[[Iterator[SampleBatch]], object]
) -> float:
    """Seconds of this thread, while another writes the file into a pipe."""
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "pipe.csv")
        os.mkfifo(path)
        writer = threading.Thread(target=_write_csv, args=(path, series, points), daemon=True)
        writer.start()
        start = time.thread_time()
        use(HistoryFile(path).batches())
        seconds = time.thread_time() - start
        writer.join()
    return seconds


def _write_csv(path: str, series: int, points: int) -> None:
    chance = random.Random(1)
    rows = [f"{300 * index},{chance.randrange(10**8, 2 * 10**8)}\n" for index in range(points)]
    with open(path, "w") as file:
        file.write("series,t_seconds,usage_bytes\n")
        for index in range(series):
            name = f"ns/web-{index}/app,"
            file.write(name + name.join(rows))


def report(traces: str | None = None, svg: str | None = None, resamples: int = 0) -> Iterator[str]:
    """The scores as lines of a table."""
    datasets = dict(read_traces(traces)) if traces else {}
    if not datasets:
        yield "no traces: give a folder of them with --traces DIR"
    scored: dict[str, Scores] = {}
    for name, dataset in {**datasets, **generated()}.items():
        parts: dict[str, list[Scores]] = {}
        for series in dataset:
            parts.setdefault(_workload(series.name), []).append(walk_forward(series))
        by_workload = [together(each) for each in parts.values()]
        scored[name] = together(by_workload)
        yield from _table(name, len(dataset), scored[name])
        if resamples and name in datasets:
            wins = count_wins(by_workload, resamples)
            yield f"{name}: better than both in {wins} of {resamples} resamples of its workloads"
    yield from calibration(list(datasets.values()))
    if svg is not None:
        from bench.size_picture import scores_svg

        with open(svg, "w") as file:
            file.write(scores_svg({name: scored[name] for name in datasets}))
    yield from streaming()


def _workload(name: str) -> str:
    return "/".join(workload_of(part) for part in name.split("/"))


def _table(name: str, series: int, scores: Scores) -> Iterator[str]:
    yield f"{name}, {series} series: {verdict(scores)}"
    head = ("", "slack", "violations", "tries with any", "kills a day", "churn")
    yield "".join(f"{each:<16}" if not index else f"{each:>16}" for index, each in enumerate(head))
    for recommender, score in scores.items():
        yield f"{recommender:<16}" + "".join(f"{cell:>16}" for cell in score.cells())
    yield ""


def main() -> None:
    """Score, and print."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--traces", metavar="DIR")
    parser.add_argument("--svg", metavar="FILE", help="draw slack against violations")
    parser.add_argument("--resamples", type=int, default=0, help="draw workloads so many times")
    parser.add_argument("--streaming", type=int, metavar="SERIES", help="only measure reading")
    arguments = parser.parse_args()
    if arguments.streaming:
        lines = streaming(arguments.streaming)
    else:
        lines = report(arguments.traces, arguments.svg, arguments.resamples)
    for line in lines:
        print(line, flush=True)


if __name__ == "__main__":
    main()
