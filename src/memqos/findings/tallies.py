"""What was counted of pods: node by node, namespace by namespace, and by what was found.

Tallies of two parts of a cluster can be added, and come to those of the whole: so it does not
matter who counted which pods.
"""

from typing import Final, Literal

import msgspec

from memqos.findings.census import Place

KEPT: Final = 3
"""How many are named of those that go first."""

Kin = Literal["guaranteed", "burstable", "besteffort"]

First = tuple[int | bool | str, ...]
"""What ranks a pod, and its name last: the smallest goes first."""


class Usage(msgspec.Struct):
    """What pods of one class use on a node, and claim of it, in pages."""

    pages: int = 0
    min_asked: int = 0
    low_asked: int = 0
    min_first: list[First] = []
    """Who would get most of what is left over: (minus the pages not claimed, name)."""
    low_first: list[First] = []


class NodeTally(msgspec.Struct):
    """The pods of one node; amounts in bytes."""

    pods: int = 0
    guaranteed: int = 0
    burstable: int = 0
    besteffort: int = 0
    containers: int = 0
    held: int = 0
    """What the scheduler has charged the node with."""
    guaranteed_request: int = 0
    burstable_request: int = 0
    limit: int = 0
    """Of the pods that have one."""
    unlimited: int = 0
    high: int = 0
    """Containers that would have a memory.high."""
    throttled: int = 0
    """Containers past the memory.high they would have."""
    measured: int = 0
    """Pods whose usage is known."""
    usage: int = 0
    over_request: int = 0
    changed: int = 0
    """Pods with other values than under the terms they are compared with."""
    by_class: dict[Kin, Usage] = {}
    evicted: list[First] = []
    """(not over its request, priority, minus the excess, name)."""
    killed: list[First] = []
    """(minus the points, score, name)."""


class SpaceTally(msgspec.Struct):
    """The pods of one namespace; amounts in bytes."""

    pods: int = 0
    unrequesting: int = 0
    """Pods with a container that requests no memory."""
    unlimited: int = 0
    request: int = 0
    usage: int = 0


class GroupTally(msgspec.Struct):
    """Pods of one workload about which the same was found."""

    pods: int = 0
    amount: int = 0
    """Bytes, over all of them."""
    worst: tuple[int, str] = (-1, "")
    """Bytes, and the name of the pod."""
    says: str = ""
    """What was found, of the worst."""


Group = tuple[str, str, str]
"""Rule, namespace, workload."""


class Tallies(msgspec.Struct):
    """All that was added up."""

    nodes: dict[str, NodeTally] = {}
    spaces: dict[str, SpaceTally] = {}
    groups: dict[Group, GroupTally] = {}
    ended: int = 0
    unreadable: list[tuple[Place, str, str, str | None]] = []
    """Pods with a quantity that cannot be read: place, name, what, field."""
    measured: int = 0
    matched: set[str] = set()
    """Whose usage was asked for and found, by namespace/name."""
    pods: list[tuple[str, bytes]] = []
    """Namespace and name, and the row as JSON; only where asked for."""


def added(one: Tallies, other: Tallies) -> Tallies:
    """Both together; the first is changed."""
    for name, node in other.nodes.items():
        if name in one.nodes:
            _add_fields(one.nodes[name], node)
        else:
            one.nodes[name] = node
    for name, space in other.spaces.items():
        if name in one.spaces:
            _add_fields(one.spaces[name], space)
        else:
            one.spaces[name] = space
    for key, group in other.groups.items():
        known = one.groups.get(key)
        if known is None:
            one.groups[key] = group
            continue
        known.pods += group.pods
        known.amount += group.amount
        if is_worse(group.worst, known.worst):
            known.worst, known.says = group.worst, group.says
    one.ended += other.ended
    one.measured += other.measured
    one.matched |= other.matched
    one.unreadable += other.unreadable
    one.pods += other.pods
    return one


def is_worse(one: tuple[int, str], other: tuple[int, str]) -> bool:
    """Of two that are as bad, the first by name stands for both."""
    return one[0] > other[0] or (one[0] == other[0] and one[1] < other[1])


def keep(first: list[First], entry: First) -> None:
    """Put an entry among those that go first, of which only so many are kept."""
    first.append(entry)
    first.sort()
    del first[KEPT:]


def _add_fields(one: NodeTally | SpaceTally | Usage, other: msgspec.Struct) -> None:
    for field in one.__struct_fields__:
        mine, theirs = getattr(one, field), getattr(other, field)
        if isinstance(mine, dict):
            for key, value in theirs.items():
                if key in mine:
                    _add_fields(mine[key], value)
                else:
                    mine[key] = value
        elif isinstance(mine, list):
            setattr(one, field, sorted(mine + theirs)[:KEPT])
        else:
            setattr(one, field, mine + theirs)
