"""NUMA nodes, sizes and verdicts in words."""

from collections.abc import Iterable

from memqos.api.nodelists import node_list
from memqos.api.quantity import Quantity


def named_nodes(nodes: Iterable[int]) -> str:
    """`node 0`, `nodes 0-3,8`."""
    members = list(nodes)
    return f"node {members[0]}" if len(members) == 1 else f"nodes {node_list(members)}"


def exact(size: int) -> str:
    """Bytes without loss, in the largest binary unit that is even; zero and less included."""
    sign = "−" if size < 0 else ""
    return sign + Quantity.of(abs(size), "BinarySI").canonical


def by_so_much(stored: int, found: int) -> str:
    """How far the second is from the first: `+1Gi`."""
    if stored == found:
        return "±0"
    sign = "+" if found > stored else "−"
    return sign + exact(abs(found - stored))
