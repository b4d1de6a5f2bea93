"""The timeline: what it says, and that it can be read."""

from itertools import pairwise
from typing import get_args
from xml.etree import ElementTree as ET

import pytest

from memqos.draw.svg.elements import BOLD_WIDENING, SVG_NAMESPACE, TITLE_FONT, text_width
from memqos.draw.svg.timeline import TIMELINE_LEFT, TIMELINE_RIGHT, TIMELINE_WIDTH, timeline_svg
from memqos.draw.svg.timeline_data import Episode, MarkKind, MemoryPoint, Timeline, TimelineMark

MI = 1 << 20
SVG = f"{{{SVG_NAMESPACE}}}"
TEN = 1_772_445_600_000


def point(second: int, current: int, **levels: int | None) -> MemoryPoint:
    return MemoryPoint(TEN + second * 1000, current * MI, **levels)  # type: ignore[arg-type]


BAD_DAY = Timeline(
    "shop/web <app>",
    "a bad day",
    (
        point(0, 100, low=64 * MI, high=180 * MI, max=200 * MI),
        point(300, 190, low=64 * MI, high=180 * MI, max=200 * MI),
        point(450, 150, low=64 * MI, high=None, max=400 * MI),
        point(600, 160, low=64 * MI, high=None, max=400 * MI),
    ),
    (Episode(TEN + 200_000, TEN + 400_000, "throttled", "throttled for 3 min"),),
    (TimelineMark(TEN + 500_000, "killed", "killed: java"),),
)


def drawn(*timelines: Timeline) -> ET.Element:
    return ET.fromstring(timeline_svg(timelines))


def by_class(root: ET.Element, name: str) -> list[ET.Element]:
    return [each for each in root.iter() if name in each.get("class", "").split()]


def hints(root: ET.Element) -> list[str]:
    return [each.text or "" for each in root.iter(f"{SVG}title")]


def test_usage_and_every_level_are_drawn() -> None:
    found = hints(drawn(BAD_DAY))
    assert {"memory.current", "memory.high", "memory.max"} <= set(found)
    assert "up to memory.low: reclaimed last" in found


def test_the_longest_names_are_whole_in_a_title() -> None:
    pod = ".".join(["n" * 62] * 4) + ".n"
    title = f"{'s' * 63}/{pod} {'c' * 63}"
    root = drawn(Timeline(title, "", (point(0, 1), point(60, 2))))
    lines = by_class(root, "title")
    shown = "".join([line.text or "" for line in lines])
    assert shown.replace(" ", "") == title.replace(" ", "")
    assert all(
        text_width(line.text or "", TITLE_FONT * BOLD_WIDENING) <= TIMELINE_WIDTH for line in lines
    )
    tops = [float(line.get("y", "")) for line in lines]
    assert all(after - before >= TITLE_FONT for before, after in pairwise(tops))


def test_a_title_from_a_file_does_not_fill_a_page() -> None:
    lines = by_class(drawn(Timeline("x" * 100_000, "", (point(0, 1), point(60, 2)))), "title")
    assert len(lines) < 10
    assert (lines[-1].text or "").endswith("…")


def test_a_level_that_is_not_set_is_not_drawn() -> None:
    plain = Timeline("a/b c", "", (point(0, 1), point(60, 2)))
    found = hints(drawn(plain))
    assert "memory.current" in found
    assert not {"memory.high", "memory.max"} & set(found)


def test_memory_high_ends_where_it_is_taken_back() -> None:
    (path,) = [
        each.get("d", "")
        for each in by_class(drawn(BAD_DAY), "at-high")
        if each.tag == f"{SVG}path"
    ]
    assert path.count("M") == 1
    assert not path.endswith(f"H{TIMELINE_RIGHT}")


def test_episodes_are_shaded_and_happenings_are_flagged() -> None:
    root = drawn(BAD_DAY)
    assert "throttled for 3 min" in hints(root)
    assert "killed" in [text.text for text in root.iter(f"{SVG}text")]


def test_everything_stays_on_the_paper() -> None:
    for line in drawn(BAD_DAY).iter(f"{SVG}line"):
        for name in ("x1", "x2"):
            assert 0 <= float(line.get(name, "")) <= TIMELINE_WIDTH
    (path,) = by_class(drawn(BAD_DAY), "usage")[-1:]
    xs = [float(pair.split()[0]) for pair in path.get("d", "")[1:].split("L")]
    assert xs[0] == TIMELINE_LEFT
    assert xs[-1] == TIMELINE_RIGHT


@pytest.mark.parametrize("seconds", [0, 1, 59, 600, 5_000, 90_000, 700_000, 40_000_000])
def test_time_has_a_few_marks_however_long_it_is(seconds: int) -> None:
    root = drawn(Timeline("a/b c", "", (point(0, 1), point(seconds, 1))))
    marks = [text for text in by_class(root, "middle") if text.tag == f"{SVG}text"]
    assert len(marks) <= 10
    assert marks or seconds < 60


def test_nothing_recorded_draws_an_empty_plot() -> None:
    assert hints(drawn(Timeline("a/b c", "", ())))[0] == "a/b c"


def crowded(count: int) -> Timeline:
    kinds: list[MarkKind] = ["killed", "guarded", "resized"]
    marks = tuple(TimelineMark(TEN + 1000 * n, kinds[n % 3], f"mark {n}") for n in range(count))
    return Timeline("a/b c", "", (point(0, 1), point(200, 1)), (), marks)


def test_of_many_happenings_each_kind_has_a_row_and_none_is_excluded() -> None:
    root = drawn(crowded(200))
    assert {f"mark {n}" for n in range(200)} <= set(hints(root))
    rows = [text for text in root.iter(f"{SVG}text") if text.text in get_args(MarkKind)]
    assert sorted(text.text or "" for text in rows) == ["guarded", "killed", "resized"]
    heights = sorted(float(text.get("y", "")) for text in rows)
    assert all(lower - upper >= 15 for upper, lower in pairwise(heights))
    top = min(float(each.get("y", "")) for each in by_class(root, "end") if each.text == "0")
    assert max(heights) < top


def test_of_few_happenings_each_has_a_flag() -> None:
    root = drawn(crowded(6))
    flags = [text.text for text in root.iter(f"{SVG}text") if text.text in get_args(MarkKind)]
    assert len(flags) == 6


def test_the_key_explains_what_is_drawn_and_nothing_else() -> None:
    def key(timeline: Timeline) -> set[str]:
        return {text.text or "" for text in by_class(drawn(timeline), "ink")}

    plain = Timeline("a/b c", "", (point(0, 1), point(60, 2)))
    assert key(plain) == {"a/b c", "in use"}
    assert {"memory.high", "memory.max", "memory.low", "throttled"} <= key(BAD_DAY)
    assert not {"memory.min", "not recorded"} & key(BAD_DAY)


def test_one_look_is_drawn_as_if_it_lasted() -> None:
    root = drawn(Timeline("a/b c", "", (point(0, 100, max=200 * MI),)))
    (usage,) = [each for each in by_class(root, "usage") if each.tag == f"{SVG}path"]
    assert usage.get("d", "").startswith(f"M{TIMELINE_LEFT} ")
    assert usage.get("d", "").endswith(f"H{TIMELINE_RIGHT}")


def test_names_cannot_break_out_of_the_picture() -> None:
    bad = Timeline("<script>alert(1)</script>", "&", (point(0, 1),))
    assert "<script>" not in timeline_svg([bad])


def test_several_containers_are_drawn_below_each_other() -> None:
    one, two = drawn(BAD_DAY), drawn(BAD_DAY, BAD_DAY)
    assert float(two.get("height", "")) > 1.7 * float(one.get("height", ""))
