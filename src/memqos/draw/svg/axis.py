"""A linear axis of bytes, and the zones of a bar on it."""

from typing import Final, Literal, NamedTuple

from memqos.plan.setting import NEEDS_NODE

AXIS_LEFT: Final = 200
AXIS_RIGHT: Final = 770
THINNEST_ZONE: Final = 3
"""No zone is thinner, however little memory it is."""

_PAGE: Final = 4096

ZoneKind = Literal["min", "low", "normal", "high", "unknown"]
"""What ends where the zone does, but for `normal`, which ends where `high` starts."""


class Axis(NamedTuple):
    """From 0 at the left to `end` bytes at the right."""

    end: int
    ticks: tuple[int, ...]

    def x(self, amount: int) -> float:
        """Where an amount is, kept within the plot."""
        return AXIS_LEFT + (AXIS_RIGHT - AXIS_LEFT) * min(max(amount, 0), self.end) / self.end


def axis_to(end: int) -> Axis:
    """An axis with four to six round ticks, or with 0 alone if there is nothing to measure."""
    if not end:
        return Axis(1, (0,))
    end = max(end, _PAGE)
    step = 1 << (end // 3).bit_length() - 1
    return Axis(end, tuple(range(0, end + 1, step)))


class Zone(NamedTuple):
    """A stretch of a bar in which the kernel treats memory alike: its end in bytes, its edges."""

    kind: ZoneKind
    end: int
    left: float
    right: float


def zones(
    minimum: int, low: int, high: int | str | None, maximum: int | None, axis: Axis
) -> list[Zone]:
    """The zones of a bar from left to right; without a maximum it continues past the axis."""
    end = axis.end + 1 if maximum is None else maximum
    steps: list[tuple[ZoneKind, int]] = [("min", minimum), ("low", low)]
    if isinstance(high, int):
        steps += [("normal", high), ("high", end)]
    else:
        steps.append(("unknown" if high == NEEDS_NODE else "normal", end))
    found: list[tuple[ZoneKind, int]] = []
    reached = 0
    for kind, level in steps:
        if reached < min(level, end):
            reached = min(level, end)
            found.append((kind, reached))
    edges = _edges([axis.x(level) for _, level in found])
    return [
        Zone(kind, level, left, right)
        for (kind, level), left, right in zip(found, [AXIS_LEFT, *edges], edges, strict=False)
    ]


def _edges(exact: list[float]) -> list[float]:
    """Right edges of zones, moved apart where a zone would be too thin to see."""
    edges: list[float] = []
    at: float = AXIS_LEFT
    for x in exact:
        at = max(x, at + THINNEST_ZONE)
        edges.append(at)
    bound: float = AXIS_RIGHT
    for index in reversed(range(len(edges))):
        edges[index] = min(edges[index], bound)
        bound = edges[index] - THINNEST_ZONE
    return edges


def position_on_bar(amount: int, stretches: list[Zone], axis: Axis) -> float:
    """Where an amount is on a bar, in order with its zones even where those were moved."""
    after = max([zone.right for zone in stretches if zone.end <= amount], default=float(AXIS_LEFT))
    before = min(
        [zone.right for zone in stretches if zone.end >= amount], default=float(AXIS_RIGHT)
    )
    return min(max(axis.x(amount), after), before)
