"""Which eviction thresholds are met by what was observed on a node."""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from memqos.kube.kubelet.thresholds import NodeCondition, Threshold
from memqos.kube.quantity import Quantity


class SignalObservation(NamedTuple):
    """What a signal read: what is available, and of how much."""

    available: int
    capacity: int
    at: int | None = None
    """When it was measured, in nanoseconds; None where nobody said."""


SignalObservations = Mapping[str, SignalObservation]
"""By signal."""


class ThresholdReading(NamedTuple):
    """A threshold against its signal; nothing is met by a signal that was not observed."""

    threshold: Threshold
    observation: SignalObservation | None
    limit: Quantity | None
    """Less than this meets it."""
    limit_reclaimed: Quantity | None
    """Less than this keeps it met once it was: the limit and the minimum reclaim."""

    @property
    def met(self) -> bool:
        return _is_below(self.observation, self.limit)

    @property
    def met_until_reclaimed(self) -> bool:
        return _is_below(self.observation, self.limit_reclaimed)


def threshold_readings(
    thresholds: Iterable[Threshold], observations: SignalObservations
) -> list[ThresholdReading]:
    """Every threshold with the numbers that decide about it."""
    return [
        _read_threshold(threshold, observations.get(threshold.signal)) for threshold in thresholds
    ]


def node_conditions(met: Iterable[Threshold]) -> list[NodeCondition]:
    """The conditions that thresholds put a node into, in their order."""
    return list(dict.fromkeys([threshold.condition for threshold in met]))


def _read_threshold(threshold: Threshold, seen: SignalObservation | None) -> ThresholdReading:
    if seen is None:
        return ThresholdReading(threshold, None, None, None)
    return ThresholdReading(
        threshold,
        seen,
        threshold.limit(seen.capacity),
        threshold.limit(seen.capacity, reclaimed=True),
    )


def _is_below(seen: SignalObservation | None, limit: Quantity | None) -> bool:
    return seen is not None and limit is not None and Quantity.of(seen.available) < limit
