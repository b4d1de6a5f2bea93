"""The history of a container in bounded memory: peaks in slots of equal length.

A series has at most 256 slots. When time outgrows them, two become one: a slot is as long as a
power of two in seconds, counted from 1970, so that slots of different series nest.
"""

from array import array
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice, pairwise
from typing import Final, Literal, NamedTuple, Protocol

import msgspec

MAX_SLOTS: Final = 256
_EMPTY: Final = array("d", [-1.0])
"""A slot without samples."""
_LARGEST: Final = float(1 << 62)
"""Bytes: no container uses more, a counter that wrapped around does."""
_LATEST: Final = float(1 << 40)
"""Seconds: a later time is in another unit."""
FEWEST_SAMPLES: Final = 5
SHORT_GAP: Final = 600.0
"""Seconds without a sample that are no gap yet, nor are ten usual intervals."""

SeriesQuantity = Literal[
    "usage", "anon", "limit", "pressure", "refaults", "stalls", "restarts", "kills"
]
"""What a batch holds: bytes in use (the working set), anonymous bytes, the limit at that time, 1
while the node was under memory pressure, and counters: pages read again after reclaim, time
stalled for memory, restarts, kills."""


class SeriesName(msgspec.Struct, frozen=True):
    """A series as its source names it; the parts are empty where they are not known."""

    text: str
    namespace: str = ""
    pod: str = ""
    container: str = ""


class SampleBatch(NamedTuple):
    """Samples of one quantity of one series, in the order of the source."""

    name: SeriesName
    quantity: SeriesQuantity
    times: Sequence[float]
    """Seconds."""
    values: Sequence[float]


class HistorySource(Protocol):
    """Where samples come from: a file, a folder of records, a Prometheus server."""

    def batches(self) -> Iterator[SampleBatch]:
        """All samples, series by series or mixed; InputError where the source is broken."""


class SampleFaults(msgspec.Struct):
    """Samples that could not be used as they are."""

    invalid: int = 0
    """No number, negative, or beyond any machine."""
    duplicate: int = 0
    """A second value for the same time: the larger one counts."""
    backward: int = 0
    """Earlier than the sample before it: the clock was set back, or sources overlap."""
    unplaced: int = 0
    """Times that are not seconds."""

    @property
    def total(self) -> int:
        return self.invalid + self.duplicate + self.backward + self.unplaced


class PeakSlots:
    """The largest value in each slot of time; a slot without samples holds −1."""

    __slots__ = ("first", "peaks", "width")

    def __init__(self, width: int = 1) -> None:
        self.width = width
        self.first = 0
        """The slot of `peaks[0]`, counted from 1970."""
        self.peaks = array("d")

    def raise_to(self, at: float, value: float) -> None:
        """Count a value at a time."""
        if not self.peaks:
            self.first = int(at // self.width)
            self.peaks.append(value)
            return
        index = int(at // self.width) - self.first
        while not self._fits(index):
            self._double()
            index = int(at // self.width) - self.first
        if index < 0:
            self.peaks[:0] = _EMPTY * -index
            self.first += index
            index = 0
        elif index >= len(self.peaks):
            self.peaks.extend(_EMPTY * (index + 1 - len(self.peaks)))
        if value > self.peaks[index]:
            self.peaks[index] = value

    def _fits(self, index: int) -> bool:
        return index < MAX_SLOTS and len(self.peaks) - min(index, 0) <= MAX_SLOTS

    def end_of_last(self) -> float:
        """When the last slot ends."""
        return float((self.first + len(self.peaks)) * self.width)

    def _double(self) -> None:
        padded = _EMPTY * (self.first % 2) + self.peaks
        if len(padded) % 2:
            padded.append(-1.0)
        self.peaks = array("d", map(max, padded[::2], padded[1::2]))
        self.first //= 2
        self.width *= 2

    def widened(self, width: int) -> "PeakSlots":
        """The same peaks in slots of at least this width."""
        found = PeakSlots(self.width)
        found.first, found.peaks = self.first, self.peaks[:]
        while found.width < width:
            found._double()
        return found

    def filled(self) -> list[tuple[int, float]]:
        """The slots that hold samples: their start in seconds, and the peak."""
        return [
            ((self.first + index) * self.width, peak)
            for index, peak in enumerate(self.peaks)
            if peak >= 0
        ]

    def known_seconds(self) -> float:
        """The time from the first to the last sample, without gaps: these tell nothing."""
        times = [at for at, _ in self.filled()]
        steps = sorted(later - earlier for earlier, later in pairwise(times))
        # Fewer slots than samples make a history: samples are closer together than slots.
        usual = steps[len(steps) // 4] if len(times) >= FEWEST_SAMPLES else self.width
        longest = max(SHORT_GAP, 10 * usual)
        return float(self.width + sum(each if each <= longest else usual for each in steps))


class SeriesHistory:
    """What is remembered of one quantity of a series."""

    __slots__ = ("_last", "count", "faults", "interval", "latest", "rises", "slots", "start", "sum")

    def __init__(self) -> None:
        self.slots = PeakSlots()
        self.faults = SampleFaults()
        self.count = 0
        self.sum = 0.0
        self.start = self.latest = 0.0
        self.interval = 0.0
        """Seconds between samples, as the first batch with three or more has them."""
        self.rises = 0.0
        """How much a counter has grown, resets excluded."""
        self._last: float | None = None

    @property
    def mean(self) -> float:
        return self.sum / self.count if self.count else 0.0

    def add(self, times: Sequence[float], values: Sequence[float], until: float | None) -> None:
        """Count samples up to a time."""
        slots = self.slots
        end = _LATEST if until is None else min(until, _LATEST)
        last = self.latest if self.count else float("-inf")
        bound, top = (slots.end_of_last(), slots.peaks[-1]) if slots.peaks else (last, -1.0)
        count, total = 0, 0.0
        for at, value in zip(times, values, strict=True):
            # The usual case first: another sample of the last slot.
            if last < at < bound and at <= end and 0.0 <= value < _LARGEST:
                if value > top:
                    top = value
            else:
                if slots.peaks:
                    slots.peaks[-1] = top
                if not self._place(at, value, last, end):
                    continue
                bound, top = slots.end_of_last(), slots.peaks[-1]
            count += 1
            total += value
            if at > last:
                last = at
        self.count += count
        self.sum += total
        if slots.peaks:
            slots.peaks[-1] = top
            self.latest = last
        if not self.interval:
            self.interval = _usual_interval(times, end)

    def _place(self, at: float, value: float, last: float, end: float) -> bool:
        """Count a sample that starts a slot, or is not in order; False for one not to be used."""
        faults = self.faults
        if not 0.0 <= at <= end:
            faults.unplaced += not 0.0 <= at < _LATEST
            return False
        if not 0.0 <= value < _LARGEST:
            faults.invalid += 1
            return False
        faults.duplicate += at == last
        faults.backward += at < last
        self.start = min(self.start, at) if self.slots.peaks else at
        self.slots.raise_to(at, value)
        return True

    def add_counter(
        self, times: Sequence[float], values: Sequence[float], until: float | None
    ) -> None:
        """Count the rises of a counter; one that falls has started again from 0."""
        for at, value in zip(times, values, strict=True):
            if until is not None and at > until:
                continue
            if not 0.0 <= value < _LARGEST:
                self.faults.invalid += 1
                continue
            if self._last is not None:
                self.rises += value - self._last if value >= self._last else value
            self._last = value

    def longest_gap(self) -> float:
        """Seconds of the longest time without a sample, to the length of a slot."""
        longest = run = 0
        for peak in self.slots.peaks:
            run = run + 1 if peak < 0 else 0
            longest = max(longest, run)
        gap = float(longest * self.slots.width)
        return gap if gap > 2 * max(self.interval, self.slots.width) else 0.0


def is_usable(at: float, value: float) -> bool:
    """Whether a sample has a time in seconds and an amount of memory: neither is NaN, say."""
    return 0.0 <= at <= _LATEST and 0.0 <= value < _LARGEST


def _usual_interval(times: Sequence[float], end: float) -> float:
    used = islice((at for at in times if 0.0 <= at <= end), 64)
    steps = sorted(later - earlier for earlier, later in pairwise(used) if earlier < later)
    return steps[len(steps) // 2] if len(steps) > 1 else 0.0


class ContainerHistory(msgspec.Struct):
    """All quantities of one series."""

    name: SeriesName
    quantities: dict[SeriesQuantity, SeriesHistory] = {}

    @property
    def need(self) -> SeriesHistory:
        """What the container needs: anonymous memory where it is known that its cache is idle.

        Cache that is read again after reclaim (refaults), or waited for, is part of the need.
        """
        usage, anon = self.quantities.get("usage"), self.quantities.get("anon")
        if usage is None or (anon is not None and anon.count and self._is_cache_idle):
            return anon or usage or SeriesHistory()
        return usage

    @property
    def decides(self) -> Literal["anonymous memory", "working set"]:
        """What `need` is."""
        anon = self.quantities.get("anon")
        return "anonymous memory" if anon is not None and self.need is anon else "working set"

    @property
    def _is_cache_idle(self) -> bool:
        counters = [self.quantities.get("refaults"), self.quantities.get("stalls")]
        known = [each for each in counters if each is not None]
        return bool(known) and all(each.rises < 1.0 for each in known)

    def rises(self, quantity: SeriesQuantity) -> int | None:
        """How often something was counted; None where it is not known."""
        found = self.quantities.get(quantity)
        return None if found is None else round(found.rises)

    @property
    def limit(self) -> float | None:
        """The last limit; None where it is not known."""
        found = self.quantities.get("limit")
        filled = found.slots.filled() if found is not None else []
        return filled[-1][1] if filled else None


_COUNTERS: Final[tuple[SeriesQuantity, ...]] = ("refaults", "stalls", "restarts", "kills")


class HistoryTable:
    """The histories of all series of some sources."""

    def __init__(self, until: float | None = None) -> None:
        self.until = until
        self.containers: dict[SeriesName, ContainerHistory] = {}

    def read(self, batches: Iterable[SampleBatch]) -> None:
        """Count all samples; those after `until` are not used."""
        for batch in batches:
            self.add(batch)

    def add(self, batch: SampleBatch) -> None:
        """Count the samples of a batch."""
        container = self.containers.get(batch.name)
        if container is None:
            container = self.containers[batch.name] = ContainerHistory(batch.name, {})
        history = container.quantities.get(batch.quantity)
        if history is None:
            history = container.quantities[batch.quantity] = SeriesHistory()
        if batch.quantity in _COUNTERS:
            history.add_counter(batch.times, batch.values, self.until)
        else:
            history.add(batch.times, batch.values, self.until)


def sum_of_slots(parts: Sequence[PeakSlots]) -> PeakSlots:
    """The sum of peaks slot by slot: what containers of a pod needed together, at most."""
    width = max(part.width for part in parts)
    start = min(part.first * part.width for part in parts)
    latest = max(part.end_of_last() for part in parts)
    while latest - start > MAX_SLOTS * width:
        width *= 2
    aligned = [part.widened(width) for part in parts]
    found = PeakSlots(width)
    found.first = min(part.first for part in aligned)
    end = max(part.first + len(part.peaks) for part in aligned)
    found.peaks = _EMPTY * (end - found.first)
    for part in aligned:
        for index, peak in enumerate(part.peaks, part.first - found.first):
            if peak >= 0:
                found.peaks[index] = max(found.peaks[index], 0.0) + peak
    return found
