"""A container's memory over time: usage against min, low, high and max, episodes shaded."""

from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from typing import Final, Literal

import msgspec

from memqos.draw.look import BOLD, ROOT, SMALL, TITLE, drawing, filled
from memqos.draw.scale import axis_to, short_size
from memqos.draw.svg import (
    Flag,
    Mark,
    Markup,
    el,
    flags,
    number,
    shortened,
    text_width,
)

WIDTH: Final = 820
MARGIN: Final = 20
LEFT: Final = 74
RIGHT: Final = 790
PLOT: Final = 260
LINE: Final = 15
SPACE: Final = 26

SpanKind = Literal["throttled", "gap"]
MarkKind = Literal["killed", "evicted", "guarded", "resized"]

_LOOKS: Final = (
    (".usage", "stroke:#1f2328", "stroke:#e6edf3", "stroke-width:2px;fill:none"),
    (".usage-halo", "stroke:#ffffff", "stroke:#0d1117", "stroke-width:5px;fill:none"),
    (".at-high", "stroke:#b06f00", "stroke:#e0a33a", "stroke-width:2px;fill:none"),
    (".at-max", "stroke:#b3261e", "stroke:#ff8078", "stroke-width:2px;fill:none"),
    (".shade", "", "", "opacity:.45"),
    (".dashed", "", "", "stroke-dasharray:6 4"),
    (".lost", "fill:#7d8690", "fill:#737c86", "opacity:.35"),
)
_KEY: Final = (
    ("usage", "in use"),
    ("at-high dashed", "memory.high"),
    ("at-max", "memory.max"),
)
_STEPS: Final = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 28800, 86400)
"""Seconds between two marks of the axis of time."""
_MOST_FLAGS: Final = 8


class Point(msgspec.Struct, frozen=True):
    """How things stood from a time on. Milliseconds, bytes; None is no limit."""

    at: int
    current: int
    min: int = 0
    low: int = 0
    high: int | None = None
    max: int | None = None


class Span(msgspec.Struct, frozen=True):
    """An episode."""

    at: int
    until: int
    kind: SpanKind
    hint: str


class Happening(msgspec.Struct, frozen=True):
    """Something that took no time."""

    at: int
    kind: MarkKind
    hint: str


class Timeline(msgspec.Struct, frozen=True):
    """What is drawn of one container."""

    title: str
    subtitle: str
    points: tuple[Point, ...]
    spans: tuple[Span, ...] = ()
    marks: tuple[Happening, ...] = ()


class _Frame:
    """Where times and amounts are on paper."""

    def __init__(self, timeline: Timeline, top: float) -> None:
        times = [point.at for point in timeline.points] + [mark.at for mark in timeline.marks]
        times += [time for span in timeline.spans for time in (span.at, span.until)]
        self.start, self.end = min(times, default=0), max(times, default=0)
        amounts = [value for point in timeline.points for value in _amounts(point)]
        self.axis = axis_to(max(amounts, default=0) * 21 // 20)
        self.top, self.bottom = top, top + PLOT

    def x(self, at: int) -> float:
        span = max(1, self.end - self.start)
        return LEFT + (RIGHT - LEFT) * (min(max(at, self.start), self.end) - self.start) / span

    def y(self, amount: int) -> float:
        return self.bottom - PLOT * min(max(amount, 0), self.axis.end) / self.axis.end


def timeline_svg(timelines: Sequence[Timeline]) -> str:
    """One SVG document with the timelines below each other."""
    body: list[Markup] = []
    y: float = MARGIN
    for timeline in timelines:
        drawn, y = _timeline(timeline, y, key=not body)
        body.append(drawn)
    title = ", ".join([each.title for each in timelines])
    spoken = " ".join([_spoken(each) for each in timelines])
    return drawing(title, spoken, body, WIDTH, y, _own_style())


def _timeline(timeline: Timeline, top: float, *, key: bool) -> tuple[Markup, float]:
    room = WIDTH - 2 * MARGIN
    y = top + TITLE
    title = shortened(timeline.title, TITLE * BOLD, room)
    parts = [_text(MARGIN, y, "ink title", title)]
    if timeline.subtitle:
        y += LINE + 4
        parts.append(_text(MARGIN, y, "dim", shortened(timeline.subtitle, SMALL, room)))
    if key:
        parts.append(_key(y + LINE - 4))
        y += 2 * LINE
    raised = _raised(timeline, _Frame(timeline, 0))
    frame = _Frame(timeline, y + LINE * (1 + max([flag.row for flag in raised], default=-1)) + LINE)
    parts += _below(timeline, frame)
    parts.append(_ruler(frame))
    parts += _lines(timeline, frame)
    parts += [_flag(flag, frame) for flag in raised]
    return el("g", *parts), frame.bottom + LINE + SPACE


def _below(timeline: Timeline, frame: _Frame) -> Iterator[Markup]:
    """What lies behind the lines: protected memory, episodes, gaps."""
    for kind, of in (("low", lambda p: p.low if p.low > p.min else 0), ("min", lambda p: p.min)):
        outline = _area(timeline.points, frame, of)
        if outline:
            says = "never reclaimed" if kind == "min" else "reclaimed last"
            area = filled(kind, outline, f"up to memory.{kind}: {says}")
            yield el("g", area, class_="shade")
    for span in timeline.spans:
        left, right = frame.x(span.at), frame.x(span.until)
        right = max(right, left + 2)
        box = f"M{number(left)} {number(frame.top)}H{number(right)}V{number(frame.bottom)}"
        box += f"H{number(left)}Z"
        if span.kind == "gap":
            yield el("path", el("title", span.hint), d=box, class_="lost")
        else:
            yield el("g", filled("high", box, span.hint), class_="shade")


def _lines(timeline: Timeline, frame: _Frame) -> Iterator[Markup]:
    for look, hint, of in (
        ("at-max", "memory.max", lambda p: p.max),
        ("at-high dashed", "memory.high", lambda p: p.high),
    ):
        path = _stairs(timeline.points, frame, of)
        if path:
            yield el("path", el("title", hint), d=path, class_=look)
    corners = [f"{number(frame.x(p.at))} {number(frame.y(p.current))}" for p in timeline.points]
    if corners:
        path = "M" + "L".join(corners)
        yield el("path", d=path, class_="usage-halo")
        yield el("path", el("title", "memory.current"), d=path, class_="usage")


def _stairs(points: Sequence[Point], frame: _Frame, of: Callable[[Point], int | None]) -> str:
    """A line that keeps its height until the next point has another; broken where there is none."""
    path: list[str] = []
    drawing = False
    for point, end in _stretches(points, frame):
        value = of(point)
        if value is None:
            drawing = False
            continue
        x, y = number(frame.x(point.at)), number(frame.y(value))
        path.append(f"{'L' if drawing else 'M'}{x} {y}H{number(end)}")
        drawing = True
    return "".join(path)


def _area(points: Sequence[Point], frame: _Frame, of: Callable[[Point], int]) -> str:
    if not any(of(point) for point in points):
        return ""
    path = [f"M{number(frame.x(points[0].at))} {number(frame.bottom)}"]
    for point, end in _stretches(points, frame):
        path.append(f"V{number(frame.y(of(point)))}H{number(end)}")
    return "".join(path) + f"V{number(frame.bottom)}Z"


def _stretches(points: Sequence[Point], frame: _Frame) -> Iterator[tuple[Point, float]]:
    """Points, and where on paper the next one begins."""
    for index, point in enumerate(points):
        following = points[index + 1].at if index + 1 < len(points) else frame.end
        yield point, frame.x(following)


def _ruler(frame: _Frame) -> Markup:
    parts = [_line("axis", LEFT, frame.bottom, RIGHT, frame.bottom)]
    for tick in frame.axis.ticks:
        y = frame.y(tick)
        parts.append(_line("grid", LEFT, y, RIGHT, y))
        parts.append(_text(LEFT - 6, y + 4, "dim end", short_size(tick) if tick else "0"))
    seconds = max(1, (frame.end - frame.start) // 1000)
    step = next((each for each in _STEPS if seconds // each <= 8), _STEPS[-1])
    step = max(step, seconds // 8 // _STEPS[-1] * _STEPS[-1])
    at = -(-frame.start // (step * 1000)) * step * 1000
    while at <= frame.end:
        x = frame.x(at)
        parts.append(_line("axis", x, frame.bottom, x, frame.bottom + 4))
        parts.append(_text(x, frame.bottom + LINE + 3, "dim middle", _clock(at, step)))
        at += step * 1000
    return el("g", *parts)


def _raised(timeline: Timeline, frame: _Frame) -> list[Flag]:
    marks = [
        Mark(frame.x(mark.at), mark.kind, mark.hint)
        for mark in sorted(timeline.marks, key=lambda mark: _RANK.index(mark.kind))
    ]
    return flags(marks[:_MOST_FLAGS], SMALL, MARGIN, WIDTH - MARGIN)


_RANK: Final[tuple[MarkKind, ...]] = ("killed", "evicted", "resized", "guarded")


def _flag(flag: Flag, frame: _Frame) -> Markup:
    x, foot = flag.mark.x, frame.top - 6 - LINE * flag.row
    fatal = flag.mark.text in ("killed", "evicted")
    return el(
        "g",
        el("title", flag.mark.hint),
        _line("kill" if fatal else "pole", x, foot - 9, x, frame.bottom),
        _text(flag.left, foot, "ink halo", flag.mark.text),
    )


def _key(top: float) -> Markup:
    x: float = MARGIN
    parts: list[Markup] = []
    for look, words in _KEY:
        parts.append(_line(look, x, top + 6, x + 22, top + 6))
        parts.append(_text(x + 28, top + 10, "ink", words))
        x += 28 + text_width(words, SMALL) + 14
    for kind, words in (("min", "memory.min"), ("low", "memory.low"), ("high", "throttled")):
        swatch = filled(kind, f"M{number(x)} {number(top)}h22v12h-22Z", words)
        parts.append(el("g", swatch, class_="shade"))
        parts.append(_text(x + 28, top + 10, "ink", words))
        x += 28 + text_width(words, SMALL) + 14
    return el("g", *parts)


def _spoken(timeline: Timeline) -> str:
    peak = max([point.current for point in timeline.points], default=0)
    happened = [mark.hint for mark in timeline.marks] + [span.hint for span in timeline.spans]
    told = "; ".join(happened) or "nothing happened"
    return f"{timeline.title}: at most {short_size(peak)} in use. {told}."


def _amounts(point: Point) -> Iterator[int]:
    yield from (point.current, point.min, point.low)
    yield from (value for value in (point.high, point.max) if value is not None)


def _clock(at: int, step: int) -> str:
    moment = datetime.fromtimestamp(at / 1000, UTC)
    if step >= _STEPS[-1]:
        return moment.strftime("%d %b")
    return moment.strftime("%H:%M" if step >= 60 else "%H:%M:%S")


def _own_style() -> Markup:
    light = "".join([f".{ROOT} {name}{{{fixed};{look}}}" for name, look, _, fixed in _LOOKS])
    dark = "".join([f".{ROOT} {name}{{{look}}}" for name, _, look, _ in _LOOKS if look])
    return el("style", Markup(f"{light}@media (prefers-color-scheme:dark){{{dark}}}"))


def _text(x: float, y: float, look: str, words: str) -> Markup:
    return el("text", words, x=x, y=y, class_=look)


def _line(look: str, x1: float, y1: float, x2: float, y2: float) -> Markup:
    return el("line", x1=x1, y1=y1, x2=x2, y2=y2, class_=look)
