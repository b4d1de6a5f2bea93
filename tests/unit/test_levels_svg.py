"""The picture of memory levels: what it says, and that it can be read."""

import re
from collections.abc import Iterator
from itertools import combinations, product
from xml.etree import ElementTree as ET

import pytest

from memqos.draw.svg.axis import (
    AXIS_LEFT,
    AXIS_RIGHT,
    THINNEST_ZONE,
    axis_to,
    position_on_bar,
    zones,
)
from memqos.draw.svg.elements import (
    SMALL_FONT,
    SVG_COLOURS,
    SVG_NAMESPACE,
    Markup,
    el,
    ellipsize,
    printable,
    text_width,
)
from memqos.draw.svg.levels import (
    LEVEL_NAMES,
    LEVELS_MARGIN,
    LEVELS_WIDTH,
    SPEC_NAMES,
    LevelBar,
    LevelsChart,
    levels_svg,
)
from memqos.units import format_bytes

KI, MI, GI = 1 << 10, 1 << 20, 1 << 30
SVG = f"{{{SVG_NAMESPACE}}}"


def bar(name: str = "app", role: str = "container", **values: int | str | None) -> LevelBar:
    fields: dict[str, int | str | None] = dict.fromkeys(
        ("request", "limit", "min", "low", "high", "max", "oom_score_adj")
    )
    return LevelBar(name=name, role=role, **{**fields, **values})  # type: ignore[arg-type]


def burstable(name: str, request: int, limit: int, role: str = "container") -> LevelBar:
    high = int(request + (limit - request) * 0.9) // 4096 * 4096
    return bar(
        name,
        role,
        request=request,
        limit=limit,
        min=request,
        high=high,
        max=limit,
        oom_score_adj=968,
    )


def guaranteed(name: str, size: int) -> LevelBar:
    return bar(name, request=size, limit=size, min=size, max=size, oom_score_adj=-997)


BURSTABLE = LevelsChart(
    "shop/web",
    "Burstable",
    (
        bar("pod", "pod", request=704 * MI, min=704 * MI),
        burstable("app", 256 * MI, GI),
        bar("logs", "sidecar", request=64 * MI, min=64 * MI, high=3 * GI, max="max"),
        burstable("cache", 384 * MI, 512 * MI),
    ),
    4 * GI,
)
GUARANTEED = LevelsChart(
    "db/postgres-0", "", (guaranteed("pod", 2 * GI), guaranteed("db", 2 * GI)), None
)
BEST_EFFORT = LevelsChart("a/b", "BestEffort", (bar(max="max", oom_score_adj=1000),), None)
WITHOUT_NODE = LevelsChart(
    "shop/api",
    "Burstable",
    (
        bar(
            request=GI, low=GI, high="needs node", max="max", oom_score_adj="needs node", note="why"
        ),
    ),
    None,
)
MANY = LevelsChart(
    "mesh/gateway",
    "Burstable",
    tuple([burstable(f"c{n}", (n + 1) * 30 * MI, (n + 2) * 90 * MI, "sidecar") for n in range(10)]),
    None,
)
EXTREME = LevelsChart(
    "edge/extreme",
    "1Mi beside 64Gi",
    (
        burstable("tiny", MI, 2 * MI),
        burstable("huge", 64 * GI - 2 * MI, 64 * GI),
        bar("start", request=MI, limit=5 * MI, min=MI, low=2 * MI, high=3 * MI, max=4 * MI),
        bar("end", min=64 * GI - 6 * MI, low=64 * GI - 4 * MI, high=64 * GI - 2 * MI, max=64 * GI),
        bar("middle", min=31 * GI, low=32 * GI, high=33 * GI, max=34 * GI),
    ),
    None,
)
CHARTS = [BURSTABLE, GUARANTEED, BEST_EFFORT, WITHOUT_NODE, MANY, EXTREME]


def parsed(*charts: LevelsChart) -> ET.Element:
    return ET.fromstring(levels_svg(charts))


def words(text: ET.Element) -> str:
    """The words a text element shows, without the hint shown on hovering."""
    return (text.text or "") + "".join([child.tail or "" for child in text])


def shown(*charts: LevelsChart) -> list[str]:
    return [words(text) for text in parsed(*charts).iter(f"{SVG}text")]


def classes(element: ET.Element) -> list[str]:
    return element.get("class", "").split()


class Box:
    """A text without a transformation, as laid out."""

    def __init__(self, text: ET.Element) -> None:
        self.words = words(text)
        self.y = float(text.get("y", ""))
        width = text_width(self.words, SMALL_FONT)
        x = float(text.get("x", ""))
        look = classes(text)
        self.left = x - (width if "end" in look else width / 2 if "middle" in look else 0)
        self.right = self.left + width


KEY_X = "28"


def texts_outside_the_key(root: ET.Element) -> list[Box]:
    return [Box(text) for text in root.iter(f"{SVG}text") if text.get("x") != KEY_X]


def plot_texts(root: ET.Element) -> list[Box]:
    """Everything written right of the names."""
    return [
        box
        for box in texts_outside_the_key(root)
        if box.right > AXIS_LEFT and box.left > LEVELS_MARGIN
    ]


# What it says


@pytest.mark.parametrize("chart", CHARTS, ids=lambda chart: chart.title)
def test_every_value_of_every_bar_is_shown_as_text(chart: LevelsChart) -> None:
    for one in chart.bars:
        texts = shown(LevelsChart(chart.title, chart.subtitle, (one,), chart.scale))
        for name in SPEC_NAMES + LEVEL_NAMES:
            value = getattr(one, name)
            if isinstance(value, int):
                label = rf"\b{name}\b[a-z =]* {re.escape(format_bytes(value))}$"
                assert any([re.search(label, text) for text in texts]), (name, texts)
        assert one.oom_score_adj is None or f"oom_score_adj {one.oom_score_adj}" in texts


def test_equal_values_share_a_label() -> None:
    texts = shown(LevelsChart("db", "", (guaranteed("db", GI),), None))
    assert "request = limit 1Gi" in texts
    assert "min = max 1Gi" in texts


def test_what_has_no_place_on_the_axis_is_said_in_words() -> None:
    one = bar(request=0, min=0, high="max", max="max")
    assert "request 0 · min 0 · high no limit · not set: limit, low" in shown(
        LevelsChart("a", "", (one,), None)
    )


def test_nothing_is_marked_at_0() -> None:
    root = parsed(LevelsChart("a", "", (bar(request=0, min=0, max=0),), None))
    assert [line for line in root.iter(f"{SVG}line") if "pole" in classes(line)] == []
    assert overlapping(root) == []
    bottom = max(
        [float(line.get("y2", "")) for line in root.iter(f"{SVG}line") if "edge" in classes(line)]
    )
    (message,) = [text for text in plot_texts(root) if text.words.startswith("request 0 ·")]
    assert message.y - SMALL_FONT >= bottom - 3


def test_a_value_that_needs_the_node_is_drawn_as_unknown() -> None:
    root = parsed(WITHOUT_NODE)
    texts = [words(text) for text in root.iter(f"{SVG}text")]
    assert "high needs node · not set: limit, min" in texts
    assert "oom_score_adj needs node" in texts
    assert any(["unknown" in classes(path) for path in root.iter(f"{SVG}path")])
    assert not any(["unknown" in classes(path) for path in parsed(BURSTABLE).iter(f"{SVG}path")])


def test_a_note_is_shown_below_its_bar() -> None:
    assert "why" in shown(WITHOUT_NODE)


@pytest.mark.parametrize("unlimited", [None, "max"])
def test_only_a_bar_without_a_limit_says_so(unlimited: str | None) -> None:
    assert "no limit" in shown(LevelsChart("a", "", (bar(max=unlimited),), None))
    assert "no limit" not in shown(LevelsChart("a", "", (bar(max=GI),), None))


def farthest(*bars: LevelBar, scale: int | None = None) -> float:
    """How far right the outlines of the bars go."""
    paths = parsed(LevelsChart("a", "", bars, scale)).iter(f"{SVG}path")
    outlines = [path.get("d", "") for path in paths if "axis" in classes(path)]
    return max([float(x) for outline in outlines for x in re.findall(r"[LH]([\d.]+)", outline)])


def test_only_a_bar_without_a_limit_is_an_arrow_past_the_axis() -> None:
    assert farthest(bar(max=GI)) == AXIS_RIGHT
    assert farthest(bar(max="max")) > AXIS_RIGHT


def test_only_a_bar_with_a_limit_has_an_edge_where_it_is_killed() -> None:
    def edges(one: LevelBar) -> int:
        lines = parsed(LevelsChart("a", "", (one,), None)).iter(f"{SVG}line")
        return len([line for line in lines if "edge" in classes(line)])

    assert edges(bar(max=GI)) == edges(bar(max="max")) + 1


def test_the_key_is_drawn_once() -> None:
    assert shown(*CHARTS).count("above high: throttled") == 1


def test_a_pod_that_is_fully_protected_shows_no_other_zone() -> None:
    assert [zone.kind for zone in zones(GI, 0, None, GI, axis_to(GI))] == ["min"]


def test_zones_follow_each_other_up_to_the_limit() -> None:
    stretches = zones(GI, 2 * GI, 3 * GI, 4 * GI, axis_to(8 * GI))
    assert [(zone.kind, zone.end) for zone in stretches] == [
        ("min", GI),
        ("low", 2 * GI),
        ("normal", 3 * GI),
        ("high", 4 * GI),
    ]
    assert [zone.left for zone in stretches] == [
        AXIS_LEFT,
        *[zone.right for zone in stretches[:-1]],
    ]
    assert stretches[-1].right == (AXIS_LEFT + AXIS_RIGHT) / 2


def test_a_level_above_the_limit_changes_nothing_below_it() -> None:
    assert [zone.kind for zone in zones(0, 0, 2 * GI, GI, axis_to(2 * GI))] == ["normal"]


# The axis


def pole_of(label: str, chart: LevelsChart) -> float:
    """Where the pole beside a label is."""
    for group in parsed(chart).iter(f"{SVG}g"):
        if label in [words(text) for text in group.findall(f"{SVG}text")]:
            return float(group.findall(f"{SVG}line")[0].get("x1", ""))
    raise AssertionError(label)


def test_without_a_node_there_is_room_past_the_largest_amount() -> None:
    chart = LevelsChart("a", "", (bar(request=3 * GI, max="max"),), None)
    assert pole_of("request 3Gi", chart) == AXIS_LEFT + (AXIS_RIGHT - AXIS_LEFT) * 3 / 4


def test_an_amount_beyond_the_node_is_on_the_axis_too() -> None:
    chart = LevelsChart("a", "", (bar(max=8 * GI), bar(max=6 * GI), bar(max="max")), 4 * GI)
    assert pole_of("max 8Gi", chart) == AXIS_RIGHT
    assert pole_of("node 4Gi", chart) == (AXIS_LEFT + AXIS_RIGHT) / 2
    assert pole_of("max 6Gi", chart) == AXIS_LEFT + (AXIS_RIGHT - AXIS_LEFT) * 3 / 4


def test_having_no_limit_is_no_place_on_the_axis() -> None:
    poles = [line for line in parsed(BEST_EFFORT).iter(f"{SVG}line") if "pole" in classes(line)]
    assert poles == []


def test_the_axis_ends_at_the_node_only_if_a_bar_has_no_limit() -> None:
    limited, unlimited = burstable("a", MI, GI), bar("b", request=MI, max="max")
    assert "node 64Gi" not in shown(LevelsChart("a", "", (limited,), 64 * GI))
    assert {"node 64Gi", "64Gi"} <= set(shown(LevelsChart("a", "", (limited, unlimited), 64 * GI)))


def test_without_any_amount_the_axis_claims_none() -> None:
    ticks = [text for text in shown(BEST_EFFORT) if re.fullmatch(r"[\d.]+[KMGTPE]?i?B?", text)]
    assert ticks == ["0"]


@pytest.mark.parametrize(
    "end", [1, 4096, MI, 100 * MI, GI - 1, GI, 3 * GI // 2, 10**9, 3 * GI - 1, 6 * GI, 1 << 62]
)
def test_an_axis_has_four_to_six_round_ticks(end: int) -> None:
    axis = axis_to(end)
    step = axis.ticks[1]
    assert 4 <= len(axis.ticks) <= 6
    assert step & (step - 1) == 0
    assert axis.end - axis.ticks[-1] < step


@pytest.mark.parametrize(
    ("amount", "spelled"),
    [
        (512, "512B"),
        (4096, "4Ki"),
        (5000, "5000B"),
        (256 * MI, "256Mi"),
        (1100 * MI, "1100Mi"),
        (1280 * MI, "1.25Gi"),
        (1536 * MI, "1.5Gi"),
        (993_209_549, "947.2Mi"),
        (10**9, "953.7Mi"),
        (GI - 4096, "1.000Gi"),
        (1005 * MI + 7, "1005Mi"),
        (64 * GI, "64Gi"),
        (1 << 60, "1Ei"),
    ],
)
def test_sizes_are_short(amount: int, spelled: str) -> None:
    assert format_bytes(amount) == spelled


# That it can be read


LABEL_AMOUNTS = (None, MI, 2 * GI, 16 * GI, 32 * GI - 4096, 32 * GI)


def crowded() -> Iterator[LevelsChart]:
    """Levels in every order and closeness, with and without a limit."""
    for low, high, limit in product(LABEL_AMOUNTS, repeat=3):
        for maximum in (limit, "max"):
            one = bar(request=low, limit=limit, min=MI, low=low, high=high, max=maximum)
            yield LevelsChart("crowded", "", (one, bar("b", max=32 * GI)), 32 * GI)


@pytest.fixture(scope="module")
def pictures() -> list[ET.Element]:
    return [parsed(chart) for chart in (*CHARTS, *crowded())]


def overlapping(root: ET.Element) -> list[tuple[str, str]]:
    return [
        (one.words, other.words)
        for one, other in combinations(texts_outside_the_key(root), 2)
        if abs(one.y - other.y) < SMALL_FONT and one.left < other.right and other.left < one.right
    ]


def test_no_two_texts_overlap_however_close_the_levels_are(pictures: list[ET.Element]) -> None:
    assert [pair for root in pictures for pair in overlapping(root)] == []


def test_no_pole_runs_through_a_text(pictures: list[ET.Element]) -> None:
    for root in pictures:
        poles = [line for line in root.iter(f"{SVG}line") if "pole" in classes(line)]
        for text, pole in product(plot_texts(root), poles):
            x, y1, y2 = [float(pole.get(name, "")) for name in ("x1", "y1", "y2")]
            beside = not text.left < x < text.right
            assert beside or not y1 < text.y - SMALL_FONT / 2 < y2, text.words


def test_every_text_stays_on_the_paper(pictures: list[ET.Element]) -> None:
    for root in pictures:
        for text in plot_texts(root):
            assert text.left >= AXIS_LEFT - text_width("0", SMALL_FONT), text.words
            assert text.right <= LEVELS_WIDTH, text.words


@pytest.mark.parametrize(
    "levels",
    [(1, 2, 3, 4), (MI, 2 * MI, 3 * MI, 64 * GI), tuple(64 * GI - n for n in (3, 2, 1, 0))],
)
def test_the_smallest_amount_is_still_visible(levels: tuple[int, int, int, int]) -> None:
    stretches = zones(*levels, axis_to(64 * GI))
    assert len(stretches) == 4
    assert min([zone.right - zone.left for zone in stretches]) >= THINNEST_ZONE
    assert stretches[-1].right <= AXIS_RIGHT


def test_a_bar_without_a_limit_goes_on_after_its_last_level() -> None:
    axis = axis_to(GI)
    assert [zone.kind for zone in zones(GI, 0, None, None, axis)] == ["min", "normal"]


def test_places_keep_their_order_where_thin_zones_are_widened() -> None:
    axis = axis_to(64 * GI)
    stretches = zones(1, 2, 3, 4, axis)
    xs = [position_on_bar(amount, stretches, axis) for amount in (1, 2, 3, 4, 5, MI, GI, 64 * GI)]
    assert xs == sorted(xs)
    assert xs[0] == stretches[0].right


def luminance(colour: str) -> float:
    channels = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    return sum([c * w for c, w in zip(linear, (0.2126, 0.7152, 0.0722), strict=True)])


def contrast(one: str, other: str) -> float:
    dark, light = sorted([luminance(one), luminance(other)])
    return (light + 0.05) / (dark + 0.05)


@pytest.mark.parametrize("paper", [1, 2], ids=["light", "dark"])
def test_texts_and_lines_stand_out_from_what_they_are_on(paper: int) -> None:
    looks = {row[0]: dict(re.findall(r"(\w+):(#\w{6})", row[paper])) for row in SVG_COLOURS}
    background = looks[".paper"]["fill"]
    for text in (".ink", ".dim"):
        assert contrast(looks[text]["fill"], background) >= 4.5, text
    for kind in ("min", "low", "normal", "high", "unknown"):
        assert contrast(looks[f".on-{kind}"]["fill"], looks[f".{kind}"]["fill"]) >= 4.5, kind
        assert looks[f".on-{kind}"]["stroke"] == looks[f".{kind}"]["fill"]
    for line in (".axis", ".pole", ".kill"):
        assert contrast(looks[line]["stroke"], background) >= 3, line


def test_dark_paper_is_an_exception_to_light() -> None:
    style = next(parsed(BURSTABLE).iter(f"{SVG}style")).text or ""
    before, _, dark = style.partition("@media (prefers-color-scheme:dark)")
    for selector, on_light, on_dark in SVG_COLOURS:
        assert f".memqos {selector}{{{on_light}}}" in before
        assert f".memqos {selector}{{{on_dark}}}" in dark
    assert "var(" not in style


def test_the_picture_speaks_to_those_who_do_not_see_it() -> None:
    root = parsed(BURSTABLE)
    by_id = {element.get("id"): element for element in root}
    title, desc = [by_id[name] for name in root.get("aria-labelledby", "").split()]
    assert root.get("role") == "img"
    assert title.text == "shop/web"
    assert (
        "shop/web, app (container): request 256Mi, limit 1Gi, min 256Mi, low not set, "
        "high 947.2Mi, max 1Gi."
    ) in (desc.text or "")


# That it is safe


HOSTILE = "<script>alert('1')</script>]]>&\"\x00\x1b[31m\u202e\ufffe\ud800 🚀\n" * 4


def hostile() -> LevelsChart:
    one = LevelBar(
        name=HOSTILE,
        role=HOSTILE,
        request=MI,
        limit=GI,
        min=MI,
        low=None,
        high=2 * MI,
        max=GI,
        oom_score_adj=5,
        note=HOSTILE,
    )
    return LevelsChart(HOSTILE, HOSTILE, (one,), None)


def test_no_name_can_become_markup() -> None:
    root = parsed(hostile())
    names = {element.tag.removeprefix(SVG) for element in root.iter()}
    assert names <= {
        "svg", "title", "desc", "style", "defs", "pattern", "rect", "g", "path", "line", "text",
    }  # fmt: skip
    assert not [name for element in root.iter() for name in element.attrib if name[:2] == "on"]


def test_what_is_invisible_or_reorders_text_is_excluded() -> None:
    document = levels_svg([hostile()])
    assert document.isprintable()
    document.encode()
    assert printable("a\x00b\x1bc\u202ed\ud800e\nf\tg") == "abcde f g"


def test_a_long_name_is_shortened_and_complete_on_hovering() -> None:
    name = "a" * 63
    root = parsed(LevelsChart("a", "", (bar(name, max=GI),), None))
    texts = {words(text): text.findtext(f"{SVG}title") for text in root.iter(f"{SVG}text")}
    short = next(text for text in texts if text.startswith("aa"))
    assert short.endswith("…")
    assert text_width(short, SMALL_FONT) < AXIS_LEFT
    assert texts[short] == name


def test_a_long_title_keeps_its_namespace_and_class() -> None:
    title = f"pod/{'a-long-name-' * 20}x in {'n' * 63} · Guaranteed"
    root = parsed(LevelsChart(title, "Kubernetes 1.38", (bar("c", max=GI),), None))
    titles = [each for each in root.iter(f"{SVG}text") if "title" in (each.get("class") or "")]
    assert len(titles) > 1
    assert words(titles[-1]).endswith("· Guaranteed")
    below = next(each for each in root.iter(f"{SVG}text") if words(each) == "Kubernetes 1.38")
    assert float(below.get("y", "")) > float(titles[-1].get("y", ""))


@pytest.mark.parametrize("text", ["a" * 100, "名" * 100, "W" * 100, "a b " * 50])
def test_a_shortened_text_fits(text: str) -> None:
    assert text_width(ellipsize(text, 13, 160), 13) <= 160
    assert ellipsize("short", 13, 160) == "short"


def test_text_is_escaped_and_finished_markup_is_not() -> None:
    assert el("a", "<&>", Markup("<b/>"), class_="\"'") == (
        '<a class="&quot;&#39;">&lt;&amp;&gt;<b/></a>'
    )


@pytest.mark.parametrize("chart", CHARTS, ids=lambda chart: chart.title)
def test_the_picture_needs_nothing_from_elsewhere(chart: LevelsChart) -> None:
    document = levels_svg([chart]).replace(f'xmlns="{SVG_NAMESPACE}"', "", 1)
    assert not re.search(r"http|//|href|@import|@font-face|<script|<image|<use", document)
    assert set(re.findall(r"url\((.*?)\)", document)) <= {"#memqos-low", "#memqos-high"}


def test_the_same_values_give_the_same_picture() -> None:
    assert levels_svg(CHARTS) == levels_svg(list(CHARTS))


def test_the_picture_grows_with_its_bars() -> None:
    def height(*charts: LevelsChart) -> float:
        root = parsed(*charts)
        assert root.get("viewBox") == f"0 0 {root.get('width')} {root.get('height')}"
        return float(root.get("height", ""))

    assert height() < height(GUARANTEED) < height(MANY) < height(MANY, GUARANTEED)


def test_a_label_on_a_pattern_stands_on_a_plate_of_the_plain_colour() -> None:
    chart = LevelsChart("t", "s", (bar("low", low=GI, max=2 * GI),), None)
    (plate,) = [
        group.find(f"{SVG}rect")
        for group in parsed(chart).iter(f"{SVG}g")
        if group.get("pointer-events") == "none"
    ]
    assert plate is not None
    assert classes(plate) == ["low"]
    assert float(plate.get("width", "0")) > text_width("reclaimed last", SMALL_FONT)
