"""The journal: what it keeps, what it survives, and what it refuses."""

import errno
import os
import resource
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.fakes.cgroups import PAGE
from tests.fakes.node import CONTAINERS, MI, Node, a_plan, memory_folder

from memqos.converge.direct_driver import DirectDriver
from memqos.converge.journal import Journal, hierarchy_of, open_journal
from memqos.converge.records import (
    NEW_CGROUP,
    Damage,
    Hierarchy,
    IntentRecord,
    JournalRecord,
    KubeletWriteRecord,
    OutcomeRecord,
    OwnerKind,
    OwnerRecord,
    OwnerState,
    decode_journal,
    encode_journal,
)
from memqos.converge.rollback import rollback
from memqos.converge.steps import WriteOptions
from memqos.converge.undo import UndoEntry, undo_entries, write_records
from memqos.errors import JournalError, MemqosError
from memqos.host import durable
from memqos.plan.changes import Change

HEADER = Hierarchy("boot", "/sys/fs/cgroup", 1, 2)
PLACE = ("/kubepods/pod1", "memory.low", 7)


def intent(old: str, new: str, place: tuple[str, str, int] = PLACE) -> IntentRecord:
    return IntentRecord(*place, old, new, "pod", "ns/pod")


LEVEL = ("/kubepods", "memory.low", 7)


def level_intent(old: str, new: str) -> IntentRecord:
    return IntentRecord(*LEVEL, old, new, "kubepods")


def kubelet_write(old: str, new: str) -> KubeletWriteRecord:
    return KubeletWriteRecord(*LEVEL, old, new, "kubepods")


def owner_record(
    name: str = "a.slice",
    file: str = "memory.low",
    text: str = "[Slice]\nMemoryLow=1\n",
    path: str = "/a.slice",
    owner: OwnerKind = "systemd",
) -> OwnerRecord:
    return OwnerRecord(path, 7, OwnerState(owner, name, {file: text}))


def outcome(written: bool) -> OutcomeRecord:
    return OutcomeRecord(*PLACE, written)


@pytest.fixture
def node() -> Iterator[Node]:
    with memory_folder() as folder:
        yield Node(folder)


class TestWhatIsOwed:
    """Prior value, and the values that count as memqos's own."""

    @pytest.mark.parametrize(
        ("records", "original", "ours"),
        [
            pytest.param([intent("0", "4096")], "0", ("4096",), id="killed somewhere in a write"),
            pytest.param([intent("0", "4096"), outcome(True)], "0", ("4096",), id="written"),
            pytest.param(
                [intent("0", "4096"), outcome(True), intent("4096", "8192"), outcome(True)],
                "0",
                ("8192",),
                id="written twice: what was there before the first",
            ),
            pytest.param(
                [intent("0", "4096"), outcome(True), intent("4096", "8192")],
                "0",
                ("4096", "8192"),
                id="killed in the second write: either may be there",
            ),
            pytest.param(
                [intent("0", "4096"), outcome(True), intent("4096", "8192"), outcome(False)],
                "0",
                ("4096",),
                id="the second was refused",
            ),
            pytest.param(
                [intent("0", "4096"), outcome(True), intent("max", "8192"), outcome(True)],
                "max",
                ("8192",),
                id="somebody else wrote in between: theirs",
            ),
        ],
    )
    def test_is_the_value_before_memqos_wrote(
        self, records: list[JournalRecord], original: str, ours: tuple[str, ...]
    ) -> None:
        entries = undo_entries([HEADER, *records])
        assert entries == {PLACE: UndoEntry(*PLACE, original, ours, "pod", "ns/pod")}
        # Fewer records, the same meaning.
        assert undo_entries(write_records(entries.values())) == entries

    def test_is_nothing_where_the_write_was_refused(self) -> None:
        assert undo_entries([HEADER, intent("0", "4096"), outcome(False)]) == {}

    def test_is_kept_apart_for_a_cgroup_of_the_same_name(self) -> None:
        again = (*PLACE[:2], 8)
        entries = undo_entries([intent("0", "4096"), intent("0", "8192", again)])
        assert [undo_entry.ours for undo_entry in entries.values()] == [("4096",), ("8192",)]


@pytest.fixture
def journal(node: Node) -> Iterator[Journal]:
    with open_journal(node.journal_folder, hierarchy_of(node.kernel, node.boot)) as opened:
        yield opened


class TestAWriteInTheKubeletsPlace:
    """A value that the running kubelet keeps itself, as far as it has answered."""

    def entry(self, journal: Journal, node: Node) -> tuple[str, tuple[str, ...], bool]:
        """What would be restored, for which values, and whether for sure; the file says so, too."""
        journal.close()
        (entry,) = journal.undo_entries.values()
        assert node.read_journal().undo_entries == journal.undo_entries
        assert undo_entries(write_records([entry])) == journal.undo_entries
        return entry.original, entry.ours, not entry.is_unconfirmed

    def test_is_on_the_disk_with_what_was_there_before(self, journal: Journal, node: Node) -> None:
        journal.record_writes([kubelet_write("0", "4096")])
        assert self.entry(journal, node) == ("0", ("4096",), False)
        journal.record_outcome(OutcomeRecord(*LEVEL, written=True))
        journal.record_writes([kubelet_write("4096", "8192")])
        assert self.entry(journal, node) == ("0", ("4096", "8192"), False)

    def test_is_nothing_where_it_was_refused(self, journal: Journal, node: Node) -> None:
        journal.record_writes([kubelet_write("0", "4096")])
        journal.record_outcome(OutcomeRecord(*LEVEL, written=False))
        journal.close()
        assert journal.undo_entries == node.read_journal().undo_entries == {}

    def test_is_not_what_was_there_before_where_memqos_corrects_it(
        self, journal: Journal, node: Node
    ) -> None:
        journal.record_writes([kubelet_write("0", "4096")])
        journal.record_writes([kubelet_write("4096", "8192")])
        journal.record_writes([level_intent("8192", "12288")])
        journal.record_outcome(OutcomeRecord(*LEVEL, written=True))
        assert self.entry(journal, node) == ("0", ("12288",), True)

    def test_over_a_value_of_memqos_is_not_either(self, journal: Journal, node: Node) -> None:
        journal.record_writes([level_intent("0", "4096")])
        journal.record_outcome(OutcomeRecord(*LEVEL, written=True))
        journal.record_writes([kubelet_write("4096", "8192")])
        journal.record_outcome(OutcomeRecord(*LEVEL, written=True))
        assert self.entry(journal, node) == ("0", ("8192",), False)

    def test_is_the_kubelets_own_once_it_has_confirmed(self, journal: Journal, node: Node) -> None:
        journal.record_writes([level_intent("0", "4096"), kubelet_write("4096", "8192")])
        journal.settle_kubelet_entries({LEVEL[:2]}, lambda _entry: True)
        assert journal.undo_entries == node.read_journal().undo_entries == {}
        journal.record_writes([level_intent("8192", "12288")])
        assert self.entry(journal, node) == ("8192", ("12288",), True)

    def test_is_restored_as_any_other_once_the_kubelet_turns_out_not_to_keep_it(
        self, journal: Journal, node: Node
    ) -> None:
        journal.record_writes([kubelet_write("0", "4096")])
        journal.record_writes([kubelet_write("4096", "8192")])
        journal.settle_kubelet_entries({("/kubepods", "memory.min")}, lambda _entry: True)
        assert self.entry(journal, node) == ("0", ("4096", "8192"), True)

    def test_is_for_the_kubelet_to_decide_until_it_has_written(
        self, journal: Journal, node: Node
    ) -> None:
        journal.record_writes([level_intent("0", "4096"), level_intent("4096", "8192")])
        journal.settle_kubelet_entries({LEVEL[:2]}, lambda _entry: False)
        assert self.entry(journal, node) == ("0", ("4096", "8192"), False)

    def test_is_forgotten_where_somebody_else_has_written_since(
        self, journal: Journal, node: Node
    ) -> None:
        journal.record_writes([kubelet_write("0", "4096")])
        journal.record_writes([level_intent("12288", "8192")])
        assert self.entry(journal, node) == ("12288", ("8192",), True)


class TestRecords:
    RECORDS = (
        HEADER,
        owner_record(),
        intent("0", "4096"),
        outcome(True),
        kubelet_write("0", "4096"),
        intent("4096", "max"),
    )

    def test_come_back_as_they_were_in_any_number_of_batches(self) -> None:
        first, checksum = encode_journal(self.RECORDS[:2])
        second, _ = encode_journal(self.RECORDS[2:], checksum)
        decoded = decode_journal(first + second)
        assert decoded.records == self.RECORDS
        assert decoded.damage is None

    def test_cut_anywhere_are_used_as_far_as_they_are_whole(self) -> None:
        data, _ = encode_journal(self.RECORDS)
        ends = [
            len(encode_journal(self.RECORDS[:count])[0]) for count in range(len(self.RECORDS) + 1)
        ]
        for length in range(len(data)):
            whole = sum(end <= length for end in ends) - 1
            decoded = decode_journal(data[:length])
            assert decoded.records == self.RECORDS[:whole]
            torn = None if length in ends else Damage(whole + 1, torn=True)
            assert decoded.damage == torn

    def test_altered_in_any_bit_are_used_up_to_there(self) -> None:
        data, _ = encode_journal(self.RECORDS)
        ends = [
            len(encode_journal(self.RECORDS[:count])[0]) for count in range(len(self.RECORDS) + 1)
        ]
        for position in range(len(data)):
            whole = sum(end <= position for end in ends) - 1
            for bit in range(8):
                altered = bytearray(data)
                altered[position] ^= 1 << bit
                decoded = decode_journal(bytes(altered))
                assert decoded.records == self.RECORDS[:whole]
                assert decoded.damage is not None
                assert decoded.damage.record == whole + 1

    def test_that_are_missing_or_out_of_place_are_noticed(self) -> None:
        lines = encode_journal(self.RECORDS)[0].splitlines(keepends=True)
        assert decode_journal(b"".join(lines[:1] + lines[2:])).damage == Damage(2, torn=False)
        assert decode_journal(b"".join([lines[0], lines[2], lines[1]])).damage == Damage(
            2, torn=False
        )
        assert decode_journal(b"".join([*lines[:2], lines[1], *lines[2:]])).damage is not None

    @pytest.mark.parametrize(
        "record",
        [
            intent("0", "4096", ("/kubepods/../../etc", "memory.low", 7)),
            intent("0", "4096", ("/kubepods", "cgroup.procs", 7)),
            intent("0", "1\n2"),
            intent("0; rm", "0"),
            owner_record("../../etc/a.slice"),
            owner_record(".."),
            owner_record("a\n.slice"),
            owner_record(file="cgroup.procs"),
            owner_record(file="cpuset.mems"),
            owner_record(file="memory.min"),
            owner_record("sshd.service"),
            owner_record("sshd.service", text="[Service]\nMemoryLow=1\n"),
            owner_record(text="[Service]\nExecStart=/bin/sh\n"),
            owner_record(text="[Slice]\nMemoryLow=1\n[Service]\nExecStart=/bin/sh\n"),
            owner_record(path="/a.slice/a-b.slice/a.slice"),
            owner_record(path="/kubepods/pod1/abc/a.slice"),
            owner_record("a-b.slice", path="/a-b.slice"),
            owner_record("abd", text="1", path="/kubepods/pod1/abc", owner="runtime"),
        ],
    )
    def test_that_ask_for_what_memqos_never_writes_are_damaged(
        self, record: IntentRecord | OwnerRecord
    ) -> None:
        data, _ = encode_journal([HEADER, record])
        assert decode_journal(data).damage == Damage(2, torn=False)


@contextmanager
def room_for(size: int) -> Iterator[None]:
    """No file may grow beyond this, as on a disk that is full."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


class TestAFullDisk:
    def test_lets_nothing_be_written_that_is_not_in_the_journal(self, node: Node) -> None:
        before = node.kernel.contents()
        steps = node.steps({(path, "memory.min"): str(MI) for path in CONTAINERS[:3]})
        node.apply(steps)
        whole = node.journal.stat().st_size
        node.rollback()
        refused = 0
        for size in range(20, whole, 20):
            complaint = ""
            try:
                with room_for(size):
                    applied = node.apply(steps)
            except MemqosError as error:
                complaint = str(error)
            if complaint:
                assert "the journal cannot be written" in complaint
                assert node.kernel.contents() == before
                assert not node.journal.exists()
                refused += 1
            else:
                assert {result.outcome for result in applied.results} == {"written"}
                assert applied.journal_error is not None
            node.rollback()
            assert node.kernel.contents() == before
        assert 0 < refused < whole // 20 - 1

    def test_under_a_journal_in_use_leaves_it_as_it_was(self, node: Node) -> None:
        before = node.kernel.contents()
        node.apply(node.steps(a_plan(1)))
        applied, journal = node.kernel.contents(), node.journal.read_bytes()
        steps = node.steps(a_plan(2))
        for size in range(len(journal), len(journal) + 2000, 250):
            with room_for(size), pytest.raises(MemqosError, match="journal cannot be written"):
                node.apply(steps)
            assert node.kernel.contents() == applied
            assert node.journal.read_bytes() == journal
        node.rollback()
        assert node.kernel.contents() == before

    def test_does_not_keep_rollback_from_restoring(self, node: Node) -> None:
        before = node.kernel.contents()
        node.apply(node.steps(a_plan()))
        node.kernel.set(CONTAINERS[1], "memory.min", "12288")
        with room_for(64):
            done = node.rollback()
        assert done.journal_error == os.strerror(errno.EFBIG)
        assert {result.outcome for result in done.results} == {"written"}
        node.rollback(force=True)
        assert node.kernel.contents() == before

    def test_that_leaves_half_a_record_has_the_journal_written_again(
        self, node: Node, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def fail(_handle: int, _size: int) -> None:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

        before = node.kernel.contents()
        with open_journal(node.journal_folder, hierarchy_of(node.kernel, node.boot)) as journal:
            node.kernel.set(CONTAINERS[1], "memory.min", "4096")
            identity = node.kernel.identity(CONTAINERS[1])
            assert identity is not None
            place = (CONTAINERS[1], "memory.min", identity)
            journal.record_writes([IntentRecord(*place, "0", "4096", "container")])
            size = node.journal.stat().st_size
            with monkeypatch.context() as patch, room_for(size + 40):
                patch.setattr(os, "ftruncate", fail)
                with pytest.raises(JournalError):
                    journal.record_writes([IntentRecord(*place, "4096", "8192", "container")])
                journal.record_outcome(OutcomeRecord(*place, written=True))
            assert node.read_journal().damage is not None
            journal.record_writes([IntentRecord(*place, "4096", "8192", "container")])
            assert node.read_journal().damage is None
        node.kernel.set(CONTAINERS[1], "memory.min", "8192")
        node.rollback()
        assert node.kernel.contents() == before

    def test_whose_folder_cannot_be_synced_loses_no_record(
        self, node: Node, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def fail(_path: str) -> None:
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

        places = [("/kubepods", file, 7) for file in ("memory.low", "memory.min", "memory.high")]
        first, second, third = [IntentRecord(*each, "0", "4096", "kubepods") for each in places]
        with open_journal(node.journal_folder, hierarchy_of(node.kernel, node.boot)) as journal:
            journal.record_writes([first, second])
            with monkeypatch.context() as patch:
                patch.setattr(durable, "sync_folder_of", fail)
                journal.forget([journal.undo_entries[places[1]]])
            journal.record_outcome(OutcomeRecord(*places[0], written=True))
            journal.record_writes([third])
            assert node.read_journal().damage is None
            assert {places[0], places[2]} <= node.read_journal().undo_entries.keys()


class TestAJournalThatIsRemovedUnderItsWriter:
    def test_is_written_again_with_all_that_it_said(self, node: Node) -> None:
        place = ("/kubepods", "memory.low", 7)
        other = ("/kubepods", "memory.min", 7)
        with open_journal(node.journal_folder, hierarchy_of(node.kernel, node.boot)) as journal:
            journal.record_writes([IntentRecord(*place, "0", "4096", "kubepods")])
            node.journal.unlink()
            journal.record_writes([IntentRecord(*other, "0", "8192", "kubepods")])
            assert set(node.read_journal().undo_entries) == {place, other}

    def test_forgets_what_is_settled_meanwhile(self, node: Node) -> None:
        place = ("/kubepods", "memory.low", 7)
        with open_journal(node.journal_folder, hierarchy_of(node.kernel, node.boot)) as journal:
            journal.record_writes([KubeletWriteRecord(*place, "0", "4096", "kubepods")])
            journal.close()
            node.journal.unlink()
            journal.settle_kubelet_entries({place[:2]}, lambda _: True)
            assert journal.undo_entries == {}


def test_a_journal_that_was_released_is_written_by_no_thread(node: Node) -> None:
    with open_journal(node.journal_folder, hierarchy_of(node.kernel, node.boot)) as journal:
        journal.record_writes([IntentRecord(*PLACE[:2], NEW_CGROUP, "0", "4096", "pod")])
        before = node.journal.read_bytes()
    with pytest.raises(JournalError):
        journal.record_writes([IntentRecord(*PLACE, "0", "4096", "pod")])
    journal.discard_new(lambda _: False)
    assert node.journal.read_bytes() == before


class TestAnotherJournal:
    def test_of_an_earlier_boot_is_ignored_and_then_gone(self, node: Node) -> None:
        node.apply(node.steps(a_plan()))
        applied = node.kernel.contents()
        node.boot = "the-next-boot"
        assert node.read_journal().is_of_another_boot
        assert node.rollback().results == ()
        assert node.kernel.contents() == applied
        assert not node.journal.exists()

    def test_of_an_earlier_boot_makes_way_for_that_of_this_one(self, node: Node) -> None:
        node.apply(node.steps(a_plan(1)))
        node.boot = "the-next-boot"
        before = node.kernel.contents()
        node.apply(node.steps(a_plan(2)))
        node.rollback()
        assert node.kernel.contents() == before

    def test_of_another_tree_is_refused(self, node: Node, tmp_path: Path) -> None:
        node.apply(node.steps(a_plan()))
        elsewhere = tmp_path / "elsewhere"
        elsewhere.mkdir()
        other = Node(elsewhere)
        other.journal_folder = node.journal_folder
        with pytest.raises(MemqosError, match="journal of another cgroup tree"):
            other.rollback()

    def test_of_the_same_tree_mounted_elsewhere_is_as_good(self, node: Node) -> None:
        before = node.kernel.contents()
        node.apply(node.steps(a_plan()))
        link = Path(node.kernel.root).with_name("mounted-elsewhere")
        link.symlink_to(node.kernel.root)
        node.kernel.root = str(link)
        node.rollback()
        assert node.kernel.contents() == before

    def test_in_a_format_to_come_is_refused(self, node: Node) -> None:
        node.apply(node.steps(a_plan()))
        header = decode_journal(node.journal.read_bytes()).records[0]
        assert isinstance(header, Hierarchy)
        newer = Hierarchy(header.boot, header.root, header.device, header.inode, format=2)
        node.journal.write_bytes(encode_journal([newer])[0])
        with pytest.raises(MemqosError, match="format 2"):
            node.rollback()


def test_what_a_second_thread_records_changes_nothing_that_the_first_is_going_through(
    journal: Journal, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = "/kubepods/pod1/a"
    new = (path, "memory.low", NEW_CGROUP)
    owner = OwnerRecord(path, NEW_CGROUP, OwnerState("runtime", "a", {}))
    journal.record_writes([intent("0", "4096"), owner_record(path=PLACE[0])])
    begun: list[tuple[Iterator[object], Iterator[object]]] = []
    append = durable.append

    def append_while_another_reads(handle: int, data: bytes) -> None:
        begun.append((iter(journal.undo_entries), iter(journal.owner_states)))
        append(handle, data)

    monkeypatch.setattr(durable, "append", append_while_another_reads)
    journal.record_writes([owner, intent("0", "4096", new)])
    assert [len(list(each)) for each in begun.pop()] == [1, 1]
    journal.discard_new(lambda _path: False)
    assert [len(list(each)) for each in begun.pop()] == [2, 2]
    assert [*journal.undo_entries] == [PLACE]
    assert [*journal.owner_states] == [PLACE[::2]]


@pytest.mark.parametrize("runtime", ["crun", "runc"])
def test_the_cgroup_that_crun_makes_within_a_scope_is_waited_for_until_its_container_starts(
    journal: Journal, runtime: str
) -> None:
    scope = "/kubepods.slice/kubepods-pod1.slice/cri-containerd-a.scope"
    inner = f"{scope}/container"
    journal.record_writes(
        [intent("0", "4096", (path, "memory.low", NEW_CGROUP)) for path in (scope, inner)]
    )
    inodes = {scope: 7}
    starting = {scope, inner}
    journal.is_starting = starting.__contains__
    journal.bind_new(inodes.get)
    expected = {(scope, "memory.low", 7), (inner, "memory.low", NEW_CGROUP)}
    assert journal.undo_entries.keys() == expected
    if runtime == "crun":
        inodes[inner] = 8
    starting.clear()
    journal.bind_new(inodes.get)
    expected = {(path, "memory.low", inode) for path, inode in inodes.items()}
    assert journal.undo_entries.keys() == expected


def test_a_rollback_waits_for_the_cgroup_that_crun_makes_too(node: Node, journal: Journal) -> None:
    scope = "/kubepods.slice/kubepods-pod1.slice/cri-containerd-a.scope"
    inner = f"{scope}/container"
    starting = {scope, inner}
    journal.is_starting = starting.__contains__
    journal.record_writes(
        [
            IntentRecord(path, "memory.low", NEW_CGROUP, "0", "4096", "container", "ns/pod")
            for path in (scope, inner)
        ]
    )
    for path in (scope, inner):
        node.kernel.make(path, {"memory.low": "4096"})
        rollback(node.kernel, DirectDriver(node.kernel), journal, WriteOptions(PAGE, 0))
        assert node.kernel.read(path, "memory.low") == "0"
    starting.clear()
    assert not journal.undo_entries


@pytest.mark.parametrize("is_written", [False, True])
def test_what_is_written_to_a_new_cgroup_before_it_is_known_by_its_inode_is_memqos_own(
    journal: Journal, is_written: bool
) -> None:
    journal.record_writes([intent("0", "4096", (*PLACE[:2], NEW_CGROUP))])
    journal.record_writes([intent("4096", "8192")])
    if is_written:
        journal.record_outcome(outcome(written=True))
    journal.bind_new({PLACE[0]: PLACE[2]}.get)
    [entry] = journal.undo_entries.values()
    assert entry == UndoEntry(*PLACE, "0", ("4096", "8192"), "pod", "ns/pod")


def test_what_a_runtime_is_about_to_write_while_its_container_is_restored_is_not_forgotten(
    node: Node,
) -> None:
    place = (CONTAINERS[1], "memory.low")
    ours = str(8 * MI)
    node.apply(node.steps({place: ours}))
    with open_journal(node.journal_folder, hierarchy_of(node.kernel, node.boot)) as opened:
        [key] = opened.undo_entries

        class Driver(DirectDriver):
            """Meanwhile another thread records a resize."""

            def write(self, changes: Sequence[Change]) -> bool:
                result = super().write(changes)
                opened.record_writes([IntentRecord(*key, str(2 * MI), ours, "container", "ns/pod")])
                return result

        rollback(node.kernel, Driver(node.kernel), opened, WriteOptions(PAGE, 0))
    node.kernel.set(*place, ours)
    node.rollback()
    assert node.kernel.read(*place) == str(2 * MI)


def test_what_a_killed_writer_left_half_written_is_removed_by_the_next(node: Node) -> None:
    os.makedirs(f"{node.journal_folder}/.memqos-folder", 0o700)
    os.chmod(node.journal_folder, 0o700)
    left = node.journal.with_name(".memqos-0123456789abcdef")
    left.write_bytes(b"half of a journ")
    node.apply(node.steps(a_plan()))
    assert not left.exists()
    node.rollback()
    assert not node.journal.exists()


class TestADamagedJournal:
    def test_is_used_up_to_the_damage_and_kept_for_a_look(self, node: Node) -> None:
        before = node.kernel.contents()
        node.apply(node.steps({(CONTAINERS[1], "memory.min"): str(MI)}))
        size = node.journal.stat().st_size
        node.apply(node.steps({(CONTAINERS[2], "memory.min"): str(MI)}))
        damaged = bytearray(node.journal.read_bytes())
        damaged[size + 30] ^= 1
        node.journal.write_bytes(damaged)
        assert node.read_journal().damage == Damage(4, torn=False)
        assert len(node.rollback().results) == 1
        assert node.kernel.contents()[f"{CONTAINERS[1][1:]}/memory.min"] == b"0\n"
        assert node.kernel.contents() != before
        assert not node.journal.exists()
        (kept,) = node.journal.parent.glob("journal.damaged-*")
        assert kept.read_bytes() == damaged

    def test_does_not_take_away_what_the_next_apply_writes(self, node: Node) -> None:
        before = node.kernel.contents()
        node.apply(node.steps({(CONTAINERS[1], "memory.min"): str(MI)}))
        node.journal.write_bytes(node.journal.read_bytes() + b"nonsense\n")
        node.apply(node.steps({(CONTAINERS[2], "memory.min"): str(MI)}))
        assert node.read_journal().damage is None
        assert len(node.read_journal().undo_entries) == 2
        node.rollback()
        assert node.kernel.contents() == before

    def test_that_is_moved_away_under_its_writer_makes_way_for_another(self, node: Node) -> None:
        node.apply(node.steps({(CONTAINERS[1], "memory.min"): str(MI)}))
        node.journal.write_bytes(node.journal.read_bytes() + b"nonsense\n")
        with open_journal(node.journal_folder, hierarchy_of(node.kernel, node.boot)) as journal:
            node.journal.rename(node.journal.with_name("to-look-at"))
            journal.record_writes([level_intent("0", "4096")])
        assert len(node.read_journal().undo_entries) == 2

    def test_with_a_torn_end_goes_on_after_the_last_whole_record(self, node: Node) -> None:
        before = node.kernel.contents()
        node.apply(node.steps(a_plan(1)))
        node.journal.write_bytes(node.journal.read_bytes()[:-5])
        assert node.read_journal().damage is not None
        node.apply(node.steps(a_plan(2)))
        assert node.read_journal().damage is None
        node.rollback()
        assert node.kernel.contents() == before
        assert not list(node.journal.parent.glob("journal.damaged-*"))

    @pytest.mark.parametrize("data", [b"", b"\n", b"\0" * 4096, b"{}", b"ffffffff " * 9])
    def test_that_is_nonsense_from_the_start_says_nothing(self, node: Node, data: bytes) -> None:
        os.mkdir(node.journal_folder, 0o700)
        node.journal.write_bytes(data)
        before = node.kernel.contents()
        assert node.rollback().results == ()
        node.apply(node.steps(a_plan()))
        node.rollback()
        assert node.kernel.contents() == before
