"""The screen of `memqos top`: a table, a detail pane, help; drawn with urwid, used by keys."""

from collections.abc import Callable, Hashable, Iterator, Sequence
from textwrap import wrap
from typing import Final, Literal

import urwid

from memqos.cli.pod_records import PodRecords
from memqos.converge.node_sources import PlaybackNode
from memqos.converge.refresher import Refresher
from memqos.draw.text.lines import Screen
from memqos.draw.text.node_rows import fit_columns, header_line, layout_for, node_lines, row_line
from memqos.draw.text.render import render
from memqos.draw.text.row_detail import detail_lines
from memqos.draw.text.row_groups import RowOrHeading, grouped_rows
from memqos.draw.text.story import story_text
from memqos.draw.text.terminal import visible
from memqos.errors import MemqosError
from memqos.monitor.instant import (
    SORT_KEYS,
    ContainerRow,
    NodeInstant,
    RowQuery,
    SortKey,
    select_rows,
)
from memqos.record.recordings import latest_recordings
from memqos.record.story import story_of
from memqos.units import pluralize

HELP: Final = """\
↑ ↓ PgUp PgDn Home End   move
Enter                    show a row in full: each value's derivation, and why
Tab, Shift Tab           scroll what is shown in full
Esc                      back
s  S                     next, previous sort order
r                        reverse the order
/                        filter: a name, class:burstable, throttled, killed
t                        group by QoS class and pod
space                    pause, resume
← →                      playback: 10 s back, forward; with Shift a minute
- +                      playback: slower, faster
?                        this help
q                        quit

Bars go from 0 to memory.max; m, l and h mark memory.min, low and high.
PSI%: time in which all of a container waited for memory. HI/S: high events a
second, above 0 it is throttled. REF/S: pages a second that were reclaimed and
needed again. GUARD: steps by which the guard widened memory.high. KILLS: killed
processes. OOM and EV: places in the order in which the kernel kills and the
kubelet evicts. Columns that do not fit are dropped, LOW first."""
_SEEKS: Final = {
    "left": -10_000,
    "right": 10_000,
    "shift left": -60_000,
    "shift right": 60_000,
}
_SORTS: Final[tuple[SortKey, ...]] = tuple(SORT_KEYS)

Look = str | None


class TopScreen(urwid.Widget):
    """The whole screen. It draws the last instant that was read, and never waits for the next."""

    _sizing = frozenset([urwid.BOX])
    _selectable = True

    def __init__(self, refresher: Refresher, query: RowQuery | None = None) -> None:
        super().__init__()
        self._refresher = refresher
        self._query = query or RowQuery()
        self._view: Literal["table", "detail", "help"] = "table"
        self._is_tree = False
        self._is_paused = False
        self._instant = refresher.instant
        self._items: Sequence[RowOrHeading] = ()
        self._visible: tuple[str, ...] = ()
        self._cursor = 0
        self._path: str | None = None
        """The row under the cursor: it stays there when the order changes."""
        self._first = 0
        self._scroll = 0
        self._height = 1
        self._typed: str | None = None
        """The filter while it is typed."""
        self._records = PodRecords(refresher.source)

    def refresh(self) -> None:
        """Draw again: something was read."""
        self._invalidate()

    def render(  # type: ignore[override] # a box, and no other kind of widget
        self, size: tuple[int, int], focus: bool = False
    ) -> urwid.Canvas:
        """The screen in exactly this size."""
        width, height = size
        lines = list(self._lines(width, height))[:height]
        lines += [("", None)] * (height - len(lines))
        texts = [fit_columns(text, width).encode() for text, _ in lines]
        looks: list[list[tuple[Hashable, int]]] = [
            [(look, len(text))] for text, (_, look) in zip(texts, lines, strict=True)
        ]
        return urwid.TextCanvas(texts, looks, maxcol=width, check_width=False)

    def _lines(self, width: int, height: int) -> Iterator[tuple[str, Look]]:
        if self._view == "help":
            yield "memqos top: keys", "head"
            yield from ((line, None) for line in ["", *HELP.split("\n")])
            return
        if not self._is_paused:
            self._instant = self._refresher.latest(self._visible, self._query)
        instant = self._instant
        head: list[tuple[str, Look]] = [
            (part, "head") for line in node_lines(instant) for part in wrap(line, width)[:2]
        ]
        notes = list(self._note_lines(instant, width))
        # Without rows there is nothing but notes to see, and they say why.
        most = height // 8 if instant.rows else height - len(head) - 3
        head += [(line, "note") for line in notes[: max(1, most)]]
        yield from head
        body = max(2, height - len(head) - 1)
        table = max(3, body // 3) if self._view == "detail" else body
        yield from self._table_lines(instant, width, table)
        if self._view == "detail":
            yield from self._pane_lines(instant, width, body - table)
        yield self._foot(), "titles"

    def _note_lines(self, instant: NodeInstant, width: int) -> Iterator[str]:
        for note in filter(None, (self._refresher.fault, *instant.notes)):
            yield from wrap(f"note: {visible(note)}", width, subsequent_indent="  ")

    def _table_lines(
        self, instant: NodeInstant, width: int, height: int
    ) -> Iterator[tuple[str, Look]]:
        layout = layout_for(width)
        rows = select_rows(instant, self._query)
        self._items = list(grouped_rows(rows)) if self._is_tree else rows
        self._height = max(1, height - 1)
        self._follow_row()
        shown = self._items[self._first : self._first + self._height]
        self._visible = tuple(item.path for item in shown if not isinstance(item, str))
        total = None if instant.memory is None else instant.memory.total
        yield header_line(layout), "titles"
        for index, item in enumerate(shown, self._first):
            look: Look = "group" if isinstance(item, str) else _look_of(item)
            indent = 4 if self._is_tree else 0
            text = item if isinstance(item, str) else row_line(item, layout, total, indent)
            yield text, "cursor" if index == self._cursor else look
        yield from [("", None)] * (self._height - len(shown))

    def _follow_row(self) -> None:
        """Keep the cursor on its row, and on the screen."""
        if self._path is not None:
            found = (
                index
                for index, item in enumerate(self._items)
                if not isinstance(item, str) and item.path == self._path
            )
            self._cursor = next(found, self._cursor)
        self._cursor = max(0, min(self._cursor, len(self._items) - 1))
        if self._cursor < self._first:
            self._first = self._cursor
        self._first = max(self._first, self._cursor - self._height + 1)
        self._first = max(0, min(self._first, len(self._items) - self._height))

    def _pane_lines(
        self, instant: NodeInstant, width: int, height: int
    ) -> Iterator[tuple[str, Look]]:
        row = self._row()
        lines = ["no container is selected: ↑ ↓ move to one"]
        if row is not None:
            lines = [*detail_lines(row, instant, width), "", *self._story_lines(row, width)]
        self._scroll = max(0, min(self._scroll, len(lines) - height + 1))
        yield "─" * width, None
        shown = lines[self._scroll : self._scroll + height - 1]
        yield from ((line, None) for line in shown)
        yield from [("", None)] * (height - 1 - len(shown))

    def _story_lines(self, row: ContainerRow, width: int) -> list[str]:
        """Why it was throttled or killed, out of the records."""
        try:
            recordings = self._records.latest(row.pod)
        except PermissionError as error:
            return [f"{error.filename}: run as root to read the records"]
        except (MemqosError, OSError) as error:
            return [f"why: {error}"]
        if recordings is None:
            return ["why: the records are being read"]
        node = next((each for each in recordings if each.who.is_node), None)
        named = [
            each
            for each in recordings
            if (f"{each.who.namespace}/{each.who.pod}", each.who.container)
            == (row.pod, row.container)
        ]
        if not named:
            return ["why: nothing is recorded of it"]
        story = story_of(latest_recordings(named)[0], node)
        return list(render(story_text(story), Screen(width=width)))

    def _foot(self) -> str:
        if self._typed is not None:
            return f"/{visible(self._typed)}▏ Enter filters, Esc keeps all"
        order = f"{self._query.sort}{' reversed' if self._query.reverse else ''}"
        parts = [f"order: {order}", pluralize(len(self._items), "line")]
        if self._query.text:
            parts.append(f"filter: {self._query.text}")
        if self._is_paused:
            parts.append("paused")
        return " · ".join([*parts, "? help", "q quit"])

    def _row(self) -> ContainerRow | None:
        item = self._items[self._cursor] if self._cursor < len(self._items) else None
        return None if isinstance(item, str) else item

    # Keys

    def keypress(  # type: ignore[override] # as above
        self, size: tuple[int, int], key: str
    ) -> str | None:
        """Do what a key says; None, as every key ends here."""
        if self._typed is not None:
            self._type(key)
        elif self._view == "help":
            self._view = "table"
        elif key in ("q", "Q"):
            raise urwid.ExitMainLoop
        elif key in _MOVES:
            self._move(_MOVES[key](self._height))
        elif key in _SEEKS or key in ("+", "=", "-"):
            self._play(key)
        elif key in _ACTIONS:
            _ACTIONS[key](self)
        self._invalidate()
        return None

    def _type(self, key: str) -> None:
        assert self._typed is not None
        if key == "enter":
            self._filter(self._typed)
        elif key == "esc":
            self._filter("")
        elif key == "backspace":
            self._typed = self._typed[:-1]
        elif len(key) == 1:
            self._typed += key

    def _filter(self, text: str) -> None:
        self._typed = None
        self._set_query(text=text)

    def _set_query(
        self, *, sort: SortKey | None = None, reverse: bool | None = None, text: str | None = None
    ) -> None:
        query = self._query
        self._query = RowQuery(
            sort=sort or query.sort,
            reverse=query.reverse if reverse is None else reverse,
            text=query.text if text is None else text,
        )
        self._refresher.read_now()

    def _move(self, by: int) -> None:
        self._cursor = max(0, min(self._cursor + by, len(self._items) - 1))
        self._select_row()

    def _select_row(self) -> None:
        """The cursor follows the row that it is on."""
        row = self._row()
        self._path = None if row is None else row.path
        self._scroll = 0

    def _play(self, key: str) -> None:
        source = self._refresher.source
        if not isinstance(source, PlaybackNode):
            return
        if key in _SEEKS:
            source.seek(_SEEKS[key])
        else:
            source.change_speed(-1 if key == "-" else 1)
        self._refresher.read_now()

    def _toggle_pause(self) -> None:
        source = self._refresher.source
        if isinstance(source, PlaybackNode):
            source.toggle_pause()
            self._refresher.read_now()
        else:
            self._is_paused = not self._is_paused

    def _next_order(self, by: int) -> None:
        index = (_SORTS.index(self._query.sort) + by) % len(_SORTS)
        self._set_query(sort=_SORTS[index])

    def _show(self, view: Literal["table", "detail", "help"]) -> None:
        self._view, self._scroll = view, 0
        if view == "detail":
            self._select_row()

    def _toggle_tree(self) -> None:
        self._is_tree = not self._is_tree

    def _begin_filter(self) -> None:
        self._typed = self._query.text

    def _scroll_pane(self, by: int) -> None:
        self._scroll = max(0, self._scroll + by)

    def _reverse(self) -> None:
        self._set_query(reverse=not self._query.reverse)


_END: Final = 1 << 30
_MOVES: Final[dict[str, Callable[[int], int]]] = {
    "up": lambda _: -1,
    "k": lambda _: -1,
    "down": lambda _: 1,
    "j": lambda _: 1,
    "page up": lambda height: -height,
    "page down": lambda height: height,
    "home": lambda _: -_END,
    "end": lambda _: _END,
}
_ACTIONS: Final[dict[str, Callable[[TopScreen], None]]] = {
    "?": lambda screen: screen._show("help"),
    "h": lambda screen: screen._show("help"),
    "enter": lambda screen: screen._show("detail"),
    "esc": lambda screen: screen._show("table"),
    "tab": lambda screen: screen._scroll_pane(5),
    "shift tab": lambda screen: screen._scroll_pane(-5),
    "s": lambda screen: screen._next_order(1),
    "S": lambda screen: screen._next_order(-1),
    "r": TopScreen._reverse,
    "/": TopScreen._begin_filter,
    "t": TopScreen._toggle_tree,
    " ": TopScreen._toggle_pause,
    "p": TopScreen._toggle_pause,
}


def _look_of(row: ContainerRow) -> Look:
    if row.is_throttled:
        return "throttled"
    return "killed" if row.kills else None
