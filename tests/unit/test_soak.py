"""A short soak, and that it would tell: the long one is `make soak`."""

import os

import pytest
from tests.eventually import PATIENCE
from tests.footprint import SLACK, Footprint, check_flat
from tests.soak import Bounds, Node, run

SHORT = Bounds(rounds=9, fewest=9, seconds=PATIENCE, pods=3, nested=40, many=40)


def test_an_agent_outlives_churn_and_faults_and_needs_no_more_than_before() -> None:
    errors: list[int] = []
    prints = run(SHORT, lambda node: errors.append(node.errors()))
    assert len(prints) == SHORT.rounds
    assert errors[-1] > errors[0] > 0
    check_flat(prints)


def test_a_leak_in_any_part_of_it_is_reported() -> None:
    kept: list[int] = []

    def leak(node: Node) -> None:
        kept.append(os.dup(0))
        # As a part of the agent would that forgets nobody.
        node.agent.core.observed.__dict__.setdefault("all", []).append(bytes(1 << 18))

    try:
        prints = run(SHORT, leak)
    finally:
        for handle in kept:
            os.close(handle)
    with pytest.raises(AssertionError, match="descriptors grew"):
        check_flat([each._replace(memory=0) for each in prints])
    with pytest.raises(AssertionError, match="memory grew"):
        check_flat(prints)


@pytest.mark.parametrize("name", Footprint._fields)
def test_only_what_grows_and_goes_on_growing_is_a_leak(name: str) -> None:
    steady = Footprint(1 << 20, 17, 3, 4)
    step = SLACK + 1 if name == "memory" else 1
    more = steady._replace(**{name: getattr(steady, name) + step})
    check_flat([steady, *[more] * 8])
    check_flat([steady, more] * 6)
    check_flat([*[steady] * 8, more])
    with pytest.raises(AssertionError, match=f"{name} grew"):
        check_flat([*[steady] * 6, *[more] * 3])
