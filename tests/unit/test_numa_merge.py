"""The Topology Manager settles on the nodes that serve all providers best."""

import pytest

from memqos.numa.hints import Hint, HintProvider, ProviderHints
from memqos.numa.masks import all_masks, lowest_nodes, mask_of, nodes_of
from memqos.numa.topology_manager import (
    InvalidTopology,
    TopologyDecision,
    TopologySettings,
    configure_topology,
    decide_affinity,
)


def topology(policy: str, nodes: int = 4, **options: str) -> TopologySettings:
    named = {name.replace("_", "-"): value for name, value in options.items()}
    distances = [[10 if a == b else 10 + abs(a - b) for b in range(nodes)] for a in range(nodes)]
    found = configure_topology(policy, "container", named, range(nodes), distances)
    assert isinstance(found, TopologySettings)
    return found


def hint(*nodes: int, preferred: bool = True) -> Hint:
    return Hint(mask_of(nodes), preferred)


def decided(
    policy: str, *answers: ProviderHints, nodes: int = 4, **options: str
) -> TopologyDecision:
    providers = [HintProvider(f"p{index}", answer) for index, answer in enumerate(answers)]
    return decide_affinity(topology(policy, nodes, **options), providers)


def test_a_mask_and_its_nodes_are_two_spellings_of_one_set() -> None:
    assert nodes_of(mask_of([5, 0, 33])) == (0, 5, 33)
    assert nodes_of(0) == ()
    assert lowest_nodes(0b110101, 2) == 0b101


def test_masks_come_by_size_and_then_lexicographically() -> None:
    walked = [nodes_of(mask) for mask in all_masks([0, 2, 5])]
    assert walked == [(0,), (2,), (5,), (0, 2), (0, 5), (2, 5), (0, 2, 5)]


def test_providers_that_agree_on_a_node_get_it() -> None:
    found = decided("restricted", {"cpu": (hint(1), hint(2))}, {"memory": (hint(2), hint(3))})
    assert found == TopologyDecision(hint(2), True)


@pytest.mark.parametrize("no_hints", [None, {}, {"cpu": None}])
def test_a_provider_without_hints_does_not_count(no_hints: ProviderHints) -> None:
    assert decided("single-numa-node", no_hints, {"memory": (hint(3),)}).hint == hint(3)


def test_without_any_hints_all_nodes_suffice_and_are_preferred() -> None:
    assert decided("restricted", None) == TopologyDecision(hint(0, 1, 2, 3), True)
    assert decided("single-numa-node", None) == TopologyDecision(Hint(None, True), True)


def test_none_collects_no_hints_and_admits() -> None:
    assert decided("none", {"memory": ()}) == TopologyDecision(Hint(None, False), True)


def test_best_effort_admits_what_restricted_refuses() -> None:
    answers: tuple[ProviderHints, ...] = ({"cpu": (hint(0),)}, {"memory": (hint(1),)})
    assert decided("best-effort", *answers) == TopologyDecision(
        hint(0, 1, 2, 3, preferred=False), True
    )
    assert not decided("restricted", *answers).admit


def test_single_numa_node_needs_one_node_that_all_prefer() -> None:
    wide: ProviderHints = {"memory": (hint(0, 1),)}
    assert decided("restricted", wide).admit
    refused = decided("single-numa-node", wide)
    assert refused.hint == Hint(None, False)
    assert refused.obstruction is not None
    assert refused.obstruction.obstacle == "more_than_one_node"


def test_of_results_that_are_not_preferred_the_size_of_the_most_demanding_list_is_best() -> None:
    found = decided(
        "best-effort",
        {"cpu": (hint(0, preferred=False), hint(0, 1, preferred=False), hint(0, 1, 2))},
        {"gpu": (hint(0, 1, preferred=False), hint(0, 1, 2, 3, preferred=False))},
    )
    assert found.hint == hint(0, 1, preferred=False)


def test_closer_nodes_win_only_where_that_is_configured() -> None:
    answer: ProviderHints = {"memory": (hint(0, 3), hint(2, 3))}
    assert decided("restricted", answer).hint == hint(0, 3)
    assert decided("restricted", answer, prefer_closest_numa_nodes="true").hint == hint(2, 3)
    assert decided("restricted", answer, prefer_closest_numa_nodes="F").hint == hint(0, 3)


@pytest.mark.parametrize(
    ("answers", "obstacle", "blamed"),
    [
        (({"cpu": (hint(0),)}, {"gpu": ()}), "nowhere", ["gpu"]),
        (({"cpu": (hint(0),)}, {"gpu": (hint(0, preferred=False),)}), "not_preferred", ["gpu"]),
        (({"cpu": (hint(0),)}, None, {"gpu": (hint(1),)}), "no_common_nodes", ["cpu", "gpu"]),
    ],
)
def test_a_refusal_names_what_stood_in_the_way(
    answers: tuple[ProviderHints, ...], obstacle: str, blamed: list[str]
) -> None:
    found = decided("restricted", *answers)
    assert not found.admit
    assert found.obstruction is not None
    assert found.obstruction.obstacle == obstacle
    assert [line.resource for line in found.obstruction.lists] == blamed


@pytest.mark.parametrize(
    ("rows", "case"),
    [
        ([[10, 0, 12, 30], [12, 0, 10, 11], [40, 0, 11, 10]], "each row has a place for node 1"),
        ([[10, 12, 30], [12, 10, 11], [40, 11, 10]], "rows have the nodes that there are"),
    ],
)
def test_distances_are_those_of_the_nodes_that_are_left_after_one_was_removed(
    rows: list[list[int]], case: str
) -> None:
    options = {"prefer-closest-numa-nodes": "true"}
    left = configure_topology("best-effort", "container", options, [0, 2, 3], rows)
    assert isinstance(left, TopologySettings), case
    pairs = (hint(0, 2), hint(0, 3), hint(2, 3))
    decision = decide_affinity(left, [HintProvider("p", {"memory": pairs})])
    assert decision.hint == hint(2, 3), case


def test_more_nodes_than_allowed_keep_the_kubelet_from_starting_unless_the_policy_is_none() -> None:
    refused = configure_topology("restricted", "pod", {}, range(34), None)
    assert isinstance(refused, InvalidTopology)
    assert refused.kind == "too_many_numa_nodes"
    assert "34 NUMA nodes" in refused.detail
    assert isinstance(configure_topology("none", "pod", {}, range(34), None), TopologySettings)
    allowed = {"max-allowable-numa-nodes": "34"}
    assert isinstance(
        configure_topology("restricted", "pod", allowed, range(34), None), TopologySettings
    )
