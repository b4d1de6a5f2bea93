"""The page of `memqos web` in a real browser."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.browser.axe import axe_source, violations
from tests.browser.chromium import Tab, browser, obstacle
from tests.eventually import eventually
from tests.fakes.busy_node import MI, BusyNode, agent_answering, container_path, state_of
from tests.fakes.node import memory_folder
from tests.unit.test_web_command import SNAPSHOT, Server, serving

from memqos.units import format_bytes

pytestmark = pytest.mark.skipif(obstacle() is not None, reason=str(obstacle()))

EVIL = '<img src=x onerror="document.title=1">\u202e\u0007'
KEYS = {"Tab": 9, "Enter": 13, "Escape": 27, "ArrowDown": 40, "End": 35, "+": 187, "0": 48}


@pytest.fixture(scope="module")
def tab() -> Iterator[Tab]:
    with browser() as opened:
        yield opened


def open_page(
    tab: Tab, server: Server, view: str = "", width: int = 1280, dark: bool = False
) -> None:
    """The page as a person opens it, and one of its views."""
    tab.open("about:blank", width, dark=dark)
    tab.events.clear()
    tab.ask("Page.navigate", url=f"http://{server.place}/#token={server.token}")
    shows(tab, "Connected", "#connection")
    if view:
        tab.value(f"location.hash = {view!r}")


def shows(tab: Tab, text: str, where: str = "main") -> None:
    script = f"document.querySelector({where!r})?.innerText ?? ''"
    eventually(f"{where} shows {text}", lambda: text in tab.value(script))


def delay_requests(tab: Tab, path: str, milliseconds: int) -> None:
    """Answers to these come late from now on."""
    tab.value(
        "delayed = 0; send = window.fetch; window.fetch = async (target, ...more) => {"
        f"if (!String(target).includes({path!r})) return send(target, ...more);"
        f"await new Promise((go) => setTimeout(go, {milliseconds}));"
        "const reply = await send(target, ...more); delayed++; return reply; }; 0"
    )


def press(tab: Tab, key: str, *, shift: bool = False) -> None:
    text = {"text": "\r"} if key == "Enter" else {"text": key} if len(key) == 1 else {}
    event = {
        "key": key,
        "code": key,
        "windowsVirtualKeyCode": KEYS[key],
        "modifiers": 8 if shift else 0,
    }
    tab.ask("Input.dispatchKeyEvent", type="keyDown", **event, **text)
    tab.ask("Input.dispatchKeyEvent", type="keyUp", **event)


def focused(tab: Tab) -> str:
    return str(
        tab.value("(e => e.innerText || e.id || e.ariaLabel || e.tagName)(document.activeElement)")
    )


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> BusyNode:
    return BusyNode(tmp_path_factory.mktemp("node"), 25, names=["web-0000", EVIL])


@pytest.fixture(scope="module")
def server(node: BusyNode, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    options = ("--agent", node.socket, "--audit", "examples/cluster/dump.json", *node.options)
    with serving(tmp_path_factory.mktemp("web"), *options) as found:
        yield found


@pytest.fixture(scope="module")
def records(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    start = ("--from", "2026-03-02T10:12:20Z", "--speed", "0.1")
    with serving(tmp_path_factory.mktemp("records"), "--play", "examples/records", *start) as found:
        yield found


@pytest.mark.parametrize("width", [320, 390, 768, 1280])
@pytest.mark.parametrize("dark", [False, True])
def test_the_node_fits_any_screen_and_complains_of_nothing(
    tab: Tab, server: Server, width: int, dark: bool, tmp_path: Path
) -> None:
    open_page(tab, server, width=width, dark=dark)
    shows(tab, "50 containers")
    shows(tab, "shop/web-0024")
    assert tab.value("document.documentElement.scrollWidth") <= width
    assert tab.complaints() == []
    assert all(url.startswith(f"http://{server.place}/") for url in tab.requests())
    assert all(server.token not in url.partition("#")[0] for url in tab.requests())
    assert server.token not in tab.value("location.href")
    tab.picture(tmp_path / "node.png")
    assert (tmp_path / "node.png").stat().st_size > 20_000


def test_rows_are_live(tab: Tab, server: Server, node: BusyNode) -> None:
    open_page(tab, server)
    shows(tab, "shop/web-0024", ".rows .row")
    node.write(container_path(3), "memory.current", 222 * MI)
    shows(tab, "shop/web-0003", ".rows .row")
    shows(tab, "222Mi", ".rows .row")
    node.write(container_path(3), "memory.current", 4 * MI)


def test_an_amount_reads_as_in_the_terminal(tab: Tab, server: Server) -> None:
    amounts = [0, 1023, 1100 << 20, (1 << 30) - 1024, 3_066_662_912, 107_371_215_584, 2 << 40]
    amounts += [(12 << 30) + (1 << 27), 1_048_530_944]  # a half, and one that becomes 1000Mi
    open_page(tab, server)
    tab.value(
        "import('/elements.js').then(({ bytes }) => "
        f"{{ window.amountTexts = {amounts}.map((each) => bytes(each)); }}); 0"
    )
    eventually("the amounts are written", lambda: tab.value("window.amountTexts") is not None)
    assert tab.value("window.amountTexts") == [format_bytes(each) for each in amounts]


def test_a_keyboard_is_enough(tab: Tab, server: Server) -> None:
    open_page(tab, server)
    shows(tab, "shop/web-0024", ".rows .row")
    walked = []
    for _ in range(12):
        press(tab, "Tab")
        walked.append(focused(tab))
        if "web-0024" in walked[-1]:
            break
    assert walked[:4] == ["Skip to the content", "Node", "Status", "Audit"]
    assert "filter" in walked
    assert {"Reverse", "Pause"} <= set(walked)
    assert "shop/web-0024" in walked[-1]
    press(tab, "ArrowDown")
    press(tab, "ArrowDown")
    assert "shop/web-0023" in focused(tab)
    press(tab, "Enter")
    shows(tab, "high/above-request", ".detail")
    assert "shop/web-0023" in focused(tab)
    press(tab, "Escape")
    eventually("the detail is closed", lambda: tab.value("!document.querySelector('.detail')"))
    assert "shop/web-0023" in focused(tab)
    press(tab, "End")
    eventually("the last row has the focus", lambda: "shop/web-0000" in focused(tab))


def test_a_view_that_was_left_does_not_come_back(tab: Tab, server: Server) -> None:
    """Its data may come late."""
    open_page(tab, server)
    shows(tab, "shop/web-0024", ".rows .row")
    delay_requests(tab, "/api/audit", 500)
    tab.value("location.hash = '#/audit'")
    shows(tab, "Auditing")
    tab.value("location.hash = '#/status'")
    shows(tab, "State")
    eventually("the report has come", lambda: tab.value("delayed"))
    assert tab.value("document.querySelector('main h1').innerText") == "Status"


def test_a_filter_that_is_typed_during_a_request_counts_at_once(tab: Tab, server: Server) -> None:
    open_page(tab, server)
    shows(tab, "shop/web-0024", ".rows .row")
    delay_requests(tab, "/api/node", 300)
    tab.value("requests = performance.getEntriesByType('resource').length")
    for text in ("web-0001", "web-0002"):
        tab.value(f"(e => (e.value = {text!r}, e.dispatchEvent(new Event('input'))))(filter)")
    shows(tab, "shop/web-0002", ".rows .row:not([hidden])")
    # The one that was under way, and one for the last filter: none by the clock.
    asked = "performance.getEntriesByType('resource').filter(e => e.name.includes('web-0002'))"
    sent = "performance.getEntriesByType('resource').filter(e => e.name.includes('web-0001'))"
    assert tab.value(f"{asked}[0].startTime - {sent}[0].startTime") < 1000


def test_a_paused_node_still_filters(tab: Tab, server: Server) -> None:
    open_page(tab, server)
    shows(tab, "shop/web-0024", ".rows .row")
    tab.value("[...document.querySelectorAll('button')].find(e => e.innerText == 'Pause').click()")
    tab.value("(e => (e.value = 'web-0003', e.dispatchEvent(new Event('input'))))(filter)")
    shows(tab, "shop/web-0003", ".rows .row:not([hidden])")


def test_names_are_text_and_never_markup(tab: Tab, server: Server) -> None:
    open_page(tab, server)
    tab.value("(e => (e.value = 'img', e.dispatchEvent(new Event('input'))))(filter)")
    shows(tab, "shop/<img src=x onerror=", ".rows .row")
    assert tab.value("document.querySelectorAll('main img').length") == 0
    name = tab.value("document.querySelector('.rows .row .name').textContent")
    assert "\u202e" not in name
    assert "\\u202e" in name
    assert tab.value("document.title") == "memqos"
    press_row = "document.querySelector('.rows .row').click()"
    tab.value(press_row)
    shows(tab, "<img", ".detail h2")
    assert tab.value("document.querySelectorAll('main img').length") == 0
    assert tab.complaints() == []


def test_what_records_call_a_class_or_a_numa_node_is_text_too(tab: Tab, server: Server) -> None:
    open_page(tab, server)
    shows(tab, "shop/web-0024", ".rows .row")
    tab.value(
        "send = window.fetch; window.fetch = async (target, ...more) => {"
        "const reply = await send(target, ...more);"
        "if (!String(target).includes('/api/node')) return reply;"
        "const data = await reply.json();"
        "for (const row of data.containers) row.qos = row.numa = '\u202e';"
        "return new Response(JSON.stringify(data)); }; 0"
    )
    for column in ("qos", "numa"):
        shows(tab, "\\u202e", f".rows .row .{column}")
    assert "\u202e" not in tab.value("document.querySelector('.rows').innerHTML")


def test_a_story_is_drawn_and_can_be_zoomed(tab: Tab, records: Server, tmp_path: Path) -> None:
    open_page(tab, records, "#/story/shop%2Fapi-1")
    shows(tab, "killed by the kernel")
    assert tab.value("document.querySelectorAll('.timeline path').length") == 5

    def ends() -> Any:
        return tab.value(
            "[...document.querySelectorAll('.timeline .tick')].map(e => e.textContent)"
        )

    whole = ends()
    tab.value("document.querySelector('.timeline').focus()")
    press(tab, "+")
    assert ends() != whole
    press(tab, "0")
    assert ends() == whole
    tab.value("document.querySelectorAll('.chapters button')[2].click()")
    assert ends() != whole
    shows(tab, "throttled above request", ".readout")
    tab.picture(tmp_path / "story.png")
    assert tab.complaints() == []


@pytest.mark.parametrize("width", [320, 390, 1280])
def test_a_story_fits_any_screen(tab: Tab, records: Server, width: int, tmp_path: Path) -> None:
    open_page(tab, records, "#/story/shop%2Fapi-1", width=width)
    shows(tab, "memory.low", ".lines")
    assert tab.value("document.documentElement.scrollWidth") <= width
    # A unit of the picture is a pixel: its words stay as large as those beside it.
    sizes = "[plot.viewBox.baseVal.width, Math.round(plot.getBoundingClientRect().width)]"
    eventually(
        "the picture is as wide as its place",
        lambda: len(set(tab.value(f"(plot => {sizes})(document.querySelector('.timeline'))"))) == 1,
    )
    amounts = "[...document.querySelectorAll('.tick.amount')].map(e => e.textContent)"
    assert tab.value(amounts) == ["0", "512Mi", "1Gi"]
    tab.value("document.querySelectorAll('.chapters button')[2].click()")
    assert tab.value(amounts) == ["0", "256Mi", "512Mi"], "a zoom fits the amounts to what it shows"
    tab.picture(tmp_path / "story.png")


def test_every_cell_has_a_title_for_a_screen_reader(tab: Tab, server: Server) -> None:
    for width in (390, 1280):
        open_page(tab, server, width=width)
        shows(tab, "shop/web-0024", ".rows .row")
        nodes = tab.ask("Accessibility.getFullAXTree")["nodes"]
        tab.ask("Accessibility.disable")
        named = {
            role: [
                node["name"]["value"] for node in nodes if node.get("role", {}).get("value") == role
            ]
            for role in ("grid", "columnheader", "gridcell")
        }
        assert named["grid"] == ["Containers"]
        assert {"container", "levels: 0 to max", "in use"} <= set(named["columnheader"])
        words = "25Mi in use; min 0, low 64Mi, high 236Mi, max 256Mi"
        assert any(words in name for name in named["gridcell"])
        assert tab.value("document.querySelector('[role=grid]').ariaRowCount") == "51"
        columns, titles = (tab.value(SHOWN_COLUMNS % where) for where in (".rows .row", ".titles"))
        assert columns == titles
        assert len(columns) == (5 if width == 390 else 11)


SHOWN_COLUMNS = """
[...document.querySelector('%s').children].filter(e => e.offsetParent).map(e => e.ariaColIndex)
"""


def test_a_value_off_its_plan_by_a_page_is_not_as_planned(
    tab: Tab, server: Server, node: BusyNode
) -> None:
    path = container_path(24)
    planned = server.data(f"/api/container?path={path}")["container"]["planned"]["memory.high"]
    node.write(path, "memory.high", int(planned["value"]) - 4096)
    open_page(tab, server)
    shows(tab, "shop/web-0024", ".rows .row")
    open_row = "[...document.querySelectorAll('.rows .row')].find(e => !e.hidden).click()"
    eventually(
        "the difference is seen",
        lambda: tab.value(f"{open_row}; 0") == 0 and "planned: " in tab.value(DETAIL_OF_HIGH),
    )
    node.write(path, "memory.high", 236 * MI)


DETAIL_OF_HIGH = """
[...document.querySelectorAll('.detail dt')].find(e => e.innerText.startsWith('memory.high'))
  ?.nextElementSibling.innerText ?? ''
"""


def test_a_container_that_has_ended_is_no_lost_connection(tab: Tab, server: Server) -> None:
    open_page(tab, server)
    shows(tab, "shop/web-0024", ".rows .row")
    tab.value(
        "send = window.fetch; window.fetch = async (target, ...more) => {"
        "if (String(target).includes('/api/container')) target = '/api/container?path=/none';"
        "return send(target, ...more); }; 0"
    )
    tab.value("document.querySelector('.rows .row').click()")
    shows(tab, "this container no longer runs", ".pane [role=alert]")
    assert tab.value("connection.textContent") == "Connected"


def test_amounts_are_spelled_as_in_a_terminal(tab: Tab, server: Server) -> None:
    open_page(tab, server)
    amounts = [1, 999, 1000, 1023, 1024, 5480 << 10, 1100 << 20, 993210368, 1 << 30, 3 << 40]
    amounts += [(1 << 20) - 1, (1 << 30) - 40_000, 10_239 << 10, 10_241 << 10, 1_234_567_890_123]
    tab.value(
        "spelled = null; import('/elements.js').then("
        f"(module) => (spelled = {amounts}.map(module.bytes))); 0"
    )
    eventually("they are spelled", lambda: tab.value("spelled"))
    assert tab.value("spelled") == [format_bytes(amount) for amount in amounts]


def test_who_is_throttled_stands_out(tab: Tab, records: Server) -> None:
    open_page(tab, records)
    shows(tab, "1 throttled")
    eventually("a row is marked", lambda: tab.value("!!document.querySelector('.row.throttled')"))


def test_an_address_that_is_cut_leads_to_a_story_of_nothing(tab: Tab, records: Server) -> None:
    open_page(tab, records, "#/story/shop%2")
    shows(tab, "Nothing is recorded of this pod")
    assert tab.complaints() == []


def test_the_audit_and_the_status_are_inside(tab: Tab, server: Server) -> None:
    open_page(tab, server, "#/audit")
    shows(tab, "Memory audit")
    shows(tab, "QoS classes")
    tab.value("location.hash = '#/status'")
    shows(tab, "agent: none answers on this node")
    shows(tab, "pods: 25 pods, 50 containers")
    assert tab.complaints() == []


@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("view", ["", "#/status", "#/audit"])
def test_no_rule_of_accessibility_is_broken(
    tab: Tab, server: Server, view: str, dark: bool
) -> None:
    source = axe_source()
    open_page(tab, server, view, dark=dark)
    shows(tab, {"": "shop/web-0024", "#/status": "Last hour", "#/audit": "QoS classes"}[view])
    if not view:
        tab.value("document.querySelector('.rows .row').click()")
        shows(tab, "as planned", ".detail")
    assert violations(tab, source) == []


@pytest.mark.parametrize("dark", [False, True])
def test_nor_by_a_story(tab: Tab, records: Server, dark: bool) -> None:
    source = axe_source()
    open_page(tab, records, "#/story/shop%2Fapi-1", width=390, dark=dark)
    shows(tab, "killed by the kernel")
    assert violations(tab, source) == []


def test_an_agent_that_restarts_is_seen_again(tab: Tab, server: Server, node: BusyNode) -> None:
    open_page(tab, server)
    for _ in range(2):
        with agent_answering(node.socket, state_of()):
            shows(tab, "agent: enforce, converged")
        eventually("it is gone", lambda: "agent:" not in tab.value("document.body.innerText"))


def test_the_page_connects_again_when_the_server_answers(
    tab: Tab, server: Server, node: BusyNode
) -> None:
    open_page(tab, server)
    tab.ask(
        "Network.emulateNetworkConditions",
        offline=True,
        latency=0,
        downloadThroughput=-1,
        uploadThroughput=-1,
    )
    shows(tab, "Not connected", "#connection")
    tab.ask(
        "Network.emulateNetworkConditions",
        offline=False,
        latency=0,
        downloadThroughput=-1,
        uploadThroughput=-1,
    )
    shows(tab, "Connected", "#connection")
    eventually("all is well", lambda: tab.value("connection.textContent") == "Connected")


def test_the_address_of_a_server_that_was_started_again_is_entered_in_the_same_tab(
    tab: Tab, tmp_path: Path
) -> None:
    for folder in ("first", "second"):
        (tmp_path / folder).mkdir()
    with serving(tmp_path / "first", *SNAPSHOT) as first:
        open_page(tab, first)
        shows(tab, "21 containers")
    audit = ("--audit", "examples/cluster/dump.json")
    with serving(tmp_path / "second", "--listen", first.place, *audit, *SNAPSHOT) as second:
        shows(tab, "Not connected: open the address", "#connection")
        tab.ask("Page.navigate", url=f"http://{second.place}/#token={second.token}")
        eventually("it is connected", lambda: tab.value("connection.textContent") == "Connected")
        shows(tab, "Audit", "nav")
        assert second.token not in tab.value("location.href")


def test_few_containers_leave_no_empty_pane(tab: Tab, server: Server) -> None:
    open_page(tab, server)
    shows(tab, "shop/web-0024", ".rows .row")
    tab.value("(e => (e.value = 'web-0003', e.dispatchEvent(new Event('input'))))(filter)")
    shows(tab, "2 of 50 containers")
    eventually(
        "the pane has the height of two rows",
        lambda: tab.value("document.querySelector('.rows').clientHeight") == 80,
    )


def test_of_a_snapshot_it_is_not_known_who_is_throttled(tab: Tab, tmp_path: Path) -> None:
    with serving(tmp_path, *SNAPSHOT) as found:
        open_page(tab, found)
        shows(tab, "21 containers")
        assert "throttled" not in tab.value("document.querySelector('.facts').innerText")
        tab.value("location.hash = '#/status'")
        shows(tab, "Not known: that takes two readings.")


def test_five_thousand_containers_take_as_few_rows_as_fifty(tab: Tab, tmp_path: Path) -> None:
    """Frames are timed by bench/web.py; this is what keeps them short."""
    list_end = "const list = document.querySelector('.rows'); list.scrollTop = list.scrollHeight"
    rows: dict[int, list[int]] = {}
    with memory_folder() as folder:
        for pods in (25, 2500):
            (folder / str(pods)).mkdir()
            (tmp_path / str(pods)).mkdir()
            node = BusyNode(folder / str(pods), pods)
            with serving(tmp_path / str(pods), *node.options) as found:
                open_page(tab, found)
                shows(tab, f"{2 * pods} containers")
                shows(tab, "shop/web-", ".rows .row")
                before = tab.value("document.querySelectorAll('.rows .row').length")
                tab.value(f"{{ {list_end} }}")
                last = f"[aria-rowindex='{2 * pods + 1}']"  # After the titles.
                shows(tab, "shop/web-", f".rows .row{last}")
                after = tab.value("document.querySelectorAll('.rows .row').length")
                rows[pods] = [before, after]
    assert rows[2500] == rows[25]
    assert rows[25][0] < 50


def test_one_node_does_not_offer_a_cluster(tab: Tab, server: Server) -> None:
    open_page(tab, server)
    shows(tab, "Audit", "nav")
    assert "Cluster" not in tab.value("document.querySelector('nav').innerText")


@pytest.mark.parametrize("width", [390, 1280])
def test_the_hint_in_the_filter_is_not_cut(tab: Tab, server: Server, width: int) -> None:
    open_page(tab, server, width=width)
    shows(tab, "shop/web-0024", ".rows .row")
    # A search field keeps room for the cross that empties it, which is as high as its text.
    room = tab.value(
        "(() => { const field = document.querySelector('#filter'), look = getComputedStyle(field);"
        "const pen = document.createElement('canvas').getContext('2d'); pen.font = look.font;"
        "return field.clientWidth - parseFloat(look.paddingLeft) - parseFloat(look.paddingRight)"
        " - parseFloat(look.fontSize) - pen.measureText(field.placeholder).width })()"
    )
    assert room >= 0
