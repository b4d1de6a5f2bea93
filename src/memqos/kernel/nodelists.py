"""NUMA nodes as the kernel lists them: `0-3,8`."""

from collections.abc import Iterable


def node_list(nodes: Iterable[int]) -> str:
    """The list of some nodes; empty if there are none."""
    runs: list[list[int]] = []
    for node in sorted(nodes):
        if runs and node == runs[-1][-1] + 1:
            runs[-1].append(node)
        else:
            runs.append([node])
    return ",".join([str(run[0]) if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in runs])


def describe_nodes(nodes: Iterable[int]) -> str:
    """`node 0`, `nodes 0-3,8`."""
    members = list(nodes)
    return f"node {members[0]}" if len(members) == 1 else f"nodes {node_list(members)}"


def nodes_in(text: str) -> set[int]:
    """The nodes of a list that is well formed."""
    nodes: set[int] = set()
    for part in filter(None, text.strip().split(",")):
        first, _, last = part.partition("-")
        nodes.update(range(int(first), int(last or first) + 1))
    return nodes
