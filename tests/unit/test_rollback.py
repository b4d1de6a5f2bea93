"""Rollback: every value memqos wrote is as it was, and nobody else's is touched."""

import errno
from collections.abc import Iterator

import pytest
from tests.fakes.node import BUSY, CONTAINERS, MI, Node, a_plan, memory_folder

MIN = "memory.min"


@pytest.fixture
def node() -> Iterator[Node]:
    with memory_folder() as folder:
        yield Node(folder)


def test_the_tree_is_byte_for_byte_as_before(node: Node) -> None:
    before = node.kernel.contents()
    node.apply(node.steps(a_plan()))
    assert node.kernel.contents() != before
    done = node.rollback()
    assert {result.outcome for result in done.results} == {"written"}
    assert done.not_written == ()
    assert node.kernel.contents() == before


def test_after_any_number_of_applies_the_tree_is_as_before_the_first(node: Node) -> None:
    before = node.kernel.contents()
    for step in (1, 2, 3, 1):
        node.apply(node.steps(a_plan(step)))
    node.rollback()
    assert node.kernel.contents() == before


def test_the_second_time_there_is_nothing_to_do(node: Node) -> None:
    node.apply(node.steps(a_plan()))
    node.rollback()
    assert not node.journal.exists()
    node.kernel.before_write = lambda path, file: pytest.fail(f"{path}/{file} is written again")
    assert node.rollback().results == ()


def test_what_was_rolled_back_and_applied_again_can_be_rolled_back_again(node: Node) -> None:
    before = node.kernel.contents()
    for step in (1, 2):
        node.apply(node.steps(a_plan(step)))
        node.rollback()
    assert node.kernel.contents() == before


def test_a_value_that_its_owner_has_restored_along_with_another_is_restored(node: Node) -> None:
    """As crun does at the scope around its own cgroup."""
    before = node.kernel.contents()
    node.apply(node.steps({(path, MIN): str(MI) for path in CONTAINERS[:3]}))

    def restore_all(_path: str, _file: str) -> None:
        for path in CONTAINERS[:3]:
            node.kernel.set(path, MIN, "0")

    node.kernel.before_write = restore_all
    done = node.rollback()
    assert {result.outcome for result in done.results} == {"written"}
    assert node.kernel.contents() == before


class TestAValueSomebodyElseChanged:
    @pytest.fixture(autouse=True)
    def meddled_with(self, node: Node) -> None:
        node.apply(node.steps({(path, MIN): str(MI) for path in CONTAINERS[:3]}))
        node.kernel.set(CONTAINERS[1], MIN, "12288")

    def test_is_left_and_reported(self, node: Node) -> None:
        done = node.rollback()
        (conflict,) = done.not_written
        assert (conflict.state, conflict.entry.path, conflict.value) == (
            "conflict",
            CONTAINERS[1],
            "12288",
        )
        assert [node.kernel.read(path, MIN) for path in CONTAINERS[:3]] == ["0", "12288", "0"]

    def test_is_reported_every_time_until_it_is_forced(self, node: Node) -> None:
        for _ in range(2):
            assert [found.state for found in node.rollback().not_written] == ["conflict"]
        (forced,) = node.rollback(force=True).results
        assert (forced.outcome, node.kernel.read(CONTAINERS[1], MIN)) == ("written", "0")
        assert not node.journal.exists()

    def test_is_nothing_to_tell_once_it_is_as_before(self, node: Node) -> None:
        node.kernel.set(CONTAINERS[1], MIN, "0")
        assert [found.state for found in node.rollback().not_written] == ["restored"]
        assert not node.journal.exists()

    def test_is_what_is_put_back_after_memqos_wrote_over_it(self, node: Node) -> None:
        node.apply(node.steps({(CONTAINERS[1], MIN): str(2 * MI)}))
        node.rollback()
        assert node.kernel.read(CONTAINERS[1], MIN) == "12288"


class TestACgroupThatIsGone:
    def test_is_skipped(self, node: Node) -> None:
        node.apply(node.steps(a_plan()))
        node.kernel.remove(BUSY)
        done = node.rollback()
        assert {found.entry.path for found in done.not_written} == {BUSY}
        assert {found.state for found in done.not_written} == {"gone"}
        assert not node.journal.exists()

    def test_is_not_mistaken_for_one_of_the_same_name(self, node: Node) -> None:
        node.apply(node.steps({(BUSY, MIN): str(MI)}))
        node.kernel.make("/other")
        node.kernel.remove(BUSY)
        node.kernel.make("/another")
        node.kernel.make(BUSY, {MIN: str(MI)})
        assert [found.state for found in node.rollback().not_written] == ["gone"]
        assert node.kernel.read(BUSY, MIN) == str(MI)


def test_a_value_that_cannot_be_put_back_stays_in_the_journal(node: Node) -> None:
    node.apply(node.steps({(path, MIN): str(MI) for path in CONTAINERS[:2]}))
    node.kernel.refusals[BUSY, MIN] = errno.EROFS
    assert sorted(result.outcome for result in node.rollback().results) == ["refused", "written"]
    node.kernel.refusals.clear()
    (result,) = node.rollback().results
    assert (result.change.path, result.outcome) == (BUSY, "written")


def test_memory_high_is_not_put_back_below_what_cannot_be_reclaimed(node: Node) -> None:
    place = (BUSY, "memory.high")
    node.kernel.set(*place, str(100 * MI))
    node.apply(node.steps({place: "max"}))
    node.kernel.set(BUSY, "memory.stat", f"anon {300 * MI}")
    assert [result.outcome for result in node.rollback().results] == ["withheld"]
    assert [result.outcome for result in node.rollback(force=True).results] == ["written"]
    assert node.kernel.read(*place) == str(100 * MI)


def test_the_order_is_safe_too(node: Node) -> None:
    top, leaf = ("/kubepods", MIN), (CONTAINERS[1], MIN)
    order: list[tuple[str, str]] = []
    node.apply(node.steps({top: str(9 * MI), leaf: str(MI)}))
    node.kernel.before_write = lambda path, file: order.append((path, file))
    node.rollback()
    assert order == [leaf, top]
