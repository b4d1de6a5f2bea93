"""Room: the most that would fit, resource by resource, while everything else stays as asked for."""

from collections.abc import Iterable

import msgspec

from memqos.numa.machine_state import MemorySizes, NumaNodeMap, free_memory
from memqos.numa.masks import mask_of


class LargestFit(msgspec.Struct, frozen=True):
    """How much of a resource was wanted, and the most one node, or several together, could give.

    No nodes means that none could give what is wanted of the other resources.
    """

    resource: str
    wanted: int
    on_one: int
    one: tuple[int, ...]
    on_several: int
    several: tuple[int, ...]


def largest_fits(nodes: NumaNodeMap, sizes: MemorySizes) -> tuple[LargestFit, ...]:
    """What each resource of a request could at most be, given who uses which nodes now."""
    singles = [(i,) for i in sorted(nodes) if len(nodes[i].cells) == 1]
    groups = {
        nodes[i].cells for i in nodes if len(nodes[i].cells) > 1 and _is_whole_group(nodes, i)
    }
    idle = tuple([i for i in sorted(nodes) if nodes[i].assignments <= 0])
    several = [*sorted(groups), *([idle] if len(idle) > 1 else [])]
    rooms = []
    for name, wanted in sizes.items():
        others = {other: size for other, size in sizes.items() if other != name}
        on_one, one = _largest_free(nodes, name, others, singles)
        on_several, these = _largest_free(nodes, name, others, several)
        rooms.append(LargestFit(name, wanted, on_one, one, on_several, these))
    return tuple(rooms)


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
