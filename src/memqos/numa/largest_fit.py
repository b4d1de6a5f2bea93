"""The most that would fit, resource by resource, while the rest of a request stays the same."""

from collections.abc import Iterable

import msgspec

from memqos.numa.machine_state import MemorySizes, NumaNodeMap, free_memory
from memqos.numa.masks import mask_of


class LargestFit(msgspec.Struct, frozen=True):
    """How much of a resource was requested, and the most one node, or several together, have free.

    No nodes means that none has what is requested of the other resources.
    """

    resource: str
    requested: int = msgspec.field(name="wanted")
    """`wanted` in JSON output."""
    on_one: int
    one: tuple[int, ...]
    on_several: int
    several: tuple[int, ...]


def largest_fits(nodes: NumaNodeMap, sizes: MemorySizes) -> tuple[LargestFit, ...]:
    """What each resource of a request could at most be, given the current use of the nodes."""
    singles = [(i,) for i in sorted(nodes) if len(nodes[i].cells) == 1]
    groups = {
        nodes[i].cells for i in nodes if len(nodes[i].cells) > 1 and _is_whole_group(nodes, i)
    }
    idle = tuple([i for i in sorted(nodes) if nodes[i].assignments <= 0])
    several = [*sorted(groups), *([idle] if len(idle) > 1 else [])]
    fits = []
    for name, requested in sizes.items():
        others = {other: size for other, size in sizes.items() if other != name}
        on_one, one = _largest_free(nodes, name, others, singles)
        on_several, these = _largest_free(nodes, name, others, several)
        fits.append(LargestFit(name, requested, on_one, one, on_several, these))
    return tuple(fits)


def _is_whole_group(nodes: NumaNodeMap, node: int) -> bool:
    """Whether none of the group's nodes is used otherwise."""
    group = mask_of(nodes[node].cells)
    return all(
        nodes[i].assignments <= 0 or mask_of(nodes[i].cells) == group for i in nodes[node].cells
    )


def _largest_free(
    nodes: NumaNodeMap, resource: str, others: MemorySizes, choices: Iterable[tuple[int, ...]]
) -> tuple[int, tuple[int, ...]]:
    fitting = [
        (free_memory(nodes, members, resource), members)
        for members in choices
        if all(free_memory(nodes, members, name) >= size for name, size in others.items())
    ]
    return max(fitting, key=lambda found: found[0], default=(0, ()))
