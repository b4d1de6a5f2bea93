"""The Topology Manager: its settings, and what each policy makes of the providers' hints."""

import re
from collections.abc import Mapping, Sequence
from typing import Final, Literal

import msgspec

from memqos.kube.quantity import MAX_INT64
from memqos.numa.hints import Hint, Listed, Provider, listed, one_node_only
from memqos.numa.masks import Mask, mask_of
from memqos.numa.merge import Layout, Obstruction, merged, obstruction
from memqos.numa.subsets import Distances

PolicyName = Literal["none", "best-effort", "restricted", "single-numa-node"]
ScopeName = Literal["container", "pod", "none"]
Misconfiguration = Literal[
    "unknown_option",
    "bad_bool",
    "bad_int",
    "max_numa_below_default",
    "no_numa_distances",
    "too_many_numa_nodes",
    "unknown_policy",
    "unknown_scope",
]

POLICIES: Final[tuple[PolicyName, ...]] = ("none", "best-effort", "restricted", "single-numa-node")
SCOPES: Final[tuple[ScopeName, ...]] = ("container", "pod")
PREFER_CLOSEST: Final = "prefer-closest-numa-nodes"
MAX_NODES: Final = "max-allowable-numa-nodes"
DEFAULT_MAX_NODES: Final = 8
_INTEGER: Final = re.compile(r"[+-]?[0-9]+", re.ASCII)
_BOOLEANS: Final = {
    **dict.fromkeys(("1", "t", "T", "true", "TRUE", "True"), True),
    **dict.fromkeys(("0", "f", "F", "false", "FALSE", "False"), False),
}


class Topology(msgspec.Struct, frozen=True):
    """A Topology Manager that starts; distances are kept only where closer nodes are better."""

    policy: PolicyName
    scope: ScopeName
    nodes: Mask = 0
    distances: Distances | None = None


class Misconfigured(msgspec.Struct, frozen=True):
    """Settings with which the kubelet does not start."""

    kind: Misconfiguration
    detail: str


class Decision(msgspec.Struct, frozen=True):
    """The merged hint, and whether the policy admits it; if not, what stood in the way."""

    hint: Hint
    admit: bool
    obstruction: Obstruction | None = None


def configure(
    policy: str,
    scope: str,
    options: Mapping[str, str],
    nodes: Sequence[int],
    distances: Sequence[Sequence[int]] | None,
) -> Topology | Misconfigured:
    """A Topology Manager of these settings on a machine; distances are rows in the nodes' order."""
    if policy == "none":
        return Topology("none", "none")
    for name, value in sorted(options.items()):
        fault = _option_fault(name, value)
        if fault is not None:
            return fault
    prefer_closest = _BOOLEANS[options.get(PREFER_CLOSEST, "false")]
    most = int(options.get(MAX_NODES, DEFAULT_MAX_NODES))
    if prefer_closest and distances is None:
        return Misconfigured("no_numa_distances", f"{PREFER_CLOSEST} needs the nodes' distances")
    if len(nodes) > most:
        return Misconfigured(
            "too_many_numa_nodes",
            f"the machine has {len(nodes)} NUMA nodes, {MAX_NODES} allows {most}",
        )
    if policy not in POLICIES:
        return Misconfigured("unknown_policy", f"there is no policy {policy!r}")
    if scope not in SCOPES:
        return Misconfigured("unknown_scope", f"there is no scope {scope!r}")
    return Topology(
        policy, scope, mask_of(nodes), _by_node(nodes, distances) if prefer_closest else None
    )


def decide(topology: Topology, providers: Sequence[Provider]) -> Decision:
    """Merge what the providers answered and say whether the policy admits the result."""
    return _DECIDE[topology.policy](topology, providers)


def _admit_anything(_topology: Topology, _providers: Sequence[Provider]) -> Decision:
    return Decision(Hint(None, False), True)


def _admit_best(topology: Topology, providers: Sequence[Provider]) -> Decision:
    hint = merged(listed(providers), Layout(topology.nodes, topology.distances))
    return Decision(hint, True)


def _admit_preferred(topology: Topology, providers: Sequence[Provider]) -> Decision:
    lists = listed(providers)
    return _if_preferred(merged(lists, Layout(topology.nodes, topology.distances)), lists, lists)


def _admit_one_node(topology: Topology, providers: Sequence[Provider]) -> Decision:
    lists = listed(providers)
    usable = [Listed(line.provider, line.resource, one_node_only(line.hints)) for line in lists]
    hint = merged(usable, Layout(topology.nodes))
    if hint.mask == topology.nodes:
        hint = Hint(None, hint.preferred)
    return _if_preferred(hint, lists, usable)


def _if_preferred(hint: Hint, lists: Sequence[Listed], usable: Sequence[Listed]) -> Decision:
    if hint.preferred:
        return Decision(hint, True)
    return Decision(hint, False, obstruction(lists, usable))


_DECIDE: Final = {
    "none": _admit_anything,
    "best-effort": _admit_best,
    "restricted": _admit_preferred,
    "single-numa-node": _admit_one_node,
}


def _option_fault(name: str, value: str) -> Misconfigured | None:
    if name == PREFER_CLOSEST:
        if value not in _BOOLEANS:
            return Misconfigured("bad_bool", f"{name}={value!r} is neither true nor false")
    elif name == MAX_NODES:
        if not _INTEGER.fullmatch(value) or abs(int(value)) > MAX_INT64:
            return Misconfigured("bad_int", f"{name}={value!r} is not a whole number")
        if int(value) < DEFAULT_MAX_NODES:
            return Misconfigured(
                "max_numa_below_default", f"{name}={value} is less than {DEFAULT_MAX_NODES}"
            )
    else:
        return Misconfigured("unknown_option", f"there is no option {name!r}")
    return None


def _by_node(nodes: Sequence[int], distances: Sequence[Sequence[int]] | None) -> Distances | None:
    if distances is None:
        return None
    return {
        node: dict(zip(nodes, row, strict=True)) for node, row in zip(nodes, distances, strict=True)
    }
