"""The page of `memqos web`: its first paint beside an empty page's, and what it costs when idle."""

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.browser.chromium import Tab, browser, obstacle
from tests.eventually import eventually
from tests.fakes.busy_node import BusyNode
from tests.fakes.node import memory_folder
from tests.unit.test_web_command import Server, serving

from bench.top import processor_seconds

PODS = 250
ROUNDS = 15
MOST_PAINT = 1.5
_SCROLL = """
new Promise((done) => {
  const list = document.querySelector('.rows');
  const times = [];
  let last = null, step = 37;
  function frame(now) {
    if (last !== null) times.push(now - last);
    last = now;
    if (list.scrollTop + step < 0 || list.scrollTop + step > list.scrollHeight - list.clientHeight)
      step = -step;
    list.scrollTop += step;
    if (times.length < 150) requestAnimationFrame(frame);
    else done(times.sort((a, b) => a - b)[Math.floor(times.length * 0.95)]);
  }
  requestAnimationFrame(frame);
})
"""
SCROLLED = (25, 2500)
"""Pods, of two containers each."""
MOST_FRAME = 2.0
IDLE_SECONDS = int(os.environ.get("MEMQOS_IDLE_SECONDS", "600"))
"""How long one page is left open."""
_PAINT = "performance.getEntriesByName('first-contentful-paint')[0]?.startTime ?? 0"


def report() -> Iterator[str]:
    """Needs chromium."""
    if (why := obstacle()) is not None:
        yield why
        return
    with memory_folder() as folder, browser() as tab:
        full, empty = folder / "full", folder / "empty"
        with _page(full, PODS) as busy, _page(empty, 0) as bare:
            best = {"full": float("inf"), "empty": float("inf")}
            for _ in range(ROUNDS):
                for name, server in (("empty", bare[0]), ("full", busy[0])):
                    best[name] = min(best[name], _first_paint(tab, server))
            ratio = best["full"] / best["empty"]
            yield (
                f"first paint, {PODS} pods: {best['full']:.0f} ms, of an empty node: "
                f"{best['empty']:.0f} ms: {ratio:.2f} × (at most {MOST_PAINT:g})"
            )
        frames = {}
        for pods in SCROLLED:
            with _page(folder / f"scroll-{pods}", pods) as (server, _):
                _open(tab, server)
                frames[pods] = min(_p95_frame(tab) for _ in range(3))
        few, many = frames.values()
        yield (
            f"p95 of a frame while {2 * SCROLLED[1]:,} containers scroll: {many:.1f} ms, while "
            f"{2 * SCROLLED[0]} do: {few:.1f} ms: {many / few:.2f} × (at most {MOST_FRAME:g})"
        )
        with _page(folder / "idle", PODS) as (server, pid):
            _open(tab, server)
            before = processor_seconds(pid)
            time.sleep(IDLE_SECONDS)
            used = processor_seconds(pid) - before
            yield (
                f"one page open for {IDLE_SECONDS} s on {PODS} pods: {used:.1f} s of processor "
                f"time, {used / IDLE_SECONDS:.2%} of a core"
            )


@contextmanager
def _page(folder: Path, pods: int) -> Iterator[tuple[Server, int]]:
    folder.mkdir()
    node = BusyNode(folder, pods)
    with serving(folder, *node.options) as server:
        yield server, server.pid


def _open(tab: Tab, server: Server) -> None:
    tab.open("about:blank", 1280)
    tab.ask("Page.navigate", url=f"http://{server.place}/#token={server.token}")
    eventually(
        "rows, or none, are shown",
        lambda: tab.value("document.querySelector('.facts')?.innerText ?? ''").count("containers"),
    )


def _first_paint(tab: Tab, server: Server) -> float:
    """Milliseconds from the request to the first content."""
    _open(tab, server)
    eventually("it is painted", lambda: tab.value(_PAINT))
    return float(tab.value(_PAINT))


def _p95_frame(tab: Tab) -> float:
    """Milliseconds of a frame while the list scrolls."""
    result = tab.ask("Runtime.evaluate", expression=_SCROLL, returnByValue=True, awaitPromise=True)
    return float(result["result"]["value"])
