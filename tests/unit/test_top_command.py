"""`memqos top`: printed once, and its screen at 80 × 24, by urwid's own loop and in tmux."""

import contextlib
import os
import pty
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Collection, Iterator
from pathlib import Path

import msgspec
import pytest
from tests.commands import ROOT, memqos
from tests.eventually import eventually
from tests.fakes.busy_node import MI, BusyNode, agent_answering, container_path, state_of

from memqos.converge.node_plan import PlanOptions
from memqos.converge.node_sources import PlaybackNode, SnapshotNode
from memqos.converge.refresher import Refresher
from memqos.errors import Unreachable
from memqos.host.record_files import read_recordings
from memqos.monitor.instant import AvailableMemory, ContainerRow, NodeInstant, RowQuery
from memqos.record.recordings import Recording

SNAPSHOT = "tests/nodes/k138-none.json"
SIZE = (80, 24)
ALTERNATE_SCREEN = b"\033[?1049"


def test_once_prints_a_table() -> None:
    done = memqos("top", "--once", "--snapshot", SNAPSHOT, "--limit", "2")
    assert done.code == 0
    head, facts, empty, titles, first, _ = done.out.splitlines()
    assert head == f"{SNAPSHOT} · 2026-11-18 02:27:18 UTC · MemoryQoS is on"
    assert facts == "21 containers · 3.313Gi of 3.835Gi available"
    assert empty == ""
    assert titles.split()[:3] == ["CONTAINER", "QOS", "USAGE"]
    assert first.split()[:4] == ["default/g-plain-guest", "a", "gua", "17.37Mi"]


@pytest.mark.parametrize("width", [40, 80, 120])
def test_once_fits_the_terminal(width: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    done = memqos("top", "--once", "--snapshot", SNAPSHOT)
    assert max(map(len, (done.out + done.err).splitlines())) <= width
    # A row a container: below their titles, every one begins with a name.
    rows = done.out.splitlines()
    title = next(index for index, row in enumerate(rows) if row.startswith("CONTAINER"))
    if width > 40:
        assert len(rows) - title - 1 == 21
        assert "-o wide prints all columns" in " ".join(done.err.split())
    wide = memqos("top", "--once", "-o", "wide", "--snapshot", SNAPSHOT)
    assert "REF/S  GUARD  KILLS" in wide.out


def test_once_has_every_number_with_its_derivation_as_data() -> None:
    data = memqos("top", "--once", "-o", "json", "--snapshot", SNAPSHOT, "--sort", "oom").data
    first = data["containers"][0]
    assert first["oomRank"] == 1
    planned = first["planned"]
    assert {"memory.min", "memory.low", "memory.high", "memory.max", "oom_score_adj"} <= set(
        planned
    )
    assert planned["memory.high"]["steps"]
    assert planned["memory.high"]["source"]


def test_once_of_a_live_tree_has_rates(tmp_path: Path) -> None:
    node = BusyNode(tmp_path, 2)
    done = memqos("top", "--once", "-o", "json", "--interval", "0.2", *node.options)
    assert done.code == 0
    rows = done.data["containers"]
    assert len(rows) == 4
    assert rows[0]["highEvents"] == 0
    assert rows[0]["pod"] == "shop/web-0001"


def test_hostile_names_are_printed_and_not_obeyed(tmp_path: Path) -> None:
    node = BusyNode(tmp_path, 1, names=["\033[31m<b>evil\u202e"])
    done = memqos("top", "--once", "--interval", "0.2", *node.options)
    assert "\033" not in done.out
    assert "\u202e" not in done.out
    assert r"\u001b" in done.out


def test_without_a_terminal_it_asks_for_once() -> None:
    done = memqos("top", "--snapshot", SNAPSHOT)
    assert done.code == 64
    assert "--once" in done.err


def test_without_urwid_it_says_how_to_install_it() -> None:
    code = (
        "import sys; sys.modules['urwid'] = None\n"
        "sys.stdin.isatty = sys.stdout.isatty = lambda: True\n"
        f"sys.argv = ['memqos', 'top', '--snapshot', {SNAPSHOT!r}]\n"
        "from memqos.cli.main import main; main()"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, check=False
    )
    assert done.returncode == 1
    assert "pip install 'memqos[top]'" in done.stderr


class Screen:
    """The screen, driven by urwid's own loop: keys go in, a canvas comes out."""

    def __init__(self, refresher: Refresher) -> None:
        import urwid

        from memqos.cli.top_screen import TopScreen

        self.refresher = refresher
        self._widget = TopScreen(refresher)
        screen = urwid.display.raw.Screen()
        screen.get_cols_rows = lambda: SIZE  # type: ignore[method-assign]
        self._loop = urwid.MainLoop(self._widget, screen=screen)
        self._loop.screen_size = SIZE

    def press(self, *keys: str) -> None:
        self._loop.process_input(list(keys))

    def read(self) -> None:
        """As the terminal does: urwid keeps what it drew until it is told of something new."""
        self.refresher._read()
        self._widget.refresh()

    def draw(self) -> None:
        """As a loop does before it takes a key: what is on the screen decides what a key does."""
        self._widget.render(SIZE)

    @property
    def lines(self) -> list[str]:
        canvas = self._widget.render(SIZE)
        return [line.decode().rstrip() for line in canvas.text]

    def shows(self, text: str) -> None:
        """Records are read in a thread."""
        eventually(f"the screen shows {text}", lambda: any(text in line for line in self.lines))


@pytest.fixture
def screen(monkeypatch: pytest.MonkeyPatch) -> Screen:
    pytest.importorskip("urwid")
    monkeypatch.chdir(ROOT)
    return Screen(Refresher(SnapshotNode(SNAPSHOT, PlanOptions()), 1))


def whole_screen(name: str) -> list[str]:
    """A screen of 80 × 24, as it was looked at."""
    lines = (ROOT / f"tests/screens/{name}.txt").read_text().split("\n")
    assert len(lines) == SIZE[1] + 1
    return lines[:-1]


def test_the_first_screen(screen: Screen) -> None:
    assert screen.lines == whole_screen("top")
    assert max(map(len, screen.lines)) <= SIZE[0]


def test_a_row_in_full_shows_the_derivation_of_every_value(screen: Screen) -> None:
    screen.draw()
    screen.press("down", "enter")
    assert screen.lines == whole_screen("top-detail")
    screen.press(*["tab"] * 20)
    screen.shows("nothing is recorded of it")
    screen.press("esc", "up")
    assert screen.lines == whole_screen("top")


def test_the_tree_and_the_help(screen: Screen) -> None:
    screen.draw()
    screen.press("t")
    assert screen.lines == whole_screen("top-tree")
    screen.press("?")
    assert screen.lines == whole_screen("top-help")


def test_keys_order_and_filter(screen: Screen) -> None:
    screen.draw()
    screen.press("/", *"sidecar", "enter")
    assert screen.lines[23] == "order: usage · 4 lines · filter: sidecar · ? help · q quit"
    screen.press("/", "esc", "s", "s")
    assert screen.lines[23].startswith("order: name")
    assert "b-limitonly-guest" in screen.lines[3]
    screen.press("r")
    assert screen.lines[23].startswith("order: name reversed")


def test_the_cursor_stays_on_its_row_when_the_order_changes(screen: Screen) -> None:
    screen.draw()
    screen.press("down", "down", "enter")
    shown = screen.lines[10]
    screen.press("s", "s")
    assert screen.lines[10] == shown == "default/b-nolimit-guest app · Burstable"


class TwoContainers:
    """Of which the other one uses more at every reading; their records come late."""

    def __init__(self) -> None:
        self.count = 0
        self.records = threading.Event()

    def read(self, visible: Collection[str], query: RowQuery) -> NodeInstant:
        self.count += 1
        rows = (
            ContainerRow(path=f"/{name}", pod=f"shop/{name}", container="app", current=current)
            for name, current in (("a", self.count % 2), ("b", (self.count + 1) % 2))
        )
        return NodeInstant(origin="node", at=self.count, rows=tuple(rows))

    def recordings(self, pod: str | None = None) -> list[Recording]:
        self.records.wait()
        raise Unreachable(f"no records of {pod}")


def test_the_detail_stays_with_its_container() -> None:
    pytest.importorskip("urwid")
    source = TwoContainers()
    source.records.set()
    screen = Screen(Refresher(source, 1))
    screen.draw()
    screen.press("enter")
    assert screen.lines[10] == "shop/a app · class not known"
    screen.read()
    assert "shop/b" in screen.lines[3]
    assert screen.lines[10] == "shop/a app · class not known"


def test_the_screen_does_not_wait_for_an_agent_that_is_slow() -> None:
    pytest.importorskip("urwid")
    source = TwoContainers()
    screen = Screen(Refresher(source, 1))
    screen.draw()
    screen.press("enter", *["tab"] * 20)
    assert screen.lines[22] == "why: the records are being read"
    source.records.set()
    screen.shows("why: no records of shop/a")


def test_a_heading_has_no_detail(screen: Screen) -> None:
    screen.press("t")
    screen.draw()
    screen.press("enter")
    assert screen.lines[10] == "no container is selected: ↑ ↓ move to one"


class FixedNode(TwoContainers):
    def __init__(self, instant: NodeInstant) -> None:
        super().__init__()
        self.instant = instant

    def read(self, visible: Collection[str], query: RowQuery) -> NodeInstant:
        return self.instant


def test_what_is_said_of_the_node_is_not_cut() -> None:
    pytest.importorskip("urwid")
    row = ContainerRow(path="/a", pod="shop/a", container="a", kills=3, high_events=0.0)
    instant = NodeInstant(
        origin="/a/long/path/of/a/snapshot/that/was/taken/on/a/node/of/a/cluster.json",
        at=1_772_446_340_000,
        rows=(row,) * 110,
        memory=AvailableMemory(64 << 30, 13_530 << 20, 12.1, 10.4),
        notes=("the first reason " * 8, "the second reason"),
    )
    screen = Screen(Refresher(FixedNode(instant), 1))
    text = " ".join(" ".join(screen.lines[:7]).split())
    assert "2026-03-02 10:12:20 UTC" in text
    assert "PSI some 12.1 % full 10.4 %" in text
    assert "note: the second reason" in text
    assert screen.lines[-1].startswith("order: usage · 110 lines")
    reasons = tuple(f"reason {number} " * 9 for number in range(4))
    empty = msgspec.structs.replace(instant, rows=(), notes=reasons)
    screen = Screen(Refresher(FixedNode(empty), 1))
    assert sum("note: reason" in line for line in screen.lines) == 4
    assert screen.lines[-1].startswith("order: usage · 0 lines")


def test_q_ends_it(screen: Screen) -> None:
    import urwid

    with pytest.raises(urwid.ExitMainLoop):
        screen.press("q")


def test_playback_by_keys() -> None:
    pytest.importorskip("urwid")
    recordings = list(read_recordings(str(ROOT / "examples/records")))
    screen = Screen(Refresher(PlaybackNode(recordings, "records", clock=lambda: 0.0), 1))
    assert screen.lines[0] == "records · 2026-03-02 10:00:00 UTC · 1 × · 0% · recorded"
    screen.press(*["shift right"] * 12, "right", "right", "right", "+", " ")
    screen.read()
    assert screen.lines[0] == "records · 2026-03-02 10:12:30 UTC · paused · 28% · recorded"
    assert "1 throttled" in screen.lines[1]
    screen.press("enter", *["tab"] * 20)
    screen.shows("what would have prevented it")


@pytest.fixture
def tmux(tmp_path: Path) -> Iterator[list[str]]:
    program = shutil.which("tmux")
    if program is None:
        pytest.skip("needs tmux")
    pytest.importorskip("urwid")
    command = [program, "-S", str(tmp_path / "tmux.sock"), "-f", "/dev/null"]
    yield command
    subprocess.run([*command, "kill-server"], check=False, capture_output=True)


def test_a_person_at_a_terminal(tmux: list[str], tmp_path: Path) -> None:
    node = BusyNode(tmp_path, 20)
    (tmp_path / "top.sh").write_text(
        f"cd {ROOT} && exec {sys.executable} -m memqos top --agent {node.socket} "
        f"--interval 0.3 {' '.join(node.options)}\n"
    )

    def run(*arguments: str) -> str:
        done = subprocess.run([*tmux, *arguments], check=True, capture_output=True, text=True)
        return done.stdout

    def screen() -> list[str]:
        return run("capture-pane", "-p").splitlines()

    with agent_answering(node.socket, state_of()):
        run("new-session", "-d", "-x", "80", "-y", "24", f"LC_ALL=C.UTF-8 sh {tmp_path}/top.sh")
        eventually("rows are shown", lambda: any("web-0019 c0" in line for line in screen()))
        shown = screen()
        assert len(shown) == 24
        assert "agent: enforce, converged" in shown[0]
        assert shown[2].split()[:3] == ["CONTAINER", "QOS", "USAGE"]
        node.write(container_path(0), "memory.current", 200 * MI)
        eventually("a change is seen", lambda: "web-0000 c0" in screen()[3])
        run("send-keys", "Enter")
        eventually("the detail", lambda: any("low/tiered" in line for line in screen()))
        run("send-keys", "Escape")
        eventually("the detail is closed", lambda: "low/tiered" not in "".join(screen()))
        run("send-keys", "?")
        eventually("the help", lambda: screen()[0] == "memqos top: keys")
        run("send-keys", "x")
        run("send-keys", "/")
        run("send-keys", "0007", "Enter")
        eventually("the filter", lambda: "2 lines · filter: 0007" in screen()[23])
        run("send-keys", "q")
    eventually(
        "it has ended",
        lambda: subprocess.run([*tmux, "ls"], check=False, capture_output=True).returncode != 0,
    )


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_who_ends_it_from_elsewhere_leaves_the_terminal_as_before(number: signal.Signals) -> None:
    pytest.importorskip("urwid")
    ours, its = pty.openpty()  # it has no size, which counts as 80 × 24
    command = [sys.executable, "-m", "memqos", "top", "--snapshot", SNAPSHOT]
    with subprocess.Popen(
        command, cwd=ROOT, stdin=its, stdout=its, env=os.environ | {"TERM": "xterm"}
    ) as process:
        os.close(its)
        shown = b""
        while b"q quit" not in shown:
            shown += os.read(ours, 4096)
        assert shown.count(ALTERNATE_SCREEN + b"h") == 1
        process.send_signal(number)
        with contextlib.suppress(OSError):  # the terminal has no other end any more
            while more := os.read(ours, 4096):
                shown += more
    os.close(ours)
    assert shown.count(ALTERNATE_SCREEN + b"l") == 1
    assert process.returncode == 0


def test_the_agents_image_has_no_library_for_screens() -> None:
    """It is built from requirements.txt."""
    assert "urwid" not in (ROOT / "requirements.txt").read_text()
    assert "urwid==" in (ROOT / "requirements-top.txt").read_text()
