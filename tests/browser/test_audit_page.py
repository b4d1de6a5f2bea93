"""The page of an audit, opened in a real browser."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.browser.chromium import Tab, browser, obstacle
from tests.commands import memqos

from memqos.draw.html.charts import RingSlice, ring
from memqos.draw.html.style import PAGE_STYLE

DUMP = "examples/cluster/dump.json"
METRICS = "examples/cluster/metrics.json"
RING_HOLE = 82
"""The diameter of what a ring leaves open."""
TERMS = ("--policy", "TieredReservation", "--compare", "release=1.37,factor=0.5")

pytestmark = pytest.mark.skipif(obstacle() is not None, reason=str(obstacle()))


@pytest.fixture(scope="module")
def tab() -> Iterator[Tab]:
    with browser() as opened:
        yield opened


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> str:
    file = tmp_path_factory.mktemp("page") / "report.html"
    file.write_text(memqos("audit", DUMP, "--usage", METRICS, *TERMS, "-o", "html").out)
    return file.as_uri()


@pytest.mark.parametrize("width", [320, 390, 768, 1280])
@pytest.mark.parametrize("dark", [False, True])
def test_the_page_fits_any_screen_and_complains_of_nothing(
    tab: Tab, url: str, width: int, dark: bool, tmp_path: Path
) -> None:
    tab.open(url, width, dark=dark)
    assert tab.complaints() == []
    assert tab.requests() == [url]
    tab.value("document.querySelectorAll('details').forEach(each => each.open = true)")
    assert tab.value("document.documentElement.scrollWidth") <= width
    assert tab.value("document.documentElement.clientWidth") == width
    tab.picture(tmp_path / "page.png")
    assert (tmp_path / "page.png").stat().st_size > 20_000


def test_the_page_shows_what_was_found(tab: Tab, url: str) -> None:
    tab.open(url, 1280)
    text = tab.value("document.body.innerText")
    for words in (
        "Memory audit",
        "QoS classes",
        "worker-1",
        "containers would be throttled immediately",
    ):
        assert words in text
    assert tab.value("document.title") == f"Memory audit: {DUMP}"
    assert tab.value("document.querySelectorAll('.finding').length") >= 8
    assert tab.value("document.querySelector('.number b').innerText") == "12"


def test_charts_have_a_size_and_no_text_is_tiny(tab: Tab, url: str) -> None:
    tab.open(url, 390)
    sizes = tab.value(
        "[...document.querySelectorAll('svg')].map(each => each.getBoundingClientRect())"
        ".map(box => [box.width, box.height])"
    )
    assert len(sizes) > 20
    assert all(width > 30 and height > 8 for width, height in sizes)
    smallest = tab.value(
        "Math.min(...[...document.querySelectorAll('svg text')]"
        ".map(each => each.getBoundingClientRect().height))"
    )
    assert smallest >= 9


@pytest.mark.parametrize("count", ["7", "12,345", "1,234,567"])
def test_a_count_stays_within_its_ring(tab: Tab, count: str, tmp_path: Path) -> None:
    drawn = ring([RingSlice("burstable", "Burstable", 1)], count, "pods")
    file = tmp_path / "ring.html"
    file.write_text(f"<!doctype html><style>{PAGE_STYLE}</style>{drawn}")
    tab.open(file.as_uri(), 390)
    assert 0 < tab.value("document.querySelector('.big').getBBox().width") < RING_HOLE


def test_light_and_dark_are_told_apart(tab: Tab, url: str) -> None:
    colours = []
    for dark in (False, True):
        tab.open(url, 1280, dark=dark)
        colours.append(tab.value("getComputedStyle(document.body).backgroundColor"))
    assert colours == ["rgb(245, 247, 249)", "rgb(13, 17, 23)"]
