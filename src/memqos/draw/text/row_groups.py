"""Rows as a tree: by node, QoS class and pod, each group under its heading."""

from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Final

from memqos.monitor.instant import ContainerRow
from memqos.units import format_bytes, pluralize

_CLASSES: Final = ("Guaranteed", "Burstable", "BestEffort")

RowOrHeading = ContainerRow | str


def grouped_rows(rows: Sequence[ContainerRow]) -> Iterator[RowOrHeading]:
    """The rows by node, class and pod, each under a heading; pods in the order of their first."""
    place = {pod: index for index, pod in reversed(list(enumerate(row.pod for row in rows)))}

    def group_key(row: ContainerRow) -> tuple[str, int, int]:
        known = row.qos in _CLASSES
        return row.node, _CLASSES.index(row.qos) if known else len(_CLASSES), place[row.pod]

    ordered = sorted(rows, key=group_key)
    for (node, _), of_class in groupby(ordered, key=lambda row: (row.node, row.qos)):
        members = list(of_class)
        name = " ".join(filter(None, (node, members[0].qos or "class not known")))
        yield f"{name} · {_sum_words(members)}"
        for pod, of_pod in groupby(members, key=lambda row: row.pod):
            containers = list(of_pod)
            yield f"  {pod} · {_sum_words(containers)}"
            yield from containers


def _sum_words(rows: Sequence[ContainerRow]) -> str:
    used = format_bytes(sum(row.current for row in rows))
    return f"{pluralize(len(rows), 'container')}, {used}"
