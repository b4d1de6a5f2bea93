"""Node masks: sets of NUMA node numbers, as the bits of an integer."""

from bisect import insort
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import accumulate, combinations
from typing import Final

import msgspec

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


WeightVector = tuple[int, ...]
NodeDistances = Mapping[int, Mapping[int, int]]
"""Node → node → distance, each node to itself included."""
MaskPredicate = Callable[[Mask], bool]


class SearchEffort:
    """What the searches for one result have cost, and whether one of them ended early."""

    __slots__ = ("gave_up", "left", "steps")

    def __init__(self) -> None:
        self.steps = 0
        self.left = 0
        self.gave_up = False

    def begin(self) -> None:
        """Begin a search; once the others have taken many steps, it has few."""
        self.left = max(_FEWEST_STEPS, min(_MOST_STEPS, _MOST_STEPS_IN_ALL - self.steps))

    def runs_out(self) -> bool:
        """Take a step; whether there are none left."""
        self.steps += 1
        self.left -= 1
        if self.left < 0:
            self.gave_up = True
            return True
        return False


class WeightedNodes(msgspec.Struct, frozen=True):
    """Ascending nodes to choose from, and their weights, one for each resource that counts."""

    nodes: tuple[int, ...]
    weights: tuple[WeightVector, ...]

    @property
    def total(self) -> WeightVector:
        return tuple(map(sum, zip(*self.weights, strict=True)))

    def within(self, mask: Mask) -> "WeightedNodes":
        """The same pool of these nodes only."""
        kept = [
            (node, weight)
            for node, weight in zip(self.nodes, self.weights, strict=True)
            if mask >> node & 1
        ]
        return WeightedNodes(
            tuple([node for node, _ in kept]), tuple([weight for _, weight in kept])
        )


def narrowest_mask(
    pool: WeightedNodes,
    needs: WeightVector,
    *,
    least: int = 0,
    beside: Mask = 0,
    distances: NodeDistances | None = None,
    accept: MaskPredicate | None = None,
    effort: SearchEffort | None = None,
) -> Mask | None:
    """The best subset of the fewest nodes that weighs at least `needs`."""
    best_sums = _best_sums(pool)[-1] if pool.nodes else ()
    for need, sums in zip(needs, best_sums, strict=False):
        least = max(least, next((k for k, sum_ in enumerate(sums) if sum_ >= need), len(sums)))
    effort = effort or SearchEffort()
    for size in range(least, len(pool.nodes) + 1):
        found = lowest_mask(
            pool, needs, size, beside=beside, distances=distances, accept=accept, effort=effort
        )
        if found is not None:
            return found
    return None


def lowest_mask(
    pool: WeightedNodes,
    needs: WeightVector,
    size: int,
    *,
    beside: Mask = 0,
    distances: NodeDistances | None = None,
    accept: MaskPredicate | None = None,
    effort: SearchEffort | None = None,
) -> Mask | None:
    """The best subset of exactly `size` nodes that weighs at least `needs`.

    Best is nearest together, where distances count, and to the nodes `beside` it, which are not in
    the pool; then of the lowest mask. `accept` is called last; it may decide by nothing but
    the weights of the nodes.
    """
    effort = effort or SearchEffort()
    effort.begin()
    search = _Search(pool, beside, distances, accept, effort)
    search.descend(len(pool.nodes), size, needs, 0, 0, 0, search.prices)
    return search.found


def total_distance(mask: Mask, distances: NodeDistances) -> int:
    """The sum of distances over all ordered pairs; for masks of one size it orders as the mean."""
    nodes = [node for node in distances if mask >> node & 1]
    return sum([distances[a][b] for a in nodes for b in nodes])


class _Search:
    """One search from the highest node down."""

    __slots__ = (
        "accept", "apart", "best_sums", "cost", "effort", "found", "kinds", "nearest",
        "pool", "prices",
    )  # fmt: skip

    def __init__(
        self,
        pool: WeightedNodes,
        beside: Mask,
        distances: NodeDistances | None,
        accept: MaskPredicate | None,
        effort: SearchEffort,
    ) -> None:
        self.pool = pool
        self.accept = accept
        self.effort = effort
        self.best_sums = _best_sums(pool)
        self.kinds = _kinds(pool, distances)
        self.apart: list[list[int]] = []
        self.nearest: list[list[int]] = []
        self.prices: list[int] = []
        if distances is not None:
            self.apart = [[_both_ways(a, b, distances) for b in pool.nodes] for a in pool.nodes]
            self.nearest = [_nearest(a, pool, distances) for a in pool.nodes]
            self.prices = [_price(node, beside, distances) for node in pool.nodes]
        self.found: Mask | None = None
        self.cost = 0

    def descend(
        self,
        index: int,
        size: int,
        needs: WeightVector,
        chosen: Mask,
        full: int,
        cost: int,
        prices: list[int],
    ) -> None:
        """Choose `size` of the lowest `index` nodes on top of `chosen`.

        `full` marks the kinds of which a node was taken: all lower ones of the kind follow it.
        `cost` is the spread so far, and `prices` what each node would add to it.
        """
        if not size:
            if (
                (self.found is None or cost < self.cost)
                and all([need <= 0 for need in needs])
                and (self.accept is None or self.accept(chosen))
            ):
                self.found, self.cost = chosen, cost
            return
        if index < size:
            return
        for sums, need in zip(self.best_sums[index], needs, strict=True):
            if sums[size] < need:
                return
        if self.effort.runs_out() or self._is_futile(index, size, cost, prices):
            return
        index -= 1
        kind = self.kinds[index]
        if not full >> kind & 1:
            self.descend(index, size, needs, chosen, full, cost, prices)
            if self.found is not None and not prices:
                return
        node, weight = self.pool.nodes[index], self.pool.weights[index]
        left = tuple([need - own for need, own in zip(needs, weight, strict=True)])
        if prices:
            cost += prices[index]
            prices = [
                price + more for price, more in zip(prices[:index], self.apart[index], strict=False)
            ]
        self.descend(index, size - 1, left, chosen | 1 << node, full | 1 << kind, cost, prices)

    def _is_futile(self, index: int, size: int, cost: int, prices: list[int]) -> bool:
        """Whether no result closer than the best so far is possible."""
        if self.found is None:
            return False
        others = size - 1
        least = sorted([price + self.nearest[i][others] for i, price in enumerate(prices[:index])])
        return cost + sum(least[:size]) >= self.cost


_MOST_STEPS: Final = 1 << 16
"""As many as 16 nodes have subsets."""
_MOST_STEPS_IN_ALL: Final = 1 << 17
_FEWEST_STEPS: Final = 1 << 10
_CACHED: Final = 64


@lru_cache(maxsize=_CACHED)
def _best_sums(pool: WeightedNodes) -> tuple[tuple[tuple[int, ...], ...], ...]:
    """For the lowest i nodes, for every weight: the most that 0, 1, 2 … of them weigh together."""
    columns: list[list[int]] = [[] for _ in (pool.weights[0] if pool.weights else ())]
    result: list[tuple[tuple[int, ...], ...]] = [((0,),) * len(columns)]
    for weight in pool.weights:
        for column, own in zip(columns, weight, strict=True):
            insort(column, own)
        result.append(tuple([tuple(accumulate(column[::-1], initial=0)) for column in columns]))
    return tuple(result)


def _kinds(pool: WeightedNodes, distances: NodeDistances | None) -> list[int]:
    """Numbers the nodes so that twins, and only twins, share a number."""
    firsts: list[int] = []
    kinds = []
    for index, node in enumerate(pool.nodes):
        for kind, first in enumerate(firsts):
            if pool.weights[first] == pool.weights[index] and (
                distances is None or _alike(pool.nodes[first], node, distances)
            ):
                kinds.append(kind)
                break
        else:
            kinds.append(len(firsts))
            firsts.append(index)
    return kinds


def _alike(a: int, b: int, distances: NodeDistances) -> bool:
    """Whether swapping the two nodes changes no distance."""
    return (
        distances[a][a] == distances[b][b]
        and distances[a][b] == distances[b][a]
        and all(
            distances[a][other] == distances[b][other]
            and distances[other][a] == distances[other][b]
            for other in distances
            if other not in (a, b)
        )
    )


def _both_ways(a: int, b: int, distances: NodeDistances) -> int:
    return distances[a][b] + distances[b][a]


def _price(node: int, beside: Mask, distances: NodeDistances) -> int:
    """What taking the node adds to the spread of those beside it."""
    return distances[node][node] + sum(
        [_both_ways(node, other, distances) for other in distances if beside >> other & 1]
    )


def _nearest(node: int, pool: WeightedNodes, distances: NodeDistances) -> list[int]:
    """How far the 0, 1, 2 … nearest others are away together."""
    others = sorted([distances[node][other] for other in pool.nodes if other != node])
    return list(accumulate(others, initial=0))
