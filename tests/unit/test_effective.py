"""What the kernel honours of memory.min and memory.low, computed by hand.

Pages of one byte keep the numbers small, except where rounding itself is the subject.
"""

import pytest

from memqos.errors import InputError
from memqos.plan.effective import Claim, ClaimAmount, ClaimShare, Protection, because, effective

NOTHING_CLAIMED = ClaimShare(effective=0, lost=0, taken_by=None, unclaimed=0)


def hard(minimum: ClaimAmount, usage: int) -> Claim:
    return Claim(min=minimum, low=0, usage=usage)


def protect(
    claims: dict[str, Claim], *, recursive: bool = False, page_size: int = 1, target: str = "/"
) -> dict[str, Protection]:
    return effective(claims, recursive=recursive, page_size=page_size, target=target)


# TieredReservation: kubepods has Guaranteed + Burstable requests as memory.min and the Burstable
# ones as memory.low, which the burstable cgroup and its pods claim again.
TIERED = {
    "/kubepods": Claim(min=100, low=60, usage=120),
    "/kubepods/podg": Claim(min=40, low=0, usage=40),
    "/kubepods/burstable": Claim(min=0, low=60, usage=60),
    "/kubepods/burstable/poda": Claim(min=0, low=40, usage=40),
    "/kubepods/burstable/podb": Claim(min=0, low=20, usage=20),
    "/kubepods/besteffort": Claim(min=0, low=0, usage=20),
    "/kubepods/besteffort/podc": Claim(min=0, low=0, usage=20),
}


def test_with_recursive_protection_tiered_gives_hard_protection_to_pods_that_claim_none() -> None:
    protection = protect(TIERED, recursive=True)
    # 100 effective, 40 claimed: 60 are spread over the 80 that no pod claims.
    assert {path: found.min.effective for path, found in protection.items()} == {
        "/kubepods": 100,
        "/kubepods/podg": 40,
        "/kubepods/burstable": 45,
        "/kubepods/burstable/poda": 30,
        "/kubepods/burstable/podb": 15,
        "/kubepods/besteffort": 15,
        "/kubepods/besteffort/podc": 15,
    }
    assert protection["/kubepods/burstable/poda"].min.unclaimed == 30
    assert protection["/kubepods/besteffort/podc"].min.unclaimed == 15
    assert protection["/kubepods/podg"].min.unclaimed == 0


def test_without_recursive_protection_tiered_protects_only_claims() -> None:
    protection = protect(TIERED)
    hard_protected = {path for path, found in protection.items() if found.min.effective}
    assert hard_protected == {"/kubepods", "/kubepods/podg"}
    assert all(found.min.unclaimed == 0 for found in protection.values())


@pytest.mark.parametrize("recursive", [False, True])
def test_tiered_honours_the_low_of_burstable_pods_in_full(recursive: bool) -> None:
    protection = protect(TIERED, recursive=recursive)
    assert protection["/kubepods/burstable/poda"].low == ClaimShare(40, 0, None, 0)
    assert protection["/kubepods/burstable/podb"].low == ClaimShare(20, 0, None, 0)
    assert protection["/kubepods/besteffort/podc"].low == NOTHING_CLAIMED


def test_children_of_the_reclaim_target_hold_their_claims_beyond_their_usage() -> None:
    assert protect({"/a": hard(100, 30)})["/a"].min == ClaimShare(100, 0, None, 0)


def test_below_that_only_the_claim_on_memory_in_use_counts_and_nothing_is_lost() -> None:
    protection = protect({"/a": hard(100, 30), "/a/b": hard(100, 30)})
    assert protection["/a/b"].min == ClaimShare(30, 0, None, 0)


def test_siblings_that_ask_for_more_than_their_parent_holds_share_in_proportion() -> None:
    protection = protect({"/a": hard(100, 200), "/a/b": hard(150, 150), "/a/c": hard(50, 50)})
    assert protection["/a/b"].min == ClaimShare(75, 75, "/a", 0)
    assert protection["/a/c"].min == ClaimShare(25, 25, "/a", 0)


def test_shares_are_rounded_down_so_that_children_never_get_more_than_their_parent_has() -> None:
    claims = {"/a": hard(10, 21), **{f"/a/{name}": hard(7, 7) for name in "bcd"}}
    protection = protect(claims)
    assert [protection[f"/a/{name}"].min.effective for name in "bcd"] == [3, 3, 3]


def test_an_ancestor_without_a_claim_takes_everything_below_it() -> None:
    protection = protect(
        {
            "/kubepods": hard(100, 80),
            "/kubepods/burstable": hard(0, 80),
            "/kubepods/burstable/poda": hard(50, 80),
            "/kubepods/burstable/poda/c": hard(50, 80),
        }
    )
    assert protection["/kubepods/burstable"].min == NOTHING_CLAIMED
    assert protection["/kubepods/burstable/poda"].min == ClaimShare(0, 50, "/kubepods/burstable", 0)
    assert protection["/kubepods/burstable/poda/c"].min == ClaimShare(
        0, 50, "/kubepods/burstable", 0
    )


def test_a_loss_is_laid_to_the_ancestor_that_causes_most_of_it() -> None:
    def taker(top: int, middle: int) -> str | None:
        claims = {"/a": hard(top, 100), "/a/b": hard(middle, 100), "/a/b/c": hard(100, 100)}
        return protect(claims)["/a/b/c"].min.taken_by

    assert taker(10, 100) == "/a"
    assert taker(10, 90) == "/a"
    assert taker(100, 10) == "/a/b"
    assert taker(9, 10) == "/a/b"
    assert taker(0, 50) == "/a/b"
    assert taker(100, 100) is None


def test_unclaimed_protection_can_still_be_too_little_for_the_claims_below() -> None:
    protection = protect(
        {"/a": hard(40, 100), "/a/b": hard(0, 50), "/a/b/c": hard(50, 50), "/a/d": hard(0, 50)},
        recursive=True,
    )
    assert protection["/a/b"].min == ClaimShare(20, 0, None, 20)
    assert protection["/a/b/c"].min == ClaimShare(20, 30, "/a/b", 0)


def test_a_surplus_beyond_all_usage_protects_no_more_than_is_used() -> None:
    protection = protect({"/a": hard(1000, 100), "/a/b": hard(0, 100)}, recursive=True)
    assert protection["/a/b"].min == ClaimShare(
        effective=1000, lost=0, taken_by=None, unclaimed=100
    )


def test_memory_the_parent_uses_itself_keeps_its_part_of_the_surplus() -> None:
    protection = protect({"/a": hard(100, 100), "/a/b": hard(20, 60)}, recursive=True)
    # 80 left over for 80 unclaimed bytes, 40 of them in /a/b.
    assert protection["/a/b"].min == ClaimShare(60, 0, None, 40)


def test_values_count_in_whole_pages() -> None:
    protection = protect({"/a": hard(447_138_944, 8192), "/a/b": hard(8191, 8192)}, page_size=4096)
    assert protection["/a"].min.effective == 447_135_744
    assert protection["/a/b"].min == ClaimShare(4096, 0, None, 0)


def test_max_claims_everything() -> None:
    protection = protect(
        {"/a": hard("max", 8192), "/a/b": hard("max", 8192), "/a/b/c": hard(4096, 8192)},
        page_size=4096,
    )
    assert protection["/a"].min.effective == 2**63 - 4096
    assert protection["/a/b"].min == ClaimShare(8192, 0, None, 0)
    assert protection["/a/b/c"].min == ClaimShare(4096, 0, None, 0)


def test_the_claim_of_the_reclaim_target_is_ignored_and_its_childrens_is_not() -> None:
    claims = {"/a": hard(0, 50), "/a/b": hard(0, 50), "/a/b/c": hard(50, 50), "/d": hard(9, 9)}
    assert protect(claims)["/a/b/c"].min.effective == 0
    assert protect(claims, target="/a/b") == {
        "/a/b/c": Protection(min=ClaimShare(50, 0, None, 0), low=NOTHING_CLAIMED)
    }


def test_the_root_cgroup_may_be_given_and_plays_no_part() -> None:
    assert protect({"/": hard(0, 50), "/a": hard(5, 50)}) == protect({"/a": hard(5, 50)})


def test_a_cgroup_without_its_parent_is_refused() -> None:
    with pytest.raises(InputError, match="/a/b/c is given without its parent /a/b") as refused:
        protect({"/a": hard(1, 1), "/a/b/c": hard(1, 1)})
    assert refused.value.hint


@pytest.mark.parametrize(
    ("path", "recursive", "reason"),
    [
        (
            "/k",
            False,
            "/k is directly below the reclaim target, so its memory.min of 100 bytes is "
            "effective in full",
        ),
        ("/k/g", False, "every ancestor of /k/g has enough for its memory.min of 40 bytes"),
        ("/k/b", False, "/k/b claims no memory.min"),
        ("/k/b/p", False, "/k/b claims no memory.min, so nothing below it is protected"),
        ("/k/b", True, "/k has more memory.min than its children, and memory_recursiveprot "
        "distributes the rest "
                       "by usage: 60 bytes are protected here without a memory.min of its own"),
        ("/k/b/p", True, "/k/b claims 0 bytes of memory.min, less than its children together, so "
                         "20 bytes of this protection are lost"),
    ],
)  # fmt: skip
def test_every_protection_has_a_reason(path: str, recursive: bool, reason: str) -> None:
    claims = {"/k": hard(100, 120), "/k/g": hard(40, 40), "/k/b": hard(0, 80),
              "/k/b/p": hard(80, 80)}  # fmt: skip
    assert because(path, "min", claims, protect(claims, recursive=recursive)) == reason


def test_a_reason_is_about_the_file_in_question() -> None:
    claims = {"/a": Claim(min=0, low="max", usage=10)}
    protection = protect(claims)
    assert because("/a", "min", claims, protection) == "/a claims no memory.min"
    assert "its memory.low of all its memory is effective" in because(
        "/a", "low", claims, protection
    )
