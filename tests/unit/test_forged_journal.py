"""A journal that somebody else has written: rollback writes memory values, or nothing."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.commands import Done, memqos
from tests.fakes.agent import SteppedNode
from tests.fakes.cgroups import FakeKernel
from tests.fakes.node import MI, memory_folder
from tests.fakes.owner_node import KUBEPODS, PODS, OwnedNode

from memqos.cli.main import WRONG_USAGE
from memqos.converge.direct_driver import DirectDriver
from memqos.converge.journal import hierarchy_of
from memqos.converge.records import (
    Damage,
    IntentRecord,
    JournalRecord,
    KubeletWriteRecord,
    OutcomeRecord,
    OwnerRecord,
    OwnerState,
    encode_journal,
)
from memqos.errors import MemqosError
from memqos.host.cgroups import CgroupFs
from memqos.host.machine import SYSTEM, Roots, read_machine
from memqos.host.owner_discovery import OwnerEndpoints
from memqos.plan.names import systemd_unit
from memqos.plan.tree import Level

UNIT = "kubepods.slice"
LOW = "memory.low"
POD = PODS[0]
ROOT_SHELL = "[Service]\nExecStartPre=/bin/sh -c evil\n"
TENTH = f"[Slice]\nMemoryLow={10 * MI}\n"
SSHD = "sshd.service"
SSHD_PATH = f"/system.slice/{SSHD}"
SSHD_TENTH = TENTH.replace("Slice", "Service")
DROP_IN = "system.control/kubepods.slice.d/50-MemoryLow.conf"


@pytest.fixture
def node() -> Iterator[OwnedNode]:
    with memory_folder() as folder:
        node = OwnedNode(folder)
        node.boot = read_machine(SYSTEM).boot_id or ""
        (node.systemd.run / "transient" / UNIT).unlink()
        yield node


def forge(node: OwnedNode, *records: JournalRecord) -> None:
    os.makedirs(node.journal_folder, 0o700, exist_ok=True)
    node.journal.write_bytes(encode_journal([hierarchy_of(node.kernel, node.boot), *records])[0])


def owner_record(node: OwnedNode, text: str | None = TENTH, unit: str = UNIT) -> OwnerRecord:
    cgroup = node.kernel.identity(KUBEPODS) or 0
    return OwnerRecord(KUBEPODS, cgroup, OwnerState("systemd", unit, {LOW: text}))


def intent(node: OwnedNode) -> IntentRecord:
    return IntentRecord(KUBEPODS, LOW, node.kernel.identity(KUBEPODS) or 0, "0", "0", "kubepods")


def inform_systemd(node: OwnedNode, unit: str = UNIT) -> None:
    node.systemd.set_properties(unit, {"MemoryLow": 7 * MI})


def owner_record_of_sshd(node: OwnedNode) -> OwnerRecord:
    cgroup = node.kernel.identity(SSHD_PATH) or 0
    return OwnerRecord(SSHD_PATH, cgroup, OwnerState("systemd", SSHD, {LOW: SSHD_TENTH}))


def configure_kubelet(node: OwnedNode, settings: str) -> Path:
    """Where a kubelet's configuration is looked for."""
    file = Path(node.journal_folder).with_name("kubelet") / "config.yaml"
    file.parent.mkdir()
    file.write_text(f"kind: KubeletConfiguration\n{settings}\n")
    return file


def run_rollback(
    node: OwnedNode,
    monkeypatch: pytest.MonkeyPatch,
    *options: str,
    reach: OwnerEndpoints | None = None,
) -> Done:
    folder = str(Path(node.journal_folder).parent)
    roots = Roots(cgroup=node.kernel.root, kubelet=f"{folder}/kubelet", proc=f"{folder}/no-proc")
    monkeypatch.setattr("memqos.cli.rollback.Roots", lambda **_k: roots)
    monkeypatch.setattr(
        "memqos.converge.cgroup_writer.discover_owners",
        lambda *_a, **_k: reach or node.owner_endpoints,
    )
    places = ("--cgroup-root", node.kernel.root, "--journal", node.journal_folder)
    return memqos("rollback", *places, *options)


@pytest.mark.parametrize(
    ("unit", "text"),
    [(UNIT, ROOT_SHELL), (UNIT, TENTH + ROOT_SHELL), (SSHD, SSHD_TENTH), (SSHD, TENTH)],
)
def test_a_drop_in_that_systemd_would_not_write_ends_what_is_believed(
    node: OwnedNode, unit: str, text: str
) -> None:
    inform_systemd(node)
    inform_systemd(node, SSHD)
    before = node.systemd.traces()
    forge(node, owner_record(node, text, unit), intent(node))
    assert node.read_journal().damage == Damage(2, torn=False)
    assert node.rollback().owners_restored == ()
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
    node.kernel.make(SSHD_PATH)
    inform_systemd(node, SSHD)
    traces, contents = node.systemd.traces(), node.kernel.contents()
    kept = owner_record_of_sshd(node)
    old, new = ("0", "") if file == "cpuset.mems" else (str(10 * MI), str(7 * MI))
    forge(node, kept, IntentRecord(SSHD_PATH, file, kept.cgroup, old, new, level))
    assert node.read_journal().damage == Damage(3, torn=False)
    assert node.rollback().owners_restored == ()
    assert (node.systemd.traces(), node.kernel.contents()) == (traces, contents)


@pytest.mark.parametrize(
    ("path", "file", "level"),
    [
        (POD, LOW, "pod"),
        (KUBEPODS, LOW, "qos"),
        (KUBEPODS, "memory.high", "kubepods"),
        (KUBEPODS, "cpuset.mems", "kubepods"),
        (KUBEPODS, "cgroup.procs", "kubepods"),
        (SSHD_PATH, LOW, "kubepods"),
        (SSHD_PATH, LOW, "reserved"),
        (f"{KUBEPODS}/../x", LOW, "kubepods"),
    ],
)
def test_a_write_in_the_kubelets_place_is_believed_only_of_what_kubelets_keep(
    node: OwnedNode, path: str, file: str, level: Level
) -> None:
    cgroup = node.kernel.identity(path if path in (POD, KUBEPODS) else KUBEPODS) or 0
    contents = node.kernel.contents()
    forge(node, KubeletWriteRecord(path, file, cgroup, "0", "0", level))
    assert node.read_journal().damage == Damage(2, torn=False)
    assert node.rollback(force=True, kubelet_files=()).results == ()
    assert node.kernel.contents() == contents


@pytest.mark.parametrize(
    ("cgroup", "old", "new"), [(0, "0", "4096"), (None, "-1", "4096"), (None, "0", "4096\n+1")]
)
def test_a_write_in_the_kubelets_place_is_of_a_cgroup_that_is_there_and_of_values(
    node: OwnedNode, cgroup: int | None, old: str, new: str
) -> None:
    found = node.kernel.identity(KUBEPODS) or 0
    inode = found if cgroup is None else cgroup
    forge(node, KubeletWriteRecord(KUBEPODS, LOW, inode, old, new, "kubepods"))
    assert node.read_journal().damage == Damage(2, torn=False)


def test_a_drop_in_is_not_restored_by_a_write_that_the_kubelet_keeps(node: OwnedNode) -> None:
    inform_systemd(node)
    node.kernel.set(KUBEPODS, LOW, str(7 * MI))
    cgroup = node.kernel.identity(KUBEPODS) or 0
    write = KubeletWriteRecord(KUBEPODS, LOW, cgroup, "0", str(7 * MI), "kubepods")
    forge(node, owner_record(node, TENTH, UNIT), write)
    before = node.systemd.traces()
    with node.owners():
        done = node.rollback(kubelet_files={(KUBEPODS, LOW)})
    assert ([each.state for each in done.not_written], done.results) == (["kubelet"], ())
    assert node.systemd.traces() == before


def forge_reserved(node: OwnedNode, path: str, now: str, *more: JournalRecord) -> None:
    """A record that calls a cgroup reserved, where this is the value now and 7 Mi memqos's."""
    if node.kernel.identity(path) is None:
        node.kernel.make(path)
    node.kernel.set(path, LOW, now)
    cgroup = node.kernel.identity(path) or 0
    forge(node, *more, IntentRecord(path, LOW, cgroup, "0", str(7 * MI), "reserved"))


class TestACgroupThatOnlyTheJournalCallsReserved:
    @pytest.mark.parametrize("now", [7 * MI, 8 * MI])
    def test_is_not_written_to(self, node: OwnedNode, now: int) -> None:
        forge_reserved(node, "/sshd", str(now))
        contents = node.kernel.contents()
        done = node.rollback(force=True)
        assert node.kernel.contents() == contents
        assert (done.results, done.refused) == ((), ("/sshd",))
        assert node.read_journal().undo_entries

    @pytest.mark.parametrize("now", [0, 7 * MI])
    def test_keeps_its_drop_in(self, node: OwnedNode, now: int) -> None:
        node.kernel.make(SSHD_PATH)
        inform_systemd(node, SSHD)
        forge_reserved(node, SSHD_PATH, str(now), owner_record_of_sshd(node))
        traces, contents = node.systemd.traces(), node.kernel.contents()
        with node.owners():
            done = node.rollback()
        assert (node.systemd.traces(), node.kernel.contents()) == (traces, contents)
        assert (done.owners_restored, done.refused) == ((), (SSHD_PATH,))
        assert node.read_journal().owner_states

    def test_keeps_its_drop_in_where_nothing_is_owed(self, node: OwnedNode) -> None:
        node.kernel.make(SSHD_PATH)
        inform_systemd(node, SSHD)
        kept = owner_record_of_sshd(node)
        meant = IntentRecord(SSHD_PATH, LOW, kept.cgroup, "0", "0", "reserved")
        forge(node, kept, meant, OutcomeRecord(SSHD_PATH, LOW, kept.cgroup, written=False))
        traces = node.systemd.traces()
        assert node.rollback().owners_restored == ()
        assert node.systemd.traces() == traces

    def test_is_reported_with_the_reason_and_what_to_do(
        self, node: OwnedNode, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        forge_reserved(node, "/a b", str(7 * MI))
        option = "If memqos wrote it, rollback with --reserved-cgroup '/a b' restores it"
        unknown = "no kubelet configuration is known, --kubelet FILE gives one"
        for options in ((), ("--list",)):
            done = run_rollback(node, monkeypatch, *options)
            assert (done.code, done.out.splitlines()[-1]) == (2, "1 refused")
            assert done.err == f"note: /a b is not changed: {unknown}. {option}\n"
        file = configure_kubelet(node, "kubeReservedCgroup: /podruntime")
        named = f"/a b is not changed: {file} does not name it as a reserved cgroup. {option}"
        data = run_rollback(node, monkeypatch, "-o", "json").data
        assert (data["notes"], data["values"][0]["state"]) == ([named], "refused")
        file.write_text("kubeReservedCgroup: [")
        assert f"{unknown}; {file}:2" in run_rollback(node, monkeypatch).err
        assert run_rollback(node, monkeypatch, "--reserved-cgroup", "/a b").code == 0
        assert (node.kernel.read("/a b", LOW), node.journal.exists()) == ("0", False)

    def test_is_not_what_the_same_name_means_to_another_driver(
        self, node: OwnedNode, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        configure_kubelet(node, f"cgroupDriver: systemd\nkubeReservedCgroup: {SSHD_PATH}")
        forge_reserved(node, SSHD_PATH, str(7 * MI))
        assert run_rollback(node, monkeypatch).out == "1 refused\n"

    def test_has_to_be_a_path_if_a_person_names_it(
        self, node: OwnedNode, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        done = run_rollback(node, monkeypatch, "--reserved-cgroup", "/../sshd")
        assert done.code == WRONG_USAGE
        assert "'/../sshd' is not the path of a cgroup" in done.err


@pytest.mark.parametrize(
    ("settings", "path"),
    [
        ("cgroupDriver: systemd\nkubeReservedCgroup: /podruntime", "/podruntime.slice"),
        (
            "cgroupDriver: systemd\nsystemReservedCgroup: /a/a-b.slice\ncgroupRoot: /root",
            "/a.slice/a-b.slice",
        ),
        ("cgroupRoot: /root\nkubeReservedCgroup: /pod/runtime", "/pod/runtime"),
        ("cgroupRoot: /root\nsystemReservedCgroup: /system.slice", "/system.slice"),
        # The cgroups are named by systemd's driver, and planned as they are named.
        ("kubeReservedCgroup: /podruntime", "/podruntime.slice"),
    ],
)
@pytest.mark.parametrize("is_stated", [True, False])
def test_a_cgroup_that_the_kubelet_reserves_is_restored(
    node: OwnedNode, monkeypatch: pytest.MonkeyPatch, settings: str, path: str, is_stated: bool
) -> None:
    forge_reserved(node, path, str(7 * MI))
    unit = systemd_unit(path)
    if unit is not None:
        inform_systemd(node, unit)
        kept = OwnerRecord(
            path, node.kernel.identity(path) or 0, OwnerState("systemd", unit, {LOW: TENTH})
        )
        forge_reserved(node, path, str(7 * MI), kept)
    file = configure_kubelet(node, settings)
    if is_stated:
        file = file.rename(file.with_name("other.yaml"))
    with node.owners():
        done = run_rollback(node, monkeypatch, *(("--kubelet", str(file)) if is_stated else ()))
    assert (done.code, done.err) == (0, "")
    assert node.kernel.read(path, LOW) == "0"
    if unit is not None:
        assert (node.systemd.run / DROP_IN.replace(UNIT, unit)).read_text() == TENTH
    assert not node.journal.exists()


class TestAnAgent:
    """It reads the same journal when it starts, and acts on it then and when it ends."""

    @pytest.fixture
    def folder(self) -> Iterator[Path]:
        with memory_folder() as folder:
            yield folder

    def forge(self, folder: Path, *records: JournalRecord) -> None:
        (folder / "run").mkdir(0o700)
        about = hierarchy_of(FakeKernel(folder), "this-boot")
        (folder / "run/journal").write_bytes(encode_journal([about, *records])[0])

    def test_restores_only_what_the_kubelet_has_reserved(self, folder: Path) -> None:
        kernel = FakeKernel(folder)
        paths = ("/sshd", "/system")
        for path in paths:
            kernel.make(path, {LOW: str(7 * MI)})
        self.forge(
            folder,
            *[
                IntentRecord(path, LOW, kernel.identity(path) or 0, "0", str(7 * MI), "reserved")
                for path in paths
            ],
        )
        bed = SteppedNode(folder, "systemReservedCgroup: /system\n")
        # Another name since: what was written under the first is still the agent's own.
        (folder / "kubelet/config.yaml").write_text(f"{bed.kubelet}systemReservedCgroup: /new\n")
        bed.writer.allow_reserved(bed.reader.node_settings())
        done = bed.writer.restore_all()
        assert [bed.mi(path, LOW) for path in paths] == [7, 0]
        assert done.refused == ("/sshd",)

    def test_has_no_owner_put_back_what_is_of_no_pod(
        self, folder: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        asked: list[str] = []
        monkeypatch.setattr(
            DirectDriver, "restore_owner", lambda _self, path, *_more: asked.append(path)
        )
        pod = "/kubepods.slice/kubepods-poda.slice"
        gone: list[tuple[str, Level]] = [(pod, "pod"), (SSHD_PATH, "reserved")]
        records: list[JournalRecord] = []
        for path, level in gone:
            holding = OwnerState("systemd", path.rpartition("/")[2], {LOW: None})
            records += [
                OwnerRecord(path, 1, holding),
                IntentRecord(path, LOW, 1, "0", "4096", level),
            ]
        FakeKernel(folder)
        self.forge(folder, *records)
        bed = SteppedNode(folder)
        assert asked == [pod]
        assert list(bed.writer.undo_entries) == [(SSHD_PATH, LOW, 1)]


def test_a_unit_that_memqos_did_not_mean_to_write_is_left_alone(node: OwnedNode) -> None:
    inform_systemd(node)
    before = node.systemd.traces()
    forge(node, owner_record(node))
    assert node.rollback().owners_restored == ()
    assert node.systemd.traces() == before


def test_a_drop_in_that_is_not_there_is_not_made(node: OwnedNode) -> None:
    before = node.systemd.traces()
    forge(node, owner_record(node), intent(node))
    assert node.rollback().owners_restored == ()
    assert node.systemd.traces() == before


def test_a_drop_in_behind_a_link_is_not_written(node: OwnedNode, tmp_path: Path) -> None:
    theirs = tmp_path / "50-MemoryLow.conf"
    theirs.write_text("theirs")
    folder = node.systemd.run / "system.control"
    folder.mkdir()
    (folder / f"{UNIT}.d").symlink_to(tmp_path)
    forge(node, owner_record(node), intent(node))
    (why,) = node.rollback().owner_failures
    assert "kubepods.slice.d: a link" in why
    assert theirs.read_text() == "theirs"


def test_a_memory_value_of_a_unit_is_all_that_is_written_and_it_is_reported(
    node: OwnedNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    inform_systemd(node)
    node.kernel.set(KUBEPODS, LOW, "0")
    forge(node, owner_record(node), intent(node))
    shown = run_rollback(node, monkeypatch, "--list")
    assert "and the settings in systemd and the runtime of 1 cgroup" in shown.out
    listed = run_rollback(node, monkeypatch, "--list", "-o", "json").data["owners"]
    assert listed == [{"path": KUBEPODS, "owner": "systemd", "name": UNIT, "files": [LOW]}]
    before = node.journal.read_bytes()
    done = run_rollback(node, monkeypatch)
    assert done.out.splitlines() == [
        "1 restored in systemd and the runtime",
        "1 already restored",
    ]
    assert (node.systemd.run / DROP_IN).read_text() == TENTH
    inform_systemd(node)
    node.kernel.set(KUBEPODS, LOW, "0")
    node.journal.write_bytes(before)
    data = run_rollback(node, monkeypatch, "-o", "json").data
    assert data["released"] == ["kubepods.slice: MemoryLow"]


def test_of_a_copy_of_a_tree_touches_no_systemd(
    node: OwnedNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("memqos.converge.router.SYSTEMD_RUN", str(node.systemd.run))
    inform_systemd(node)
    node.kernel.set(KUBEPODS, LOW, "0")
    before = node.systemd.traces()
    for text in (None, TENTH):
        forge(node, owner_record(node, text), intent(node))
        done = run_rollback(node, monkeypatch, reach=OwnerEndpoints(is_copy=True))
        assert (done.code, done.out) == (0, "1 already restored\n")
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
    meant = IntentRecord("/kubepods/burstable", LOW, inode, "4096", "7", "qos")
    (journal / "journal").write_bytes(encode_journal([hierarchy_of(fs, boot), meant])[0])
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
    inform_systemd(node)
    (node.systemd.run / DROP_IN).write_text("[Slice]\nMemoryLow=10%\nMemoryMax=20%\n")
    before = node.kernel.contents()
    with node.owners():
        (result,) = node.apply(node.steps({(KUBEPODS, LOW): str(MI)})).results
    assert result.outcome == "refused"
    assert "systemctl revert kubepods.slice" in (result.detail or "")
    assert node.kernel.contents() == before
    assert not node.journal.exists()
