"""`memqos top`: the memory of a node's containers, live, out of a snapshot, or played back."""

import os
import sys
import time
from typing import Literal

import click

from memqos.cli.help_sections import SectionedCommand, help_section
from memqos.cli.node_source import WatchOptions, is_live, open_source, watch_options
from memqos.cli.options import SecondsType, collect_options
from memqos.cli.output import camel_case, complain, emit, output_option, print_lines
from memqos.cli.streams import raw_stream
from memqos.converge.node_sources import NodeSource
from memqos.draw.text.node_rows import instant_lines
from memqos.draw.text.row_detail import instant_data
from memqos.errors import InputError
from memqos.monitor.instant import SORT_KEYS, RowQuery, SortKey, select_rows


@click.command(cls=SectionedCommand)
@click.option("--once", is_flag=True, help="Print the rows once, for scripts.")
@output_option(table="table, with --once")
@click.option(
    "--sort",
    type=click.Choice(list(SORT_KEYS)),
    default="usage",
    help="The order of the rows.  [default: usage]",
)
@click.option(
    "--filter",
    "text",
    default="",
    metavar="WORDS",
    help="Only rows with these words in their names; also class:burstable, throttled, killed.",
)
@click.option("--limit", type=click.IntRange(1), metavar="N", help="Only the first N rows.")
@click.option(
    "--interval",
    type=SecondsType(0.2, 60),
    metavar="SECONDS",
    default=1,
    help="Time between two readings.  [default: 1]",
)
@help_section("Output")(
    click.option("--no-color", is_flag=True, help="Use no colours; NO_COLOR does the same.")
)
@watch_options
@collect_options(WatchOptions)
def command(
    options: WatchOptions,
    *,
    once: bool,
    output: Literal["table", "json", "yaml"],
    sort: SortKey,
    text: str,
    limit: int | None,
    interval: float,
    no_color: bool,
) -> int:
    """Watch the containers of a node: usage against min, low, high and max, pressure, ranks.

    Press ? for the keys. The screen needs the package urwid: pip install 'memqos[top]'. --once
    works without it.

    \b
    sudo memqos top --pods podsapi               this node
    memqos top --snapshot node.json              a node as it was
    memqos top --play /var/lib/memqos/records    the records of an agent
    memqos top --once -o json --sort high        for scripts
    """
    query = RowQuery(sort=sort, text=text)
    if once:
        return _print_once(open_source(options), query, limit, interval, output)
    if output != "table" or limit is not None:
        raise click.UsageError("-o and --limit are for --once")
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise click.UsageError("the screen needs a terminal: give --once to print the rows")
    try:
        from memqos.cli.top_screen import TopScreen
        from memqos.cli.top_terminal import run_screen
    except ModuleNotFoundError as error:
        if error.name != "urwid":
            raise
        raise InputError(
            "the screen needs the package urwid, which is not installed",
            hint="pip install 'memqos[top]', or give --once",
        ) from None
    from memqos.converge.refresher import Refresher

    refresher = Refresher(open_source(options), interval)
    colour = not no_color and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
    run_screen(TopScreen(refresher, query), refresher, raw_stream(sys.stdout), colour=colour)
    return 0


def _print_once(
    source: NodeSource,
    query: RowQuery,
    limit: int | None,
    interval: float,
    output: Literal["table", "json", "yaml"],
) -> int:
    """Two readings, as rates take two, of which the second is printed."""
    first = source.read((), query)
    if is_live(first):
        time.sleep(interval)
    instant = source.read(frozenset(row.path for row in first.rows), query)
    rows = select_rows(instant, query)[:limit]
    if output != "table":
        emit(camel_case(instant_data(instant, rows)), output)
        return 0
    print_lines(instant_lines(instant, rows))
    for note in instant.notes:
        complain(f"note: {note}")
    return 0
