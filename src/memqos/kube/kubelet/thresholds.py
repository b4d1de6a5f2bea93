"""Eviction thresholds: evictionHard and evictionSoft, read as the kubelet reads them."""

import math
import re
import struct
from collections.abc import Callable, Container, Iterator, Mapping
from typing import Final, Literal, TypeVar

import msgspec

from memqos.errors import InputError
from memqos.kube.duration import parse_duration
from memqos.kube.quantity import MAX_INT64, Quantity
from memqos.release import Since

MEMORY_AVAILABLE: Final = "memory.available"
ALLOCATABLE_MEMORY: Final = "allocatableMemory.available"
PODS: Final = "pods"
"""Of enforceNodeAllocatable: the limit of all pods together."""

NodeCondition = Literal["MemoryPressure", "DiskPressure", "PIDPressure"]
SIGNALS: Final[Mapping[str, NodeCondition]] = {
    MEMORY_AVAILABLE: "MemoryPressure",
    ALLOCATABLE_MEMORY: "MemoryPressure",
    "nodefs.available": "DiskPressure",
    "nodefs.inodesFree": "DiskPressure",
    "imagefs.available": "DiskPressure",
    "imagefs.inodesFree": "DiskPressure",
    "containerfs.available": "DiskPressure",
    "containerfs.inodesFree": "DiskPressure",
    "pid.available": "PIDPressure",
}
"""Eviction signal → the node condition that it sets."""

_UNTIL_29: Final = {
    MEMORY_AVAILABLE: "100Mi",
    "nodefs.available": "10%",
    "nodefs.inodesFree": "5%",
    "imagefs.available": "15%",
}
# DefaultEvictionHard, kubelet eviction/defaults_linux.go: imagefs.inodesFree since 1.30.
DEFAULT_HARD: Final[Since[Mapping[str, str]]] = Since(
    {22: _UNTIL_29, 30: {**_UNTIL_29, "imagefs.inodesFree": "5%"}}
)

ThresholdProblem = Literal[
    "unsupported_signal",
    "percentage_parse",
    "percentage_below_0",
    "percentage_above_100",
    "quantity_parse",
    "quantity_not_positive",
    "duration_parse",
    "grace_period_negative",
    "missing_grace_period",
    "min_reclaim_percentage_not_positive",
    "min_reclaim_negative",
]
_MESSAGES: Final[Mapping[ThresholdProblem, str]] = {
    "unsupported_signal": f"is not a signal the kubelet watches: {', '.join(SIGNALS)}",
    "percentage_parse": "is not a percentage",
    "percentage_below_0": "is below 0%",
    "percentage_above_100": "is above 100%",
    "quantity_parse": "is neither a quantity nor a percentage",
    "quantity_not_positive": "is not above 0",
    "duration_parse": "is not a duration",
    "grace_period_negative": "is a negative duration",
    "missing_grace_period": "is missing",
    "min_reclaim_percentage_not_positive": "is not above 0%",
    "min_reclaim_negative": "is negative",
}
_NEXT_STEP: Final[Mapping[ThresholdProblem, str]] = {
    "quantity_parse": "write 100Mi or 5%, without spaces",
    "percentage_parse": "write a number right before %, such as 7.5%",
    "duration_parse": "write a number with a unit, such as 90s or 1m30s",
    "missing_grace_period": "a soft threshold needs a grace period, such as 1m30s",
}

_FLOAT: Final = re.compile(r"[+-]?[0-9_]*\.?[0-9_]*(?:e[+-]?[0-9_]+)?", re.I)
_NOT_FINITE: Final = re.compile(r"nan|[+-]?inf(?:inity)?", re.I)
_HEX_FLOAT: Final = re.compile(r"[+-]?0x[0-9a-f]*\.?[0-9a-f]*p[+-]?[0-9]+", re.I)


class ThresholdAmount(msgspec.Struct, frozen=True):
    """A quantity, or a share of the capacity: exactly one of them."""

    quantity: Quantity | None = None
    percentage: float | None = None
    """1.0 is all of it. The kubelet computes in single precision, and so does this."""

    def of(self, capacity: int) -> Quantity:
        """The amount, given all there is; a share is truncated to a whole."""
        if self.quantity is not None:
            return self.quantity
        assert self.percentage is not None
        share = float(capacity) * self.percentage
        # strconv.ParseFloat() reads NaN and Inf, and no comparison of parseThresholdStatement()
        # refuses NaN. Go on amd64 makes the smallest int64 of both: such a threshold is never met.
        amount = int(share) if math.isfinite(share) else -MAX_INT64 - 1
        return Quantity.of(amount, "BinarySI")


class Threshold(msgspec.Struct, frozen=True):
    """Met while strictly less than `value` is available."""

    signal: str
    value: ThresholdAmount
    grace_period: int = 0
    """Nanoseconds."""
    min_reclaim: ThresholdAmount | None = None

    @property
    def hard(self) -> bool:
        """A soft threshold without grace is a hard one."""
        return not self.grace_period

    @property
    def condition(self) -> NodeCondition:
        return SIGNALS[self.signal]

    @property
    def is_share(self) -> bool:
        """Whether it depends on the capacity."""
        amounts = (self.value, self.min_reclaim)
        return any(each is not None and each.percentage is not None for each in amounts)

    def limit(self, capacity: int, *, reclaimed: bool = False) -> Quantity:
        """Less than this meets it; once met, reclaiming continues until `reclaimed` is not."""
        limit = self.value.of(capacity)
        if reclaimed and self.min_reclaim is not None:
            return limit + self.min_reclaim.of(capacity)
        return limit


class ThresholdFault(msgspec.Struct, frozen=True):
    """A statement the kubelet does not start with."""

    field: str
    signal: str
    problem: ThresholdProblem
    written: str = ""

    @property
    def what(self) -> str:
        subject = self.signal if self.problem == "unsupported_signal" else self.written
        quoted = f"{subject!r} " if self.problem != "missing_grace_period" else ""
        return quoted + _MESSAGES[self.problem]

    @property
    def hint(self) -> str | None:
        return _NEXT_STEP.get(self.problem)


class Thresholds(msgspec.Struct, frozen=True):
    """What was read. The kubelet stops at the first fault; all of them are listed."""

    thresholds: tuple[Threshold, ...]
    faults: tuple[ThresholdFault, ...] = ()


_T = TypeVar("_T", ThresholdAmount, ThresholdAmount | None, int)


def hard_with_defaults(
    written: Mapping[str, str] | None, *, merge: bool, minor: int
) -> dict[str, str]:
    """The effective evictionHard: as written, unless the defaults are merged in."""
    defaults = DEFAULT_HARD.at(minor)
    if written is None:
        return dict(defaults)
    return {**defaults, **written} if merge else dict(written)


def read_thresholds(
    hard: Mapping[str, str],
    soft: Mapping[str, str] | None = None,
    grace_periods: Mapping[str, str] | None = None,
    minimum_reclaim: Mapping[str, str] | None = None,
    enforced: Container[str] = (),
) -> Thresholds:
    """Thresholds of the configuration fields of these names; `enforced` is enforceNodeAllocatable.

    Where pods are enforced, hard thresholds on memory also apply to what pods may use together.
    """
    faults: list[ThresholdFault] = []

    def read(
        field: str,
        statements: Mapping[str, str] | None,
        reader: Callable[[str], _T | ThresholdProblem],
    ) -> Iterator[tuple[str, _T]]:
        for signal, text in (statements or {}).items():
            found = reader(text) if signal in SIGNALS else "unsupported_signal"
            if isinstance(found, str):
                faults.append(ThresholdFault(field, signal, found, text))
            else:
                yield signal, found

    hard_values = [*read("evictionHard", hard, _threshold_value)]
    soft_values = [*read("evictionSoft", soft, _threshold_value)]
    grace = dict(read("evictionSoftGracePeriod", grace_periods, _grace_period))
    reclaim = dict(read("evictionMinimumReclaim", minimum_reclaim, _minimum_reclaim))
    faults += [
        ThresholdFault("evictionSoftGracePeriod", signal, "missing_grace_period")
        for signal, value in soft_values
        if value is not None and signal not in (grace_periods or {})
    ]
    thresholds = [
        Threshold(signal, value, min_reclaim=reclaim.get(signal))
        for signal, value in hard_values
        if value is not None
    ]
    thresholds += [
        Threshold(signal, value, grace.get(signal, 0), reclaim.get(signal))
        for signal, value in soft_values
        if value is not None
    ]
    if PODS in enforced:
        thresholds += [
            msgspec.structs.replace(threshold, signal=ALLOCATABLE_MEMORY)
            for threshold in thresholds
            if threshold.signal == MEMORY_AVAILABLE and threshold.hard
        ]
    return Thresholds(() if faults else tuple(thresholds), tuple(faults))


_OFF: Final = frozenset({"0%", "100%"})
"""These two spellings switch a threshold off; 0.0% is one that is never met (kubelet
eviction/helpers.go, parseThresholdStatement)."""


def _threshold_value(text: str) -> ThresholdAmount | ThresholdProblem | None:
    if text in _OFF:
        return None
    if text.endswith("%"):
        share = _percentage(text)
        if share is None:
            return "percentage_parse"
        if share < 0:
            return "percentage_below_0"
        return "percentage_above_100" if share > 1 else ThresholdAmount(percentage=share)
    quantity = _quantity(text)
    if quantity is None:
        return "quantity_parse"
    return ThresholdAmount(quantity) if quantity.nano > 0 else "quantity_not_positive"


def _grace_period(text: str) -> int | ThresholdProblem:
    period = parse_duration(text)
    if period is None:
        return "duration_parse"
    return period if period >= 0 else "grace_period_negative"


def _minimum_reclaim(text: str) -> ThresholdAmount | ThresholdProblem:
    if text.endswith("%"):
        share = _percentage(text)
        if share is None:
            return "percentage_parse"
        return (
            "min_reclaim_percentage_not_positive"
            if share <= 0
            else ThresholdAmount(percentage=share)
        )
    quantity = _quantity(text)
    if quantity is None:
        return "quantity_parse"
    return ThresholdAmount(quantity) if quantity.nano >= 0 else "min_reclaim_negative"


def _quantity(text: str) -> Quantity | None:
    try:
        return Quantity.parse_bare(text)
    except InputError:
        return None


def _percentage(text: str) -> float | None:
    """The share in single precision; None where the text is no number that fits it."""
    # parsePercentage(), kubelet eviction/helpers.go: strconv.ParseFloat(…, 32) / 100, all float32.
    digits = text.rstrip("%")
    try:
        if _NOT_FINITE.fullmatch(digits):
            return float(digits)
        if _HEX_FLOAT.fullmatch(digits):
            number = float.fromhex(digits)
        elif _FLOAT.fullmatch(digits):
            number = float(digits)
        else:
            return None
        return _single(_single(number) / 100) if math.isfinite(number) else None
    except (ValueError, OverflowError):
        return None


def _single(number: float) -> float:
    return float(struct.unpack("<f", struct.pack("<f", number))[0])
