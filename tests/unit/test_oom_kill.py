"""Which processes the kernel kills when the whole machine is out of memory."""

import pytest

from memqos.kernel.process import Process
from memqos.plan.oom_kill import Candidate, KillOrder, kill_order

PAGE = 4096
GI = 1 << 30
MI = 1 << 20


def process(comm: str, rss: int = 0, adj: int = 0, **more: object) -> Process:
    return Process(comm=comm, oom_score_adj=adj, rss=rss, **more)  # type: ignore[arg-type]


def order(*processes: Process, total: int = 16 * GI) -> KillOrder:
    return kill_order(processes, total, PAGE)


def names(found: KillOrder) -> list[str]:
    return [kill.victim.process.comm for kill in found.kills]


def test_the_one_that_holds_most_dies_first() -> None:
    assert names(order(process("a", 1 * GI), process("b", 2 * GI))) == ["b", "a"]


def test_swap_and_page_tables_count_like_memory() -> None:
    plain = process("plain", 512 * MI)
    swapped = process("swapped", 300 * MI, swap=300 * MI)
    mapped = process("mapped", 500 * MI, page_tables=20 * MI)
    assert names(order(plain, swapped, mapped)) == ["swapped", "mapped", "plain"]


def test_a_point_of_oom_score_adj_is_a_thousandth_of_ram_and_swap() -> None:
    heavy, light = process("heavy", 1601 * MI), process("light", adj=100)
    assert names(order(heavy, light, total=16_000 * MI)) == ["heavy", "light"]
    heavy = process("heavy", 1599 * MI)
    assert names(order(heavy, light, total=16_000 * MI)) == ["light", "heavy"]


def test_a_besteffort_process_dies_before_the_largest_guaranteed_one() -> None:
    assert names(order(process("db", 15 * GI, -997), process("idle", 0, 1000)))[0] == "idle"


def test_a_thousandth_is_a_whole_number_of_pages() -> None:
    (kill,) = order(process("a", adj=-500), total=1999 * PAGE).kills
    assert kill.victim.adjustment == -500


def test_negative_scores_are_distinguished() -> None:
    found = order(process("small", 1 * MI, -900), process("large", 2 * MI, -900))
    assert names(found) == ["large", "small"]


def test_of_equals_the_one_started_last_dies_first() -> None:
    assert names(order(process("old", MI), process("new", MI))) == ["new", "old"]


@pytest.mark.parametrize(
    ("spared", "why"),
    [
        (process("init", GI, pid=1), "init"),
        (process("kswapd0", kernel_thread=True), "kernel thread"),
        (process("kubelet", GI, -1000), "oom_score_adj -1000"),
    ],
)
def test_some_are_never_killed(spared: Process, why: str) -> None:
    found = order(spared, process("a"))
    assert names(found) == ["a"]
    assert found.spared == ((spared, why),)


def test_a_cgroup_with_oom_group_dies_as_a_whole() -> None:
    found = order(
        process("main", 2 * GI, oom_group="/pod"),
        process("other", 1 * GI),
        process("helper", 1 * MI, oom_group="/pod"),
        process("sparing", 1 * GI, -1000, oom_group="/pod"),
    )
    assert names(found) == ["main", "other"]
    assert [each.process.comm for each in found.kills[0].along] == ["helper"]


@pytest.mark.parametrize(
    ("points", "score"),
    # What /proc/PID/oom_score shows at 0, at all of memory, above it, and below nothing.
    [(0, 666), (1_000_000, 1333), (2_000_000, 2000), (-500_000, 333), (-1_000_000, 0), (1, 666)],
)
def test_the_score_is_that_of_proc(points: int, score: int) -> None:
    assert Candidate(process("a"), points, 0, 1_000_000).score == score


def test_unmeasured_memory_counts_as_none() -> None:
    assert names(order(Process(comm="unknown", oom_score_adj=500), process("known", 1 * GI))) == [
        "unknown",
        "known",
    ]
