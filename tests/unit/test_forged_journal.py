"""A journal that somebody else has written: rollback writes memory values, or nothing."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.commands import Done, memqos
from tests.fakes.node import MI, memory_folder
from tests.fakes.owned import KUBEPODS, OwnedNode

from memqos.converge.journal import hierarchy_of
from memqos.converge.records import Damage, Held, Holding, Intent, Record, encode
from memqos.errors import MemqosError
from memqos.host.cgroups import CgroupFs
from memqos.host.machine import SYSTEM, read_machine
from memqos.host.owner_discovery import Reach
from memqos.plan.tree import Level

UNIT = "kubepods.slice"
LOW = "memory.low"
ROOT_SHELL = "[Service]\nExecStartPre=/bin/sh -c evil\n"
TENTH = f"[Slice]\nMemoryLow={10 * MI}\n"
SSHD = "sshd.service"
SSHD_TENTH = TENTH.replace("Slice", "Service")
DROP_IN = "system.control/kubepods.slice.d/50-MemoryLow.conf"


@pytest.fixture
def node() -> Iterator[OwnedNode]:
    with memory_folder() as folder:
        node = OwnedNode(folder)
        node.boot = read_machine(SYSTEM).boot_id or ""
        (node.systemd.run / "transient" / UNIT).unlink()
        yield node


def forge(node: OwnedNode, *records: Record) -> None:
    os.makedirs(node.journal_folder, 0o700, exist_ok=True)
    node.journal.write_bytes(encode([hierarchy_of(node.kernel, node.boot), *records])[0])


def held(node: OwnedNode, text: str | None = TENTH, unit: str = UNIT) -> Held:
    cgroup = node.kernel.identity(KUBEPODS) or 0
    return Held(KUBEPODS, cgroup, Holding("systemd", unit, {LOW: text}))


def intent(node: OwnedNode) -> Intent:
    return Intent(KUBEPODS, LOW, node.kernel.identity(KUBEPODS) or 0, "0", "0", "kubepods")


def have_told_systemd(node: OwnedNode, unit: str = UNIT) -> None:
    node.systemd.set_properties(unit, {"MemoryLow": 7 * MI})


def run_rollback(
    node: OwnedNode, monkeypatch: pytest.MonkeyPatch, *options: str, reach: Reach | None = None
) -> Done:
    monkeypatch.setattr("memqos.cli.outcomes.reach", lambda *_a, **_k: reach or node.reach)
    places = ("--cgroup-root", node.kernel.root, "--journal", node.journal_folder)
    return memqos("rollback", *places, *options)


@pytest.mark.parametrize(
    ("unit", "text"),
    [(UNIT, ROOT_SHELL), (UNIT, TENTH + ROOT_SHELL), (SSHD, SSHD_TENTH), (SSHD, TENTH)],
)
def test_a_drop_in_that_systemd_would_not_write_ends_what_is_believed(
    node: OwnedNode, unit: str, text: str
) -> None:
    have_told_systemd(node)
    have_told_systemd(node, SSHD)
    before = node.systemd.traces()
    forge(node, held(node, text, unit), intent(node))
    assert node.reading().damage == Damage(2, torn=False)
    assert node.rollback().released == ()
    assert node.systemd.traces() == before


@pytest.mark.parametrize(
    ("level", "file"),
    [
        ("kubepods", LOW),
        ("qos", LOW),
        ("pod", LOW),
        ("container", LOW),
        ("reserved", "cpuset.mems"),
    ],
)
def test_a_unit_that_no_kubelet_makes_is_left_alone(
    node: OwnedNode, level: Level, file: str
) -> None:
    path = f"/system.slice/{SSHD}"
    node.kernel.make(path)
    have_told_systemd(node, SSHD)
    traces, contents = node.systemd.traces(), node.kernel.contents()
    cgroup = node.kernel.identity(path) or 0
    kept = Held(path, cgroup, Holding("systemd", SSHD, {LOW: SSHD_TENTH}))
    old, new = ("0", "") if file == "cpuset.mems" else (str(10 * MI), str(7 * MI))
    forge(node, kept, Intent(path, file, cgroup, old, new, level))
    assert node.reading().damage == Damage(3, torn=False)
    assert node.rollback().released == ()
    assert (node.systemd.traces(), node.kernel.contents()) == (traces, contents)


def test_a_unit_of_what_is_reserved_may_be_any(node: OwnedNode) -> None:
    path = f"/system.slice/{SSHD}"
    node.kernel.make(path)
    have_told_systemd(node, SSHD)
    cgroup = node.kernel.identity(path) or 0
    kept = Held(path, cgroup, Holding("systemd", SSHD, {LOW: SSHD_TENTH}))
    forge(node, kept, Intent(path, LOW, cgroup, "0", str(7 * MI), "reserved"))
    with node.owners():
        assert node.rollback().released == ("sshd.service: MemoryLow",)
    assert node.kernel.read(path, LOW) == "0"


def test_a_unit_that_memqos_did_not_mean_to_write_is_left_alone(node: OwnedNode) -> None:
    have_told_systemd(node)
    before = node.systemd.traces()
    forge(node, held(node))
    assert node.rollback().released == ()
    assert node.systemd.traces() == before


def test_a_drop_in_that_is_not_there_is_not_made(node: OwnedNode) -> None:
    before = node.systemd.traces()
    forge(node, held(node), intent(node))
    assert node.rollback().released == ()
    assert node.systemd.traces() == before


def test_a_drop_in_behind_a_link_is_not_written(node: OwnedNode, tmp_path: Path) -> None:
    theirs = tmp_path / "50-MemoryLow.conf"
    theirs.write_text("theirs")
    folder = node.systemd.run / "system.control"
    folder.mkdir()
    (folder / f"{UNIT}.d").symlink_to(tmp_path)
    forge(node, held(node), intent(node))
    (why,) = node.rollback().unreleased
    assert "kubepods.slice.d: a link" in why
    assert theirs.read_text() == "theirs"


def test_a_memory_value_of_a_unit_is_all_that_is_written_and_it_is_told(
    node: OwnedNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    have_told_systemd(node)
    node.kernel.set(KUBEPODS, LOW, "0")
    forge(node, held(node), intent(node))
    shown = run_rollback(node, monkeypatch, "--list")
    assert "and what systemd and the runtime kept of 1 cgroup" in shown.out
    listed = run_rollback(node, monkeypatch, "--list", "-o", "json").data["owners"]
    assert listed == [{"path": KUBEPODS, "owner": "systemd", "name": UNIT, "files": [LOW]}]
    before = node.journal.read_bytes()
    done = run_rollback(node, monkeypatch)
    assert done.out.splitlines() == [
        "1 put back in what systemd and the runtime keep",
        "1 as before already",
    ]
    assert (node.systemd.run / DROP_IN).read_text() == TENTH
    have_told_systemd(node)
    node.kernel.set(KUBEPODS, LOW, "0")
    node.journal.write_bytes(before)
    data = run_rollback(node, monkeypatch, "-o", "json").data
    assert data["released"] == ["kubepods.slice: MemoryLow"]


def test_of_a_copy_of_a_tree_touches_no_systemd(
    node: OwnedNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("memqos.converge.routing.RUN", str(node.systemd.run))
    have_told_systemd(node)
    node.kernel.set(KUBEPODS, LOW, "0")
    before = node.systemd.traces()
    for text in (None, TENTH):
        forge(node, held(node, text), intent(node))
        done = run_rollback(node, monkeypatch, reach=Reach(is_copy=True))
        assert (done.code, done.out) == (0, "1 as before already\n")
    assert node.systemd.traces() == before


def test_that_is_a_link_or_a_pipe_is_not_read(node: OwnedNode) -> None:
    forge(node)
    elsewhere = node.journal.rename(node.journal.with_name("elsewhere"))
    node.journal.symlink_to(elsewhere)
    with pytest.raises(MemqosError, match="the journal cannot be read"):
        node.rollback()
    node.journal.unlink()
    os.mkfifo(node.journal)
    with pytest.raises(MemqosError, match="not a plain file"):
        node.rollback()


def test_a_value_is_not_written_through_a_link_in_a_copy_of_a_tree(tmp_path: Path) -> None:
    target = tmp_path / "passwd"
    target.write_text("root")
    (tmp_path / "tree/kubepods").mkdir(parents=True)
    (tmp_path / "tree/kubepods/memory.low").symlink_to(target)
    with pytest.raises(MemqosError, match=r"cannot write '0'"):
        CgroupFs(str(tmp_path / "tree")).write("/kubepods", LOW, "0")
    assert target.read_text() == "root"


def test_a_cgroup_behind_a_link_in_a_copy_of_a_tree_is_none(tmp_path: Path) -> None:
    (tmp_path / "outside/burstable").mkdir(parents=True)
    target = tmp_path / "outside/burstable/memory.low"
    target.write_text("7\n")
    (tmp_path / "tree").mkdir()
    (tmp_path / "tree/kubepods").symlink_to("../outside")
    fs = CgroupFs(str(tmp_path / "tree"))
    inode = target.parent.stat().st_ino
    for path in ("/kubepods", "/kubepods/burstable"):
        assert fs.identity(path) is None
    with pytest.raises(MemqosError, match="links are not followed"):
        fs.write("/kubepods/burstable", LOW, "4096")
    journal = tmp_path / "run"
    journal.mkdir(0o700)
    boot = read_machine(SYSTEM).boot_id or ""
    meant = Intent("/kubepods/burstable", LOW, inode, "4096", "7", "qos")
    (journal / "journal").write_bytes(encode([hierarchy_of(fs, boot), meant])[0])
    memqos("rollback", "--force", "--cgroup-root", fs.root, "--journal", str(journal))
    assert target.read_text() == "7\n"


def test_the_root_of_a_copy_of_a_tree_may_be_a_link(tmp_path: Path) -> None:
    (tmp_path / "tree/kubepods").mkdir(parents=True)
    (tmp_path / "tree/kubepods/memory.low").write_text("7\n")
    (tmp_path / "link").symlink_to("tree")
    fs = CgroupFs(str(tmp_path / "link"))
    fs.write("/kubepods", LOW, "0")
    assert (tmp_path / "tree/kubepods/memory.low").read_text() == "0\n"
    assert fs.identity("/kubepods") == (tmp_path / "tree/kubepods").stat().st_ino
    assert fs.identity("/") == (tmp_path / "tree").stat().st_ino


def test_a_drop_in_that_somebody_wrote_by_hand_keeps_memqos_from_writing(node: OwnedNode) -> None:
    have_told_systemd(node)
    (node.systemd.run / DROP_IN).write_text("[Slice]\nMemoryLow=10%\nMemoryMax=20%\n")
    before = node.kernel.contents()
    with node.owners():
        (result,) = node.apply(node.steps({(KUBEPODS, LOW): str(MI)})).results
    assert result.end == "refused"
    assert "systemctl revert kubepods.slice" in (result.detail or "")
    assert node.kernel.contents() == before
    assert not node.journal.exists()
