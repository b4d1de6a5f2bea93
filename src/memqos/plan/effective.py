"""Effective protection: how much of memory.min and memory.low the kernel will really honour.

A claim protects nothing by itself. When memory is reclaimed from the outside, the kernel walks
from the reclaim target down, and each cgroup distributes its effective protection to its children:

- A cgroup is protected for no more than it uses: the smaller of its claim and its usage counts.
- Where these exceed the protection of the parent, each child gets its part in proportion.
- Where they do not, each child gets all of it. The rest is lost, unless the hierarchy is mounted
  with memory_recursiveprot: then it is spread over the usage that no child claimed, whether those
  cgroups claim protection or not.

The target's own protection is ignored, so the claims of its children are effective as written,
even beyond their usage. When a whole node runs short the target is the root cgroup "/". A pod at
its memory.max or memory.high is itself the target: its claims do not shield it from its own limit.

The kernel counts in pages and divides towards zero (mm/memcontrol.c, mm/page_counter.c in newer
releases), and so does this. Two quirks are not modelled: products that overflow 64 bits below a
parent that claims "max", and the stale numbers of a cgroup that uses nothing.
"""

from collections.abc import Iterator, Mapping
from typing import Literal, NamedTuple

from msgspec import Struct

from memqos.errors import InputError

ClaimAmount = int | Literal["max"]
Knob = Literal["min", "low"]

_KNOBS: tuple[Knob, ...] = ("min", "low")
_MAX_BYTES = 2**63 - 1


class Claim(Struct, frozen=True):
    """What a cgroup has in memory.min and memory.low, and its memory.current, in bytes."""

    min: ClaimAmount
    low: ClaimAmount
    usage: int


class ClaimShare(Struct, frozen=True):
    """What becomes of one claim, in bytes.

    `effective` is the kernel's own number and may exceed the usage. `lost` and `unclaimed` count
    memory in use: claimed but not protected, and protected but not claimed.
    """

    effective: int
    lost: int
    taken_by: str | None
    unclaimed: int


class Protection(Struct, frozen=True):
    """What one cgroup really has: hard protection and best-effort protection."""

    min: ClaimShare
    low: ClaimShare


class _Pages(NamedTuple):
    claim: int
    usage: int

    @property
    def protected(self) -> int:
        return min(self.claim, self.usage)


def effective(
    claims: Mapping[str, Claim], *, recursive: bool, page_size: int, target: str = "/"
) -> dict[str, Protection]:
    """The protection of every cgroup below `target`, by path, when `target` is reclaimed.

    `claims` maps a cgroup's path to its claim. Cgroups outside the target, and the target itself,
    may be missing and have no effect; every cgroup in between must be given. `recursive`: whether
    the hierarchy is mounted with memory_recursiveprot. Children are expected to use no more than
    their parent, which counts their usage as its own.
    """
    families = list(_families(claims, target))
    min_shares, low_shares = (
        _shares(
            families,
            _in_pages(claims, knob, page_size),
            recursive=recursive,
            page_size=page_size,
        )
        for knob in _KNOBS
    )
    return {path: Protection(share, low_shares[path]) for path, share in min_shares.items()}


def because(
    path: str,
    knob: Knob,
    claims: Mapping[str, Claim],
    protections: Mapping[str, Protection],
) -> str:
    """Why the cgroup at `path` has the protection that `effective` found, in one sentence."""
    share = _share(protections[path], knob)
    claim = _claim(claims[path], knob)
    parent = _parent(path)
    if share.taken_by is not None:
        return _because_taken(share, share.taken_by, knob, claims, protections)
    if share.unclaimed:
        return (
            f"{parent} has more memory.{knob} than its children, and memory_recursiveprot "
            f"distributes the rest by usage: {share.unclaimed} bytes are protected here without "
            f"a memory.{knob} of its own"
        )
    if claim == 0:
        return f"{path} claims no memory.{knob}"
    if parent not in protections:
        return (
            f"{path} is directly below the reclaim target, so its memory.{knob} of "
            f"{_describe(claim)} is effective in full"
        )
    return f"every ancestor of {path} has enough for its memory.{knob} of {_describe(claim)}"


def _because_taken(
    share: ClaimShare,
    taker: str,
    knob: Knob,
    claims: Mapping[str, Claim],
    protections: Mapping[str, Protection],
) -> str:
    claim = _claim(claims[taker], knob)
    if claim == 0 and _share(protections[taker], knob).effective == 0:
        return f"{taker} claims no memory.{knob}, so nothing below it is protected"
    return (
        f"{taker} claims {_describe(claim)} of memory.{knob}, less than its children together, "
        f"so {share.lost} bytes of this protection are lost"
    )


def _families(claims: Mapping[str, Claim], target: str) -> Iterator[tuple[str | None, list[str]]]:
    """Parents with their children, from the target down; None is the target itself."""
    children: dict[str, list[str]] = {}
    for path in claims:
        if path != "/":
            children.setdefault(_parent(path), []).append(path)
    reached = children.pop(target, [])
    yield None, reached
    while reached:
        below: list[str] = []
        for path in reached:
            if family := children.pop(path, None):
                yield path, family
                below += family
        reached = below
    within = target.rstrip("/") + "/"
    for parent in children:
        if parent.startswith(within):
            raise InputError(
                f"cgroup {children[parent][0]} is given without its parent {parent}",
                hint="give every cgroup between it and the reclaim target",
            )


def _shares(
    families: list[tuple[str | None, list[str]]],
    pages: Mapping[str, _Pages],
    *,
    recursive: bool,
    page_size: int,
) -> dict[str, ClaimShare]:
    effective_pages: dict[str, int] = {}
    shares: dict[str, ClaimShare] = {}
    for parent, children in families:
        siblings_protected = sum(pages[child].protected for child in children)
        taker = None
        if parent is not None and siblings_protected > effective_pages[parent]:
            taker = _taker(
                parent, siblings_protected - pages[parent].protected, shares[parent], page_size
            )
        for child in children:
            own = pages[child]
            if parent is None:
                effective_pages[child] = own.claim
            else:
                effective_pages[child] = _inherited_pages(
                    own,
                    siblings_protected,
                    effective_pages[parent],
                    pages[parent].usage,
                    recursive=recursive,
                )
            lost = max(0, own.protected - effective_pages[child])
            shares[child] = ClaimShare(
                effective=effective_pages[child] * page_size,
                lost=lost * page_size,
                taken_by=taker if lost else None,
                unclaimed=max(0, min(effective_pages[child], own.usage) - own.protected)
                * page_size,
            )
    return shares


def _inherited_pages(
    own: _Pages,
    siblings_protected: int,
    parent_effective: int,
    parent_usage: int,
    *,
    recursive: bool,
) -> int:
    """The pages a cgroup gets of its parent's; `siblings_protected` includes the cgroup itself."""
    # effective_protection(): mm/page_counter.c since 6.12, mm/memcontrol.c before.
    if siblings_protected > parent_effective:
        return own.protected * parent_effective // siblings_protected
    left_over = parent_effective - siblings_protected
    unclaimed_usage = parent_usage - siblings_protected
    if not recursive or unclaimed_usage <= 0:
        return own.protected
    return own.protected + left_over * (own.usage - own.protected) // unclaimed_usage


def _taker(parent: str, short_itself: int, parent_share: ClaimShare, page_size: int) -> str | None:
    """The ancestor that most of the loss is due to: the parent, or the one that limits it."""
    short_above = parent_share.lost // page_size
    return parent if short_itself >= short_above else parent_share.taken_by


def _in_pages(claims: Mapping[str, Claim], knob: Knob, page_size: int) -> dict[str, _Pages]:
    return {
        path: _Pages(_bytes(_claim(claim, knob)) // page_size, claim.usage // page_size)
        for path, claim in claims.items()
    }


def _claim(claim: Claim, knob: Knob) -> ClaimAmount:
    return claim.min if knob == "min" else claim.low


def _share(protection: Protection, knob: Knob) -> ClaimShare:
    return protection.min if knob == "min" else protection.low


def _bytes(amount: ClaimAmount) -> int:
    return _MAX_BYTES if amount == "max" else min(amount, _MAX_BYTES)


def _describe(amount: ClaimAmount) -> str:
    return "all its memory" if amount == "max" else f"{amount} bytes"


def _parent(path: str) -> str:
    return path.rpartition("/")[0] or "/"
