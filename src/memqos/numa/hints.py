"""Hints: which NUMA nodes could provide a resource, as the Topology Manager is told."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

import msgspec

from memqos.numa.masks import Mask
from memqos.numa.offers import Offer


class Hint(msgspec.Struct, frozen=True):
    """Nodes that would do, None standing for any, and whether there are no better ones."""

    mask: Mask | None
    preferred: bool


Hints = tuple[Hint, ...]
Answer = Mapping[str, Hints | Offer | None] | None
"""A provider's answer: resource → hints. No answer, no resource, or None: any node will do."""

ANY: Final = Hint(None, True)
NOWHERE: Final = Hint(None, False)


class Provider(msgspec.Struct, frozen=True):
    """A resource manager of the kubelet and what it answered."""

    name: str
    answer: Answer


class Listed(msgspec.Struct, frozen=True):
    """What one provider said about one resource; `resource` is None if it said nothing at all."""

    provider: str
    resource: str | None
    hints: Hints | Offer


def listed(providers: Sequence[Provider]) -> tuple[Listed, ...]:
    """All lists the merge has to satisfy at once."""
    lists = []
    for provider in providers:
        if not provider.answer:
            lists.append(Listed(provider.name, None, (ANY,)))
            continue
        lists += [
            Listed(provider.name, resource, _spelled_out(hints))
            for resource, hints in provider.answer.items()
        ]
    return tuple(lists)


def hints_of(offer: Offer) -> Iterator[Hint]:
    """The hints of an offer one by one, in the kubelet's order: 2ⁿ of them on a large machine."""
    for mask in offer:
        yield Hint(mask, offer.prefers(mask))


def one_node_only(hints: Hints | Offer) -> Hints:
    """What single-numa-node leaves of a list: preferred hints of any node or of one."""
    if isinstance(hints, Offer):
        return tuple(
            [Hint(m, True) for m in hints.explicit if m.bit_count() == 1 and hints.prefers(m)]
        )
    return tuple(
        [
            hint
            for hint in hints
            if hint.preferred and (hint.mask is None or hint.mask.bit_count() == 1)
        ]
    )


def _spelled_out(hints: Hints | Offer | None) -> Hints | Offer:
    if hints is None:
        return (ANY,)
    return (NOWHERE,) if hints == () else hints
