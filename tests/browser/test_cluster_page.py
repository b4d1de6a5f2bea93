"""The page of `memqos web --context` in a real browser: all nodes, by their agents."""

from pathlib import Path

import pytest
from tests.browser.axe import axe_source, violations
from tests.browser.chromium import browser, obstacle
from tests.browser.test_web_page import open_page, shows
from tests.fakes.apiserver import FakeApiServer
from tests.unit.test_watch_cluster import identity, options, put_agent_pod, server
from tests.unit.test_web_command import serving

pytestmark = pytest.mark.skipif(obstacle() is not None, reason=str(obstacle()))

__all__ = ["identity", "options", "server"]


def test_of_a_node_whose_agent_does_not_answer_no_number_is_shown(
    server: FakeApiServer, options: tuple[str, ...], tmp_path: Path
) -> None:
    put_agent_pod(server, "memqos-agent-y", "node-2")
    with serving(tmp_path, *options) as found, browser() as tab:
        open_page(tab, found, "#/cluster")
        shows(tab, "node-2")
        cells = (
            "Object.fromEntries([...document.querySelectorAll('tbody tr')].map(row =>"
            "[row.cells[0].innerText, [...row.cells].slice(1, 8).map(cell => cell.innerText)]))"
        )
        nodes = tab.value(cells)
        assert nodes["node-1"] == ["–", "–", "1", "1", "1", "0", "observe, converged"]
        assert nodes["node-2"] == ["–", "–", "–", "–", "–", "–", "unknown"]


def test_the_cluster_is_shown_and_accessible(
    options: tuple[str, ...],
    tmp_path: Path,
) -> None:
    with serving(tmp_path, *options) as found, browser() as tab:
        open_page(tab, found, "#/cluster", width=390)
        shows(tab, "node-1")
        shows(tab, "1 node")
        assert tab.value("document.documentElement.scrollWidth") <= 390
        assert tab.complaints() == []
        assert violations(tab, axe_source()) == []
        lists = "[...document.querySelectorAll('.named .card')].map(e => e.innerText)"
        throttled, killed, unmanaged, changed = tab.value(lists)
        assert "shop/api-1" not in throttled
        assert "node-1 shop/api-1 api: 1 process" in killed
        assert "node-1 shop/api-1" in unmanaged
        assert "None." in changed
        assert tab.value("document.querySelector('.named a').hash") == "#/story/shop%2Fapi-1"
        tab.value("location.hash = '#/node'")
        shows(tab, "node-1 shop/api-1 api", ".rows .row")
        shows(tab, "1 container", ".facts")
        assert "1 containers" not in tab.value("document.querySelector('.facts').innerText")
        look = "(name => getComputedStyle(document.querySelector(name)).color)"
        assert tab.value(f"{look}('.row.killed .usage')") == tab.value(f"{look}('main')")
        tab.picture(tmp_path / "cluster.png")
