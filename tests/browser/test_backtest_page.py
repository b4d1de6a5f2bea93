"""The page of a backtest, opened in a real browser."""

from collections.abc import Iterator

import pytest
from tests.browser.chromium import Tab, browser, obstacle
from tests.commands import memqos

pytestmark = pytest.mark.skipif(obstacle() is not None, reason=str(obstacle()))

NAME = "shop/web-7d9cd48999-8jknx/a-container-with-a-name-that-is-rather-long"


@pytest.fixture(scope="module")
def tab() -> Iterator[Tab]:
    with browser() as opened:
        yield opened


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("page")
    usage = [f"{NAME},{at * 300},{(100 + at % 300) << 20}" for at in range(900)]
    (folder / "usage.csv").write_text("\n".join(["series,t_seconds,usage_bytes", *usage]))
    sizes = ("--request", "64Mi", "--limit", "384Mi", "--gate", "MemoryQoS=true")
    change = ("--compare", "factor=0.6", "-o", "html")
    done = memqos("backtest", "--history", str(folder / "usage.csv"), *sizes, *change)
    (folder / "page.html").write_text(done.out)
    return (folder / "page.html").as_uri()


@pytest.mark.parametrize(("width", "dark"), [(320, False), (390, True), (1280, False)])
def test_the_page_fits_any_screen_and_complains_of_nothing(
    tab: Tab, url: str, width: int, dark: bool
) -> None:
    tab.open(url, width, dark=dark)
    assert tab.complaints() == []
    assert tab.requests() == [url]
    assert tab.value("document.documentElement.scrollWidth") <= width


def test_settings_stand_apart(tab: Tab, url: str) -> None:
    tab.open(url, 1280)
    assert ", compared with Kubernetes" in tab.value("document.querySelector('.terms').innerText")
    first, second = tab.value(
        "[...document.querySelectorAll('main > .card')].map(each => {"
        "const box = each.getBoundingClientRect(); return [box.top, box.bottom] })"
    )
    assert second[0] - first[1] >= 10
