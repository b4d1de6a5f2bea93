"""Plan, apply and rollback on a plain folder that stands for a node's cgroups."""

import errno
import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import msgspec
import pytest
from tests.commands import Done, memqos
from tests.fakes.machine import deep_folder, put_tree
from tests.fakes.node import memory_folder

from memqos.cli.main import INTERRUPTED, WRONG_USAGE
from memqos.converge import observation
from memqos.host.cgroups import CgroupFs, ReadTree, read_tree
from memqos.host.machine import Roots, read_machine

NODES: Final = Path(__file__).parents[1] / "nodes"


class Folder:
    """A recorded node whose protection was taken away, and the commands about it."""

    def __init__(self, folder: Path, recorded: str = "cgroupfs") -> None:
        node: dict[str, Any] = json.loads((NODES / f"{recorded}.json").read_text())
        self.folder = folder
        self.tree = folder / "tree"
        for files in node["cgroups"].values():
            for file, content in files.items():
                files[file] = "0" if file in ("memory.min", "memory.low") else content.strip()
        put_tree(self.tree, {"/": {"cgroup.controllers": "memory"}, **node["cgroups"]})
        (folder / "pods.json").write_text(json.dumps(node["pods"]))
        (folder / "kubelet.yaml").write_text(node["kubelet_configuration"])
        self.root = ("--cgroup-root", str(self.tree))
        self.journal = ("--journal", str(folder / "run"))
        kubelet = ("--kubelet", str(folder / "kubelet.yaml"))
        self.flags = ("--pods", str(folder / "pods.json"), "--release", "1.38", *kubelet)

    def plan(self, *arguments: str) -> Done:
        return memqos("plan", *arguments, *self.root, *self.flags)

    def apply(self, *arguments: str) -> Done:
        return memqos("apply", "--yes", *arguments, *self.root, *self.journal, *self.flags)

    def apply_saved(self, file: Path, *arguments: str) -> Done:
        return memqos("apply", "--yes", str(file), *arguments, *self.root, *self.journal)

    def rollback(self, *arguments: str) -> Done:
        return memqos("rollback", *arguments, *self.root, *self.journal)

    def saved(self) -> Path:
        file = self.folder / "plan.json"
        assert self.plan("--out", str(file)).code == 2
        return file

    def contents(self) -> dict[Path, bytes]:
        return {path: path.read_bytes() for path in self.tree.rglob("*") if path.is_file()}


@pytest.fixture
def node() -> Iterator[Folder]:
    with memory_folder() as folder:
        yield Folder(folder)


def test_a_folder_is_converged_by_apply_and_as_before_after_rollback(node: Folder) -> None:
    before = node.contents()
    assert node.plan().code == 2
    applied = node.apply()
    assert applied.code == 0
    assert node.plan().code == 0
    assert node.contents() != before
    assert node.rollback().code == 0
    assert node.contents() == before


@pytest.mark.parametrize("options", [(), ("--allow-old-kernel",)])
def test_apply_leaves_memory_high_alone_on_an_old_kernel_unless_that_is_allowed(
    node: Folder, monkeypatch: pytest.MonkeyPatch, options: tuple[str, ...]
) -> None:
    old = msgspec.structs.replace(read_machine(Roots(cgroup=str(node.tree))), kernel="5.4.0")
    monkeypatch.setattr("memqos.cli.node_plan.read_machine", lambda _roots: old)
    for file in node.tree.rglob("memory.high"):
        file.write_text(f"{16 << 20}\n")

    def values(name: str) -> list[bytes]:
        return [content for path, content in node.contents().items() if path.name == name]

    before = values("memory.high"), values("memory.low")
    done = node.apply(*options)
    assert done.code == 0, done.err
    assert (values("memory.high") == before[0]) == (not options)
    assert values("memory.low") != before[1]
    assert ("kernel 5.4.0 is older than 5.9" in done.err) == (not options)


@pytest.mark.parametrize(
    ("recorded", "path"), [("cgroupfs", "podruntime"), ("systemd", "podruntime.slice")]
)
def test_a_reserved_cgroup_is_as_before_after_rollback_by_the_same_configuration(
    tmp_path: Path, recorded: str, path: str
) -> None:
    node = Folder(tmp_path, recorded)
    put_tree(node.tree, {f"/{path}": {"memory.min": "0", "memory.max": "max"}})
    kubelet = tmp_path / "kubelet.yaml"
    text = kubelet.read_text().replace("[pods]", "[pods, kube-reserved]")
    kubelet.write_text(f"{text}kubeReservedCgroup: /podruntime\n")
    before = node.contents()
    assert node.apply().code == 0
    assert (node.tree / path / "memory.min").read_text() == f"{100 << 20}\n"
    assert node.rollback("--kubelet", str(kubelet)).code == 0
    assert node.contents() == before


def test_a_shorter_value_leaves_nothing_of_a_longer_one(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "memory.low").write_text("4096000\n")
    fs = CgroupFs(str(tmp_path))
    fs.write("/a", "memory.low", "0")
    assert (tmp_path / "a" / "memory.low").read_bytes() == b"0\n"
    assert fs.read("/a", "memory.low") == "0"


def test_a_plan_of_a_relative_root_is_a_plan_of_that_folder(node: Folder) -> None:
    plan = node.folder / "plan.json"
    root = ("--cgroup-root", os.path.relpath(node.tree, NODES.parents[1]))
    assert memqos("plan", "--out", str(plan), *root, *node.flags).code == 2
    assert node.apply_saved(plan).code == 0


class TestAFileOfOut:
    """In a folder where others may have put files before, such as /tmp."""

    def save(self, node: Folder, command: str, file: Path) -> Done:
        if command == "plan":
            return node.plan("--out", str(file))
        return memqos("snapshot", "--out", str(file), *node.root, *node.flags[:2])

    @pytest.mark.parametrize("command", ["plan", "snapshot"])
    def test_is_nobody_else_s_whatever_was_there_before(self, node: Folder, command: str) -> None:
        folder = node.folder / "tmp"
        folder.mkdir()
        theirs, file = folder / "theirs", folder / "out.json"
        theirs.write_text("theirs")
        file.symlink_to(theirs)
        os.link(theirs, folder / "out.json.new")
        assert self.save(node, command, file).code in (0, 2)
        assert theirs.read_text() == "theirs"
        assert not file.is_symlink()
        assert json.loads(file.read_text())
        assert file.stat().st_mode & 0o777 == 0o600
        assert len(os.listdir(folder)) == 3

    @pytest.mark.parametrize("command", ["plan", "snapshot"])
    def test_is_not_put_in_the_place_of_a_device(self, node: Folder, command: str) -> None:
        pipe = node.folder / "pipe"
        os.mkfifo(pipe)
        done = self.save(node, command, pipe)
        assert (done.code, "this is not a plain file" in done.err) == (1, True)
        assert pipe.is_fifo()

    @pytest.mark.parametrize("command", ["plan", "snapshot"])
    def test_is_not_put_in_the_place_of_standard_output(self, node: Folder, command: str) -> None:
        """/dev/stdout is a link, to a plain file where output is redirected to one."""
        stdout = node.folder / "stdout"
        with open(node.folder / "redirected", "w") as redirected:
            stdout.symlink_to(f"/proc/self/fd/{redirected.fileno()}")
            done = self.save(node, command, stdout)
        assert (done.code, "this is not a plain file" in done.err) == (1, True)
        assert stdout.is_symlink()

    def test_has_a_name_as_long_as_the_file_system_takes(self, node: Folder) -> None:
        file = node.folder / ("a" * 250 + ".json")
        assert node.plan("--out", str(file)).code == 2
        assert node.apply_saved(file).code == 0


class TestAFolderOfPodsWithABrokenManifest:
    @pytest.fixture(autouse=True)
    def broken(self, node: Folder) -> None:
        pods = node.folder / "pods"
        pods.mkdir()
        (node.folder / "pods.json").rename(pods / "all.json")
        (pods / "broken.yaml").write_text("kind: [")
        node.flags = ("--pods", str(pods), *node.flags[2:])

    fault: Final = "broken.yaml:2:1: "

    def test_is_planned_for_the_others_and_is_an_error(self, node: Folder) -> None:
        done = node.plan()
        assert done.code == 1
        assert " to set" in done.out
        assert self.fault in done.err
        data = node.plan("-o", "json").data
        assert (len(data["faults"]), data["converged"]) == (1, False)
        assert data["changes"]

    def test_is_not_applied_nor_saved(self, node: Folder) -> None:
        before = node.contents()
        file = node.folder / "plan.json"
        for done in (node.apply(), node.plan("--out", str(file))):
            assert (done.code, done.out) == (1, "")
            assert self.fault in done.err
            assert "some pods could not be read, so the plan is not applied" in done.err
        assert node.contents() == before
        assert not file.exists()

    def test_is_diagnosed_and_kept_in_a_snapshot_without_it(self, node: Folder) -> None:
        done = memqos("doctor", "--seconds", "0.1", *node.root, *node.flags)
        assert (done.code, self.fault in done.err) == (1, True)
        done = memqos("snapshot", *node.root, *node.flags[:2])
        assert (done.code, self.fault in done.err) == (1, True)
        assert len(done.data["pods"]["items"]) == 12
        assert any("no pod can be read here" in note for note in done.data["notes"])


@pytest.mark.parametrize("command", ["plan", "doctor"])
def test_a_folder_that_is_not_there_is_reported(command: str, tmp_path: Path) -> None:
    done = memqos(command, "--cgroup-root", str(tmp_path / "none"))
    assert done.code == 1
    assert done.err.startswith(f"memqos: {tmp_path}/none: there is no such folder – ")


def test_a_node_without_kubepods_is_not_silently_converged(node: Folder) -> None:
    (node.tree / "kubepods").rename(node.tree / "elsewhere")
    assert (
        "missing: /kubepods: planned for all pods, but the cgroup does not exist" in node.plan().err
    )


def test_a_container_with_a_thousand_nested_cgroups_changes_nothing(node: Folder) -> None:
    container = next(path for path in (node.tree / "kubepods/burstable").glob("pod*/*/"))
    before = node.plan("-o", "json")
    doctor = ("doctor", "--seconds", "0.1", *node.root, *node.flags, "-o", "json")
    found = memqos(*doctor)
    with deep_folder(container):
        assert node.plan("-o", "json") == before
        assert memqos(*doctor) == found
        assert node.apply().code == 0
        taken = node.folder / "node.json"
        assert memqos("snapshot", "--out", str(taken), *node.root, *node.flags[:2]).code == 0
    cgroups = json.loads(taken.read_bytes())["cgroups"]
    inside = f"/{container.relative_to(node.tree)}/"
    assert not [path for path in cgroups if path.startswith(inside)]
    assert inside.rstrip("/") in cgroups


class TestInterrupted:
    """Somebody presses Ctrl-C, once, as a value is being written."""

    @pytest.fixture
    def interrupt(self, monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
        real, left = CgroupFs.write, [0]

        def write(fs: CgroupFs, path: str, file: str, value: str) -> None:
            left[0] -= 1
            if left[0] == 0:
                raise KeyboardInterrupt
            real(fs, path, file, value)

        monkeypatch.setattr(CgroupFs, "write", write)

        def at(number: int) -> None:
            left[0] = number

        return at

    def test_apply_says_what_can_be_done_and_the_journal_knows(
        self, node: Folder, interrupt: Callable[[int], None]
    ) -> None:
        before = node.contents()
        interrupt(3)
        stopped = node.apply()
        assert stopped.code == INTERRUPTED
        assert stopped.err.splitlines()[0] == (
            "stopped midway: memqos apply continues from here, memqos rollback restores the "
            "previous values"
        )
        assert node.contents() != before
        assert node.rollback().out == "2 restored\n37 already restored\n"
        assert node.contents() == before

    def test_apply_goes_on_with_the_same_plan(
        self, node: Folder, interrupt: Callable[[int], None]
    ) -> None:
        before, plan = node.contents(), node.saved()
        interrupt(3)
        assert node.apply_saved(plan).code == INTERRUPTED
        assert node.apply_saved(plan).out.endswith("37 written\n")
        assert node.rollback().code == 0
        assert node.contents() == before

    def test_rollback_goes_on_where_it_stopped(
        self, node: Folder, interrupt: Callable[[int], None]
    ) -> None:
        before = node.contents()
        node.apply()
        interrupt(3)
        stopped = node.rollback()
        assert stopped.code == INTERRUPTED
        assert "stopped midway: memqos rollback continues from here" in stopped.err
        assert node.rollback().code == 0
        assert node.contents() == before


class TestUnreadable:
    @pytest.fixture(autouse=True)
    def _barred(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """One pod's cgroup may not be looked into."""

        def barred(*arguments: Any) -> ReadTree:
            tree = read_tree(*arguments)
            path = next(path for path in tree.cgroups if path.startswith("/kubepods/pod"))
            for below in [each for each in tree.cgroups if each.startswith(path)]:
                del tree.cgroups[below], tree.identities[below]
            tree.unreadable[path] = os.strerror(errno.EACCES)
            return tree

        monkeypatch.setattr(observation, "read_tree", barred)

    def test_a_node_that_cannot_be_read_whole_is_never_called_converged(self, node: Folder) -> None:
        done = node.plan("-o", "json")
        data = json.loads(done.out)
        assert (done.code, data["converged"], len(data["unread"])) == (1, False, 1)

    def test_it_is_neither_saved_nor_written(self, node: Folder) -> None:
        before = node.contents()
        for done in (node.apply(), node.plan("--out", str(node.folder / "plan.json"))):
            assert done.code == 1
            assert "cannot be read, so the plan is not applied – run as root" in done.err
        assert node.contents() == before
        assert not (node.folder / "plan.json").exists()


class TestData:
    def test_a_tree_that_has_moved_is_told_to_scripts(self, node: Folder) -> None:
        plan = node.saved()
        (node.tree / "kubepods" / "memory.min").write_text("4096\n")
        done = node.apply_saved(plan, "-o", "json")
        data = json.loads(done.out)
        assert (done.code, data["results"]) == (1, [])
        (moved,) = data["moved"]
        assert moved == "/kubepods/memory.min: 0 when planned, 4096 now"

    def test_nothing_to_do_is_data_too(self, node: Folder) -> None:
        node.apply()
        assert json.loads(node.apply("-o", "json").out)["results"] == []

    def test_caveats_are_in_the_notes(self, node: Folder) -> None:
        (node.tree / "kubepods" / "podffff").mkdir()
        notes = json.loads(node.apply("-o", "json").out)["notes"]
        assert any("/kubepods/podffff" in note for note in notes)

    def test_scripts_are_not_asked(self, node: Folder) -> None:
        options = (*node.root, *node.journal, *node.flags)
        assert memqos("apply", "-o", "json", *options).code == WRONG_USAGE


class TestJournal:
    def test_that_is_a_file_is_refused(self, node: Folder) -> None:
        (node.folder / "run").write_text("")
        for done in (node.apply(), node.rollback()):
            assert done.code == 1
            assert "the journal cannot be written" in done.err

    def test_of_another_user_is_left_alone(
        self, node: Folder, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        node.apply()
        me = os.geteuid()
        monkeypatch.setattr(os, "geteuid", lambda: me + 1)
        done = node.rollback()
        assert done.code == 1
        assert f"this folder belongs to user {me}" in done.err


@pytest.mark.parametrize("command", [("apply", "--yes"), ("rollback",)])
@pytest.mark.parametrize("seconds", ["nan", "inf", "0", "-1"])
def test_a_time_is_a_number_of_seconds(command: tuple[str, ...], seconds: str) -> None:
    assert memqos(*command, "--timeout", seconds).code == WRONG_USAGE
