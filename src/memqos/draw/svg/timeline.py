"""Timelines of containers as one SVG document."""

from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from typing import Final

from memqos.draw.svg.axis import axis_to
from memqos.draw.svg.elements import (
    ROOT_CLASS,
    SMALL_FONT,
    TITLE_FONT,
    Flag,
    Mark,
    Markup,
    coordinate,
    el,
    ellipsize,
    place_flags,
    svg_document,
    svg_line,
    svg_text,
    svg_title,
    text_width,
    zone_path,
)
from memqos.draw.svg.timeline_data import MarkKind, MemoryPoint, Timeline
from memqos.units import format_bytes

TIMELINE_WIDTH: Final = 820
TIMELINE_MARGIN: Final = 20
TIMELINE_LEFT: Final = 74
TIMELINE_RIGHT: Final = 790
_PLOT_HEIGHT: Final = 260
_MINUTE: Final = 60_000


class TimelineFrame:
    """Where times and amounts are on paper."""

    def __init__(self, timeline: Timeline, top: float) -> None:
        times = [point.at for point in timeline.points] + [mark.at for mark in timeline.marks]
        times += [time for span in timeline.episodes for time in (span.at, span.until)]
        self.start, self.end = min(times, default=0), max(times, default=0)
        if self.start == self.end:
            # A single reading has no duration: it is drawn a minute long.
            self.end += _MINUTE
        amounts = [value for point in timeline.points for value in _amounts(point)]
        self.axis = axis_to(max(amounts, default=0) * 21 // 20)
        self.top, self.bottom = top, top + _PLOT_HEIGHT

    def x(self, at: int) -> float:
        span = max(1, self.end - self.start)
        return (
            TIMELINE_LEFT
            + (TIMELINE_RIGHT - TIMELINE_LEFT)
            * (min(max(at, self.start), self.end) - self.start)
            / span
        )

    def y(self, amount: int) -> float:
        return self.bottom - _PLOT_HEIGHT * min(max(amount, 0), self.axis.end) / self.axis.end


def _amounts(point: MemoryPoint) -> Iterator[int]:
    yield from (point.current, point.min, point.low)
    yield from (value for value in (point.high, point.max) if value is not None)


_LINE: Final = 15
_SPACE: Final = 26

_LOOKS: Final = (
    (
        ".usage",
        "stroke:#1f2328",
        "stroke:#e6edf3",
        "stroke-width:2px;fill:none",
    ),
    (".usage-halo", "stroke:#ffffff", "stroke:#0d1117", "stroke-width:5px;fill:none"),
    (".at-high", "stroke:#b06f00", "stroke:#e0a33a", "stroke-width:2px;fill:none"),
    (".at-max", "stroke:#b3261e", "stroke:#ff8078", "stroke-width:2px;fill:none"),
    (".shade", "", "", "opacity:.45"),
    (".dashed", "", "", "stroke-dasharray:6 4"),
    (".lost", "fill:#7d8690", "fill:#737c86", "opacity:.35"),
)
_STEPS: Final = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 28800, 86400)
"""Seconds between two marks of the axis of time."""
_MOST_FLAGS: Final = 8
"""With more marks than this each kind has a row of its own."""
_TICK: Final = 10


def timeline_svg(timelines: Sequence[Timeline]) -> str:
    """One SVG document with the timelines below each other."""
    body: list[Markup] = []
    y: float = TIMELINE_MARGIN
    for timeline in timelines:
        drawn, y = _timeline(timeline, y, () if body else timelines)
        body.append(drawn)
    title = ", ".join([each.title for each in timelines])
    description = " ".join([_description(each) for each in timelines])
    return svg_document(title, description, body, TIMELINE_WIDTH, y, _own_style())


def _timeline(
    timeline: Timeline, top: float, explained: Sequence[Timeline]
) -> tuple[Markup, float]:
    """A timeline, and the key of all that are `explained` with it."""
    width = TIMELINE_WIDTH - 2 * TIMELINE_MARGIN
    parts, y = svg_title(TIMELINE_MARGIN, top + TITLE_FONT, timeline.title, width)
    if timeline.subtitle:
        y += _LINE + 4
        parts.append(
            svg_text(TIMELINE_MARGIN, y, "dim", ellipsize(timeline.subtitle, SMALL_FONT, width))
        )
    if explained:
        parts.append(_legend(explained, y + _LINE - 4))
        y += 2 * _LINE
    crowded = len(timeline.marks) > _MOST_FLAGS
    raised = [] if crowded else _mark_flags(timeline, TimelineFrame(timeline, 0))
    rows = (
        _lanes(timeline) if crowded else range(1 + max([flag.row for flag in raised], default=-1))
    )
    frame = TimelineFrame(timeline, y + _LINE * len(rows) + _LINE)
    parts += _background(timeline, frame)
    parts.append(_ruler(frame))
    parts += _lines(timeline, frame)
    parts += [_flag(flag, frame) for flag in raised]
    if crowded:
        parts += [_lane(timeline, kind, row, frame) for row, kind in enumerate(_lanes(timeline), 1)]
    return el("g", *parts), frame.bottom + _LINE + _SPACE


def _background(timeline: Timeline, frame: TimelineFrame) -> Iterator[Markup]:
    """What lies behind the lines: protected memory, episodes, gaps."""
    for kind, of in (("low", lambda p: p.low if p.low > p.min else 0), ("min", lambda p: p.min)):
        outline = _area(timeline.points, frame, of)
        if outline:
            effect = "never reclaimed" if kind == "min" else "reclaimed last"
            yield _shade(kind, outline, f"up to memory.{kind}: {effect}")
    for span in timeline.episodes:
        left, right = frame.x(span.at), frame.x(span.until)
        right = max(right, left + 2)
        box = (
            f"M{coordinate(left)} "
            f"{coordinate(frame.top)}H{coordinate(right)}V{coordinate(frame.bottom)}"
        )
        box += f"H{coordinate(left)}Z"
        yield _shade("gap" if span.kind == "gap" else "high", box, span.hint)


def _shade(kind: str, outline: str, hint: str) -> Markup:
    if kind == "gap":
        return el("path", el("title", hint), d=outline, class_="lost")
    return el("g", zone_path(kind, outline, hint), class_="shade")


def _lines(timeline: Timeline, frame: TimelineFrame) -> Iterator[Markup]:
    for look, hint, of in (
        ("at-max", "memory.max", lambda p: p.max),
        ("at-high dashed", "memory.high", lambda p: p.high),
    ):
        path = _stairs(timeline.points, frame, of)
        if path:
            yield el("path", el("title", hint), d=path, class_=look)
    corners = [
        f"{coordinate(frame.x(p.at))} {coordinate(frame.y(p.current))}" for p in timeline.points
    ]
    if corners:
        path = (
            "M" + "L".join(corners) + ("" if len(corners) > 1 else f"H{coordinate(TIMELINE_RIGHT)}")
        )
        yield el("path", d=path, class_="usage-halo")
        yield el("path", el("title", "memory.current"), d=path, class_="usage")


def _stairs(
    points: Sequence[MemoryPoint], frame: TimelineFrame, of: Callable[[MemoryPoint], int | None]
) -> str:
    """A line that keeps its height until the next point has another; broken where there is none."""
    path: list[str] = []
    drawing = False
    for point, end in _point_ends(points, frame):
        value = of(point)
        if value is None:
            drawing = False
            continue
        x, y = coordinate(frame.x(point.at)), coordinate(frame.y(value))
        path.append(f"{'L' if drawing else 'M'}{x} {y}H{coordinate(end)}")
        drawing = True
    return "".join(path)


def _area(
    points: Sequence[MemoryPoint], frame: TimelineFrame, of: Callable[[MemoryPoint], int]
) -> str:
    if not any(of(point) for point in points):
        return ""
    path = [f"M{coordinate(frame.x(points[0].at))} {coordinate(frame.bottom)}"]
    for point, end in _point_ends(points, frame):
        path.append(f"V{coordinate(frame.y(of(point)))}H{coordinate(end)}")
    return "".join(path) + f"V{coordinate(frame.bottom)}Z"


def _point_ends(
    points: Sequence[MemoryPoint], frame: TimelineFrame
) -> Iterator[tuple[MemoryPoint, float]]:
    """Points, and where on paper the next one begins."""
    for index, point in enumerate(points):
        following = points[index + 1].at if index + 1 < len(points) else frame.end
        yield point, frame.x(following)


def _ruler(frame: TimelineFrame) -> Markup:
    parts = [svg_line("axis", TIMELINE_LEFT, frame.bottom, TIMELINE_RIGHT, frame.bottom)]
    for tick in frame.axis.ticks:
        y = frame.y(tick)
        parts.append(svg_line("grid", TIMELINE_LEFT, y, TIMELINE_RIGHT, y))
        parts.append(
            svg_text(TIMELINE_LEFT - 6, y + 4, "dim end", format_bytes(tick) if tick else "0")
        )
    seconds = max(1, (frame.end - frame.start) // 1000)
    step = next((each for each in _STEPS if seconds // each <= 8), _STEPS[-1])
    step = max(step, seconds // 8 // _STEPS[-1] * _STEPS[-1])
    at = -(-frame.start // (step * 1000)) * step * 1000
    while at <= frame.end:
        x = frame.x(at)
        parts.append(svg_line("axis", x, frame.bottom, x, frame.bottom + 4))
        parts.append(svg_text(x, frame.bottom + _LINE + 3, "dim middle", _clock(at, step)))
        at += step * 1000
    return el("g", *parts)


def _mark_flags(timeline: Timeline, frame: TimelineFrame) -> list[Flag]:
    marks = [Mark(frame.x(mark.at), mark.kind, mark.hint) for mark in timeline.marks]
    return place_flags(marks, SMALL_FONT, TIMELINE_MARGIN, TIMELINE_WIDTH - TIMELINE_MARGIN)


_RANK: Final[tuple[MarkKind, ...]] = ("guarded", "resized", "evicted", "killed")
"""From the bottom up."""
_FATAL: Final[tuple[MarkKind, ...]] = ("killed", "evicted")


def _lanes(timeline: Timeline) -> list[MarkKind]:
    drawn = {mark.kind for mark in timeline.marks}
    return [kind for kind in _RANK if kind in drawn]


def _lane(timeline: Timeline, kind: MarkKind, row: int, frame: TimelineFrame) -> Markup:
    """All marks of a kind above the plot, a tick each."""
    foot = frame.top + _LINE / 2 - _LINE * row
    look = "kill" if kind in _FATAL else "pole"
    ticks = [
        el("g", el("title", mark.hint), svg_line(look, x, foot - _TICK, x, foot))
        for mark in timeline.marks
        if mark.kind == kind
        for x in [frame.x(mark.at)]
    ]
    return el("g", svg_text(TIMELINE_LEFT - 6, foot - 1, "dim end", kind), *ticks)


def _flag(flag: Flag, frame: TimelineFrame) -> Markup:
    x, foot = flag.mark.x, frame.top - 6 - _LINE * flag.row
    fatal = flag.mark.text in _FATAL
    return el(
        "g",
        el("title", flag.mark.hint),
        svg_line("kill" if fatal else "pole", x, foot - 9, x, frame.bottom),
        svg_text(flag.left, foot, "ink halo", flag.mark.text),
    )


def _legend(timelines: Sequence[Timeline], top: float) -> Markup:
    """What is drawn, and nothing else."""
    x: float = TIMELINE_MARGIN
    parts: list[Markup] = []
    points = [point for timeline in timelines for point in timeline.points]
    spans = {span.kind for timeline in timelines for span in timeline.episodes}
    for look, words, is_drawn in (
        ("usage", "in use", bool(points)),
        ("at-high dashed", "memory.high", any(point.high is not None for point in points)),
        ("at-max", "memory.max", any(point.max is not None for point in points)),
    ):
        if is_drawn:
            parts.append(svg_line(look, x, top + 6, x + 22, top + 6))
            parts.append(svg_text(x + 28, top + 10, "ink", words))
            x += 28 + text_width(words, SMALL_FONT) + 14
    for kind, words, is_drawn in (
        ("min", "memory.min", any(point.min for point in points)),
        ("low", "memory.low", any(point.low > point.min for point in points)),
        ("high", "throttled", "throttled" in spans),
        ("gap", "not recorded", "gap" in spans),
    ):
        if is_drawn:
            parts.append(_shade(kind, f"M{coordinate(x)} {coordinate(top)}h22v12h-22Z", words))
            parts.append(svg_text(x + 28, top + 10, "ink", words))
            x += 28 + text_width(words, SMALL_FONT) + 14
    return el("g", *parts)


def _description(timeline: Timeline) -> str:
    peak = max([point.current for point in timeline.points], default=0)
    happened = [mark.hint for mark in timeline.marks] + [span.hint for span in timeline.episodes]
    if len(happened) > _MOST_FLAGS:
        happened = [timeline.subtitle]
    listed = "; ".join(happened) or "nothing happened"
    return f"{timeline.title}: at most {format_bytes(peak)} in use. {listed}."


def _clock(at: int, step: int) -> str:
    moment = datetime.fromtimestamp(at / 1000, UTC)
    if step >= _STEPS[-1]:
        return moment.strftime("%d %b")
    return moment.strftime("%H:%M" if step >= 60 else "%H:%M:%S")


def _own_style() -> Markup:
    light = "".join([f".{ROOT_CLASS} {name}{{{fixed};{look}}}" for name, look, _, fixed in _LOOKS])
    dark = "".join([f".{ROOT_CLASS} {name}{{{look}}}" for name, _, look, _ in _LOOKS if look])
    return el("style", Markup(f"{light}@media (prefers-color-scheme:dark){{{dark}}}"))
