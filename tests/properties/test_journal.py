"""Whatever becomes of a journal, rollback writes nothing but what was there before."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.fakes.node import CGROUPS, CONTAINERS, MI, Node, a_plan, memory_folder
from tests.fakes.owner_node import BURSTABLE, KUBEPODS, SLICES, OwnedNode

from memqos.converge.journal import hierarchy_of
from memqos.converge.records import (
    IntentRecord,
    JournalRecord,
    OwnerKind,
    OwnerRecord,
    OwnerState,
    decode_journal,
    encode_journal,
)
from memqos.converge.undo import undo_entries
from memqos.host.systemd_dropins import is_drop_in

MIN = "memory.min"


class Written:
    """A node with a plan applied, to be had again and again."""

    def __init__(self, node: Node) -> None:
        self.node = node
        self.before = node.kernel.contents()
        node.apply(node.steps(a_plan(1)))
        node.apply(node.steps(a_plan(2)))
        self.after = node.kernel.contents()
        self.journal = node.journal.read_bytes()

    def again(self, journal: bytes) -> None:
        for name, content in self.after.items():
            (self.node.kernel.folder / name).write_bytes(content)
        for left in self.node.journal.parent.glob("journal*"):
            left.unlink()
        self.node.journal.write_bytes(journal)


@pytest.fixture(scope="module")
def written() -> Iterator[Written]:
    with memory_folder() as folder:
        yield Written(Node(folder))


def check(written: Written, journal: bytes) -> None:
    """What the journal still tells of is as it was before, all else as it is, for good."""
    written.again(journal)
    expected = dict(written.after)
    for undo_entry in undo_entries(decode_journal(journal).records).values():
        name = f"{undo_entry.path}/{undo_entry.file}".removeprefix("/")
        if expected[name].decode().rstrip("\n") in undo_entry.ours:
            expected[name] = written.before[name]
    written.node.rollback()
    now = written.node.kernel.contents()
    assert now == expected
    assert written.node.rollback().results == ()
    assert written.node.kernel.contents() == now


some = settings(
    max_examples=60,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)


@some
@given(data=st.data())
def test_a_journal_cut_anywhere_restores_what_it_still_tells_of(
    written: Written, data: st.DataObject
) -> None:
    length = data.draw(st.integers(0, len(written.journal)))
    check(written, written.journal[:length])


@some
@given(data=st.data())
def test_a_journal_with_any_byte_altered_never_has_a_wrong_value_written(
    written: Written, data: st.DataObject
) -> None:
    position = data.draw(st.integers(0, len(written.journal) - 1))
    value = data.draw(st.integers(0, 255))
    altered = bytearray(written.journal)
    altered[position] = value
    check(written, bytes(altered))


@some
@given(junk=st.binary(max_size=200), at=st.integers(0, 20_000))
def test_a_journal_with_junk_in_it_never_has_a_wrong_value_written(
    written: Written, junk: bytes, at: int
) -> None:
    check(written, written.journal[:at] + junk + written.journal[at:])


@given(data=st.binary(max_size=400))
def test_any_bytes_are_read_without_a_fault(data: bytes) -> None:
    assert decode_journal(data).records == ()


UNITS = ("kubepods.slice", "kubepods-burstable.slice", "sshd.service", "../../x.slice")
PATHS = (KUBEPODS, BURSTABLE, "/system.slice/sshd.service", "/kubepods.slice/../x.slice", "/etc")
TEXTS = (
    None,
    "[Slice]\nMemoryLow=4096\n",
    "[Slice]\nMemoryMin=infinity\n",
    "[Service]\nMemoryLow=4096\nExecStart=/bin/sh\n",
    "4096",
    "max",
)
files = st.sampled_from(["memory.min", "memory.low", "memory.high", "cpuset.mems", "cgroup.procs"])
owners: st.SearchStrategy[OwnerKind] = st.sampled_from(["systemd", "runtime"])


@settings(max_examples=150)
@given(
    forged=st.lists(
        st.tuples(
            st.sampled_from(PATHS) | st.text(max_size=20),
            owners,
            st.sampled_from(UNITS) | st.text(max_size=20),
            st.dictionaries(files, st.sampled_from(TEXTS) | st.text(max_size=40), max_size=3),
        ),
        max_size=4,
    )
)
def test_a_forged_journal_leaves_nothing_in_systemd_but_memory_values(
    forged: list[tuple[str, OwnerKind, str, dict[str, str | None]]],
) -> None:
    with memory_folder() as folder:
        node = OwnedNode(folder)
        for unit in UNITS[:3]:
            node.systemd.set_properties(unit, {"MemoryLow": 8192, "MemoryMin": 4096})
        before = node.systemd.traces()
        records: list[JournalRecord] = [hierarchy_of(node.kernel, node.boot)]
        for path, owner, name, values in forged:
            cgroup = (node.kernel.identity(path) if path in PATHS[:2] else None) or 7
            records.append(OwnerRecord(path, cgroup, OwnerState(owner, name, values)))
            level = SLICES.get(path, "reserved")
            records.append(IntentRecord(path, "memory.low", cgroup, "0", "1", level))
        os.mkdir(node.journal_folder, 0o700)
        node.journal.write_bytes(encode_journal(records)[0])
        node.rollback()
        now = node.systemd.traces()
        assert now.keys() <= before.keys()
        for place in [place for place, text in now.items() if text != before[place]]:
            file = Path(place)
            unit, name = file.parent.stem, file.stem.removeprefix("50-")
            assert is_drop_in(unit, name, now[place])


Action = tuple[str, str, int]


@settings(max_examples=40)
@given(
    actions=st.lists(
        st.tuples(
            st.sampled_from(["apply", "apply", "others", "rollback"]),
            st.sampled_from(CONTAINERS[1:4]),
            st.integers(0, 4),
        ),
        max_size=12,
    )
)
def test_rollback_restores_what_others_last_wrote(actions: list[Action]) -> None:
    """Against the plainest of models: what each file held when somebody else last wrote to it."""
    with memory_folder() as folder:
        node = Node(folder)
        theirs = dict.fromkeys(CGROUPS, "0")
        ours: dict[str, str] = {}
        for action, path, amount in actions:
            value = str(amount * MI)
            if action == "apply":
                node.apply(node.steps({(path, MIN): value}))
                ours[path] = value
            elif action == "others" and value != ours.get(path):
                node.kernel.set(path, MIN, value)
                theirs[path] = value
                ours.pop(path, None)
            elif action == "rollback":
                node.rollback(force=True)
                ours.clear()
                theirs = {path: node.kernel.read(path, MIN) or "" for path in CGROUPS}
        node.rollback()
        for path in ours:
            assert node.kernel.read(path, MIN) == theirs[path]
