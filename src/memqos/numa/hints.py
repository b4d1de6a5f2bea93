"""Hints: which NUMA nodes could provide a resource, as the Topology Manager is told."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

import msgspec

from memqos.numa.masks import Mask
from memqos.numa.offers import HintSet


class Hint(msgspec.Struct, frozen=True):
    """Nodes that would do, None standing for any, and whether there are no better ones."""

    mask: Mask | None
    preferred: bool


Hints = tuple[Hint, ...]
ProviderHints = Mapping[str, Hints | HintSet | None] | None
"""A provider's answer: resource → hints. No answer, no resource, or None: any node will do."""

ANY_NODE: Final = Hint(None, True)
NO_NODE: Final = Hint(None, False)


class HintProvider(msgspec.Struct, frozen=True):
    """A resource manager of the kubelet and what it answered."""

    name: str
    hints: ProviderHints


class ResourceHints(msgspec.Struct, frozen=True):
    """What one provider said about one resource; `resource` is None if it said nothing at all."""

    provider: str
    resource: str | None
    hints: Hints | HintSet


def list_hints(providers: Sequence[HintProvider]) -> tuple[ResourceHints, ...]:
    """All lists the merge has to satisfy at once."""
    lists = []
    for provider in providers:
        if not provider.hints:
            lists.append(ResourceHints(provider.name, None, (ANY_NODE,)))
            continue
        lists += [
            ResourceHints(provider.name, resource, _hints_or_default(hints))
            for resource, hints in provider.hints.items()
        ]
    return tuple(lists)


def iterate_hints(offer: HintSet) -> Iterator[Hint]:
    """The hints of an offer one by one, in the kubelet's order: 2ⁿ of them on a large machine."""
    for mask in offer:
        yield Hint(mask, offer.prefers(mask))


def single_node_hints(hints: Hints | HintSet) -> Hints:
    """What single-numa-node leaves of a list: preferred hints of any node or of one."""
    if isinstance(hints, HintSet):
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


def _hints_or_default(hints: Hints | HintSet | None) -> Hints | HintSet:
    if hints is None:
        return (ANY_NODE,)
    return (NO_NODE,) if hints == () else hints
