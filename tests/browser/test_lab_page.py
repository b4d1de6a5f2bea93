"""The report of an experiment, opened in a real browser."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.browser.chromium import Tab, browser, obstacle
from tests.unit.test_lab import WHOLE

from memqos.lab.page import lab_page

pytestmark = pytest.mark.skipif(obstacle() is not None, reason=str(obstacle()))


@pytest.fixture(scope="module")
def tab() -> Iterator[Tab]:
    with browser() as opened:
        yield opened


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> str:
    file = tmp_path_factory.mktemp("page") / "lab.html"
    file.write_text(lab_page(WHOLE))
    return file.as_uri()


@pytest.mark.parametrize(("width", "dark"), [(320, False), (390, True), (1280, False)])
def test_the_page_fits_any_screen_and_complains_of_nothing(
    tab: Tab, url: str, width: int, dark: bool
) -> None:
    tab.open(url, width, dark=dark)
    assert tab.complaints() == []
    assert tab.requests() == [url]
    tab.value("document.querySelectorAll('details').forEach(each => each.open = true)")
    assert tab.value("document.documentElement.scrollWidth") <= width


@pytest.mark.parametrize("width", [390, 1280])
def test_the_labels_of_charts_can_be_read_and_are_whole(tab: Tab, url: str, width: int) -> None:
    tab.open(url, width)
    labels = tab.value(
        "[...document.querySelectorAll('svg.plot text')].map(each => {"
        "const box = each.getBBox(), all = each.ownerSVGElement.viewBox.baseVal;"
        "const scale = each.getScreenCTM().a;"
        "return [parseFloat(getComputedStyle(each).fontSize) * scale, box.x,"
        " all.width - box.x - box.width] })"
    )
    assert labels
    assert min(size for size, _, _ in labels) >= 9
    assert min(min(left, right) for _, left, right in labels) >= 0


def test_the_page_shows_verdicts_charts_and_raw_data(tab: Tab, url: str, tmp_path: Path) -> None:
    tab.open(url, 1280)
    text = tab.value("document.body.innerText")
    for words in ("HardReservation on a real kernel", "confirmed", "Raw data of 6 runs"):
        assert words in text
    assert tab.value("document.querySelectorAll('svg.plot').length") == 2
    tab.picture(tmp_path / "page.png")
    assert (tmp_path / "page.png").stat().st_size > 20_000
