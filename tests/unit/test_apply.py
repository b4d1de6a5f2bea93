"""Writing a plan: in order, read back, with the prior values kept first."""

import errno
import os
import signal
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path

import pytest
from tests.eventually import PATIENCE
from tests.fakes.cgroups import PAGE
from tests.fakes.node import BUSY, CONTAINERS, MI, Node, a_plan, memory_folder
from tests.fakes.stage import alone

from memqos.converge.apply import apply
from memqos.converge.cgroup_writer import read_write_options
from memqos.converge.direct_driver import DirectDriver
from memqos.converge.journal import hierarchy_of, open_journal
from memqos.converge.saved_plan import (
    check_same_tree,
    decode_saved_plan,
    encode_saved_plan,
    plan_to_save,
)
from memqos.converge.steps import WriteOptions, WriteResult, WriteStep
from memqos.converge.values import kernel_form
from memqos.errors import InputError, MemqosError, Unreachable
from memqos.host.lock import Lock, Locked
from memqos.plan.changes import Change

HIGH = "memory.high"
POD = "/kubepods/burstable/pod0"


@pytest.fixture
def node() -> Iterator[Node]:
    with memory_folder() as folder:
        yield Node(folder)


def of(node: Node, place: tuple[str, str]) -> str | None:
    return node.kernel.read(*place)


def ends(node: Node, steps: tuple[WriteStep, ...], **options: bool | int) -> dict[str, list[str]]:
    """How steps ended → the files, as path/file."""
    found: dict[str, list[str]] = {}
    for result in node.apply(steps, **options).results:  # type: ignore[arg-type]
        change = result.change
        found.setdefault(result.outcome, []).append(f"{change.path}/{change.file}")
    return found


class TestEveryValue:
    def test_is_what_was_planned_as_the_kernel_shows_it(self, node: Node) -> None:
        wanted = a_plan()
        assert set(ends(node, node.steps(wanted))) == {"written"}
        assert {place: of(node, place) for place in wanted} == {
            (path, file): kernel_form(file, value, PAGE) for (path, file), value in wanted.items()
        }

    def test_is_written_in_an_order_that_is_safe(self, node: Node) -> None:
        order: list[tuple[str, str]] = []
        node.kernel.before_write = lambda path, file: order.append((path, file))
        place = {"top": ("/kubepods", "memory.min"), "leaf": (CONTAINERS[1], "memory.min")}
        node.apply(node.steps({place["leaf"]: str(MI), place["top"]: str(9 * MI)}))
        node.apply(node.steps({place["top"]: "0", place["leaf"]: "0"}))
        assert order == [place["top"], place["leaf"], place["leaf"], place["top"]]

    def test_is_in_the_journal_before_the_first_is_written(self, node: Node) -> None:
        recorded: list[int] = []
        node.kernel.before_write = lambda _path, _file: recorded.append(
            len(node.read_journal().undo_entries)
        )
        steps = node.steps({(path, "memory.min"): str(MI) for path in CONTAINERS})
        node.apply(steps)
        assert recorded == [len(steps)] * len(steps)

    def test_that_is_so_already_is_not_written(self, node: Node) -> None:
        steps = node.steps(a_plan())
        node.apply(steps)
        node.kernel.before_write = lambda path, file: pytest.fail(f"{path}/{file} is written again")
        assert ends(node, steps) == {}

    def test_that_reads_back_otherwise_is_reported(self, node: Node) -> None:
        place = (CONTAINERS[1], "memory.min")
        steps = node.steps({place: str(MI)})
        write = node.kernel.write

        def overruled(path: str, file: str, value: str) -> None:
            write(path, file, value)
            node.kernel.set(path, file, "8192")

        node.kernel.write = overruled  # type: ignore[method-assign]
        (result,) = node.apply(steps).results
        assert (result.outcome, result.detail) == (
            "differs",
            f"{MI} was written, but 8192 is read back",
        )
        (conflict,) = node.rollback().not_written
        assert conflict.state == "conflict"


class TestATreeThatHasMoved:
    def test_is_not_written_to_at_all(self, node: Node) -> None:
        steps = node.steps(a_plan())
        node.kernel.set(BUSY, "memory.min", "4096")
        before = node.kernel.contents()
        (moved,) = node.apply(steps).stale
        assert str(moved) == f"{BUSY}/memory.min: 0 when planned, 4096 now"
        assert node.kernel.contents() == before
        assert not node.journal.exists()

    def test_shows_by_the_cgroup_that_was_made_again_under_the_same_name(self, node: Node) -> None:
        steps = node.steps({(CONTAINERS[1], "memory.min"): str(MI)})
        # Another folder is made first, as a file system gives inodes out again.
        node.kernel.make("/other")
        node.kernel.remove(CONTAINERS[1])
        node.kernel.make("/another")
        node.kernel.make(CONTAINERS[1])
        (moved,) = node.apply(steps).stale
        assert str(moved) == f"{CONTAINERS[1]}/memory.min: the cgroup was created again"

    def test_while_it_is_written_to_keeps_what_others_wrote(self, node: Node) -> None:
        places = [(path, "memory.min") for path in CONTAINERS[1:3]]
        steps = node.steps(dict.fromkeys(places, str(MI)))

        def meddle(path: str, _file: str) -> None:
            if path == CONTAINERS[1]:
                node.kernel.set(CONTAINERS[2], "memory.min", "12288")

        node.kernel.before_write = meddle
        assert ends(node, steps) == {
            "written": [f"{CONTAINERS[1]}/memory.min"],
            "overtaken": [f"{CONTAINERS[2]}/memory.min"],
        }
        assert of(node, places[1]) == "12288"
        assert not [each for each in node.rollback().not_written if each.state == "conflict"]


class TestACgroupThatVanishes:
    def test_before_it_is_written_is_normal(self, node: Node) -> None:
        steps = node.steps(a_plan())
        node.kernel.remove(POD)
        found = ends(node, steps)
        assert set(found) == {"written", "gone"}
        assert all(place.startswith(POD) for place in found["gone"])

    @pytest.mark.parametrize("at", range(0, 40, 7))
    def test_while_others_are_written_is_normal(self, node: Node, at: int) -> None:
        steps = node.steps(a_plan())
        writes = iter(range(len(steps)))

        def vanish(_path: str, _file: str) -> None:
            # Writes aside are counted by another process, and so may all come at once.
            if next(writes) >= at and node.kernel.identity(POD) is not None:
                node.kernel.remove(POD)

        node.kernel.before_write = vanish
        found = ends(node, steps)
        assert set(found) <= {"written", "gone"}
        assert sum(map(len, found.values())) == len(steps)


class TestARefusal:
    @pytest.mark.parametrize("code", [errno.EBUSY, errno.EINVAL, errno.EROFS, errno.EACCES])
    @pytest.mark.parametrize("file", ["memory.min", HIGH, "cpuset.mems"])
    def test_is_reported_with_the_place_and_the_value_and_the_rest_is_written(
        self, node: Node, code: int, file: str
    ) -> None:
        node.kernel.refusals[BUSY, file] = code
        wanted = a_plan()
        applied = node.apply(node.steps(wanted))
        (refused,) = [result for result in applied.results if result.outcome != "written"]
        assert refused.outcome == "refused"
        assert refused.detail == f"{BUSY}/{file}: cannot write '{wanted[BUSY, file]}' – a fake"
        assert len(applied.results) == len(wanted)

    def test_leaves_nothing_to_take_back(self, node: Node) -> None:
        node.kernel.refusals[BUSY, "memory.min"] = errno.EACCES
        node.apply(node.steps({(BUSY, "memory.min"): str(MI)}))
        node.kernel.set(BUSY, "memory.min", str(MI))
        assert node.rollback().results == ()

    def test_of_a_value_no_file_takes_stops_before_anything_is_written(self, node: Node) -> None:
        steps = node.steps({(BUSY, "memory.min"): "lots", (CONTAINERS[1], "memory.min"): str(MI)})
        found = ends(node, steps)
        assert found["refused"] == [f"{BUSY}/memory.min"]
        assert found["written"] == [f"{CONTAINERS[1]}/memory.min"]


def test_a_write_that_fails_and_cannot_be_read_back_may_still_be_taken_back(node: Node) -> None:
    before = node.kernel.contents()

    class Driver(DirectDriver):
        """Its owner is slow, and then no descriptor is free."""

        is_written = False

        def write(self, changes: Sequence[Change]) -> bool:
            self.is_written = super().write(changes)
            raise Unreachable("no answer in time")

        def read(self, path: str, file: str) -> str | None:
            if self.is_written:
                raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
            return super().read(path, file)

    with open_journal(node.journal_folder, hierarchy_of(node.kernel, node.boot)) as journal:
        steps = node.steps({(CONTAINERS[1], HIGH): str(100 * MI)})
        [result] = apply(
            steps, node.kernel, Driver(node.kernel), journal, WriteOptions(PAGE, 0)
        ).results
    assert (result.outcome, result.detail) == ("differs", "no answer in time")
    node.rollback()
    assert node.kernel.contents() == before


def test_a_writer_goes_by_the_page_size_and_the_swap_of_the_machine(tmp_path: Path) -> None:
    page_size = os.sysconf("SC_PAGE_SIZE")
    assert read_write_options(str(tmp_path)) == WriteOptions(page_size, 0)
    (tmp_path / "meminfo").write_text("SwapTotal: 8 kB\nSwapFree: 4 kB\n")
    assert read_write_options(str(tmp_path), force=True) == WriteOptions(page_size, 4096, True)


class TestAWriteThatBlocks:
    def results(self, node: Node, *paths: str) -> dict[str, WriteResult]:
        """What becomes of writes that are stopped early, but not before they have begun."""
        node.kernel.reclaims_for[BUSY] = PATIENCE
        node.timeout = 0.1
        results: dict[str, WriteResult] = {}
        while True:
            # What was written beside a write that was stopped is no step any more.
            steps = node.steps({(path, HIGH): str(100 * MI) for path in paths})
            done = alone(partial(node.apply, steps)).results
            results |= {result.change.path: result for result in done}
            if results[BUSY].outcome != "stopped":
                return results
            node.timeout *= 2

    def test_is_stopped_in_time_and_the_rest_goes_on(self, node: Node) -> None:
        results = self.results(node, BUSY, CONTAINERS[1])
        assert results[BUSY].outcome == "written"
        assert results[BUSY].detail == "in place, but the write had not returned yet"
        assert results[CONTAINERS[1]].detail is None
        assert of(node, (BUSY, HIGH)) == str(100 * MI)

    def test_that_no_process_can_be_made_for_is_refused_and_the_rest_goes_on(
        self, node: Node, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def fail() -> int:
            raise OSError(errno.EAGAIN, os.strerror(errno.EAGAIN))

        monkeypatch.setattr(os, "fork", fail)
        steps = node.steps({(BUSY, HIGH): str(100 * MI), (CONTAINERS[1], HIGH): str(100 * MI)})
        handles = os.listdir("/proc/self/fd")
        by_path = {result.change.path: result for result in node.apply(steps).results}
        assert by_path[BUSY].outcome == "refused"
        assert "Resource temporarily unavailable" in (by_path[BUSY].detail or "")
        assert by_path[CONTAINERS[1]].outcome == "written"
        assert os.listdir("/proc/self/fd") == handles

    def test_is_taken_back_too(self, node: Node) -> None:
        before = node.kernel.contents()
        self.results(node, BUSY)
        node.rollback()
        assert node.kernel.contents() == before

    def test_that_never_got_through_is_reported_and_may_still_be_taken_back(
        self, node: Node
    ) -> None:
        node.timeout = 0.3
        node.kernel.before_write = lambda _path, _file: os.kill(os.getpid(), signal.SIGSTOP)
        (result,) = node.apply(node.steps({(BUSY, HIGH): str(100 * MI)})).results
        assert result.outcome == "stopped"
        # As if the process that could not be killed had got through after all.
        node.kernel.set(BUSY, HIGH, str(100 * MI))
        node.kernel.before_write = lambda _path, _file: None
        node.rollback()
        assert of(node, (BUSY, HIGH)) == str(900 * MI)


class TestMemoryThatCannotBeReclaimed:
    @pytest.fixture(autouse=True)
    def anonymous(self, node: Node) -> None:
        node.kernel.set(BUSY, "memory.stat", f"anon {300 * MI}\nfile {50 * MI}\nshmem {50 * MI}")

    @pytest.mark.parametrize(
        ("high", "end"), [(349, "withheld"), (350, "written"), (399, "written"), (500, "written")]
    )
    def test_is_never_undercut_without_swap(self, node: Node, high: int, end: str) -> None:
        assert set(ends(node, node.steps({(BUSY, HIGH): str(high * MI)}))) == {end}

    def test_is_reported_when_it_stands_in_the_way(self, node: Node) -> None:
        (result,) = node.apply(node.steps({(BUSY, HIGH): str(200 * MI)})).results
        assert result.detail == "350Mi is anonymous or shared memory, with no swap for it"
        assert of(node, (BUSY, HIGH)) == str(900 * MI)
        assert node.rollback().results == ()

    def test_may_be_undercut_by_force(self, node: Node) -> None:
        steps = node.steps({(BUSY, HIGH): str(200 * MI)})
        assert set(ends(node, steps, force=True)) == {"written"}

    def test_may_go_to_swap_as_far_as_there_is_some(self, node: Node) -> None:
        steps = node.steps({(BUSY, HIGH): str(200 * MI)})
        assert set(ends(node, steps, swap=149 * MI)) == {"withheld"}
        assert set(ends(node, steps, swap=150 * MI)) == {"written"}

    @pytest.mark.parametrize("path", [BUSY, POD, "/kubepods"])
    def test_may_not_go_to_swap_that_an_ancestor_forbids(self, node: Node, path: str) -> None:
        node.kernel.set(path, "memory.swap.max", str(200 * MI))
        node.kernel.set(path, "memory.swap.current", str(100 * MI))
        steps = node.steps({(BUSY, HIGH): str(200 * MI)})
        assert set(ends(node, steps, swap=1 << 40)) == {"withheld"}

    def test_does_not_stop_memory_high_from_being_raised(self, node: Node) -> None:
        node.kernel.set(BUSY, HIGH, str(100 * MI))
        assert set(ends(node, node.steps({(BUSY, HIGH): str(200 * MI)}))) == {"written"}


def test_two_writers_exclude_each_other_by_name(node: Node) -> None:
    steps = node.steps(a_plan())
    with (
        open_journal(node.journal_folder, hierarchy_of(node.kernel, node.boot)),
        pytest.raises(Locked, match=rf"another memqos \(pid {os.getpid()}\) is writing"),
    ):
        node.apply(steps)
    assert set(ends(node, steps)) == {"written"}


def test_a_write_left_behind_by_a_killed_writer_still_excludes_others(node: Node) -> None:
    hierarchy = hierarchy_of(node.kernel, node.boot)
    started, starting = os.pipe()
    gate, opening = os.pipe()
    writer = os.fork()
    if not writer:
        with open_journal(node.journal_folder, hierarchy):
            if os.fork():
                os.kill(os.getpid(), signal.SIGKILL)
            os.close(opening)
            os.write(starting, b"!")
            os.read(gate, 1)
            os._exit(0)
    os.read(started, 1)
    os.waitpid(writer, 0)
    with pytest.raises(Locked, match=rf"pid {writer}\) was stopped, but a write .* still going on"):
        node.rollback()
    os.close(opening)
    alone(node.rollback)
    for handle in (started, starting, gate):
        os.close(handle)


def test_a_write_that_holds_already_keeps_nobody_out_though_the_kernel_is_still_at_it(
    node: Node,
) -> None:
    folder = Path(node.journal_folder)
    folder.mkdir()
    lock = Lock(str(folder / "lock"))
    gate, opening = os.pipe()
    left_behind = os.fork()
    if not left_behind:
        os.close(opening)
        os.read(gate, 1)
        os._exit(0)
    lock.renew()
    with pytest.raises(Locked):
        Lock(lock.path)
    lock.release()
    Lock(lock.path).release()
    os.close(opening)
    os.close(gate)
    os.waitpid(left_behind, 0)


class TestASavedPlan:
    def test_comes_back_as_it_was(self, node: Node) -> None:
        steps = node.steps(a_plan())
        plan = decode_saved_plan(
            encode_saved_plan(plan_to_save(steps, "boot", node.kernel.root, "1.0")), "plan.json"
        )
        assert (plan.boot, plan.root, plan.memqos) == ("boot", node.kernel.root, "1.0")
        assert [(step.cgroup, step.change.path, step.change.new) for step in plan.steps] == [
            (step.cgroup, step.change.path, step.change.new) for step in steps
        ]
        assert set(ends(node, plan.steps)) == {"written"}

    def test_is_of_one_boot_and_one_tree(self, node: Node) -> None:
        here = hierarchy_of(node.kernel, "boot")
        check_same_tree(plan_to_save((), "boot", node.kernel.root + "/", "1.0"), here, "plan.json")
        with pytest.raises(InputError, match="booted since"):
            check_same_tree(plan_to_save((), "other", node.kernel.root, "1.0"), here, "plan.json")
        with pytest.raises(InputError, match="--cgroup-root /elsewhere"):
            check_same_tree(plan_to_save((), "boot", "/elsewhere", "1.0"), here, "plan.json")

    @pytest.mark.parametrize(
        ("good", "bad", "says"),
        [
            (b"memory.min", b"cgroup.kill", "not a file that memqos writes"),
            (b"/kubepods/", b"/../../etc/", "not the path of a cgroup"),
            (b'"/kubepods/', b'"kubepods/', "not the path of a cgroup"),
            (b"/kubepods/", b"//", "not the path of a cgroup"),
            (b"/kubepods/", b"/" + b"x" * 300 + b"/", "not the path of a cgroup"),
            (b'"1048576"', b'"1\\n2"', "not a value of memory.min"),
            (b'"1048576"', b'"-1"', "not a value of memory.min"),
            (b'"1048576"', '"²"'.encode(), "not a value of memory.min"),
            (b'"1048576"', b"1048576", "not a saved plan"),
            (b'"format": 1', b'"format": 2', "format 2"),
            (b'"format": 1', b'"format": 1, "more": 1', "not a saved plan"),
            (b"{", b"", "not a saved plan"),
            (b'"level": "container"', b'"level": "floor"', "not a saved plan"),
            (b'"level": "container"', b'"level": "qos"', "is not a cgroup of level qos"),
        ],
    )
    def test_is_never_believed(self, node: Node, good: bytes, bad: bytes, says: str) -> None:
        steps = node.steps({(BUSY, "memory.min"): str(MI)})
        text = encode_saved_plan(plan_to_save(steps, "boot", node.kernel.root, "1.0"))
        assert good in text
        with pytest.raises(InputError, match=says):
            decode_saved_plan(text.replace(good, bad, 1), "plan.json")

    def test_may_not_write_a_file_twice(self, node: Node) -> None:
        steps = node.steps({(BUSY, "memory.min"): str(MI)})
        text = encode_saved_plan(plan_to_save(steps * 2, "boot", node.kernel.root, "1.0"))
        with pytest.raises(InputError, match=r"changes\[1\].*twice"):
            decode_saved_plan(text, "plan.json")


def test_a_folder_that_others_can_write_to_holds_no_journal(node: Node) -> None:
    os.mkdir(node.journal_folder)
    os.chmod(node.journal_folder, 0o777)
    with pytest.raises(MemqosError, match="is not trusted"):
        node.apply(node.steps(a_plan()))


def test_a_list_is_taken_back_to_empty(node: Node) -> None:
    place = (BUSY, "cpuset.mems")
    node.apply(node.steps({place: "3,0-1"}))
    assert of(node, place) == "0-1,3"
    node.apply(node.steps({place: ""}))
    assert of(node, place) == ""


def test_a_write_that_cannot_block_is_not_done_aside(node: Node) -> None:
    writer: list[int] = []
    node.kernel.before_write = lambda _path, _file: writer.append(os.getpid())
    driver = DirectDriver(node.kernel)
    wanted = {
        (CONTAINERS[1], HIGH): str(100 * MI),
        (BUSY, HIGH): str(500 * MI),
        (BUSY, "memory.min"): str(MI),
    }
    for step in node.steps(wanted):
        assert driver.write([step.change])
    assert writer == [os.getpid()] * 3
