"""`memqos status`: whether Memory QoS works on a node, who is throttled, what was done."""

import sys
import time
from typing import Literal

import click

from memqos.cli.help_sections import SectionedCommand
from memqos.cli.node_source import WatchOptions, is_live, open_source, watch_options
from memqos.cli.options import SecondsType, collect_options
from memqos.cli.output import camel_case, complain, emit, output_option, print_lines
from memqos.cli.streams import raw_stream
from memqos.converge.node_sources import NodeSource, PlaybackNode
from memqos.draw.text.status import status_data, status_text
from memqos.errors import MemqosError
from memqos.monitor.instant import RowQuery
from memqos.monitor.status import StatusReport, node_status

_PROBLEMS = 2
_BY_EVENTS = RowQuery(sort="high")


@click.command(cls=SectionedCommand)
@click.option("--watch", is_flag=True, help="Repeat until Ctrl+C.")
@click.option(
    "--seconds",
    type=SecondsType(0.1, 3600),
    metavar="SECONDS",
    default=1,
    help="How long throttling is watched, and the pause between screens of --watch.  [default: 1]",
)
@watch_options
@output_option(table="one screen of text")
@collect_options(WatchOptions)
def command(
    options: WatchOptions, *, watch: bool, seconds: float, output: Literal["table", "json", "yaml"]
) -> int:
    """Show on one screen whether Memory QoS works on this node.

    Is it on, has the agent converged, which containers are throttled, what happened in the last
    hour, and what is wrong. What happened is read from the agent's records.

    Exit code 0: nothing is wrong, 2: something is, 1: error.
    """
    source = open_source(options)
    if isinstance(source, PlaybackNode) and options.start is None:
        source.seek_end()  # at the first record nothing has happened yet
    first = source.read((), _BY_EVENTS)
    while True:
        if watch or is_live(first):
            time.sleep(seconds)
        try:
            status = _read_status(source)
        except (MemqosError, OSError) as error:
            if not watch:
                raise
            complain(error)
            continue
        if output != "table":
            if watch and output == "yaml":
                print("---")
            emit(camel_case(status_data(status)), output)
        else:
            if watch and sys.stdout.isatty():
                raw_stream(sys.stdout).write("\033[H\033[2J")
            print_lines(status_text(status))
        sys.stdout.flush()
        if not watch:
            return 0 if status.is_well else _PROBLEMS


def _read_status(source: NodeSource) -> StatusReport:
    instant = source.read((), _BY_EVENTS)
    try:
        recordings = source.recordings()
    except PermissionError as error:
        return node_status(instant, notes=[f"{error.filename}: run as root to read the records"])
    except MemqosError as error:
        return node_status(instant, notes=[f"the records are not known: {error}"])
    return node_status(instant, recordings)
