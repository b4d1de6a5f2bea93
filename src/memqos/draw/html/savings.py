"""What a cluster requests beyond its need, as a section of the audit's page."""

from collections.abc import Iterator
from typing import Final

from memqos.draw.html.charts import scrolling_table, table_row
from memqos.draw.svg.elements import Markup, el
from memqos.draw.text.savings import (
    NODE_HEAD,
    SAVINGS_HEAD,
    node_cells,
    nodes_line,
    savings_cells,
    savings_title,
)
from memqos.size.savings import ClusterSavings
from memqos.units import pluralize

_MAX_ROWS: Final = 100


def savings_section(found: ClusterSavings) -> Iterator[Markup]:
    """Workloads and nodes, those with most to gain first."""
    yield el("h2", savings_title(found))
    line = nodes_line(found)
    yield el("p", line[0].upper() + line[1:], class_="fine")
    if found.unsized:
        kept = pluralize(found.unsized, "container")
        yield el("p", f"{kept} without enough history stay as they are", class_="dim")
    tables = (
        ("By container", SAVINGS_HEAD, [savings_cells(each) for each in found.workloads]),
        ("By node", NODE_HEAD, [node_cells(each) for each in found.by_node]),
    )
    for title, head, rows in tables:
        if rows:
            yield el("h3", title)
            shown = [table_row("th", head), *[table_row("td", row) for row in rows[:_MAX_ROWS]]]
            yield el("div", scrolling_table(shown), class_="card")
        if len(rows) > _MAX_ROWS:
            more = f"… and {len(rows) - _MAX_ROWS:,} more: -o json lists all"
            yield el("p", more, class_="dim")
