"""Node masks: sets of NUMA node numbers, held as the bits of an integer."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import combinations

Mask = int


def mask_of(nodes: Iterable[int]) -> Mask:
    """The mask of some nodes."""
    mask = 0
    for node in nodes:
        mask |= 1 << node
    return mask


def nodes_of(mask: Mask) -> tuple[int, ...]:
    """The nodes of a mask, ascending."""
    nodes = []
    while mask:
        lowest = mask & -mask
        nodes.append(lowest.bit_length() - 1)
        mask ^= lowest
    return tuple(nodes)


def lowest_nodes(mask: Mask, count: int) -> Mask:
    """The lowest `count` nodes of a mask."""
    return mask_of(nodes_of(mask)[:count])


def all_masks(nodes: Sequence[int]) -> Iterator[Mask]:
    """Every non-empty mask of ascending nodes, by size and then lexicographically.

    There are 2ⁿ - 1 of them: to be walked on small machines, or not to the end.
    """
    for size in range(1, len(nodes) + 1):
        for chosen in combinations(nodes, size):
            yield mask_of(chosen)
