"""The Topology Manager: its settings, and what each policy makes of the providers' hints."""

import re
from collections.abc import Mapping, Sequence
from typing import Final, Literal

import msgspec

from memqos.kube.quantity import MAX_INT64
from memqos.numa.hints import Hint, HintProvider, ResourceHints, list_hints, single_node_hints
from memqos.numa.masks import Mask, mask_of
from memqos.numa.merge import MergeContext, Obstruction, find_obstruction, merge_hints
from memqos.numa.subsets import NodeDistances

TopologyPolicy = Literal["none", "best-effort", "restricted", "single-numa-node"]
TopologyScope = Literal["container", "pod", "none"]
TopologyFault = Literal[
    "unknown_option",
    "bad_bool",
    "bad_int",
    "max_numa_below_default",
    "no_numa_distances",
    "too_many_numa_nodes",
    "unknown_policy",
    "unknown_scope",
]

TOPOLOGY_POLICY_NAMES: Final[tuple[TopologyPolicy, ...]] = (
    "none",
    "best-effort",
    "restricted",
    "single-numa-node",
)
TOPOLOGY_SCOPE_NAMES: Final[tuple[TopologyScope, ...]] = ("container", "pod")
PREFER_CLOSEST_OPTION: Final = "prefer-closest-numa-nodes"
MAX_NODES_OPTION: Final = "max-allowable-numa-nodes"
DEFAULT_MAX_NODES: Final = 8
_INTEGER: Final = re.compile(r"[+-]?[0-9]+", re.ASCII)
_BOOLEANS: Final = {
    **dict.fromkeys(("1", "t", "T", "true", "TRUE", "True"), True),
    **dict.fromkeys(("0", "f", "F", "false", "FALSE", "False"), False),
}


class TopologySettings(msgspec.Struct, frozen=True):
    """A Topology Manager that starts; distances are kept only where closer nodes are better."""

    policy: TopologyPolicy
    scope: TopologyScope
    nodes: Mask = 0
    distances: NodeDistances | None = None


class InvalidTopology(msgspec.Struct, frozen=True):
    """Settings with which the kubelet does not start."""

    kind: TopologyFault
    detail: str


class TopologyDecision(msgspec.Struct, frozen=True):
    """The merged hint, and whether the policy admits it; if not, what stood in the way."""

    hint: Hint
    admit: bool
    obstruction: Obstruction | None = None


def configure_topology(
    policy: str,
    scope: str,
    options: Mapping[str, str],
    nodes: Sequence[int],
    distances: Sequence[Sequence[int]] | None,
) -> TopologySettings | InvalidTopology:
    """A Topology Manager of these settings on a machine; distances are rows in the nodes' order."""
    if policy == "none":
        return TopologySettings("none", "none")
    for name, value in sorted(options.items()):
        fault = _option_fault(name, value)
        if fault is not None:
            return fault
    prefer_closest = _BOOLEANS[options.get(PREFER_CLOSEST_OPTION, "false")]
    most = int(options.get(MAX_NODES_OPTION, DEFAULT_MAX_NODES))
    if prefer_closest and distances is None:
        return InvalidTopology(
            "no_numa_distances", f"{PREFER_CLOSEST_OPTION} needs the nodes' distances"
        )
    if len(nodes) > most:
        return InvalidTopology(
            "too_many_numa_nodes",
            f"the machine has {len(nodes)} NUMA nodes, {MAX_NODES_OPTION} allows {most}",
        )
    if policy not in TOPOLOGY_POLICY_NAMES:
        return InvalidTopology("unknown_policy", f"there is no policy {policy!r}")
    if scope not in TOPOLOGY_SCOPE_NAMES:
        return InvalidTopology("unknown_scope", f"there is no scope {scope!r}")
    return TopologySettings(
        policy, scope, mask_of(nodes), _by_node(nodes, distances) if prefer_closest else None
    )


def decide_affinity(
    topology: TopologySettings, providers: Sequence[HintProvider]
) -> TopologyDecision:
    """Merge what the providers answered and say whether the policy admits the result."""
    return _DECIDE[topology.policy](topology, providers)


def _admit_anything(
    _topology: TopologySettings, _providers: Sequence[HintProvider]
) -> TopologyDecision:
    return TopologyDecision(Hint(None, False), True)


def _admit_best(topology: TopologySettings, providers: Sequence[HintProvider]) -> TopologyDecision:
    hint = merge_hints(list_hints(providers), MergeContext(topology.nodes, topology.distances))
    return TopologyDecision(hint, True)


def _admit_preferred(
    topology: TopologySettings, providers: Sequence[HintProvider]
) -> TopologyDecision:
    lists = list_hints(providers)
    return _if_preferred(
        merge_hints(lists, MergeContext(topology.nodes, topology.distances)), lists, lists
    )


def _admit_one_node(
    topology: TopologySettings, providers: Sequence[HintProvider]
) -> TopologyDecision:
    lists = list_hints(providers)
    usable = [
        ResourceHints(line.provider, line.resource, single_node_hints(line.hints)) for line in lists
    ]
    hint = merge_hints(usable, MergeContext(topology.nodes))
    if hint.mask == topology.nodes:
        hint = Hint(None, hint.preferred)
    return _if_preferred(hint, lists, usable)


def _if_preferred(
    hint: Hint, lists: Sequence[ResourceHints], usable: Sequence[ResourceHints]
) -> TopologyDecision:
    if hint.preferred:
        return TopologyDecision(hint, True)
    return TopologyDecision(hint, False, find_obstruction(lists, usable))


_DECIDE: Final = {
    "none": _admit_anything,
    "best-effort": _admit_best,
    "restricted": _admit_preferred,
    "single-numa-node": _admit_one_node,
}


def _option_fault(name: str, value: str) -> InvalidTopology | None:
    if name == PREFER_CLOSEST_OPTION:
        if value not in _BOOLEANS:
            return InvalidTopology("bad_bool", f"{name}={value!r} is neither true nor false")
    elif name == MAX_NODES_OPTION:
        if not _INTEGER.fullmatch(value) or abs(int(value)) > MAX_INT64:
            return InvalidTopology("bad_int", f"{name}={value!r} is not a whole number")
        if int(value) < DEFAULT_MAX_NODES:
            return InvalidTopology(
                "max_numa_below_default", f"{name}={value} is less than {DEFAULT_MAX_NODES}"
            )
    else:
        return InvalidTopology("unknown_option", f"there is no option {name!r}")
    return None


def _by_node(
    nodes: Sequence[int], distances: Sequence[Sequence[int]] | None
) -> NodeDistances | None:
    if distances is None:
        return None
    return {
        node: dict(zip(nodes, row, strict=True)) for node, row in zip(nodes, distances, strict=True)
    }
