"""What holds for effective protection in every tree."""

from collections import defaultdict
from random import Random

from hypothesis import given
from hypothesis import strategies as st

from memqos.plan.effective import Claim, ClaimAmount, ClaimShare, effective

PAGE = 4096


@st.composite
def trees(draw: st.DrawFn) -> dict[str, Claim]:
    """Trees whose cgroups use at least what their children use, as the kernel counts."""
    amounts: st.SearchStrategy[ClaimAmount] = st.one_of(
        st.just(0), st.integers(0, 60 * PAGE), st.just("max")
    )
    paths: list[str] = []
    for number in range(draw(st.integers(1, 12))):
        parent = draw(st.sampled_from(["", *paths]))
        paths.append(f"{parent}/{number}")
    usage = {path: draw(st.integers(0, 30)) * PAGE for path in paths}
    for path in reversed(paths):
        parent = path.rpartition("/")[0]
        if parent:
            usage[parent] += usage[path]
    return {path: Claim(draw(amounts), draw(amounts), usage[path]) for path in paths}


def parent_of(path: str) -> str:
    return path.rpartition("/")[0]


def shares(tree: dict[str, Claim], *, recursive: bool) -> list[dict[str, ClaimShare]]:
    found = effective(tree, recursive=recursive, page_size=PAGE)
    return [
        {path: protection.min for path, protection in found.items()},
        {path: protection.low for path, protection in found.items()},
    ]


def claimed(tree: dict[str, Claim], path: str, knob: int) -> int:
    claim = (tree[path].min, tree[path].low)[knob]
    return tree[path].usage if claim == "max" else min(claim // PAGE * PAGE, tree[path].usage)


@given(trees(), st.booleans())
def test_siblings_together_never_have_more_than_their_parent(
    tree: dict[str, Claim], recursive: bool
) -> None:
    for by_path in shares(tree, recursive=recursive):
        given_away: dict[str, int] = defaultdict(int)
        for path, share in by_path.items():
            given_away[parent_of(path)] += share.effective
        for parent, total in given_away.items():
            assert parent == "" or total <= by_path[parent].effective


@given(trees())
def test_without_recursive_protection_no_cgroup_gets_more_than_it_claims(
    tree: dict[str, Claim],
) -> None:
    for knob, by_path in enumerate(shares(tree, recursive=False)):
        for path, share in by_path.items():
            assert share.unclaimed == 0
            if parent_of(path):
                assert share.effective <= claimed(tree, path, knob)


@given(trees(), st.booleans())
def test_what_is_in_use_and_claimed_is_either_protected_or_lost(
    tree: dict[str, Claim], recursive: bool
) -> None:
    for knob, by_path in enumerate(shares(tree, recursive=recursive)):
        for path, share in by_path.items():
            protected = min(share.effective, tree[path].usage)
            assert protected == claimed(tree, path, knob) - share.lost + share.unclaimed
            assert not (share.lost and share.unclaimed)


@given(trees(), st.booleans())
def test_every_loss_is_laid_to_an_ancestor_and_nothing_else_is(
    tree: dict[str, Claim], recursive: bool
) -> None:
    for by_path in shares(tree, recursive=recursive):
        for path, share in by_path.items():
            assert (share.taken_by is None) == (share.lost == 0)
            assert share.taken_by is None or path.startswith(f"{share.taken_by}/")


@given(trees())
def test_recursive_protection_takes_nothing_away(tree: dict[str, Claim]) -> None:
    for with_it, without in zip(
        shares(tree, recursive=True), shares(tree, recursive=False), strict=True
    ):
        assert all(with_it[path].effective >= without[path].effective for path in without)


@given(trees(), st.booleans())
def test_without_claims_nothing_is_protected(tree: dict[str, Claim], recursive: bool) -> None:
    bare = {path: Claim(0, 0, claim.usage) for path, claim in tree.items()}
    nothing = ClaimShare(effective=0, lost=0, taken_by=None, unclaimed=0)
    for by_path in shares(bare, recursive=recursive):
        assert all(share == nothing for share in by_path.values())


@given(trees(), st.booleans(), st.randoms(use_true_random=False))
def test_the_order_in_which_cgroups_are_listed_does_not_matter(
    tree: dict[str, Claim], recursive: bool, random: Random
) -> None:
    shuffled = list(tree.items())
    random.shuffle(shuffled)
    assert effective(dict(shuffled), recursive=recursive, page_size=PAGE) == effective(
        tree, recursive=recursive, page_size=PAGE
    )


@given(trees(), st.booleans(), st.integers(0, PAGE - 1))
def test_parts_of_a_page_change_nothing(tree: dict[str, Claim], recursive: bool, part: int) -> None:
    def whole(amount: ClaimAmount) -> ClaimAmount:
        return amount if amount == "max" else amount // PAGE * PAGE

    def with_part(amount: ClaimAmount) -> ClaimAmount:
        rounded = whole(amount)
        return rounded if rounded == "max" else rounded + part

    rounded = {p: Claim(whole(c.min), whole(c.low), c.usage) for p, c in tree.items()}
    ragged = {p: Claim(with_part(c.min), with_part(c.low), c.usage) for p, c in tree.items()}
    assert shares(ragged, recursive=recursive) == shares(rounded, recursive=recursive)


@given(trees(), st.booleans(), st.sampled_from([2, 4, 16]))
def test_a_tree_of_larger_pages_is_the_same_tree_scaled(
    tree: dict[str, Claim], recursive: bool, factor: int
) -> None:
    def scaled(amount: ClaimAmount) -> int:
        return 10**9 * PAGE * factor if amount == "max" else amount * factor

    small = {p: Claim(scaled(c.min) // factor, scaled(c.low) // factor, c.usage)
             for p, c in tree.items()}  # fmt: skip
    large = {p: Claim(scaled(c.min), scaled(c.low), c.usage * factor) for p, c in tree.items()}
    expected = effective(small, recursive=recursive, page_size=PAGE)
    found = effective(large, recursive=recursive, page_size=PAGE * factor)
    for path, protection in expected.items():
        for before, after in (
            (protection.min, found[path].min),
            (protection.low, found[path].low),
        ):
            assert after == ClaimShare(
                before.effective * factor,
                before.lost * factor,
                before.taken_by,
                before.unclaimed * factor,
            )
