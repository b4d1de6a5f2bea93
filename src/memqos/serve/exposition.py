"""Metrics as Prometheus reads them: the text format 0.0.4."""

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final, Literal, NamedTuple

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"

MetricKind = Literal["counter", "gauge", "histogram"]

# Numbers that Python and Go, in which Prometheus is written, spell differently.
_GO: Final = {"inf": "+Inf", "-inf": "-Inf", "nan": "NaN", "True": "1", "False": "0"}
_IN_LABEL: Final = str.maketrans({"\\": "\\\\", "\n": "\\n", '"': '\\"'})
_IN_HELP: Final = str.maketrans({"\\": "\\\\", "\n": "\\n"})


class MetricSample(NamedTuple):
    """One series: its labels as `labels` writes them, and its value."""

    labels: str
    value: float
    suffix: str = ""
    """What a histogram's series append to the family's name."""


class Family(NamedTuple):
    """All series of one name."""

    name: str
    kind: MetricKind
    help: str
    samples: Iterable[MetricSample]


def labels(**pairs: str) -> str:
    """Labels as between braces; callers keep the text, to save formatting it again."""
    return ",".join([f'{name}="{value.translate(_IN_LABEL)}"' for name, value in pairs.items()])


def add_labels(first: str, **pairs: str) -> str:
    """Formatted labels, and more after them."""
    return f"{first},{labels(**pairs)}" if first and pairs else first or labels(**pairs)


def exposition(families: Iterable[Family]) -> bytes:
    """The answer to a scrape, without families that have no series."""
    lines: list[str] = []
    spell = _GO.get
    for name, kind, text, samples in families:
        start = len(lines)
        # `metric_number`, inline: there are tens of thousands of series.
        lines += [
            f"{name}{suffix}{{{pairs}}} {spell(digits := repr(value), digits)}"
            if pairs
            else f"{name}{suffix} {spell(digits := repr(value), digits)}"
            for pairs, value, suffix in samples
        ]
        if len(lines) > start:
            lines[start:start] = [
                f"# HELP {name} {text.translate(_IN_HELP)}",
                f"# TYPE {name} {kind}",
            ]
    lines.append("")
    # Label values are external: a surrogate, which UTF-8 cannot encode, must not fail a scrape.
    return "\n".join(lines).encode("utf-8", "replace")


def metric_number(value: float) -> str:
    """A value as Go reads it; whole numbers keep every digit."""
    digits = repr(value)
    return _GO.get(digits, digits)


class Histogram:
    """Counts values by upper bounds."""

    def __init__(self, bounds: Sequence[float]) -> None:
        self._bounds = tuple(bounds)
        self._counts = [0] * (len(self._bounds) + 1)
        self._sum = 0.0

    def observe(self, value: float) -> None:
        """Count a value."""
        self._counts[bisect_left(self._bounds, value)] += 1
        self._sum += value

    def copy(self) -> "Histogram":
        """The same, which later values do not change."""
        copied = Histogram(self._bounds)
        copied._counts, copied._sum = list(self._counts), self._sum
        return copied

    @property
    def count(self) -> int:
        """How many values were counted."""
        return sum(self._counts)

    def samples(self, pairs: str = "") -> Iterator[MetricSample]:
        """Its series, for a family of kind histogram."""
        total = 0
        for bound, count in zip((*self._bounds, float("inf")), self._counts, strict=True):
            total += count
            yield MetricSample(add_labels(pairs, le=metric_number(bound)), total, "_bucket")
        yield MetricSample(pairs, self._sum, "_sum")
        yield MetricSample(pairs, total, "_count")


def histograms(by_labels: Mapping[str, Histogram]) -> Iterator[MetricSample]:
    """The series of several histograms of one family."""
    for pairs, histogram in by_labels.items():
        yield from histogram.samples(pairs)
