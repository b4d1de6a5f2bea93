"""A tree of cgroups is read whole and fast, whatever happens to it meanwhile."""

import os
import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from tests.fakes.machine import deep_folder, put, put_tree

from memqos.errors import InputError
from memqos.host import cgroups as host_tree
from memqos.host.cgroups import DEEPEST, read_tree

FILES = ("memory.min", "memory.high")
CGROUP = {"memory.min": "4096", "memory.high": "max", "memory.max": "max"}
POD = "/kubepods/burstable/podu1"
SLICE = "/kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-pod0a_1f.slice"
PATHS = ("/", "/b", "/a", "/a/d", "/a/c", "/a/c/e")


@pytest.fixture
def root(tmp_path: Path) -> str:
    return str(put_tree(tmp_path, dict.fromkeys(PATHS, CGROUP)))


def test_every_cgroup_is_read_parents_first(root: str) -> None:
    tree = read_tree(root, FILES)
    assert list(tree.cgroups) == ["/", "/a", "/a/c", "/a/c/e", "/a/d", "/b"]
    assert all(
        files == {"memory.min": "4096", "memory.high": "max"} for files in tree.cgroups.values()
    )
    assert tree.unreadable == {}


def test_only_what_is_asked_for_is_read(root: str) -> None:
    assert list(read_tree(root, FILES, ["/a/c"]).cgroups) == ["/a/c", "/a/c/e"]
    assert list(read_tree(root, FILES, ["/a/c/e", "/b", "/a/c"]).cgroups) == [
        "/b",
        "/a/c",
        "/a/c/e",
    ]
    assert list(read_tree(root, FILES, ["/a", "/"]).cgroups) == list(read_tree(root, ()).cgroups)
    assert read_tree(root, FILES, []).cgroups == {}


def test_a_file_that_is_not_there_is_excluded(root: str) -> None:
    os.unlink(f"{root}/a/memory.high")
    tree = read_tree(root, FILES)
    assert tree.cgroups["/a"] == {"memory.min": "4096"}
    assert tree.unreadable == {}


def test_a_cgroup_that_is_not_there_is_excluded(root: str) -> None:
    assert read_tree(root, FILES, ["/gone", "/b"]).cgroups.keys() == {"/b"}


def test_a_cgroup_is_known_by_its_inode(root: str) -> None:
    tree = read_tree(root, FILES)
    assert tree.identities == {path: os.stat(f"{root}{path}").st_ino for path in tree.cgroups}


def test_each_file_is_opened_read_and_closed_once(
    root: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: Counter[str] = Counter()
    opened: Counter[tuple[str, int]] = Counter()

    def count(name: str) -> None:
        real = getattr(os, name)

        def counting(*args: Any, **kwargs: Any) -> Any:
            calls[name] += 1
            if name == "open" and args[0] in FILES:
                opened[args[0], os.fstat(kwargs["dir_fd"]).st_ino] += 1
            return real(*args, **kwargs)

        monkeypatch.setattr(os, name, counting)

    for name in ("open", "read", "close"):
        count(name)
    read_tree(root, FILES)
    assert len(opened) == len(PATHS) * len(FILES)
    assert set(opened.values()) == {1}
    assert calls["read"] == len(PATHS) * len(FILES)
    assert calls["open"] == calls["close"] == len(PATHS) * (len(FILES) + 1)


@pytest.mark.parametrize("moment", range(20))
def test_cgroups_vanish_at_any_moment(
    root: str, moment: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, left = os.open, [moment]

    def vanishing(*args: Any, **kwargs: Any) -> int:
        if left[0] == 0:
            with monkeypatch.context() as calm:
                calm.setattr(os, "open", real)
                shutil.rmtree(f"{root}/a")
        left[0] -= 1
        return real(*args, **kwargs)

    monkeypatch.setattr(os, "open", vanishing)
    handles = os.listdir("/proc/self/fd")
    tree = read_tree(root, FILES)
    assert os.listdir("/proc/self/fd") == handles
    assert tree.cgroups["/b"] == {"memory.min": "4096", "memory.high": "max"}
    assert tree.unreadable == {}


def test_what_cannot_be_read_is_reported_and_the_rest_goes_on(root: str) -> None:
    os.unlink(f"{root}/a/memory.high")
    put(Path(f"{root}/a/memory.high"), {})
    tree = read_tree(root, FILES)
    assert tree.unreadable == {"/a/memory.high": "Is a directory"}
    assert tree.cgroups["/a"] == {"memory.min": "4096"}
    assert "/b" in tree.cgroups


def test_links_lead_nowhere(root: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    elsewhere = put(tmp_path_factory.mktemp("elsewhere"), CGROUP)
    os.symlink(elsewhere, f"{root}/a/link")
    os.symlink(root, f"{root}/b/round")
    assert set(read_tree(root, FILES).cgroups) == set(PATHS)


def test_long_files_are_read_to_their_end(root: str) -> None:
    text = "x" * (1 << 17)
    Path(f"{root}/b/memory.min").write_text(f"{text}\n")
    assert read_tree(root, FILES).cgroups["/b"]["memory.min"] == text


@pytest.mark.parametrize("path", ["a", "", "/a/../..", "/a\0"])
def test_nothing_outside_the_root_is_read(root: str, path: str) -> None:
    with pytest.raises(InputError, match="is not the path of a cgroup"):
        read_tree(root, FILES, [path])


def test_a_root_that_is_not_there_has_no_cgroups(tmp_path: Path) -> None:
    assert read_tree(f"{tmp_path}/none", FILES).cgroups == {}


@pytest.fixture
def descriptors(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many there are after each opening, beyond those that were there before."""
    before, real, counts = len(os.listdir("/proc/self/fd")), os.open, list[int]()

    def counting(*args: Any, **kwargs: Any) -> int:
        handle = real(*args, **kwargs)
        counts.append(len(os.listdir("/proc/self/fd")) - before)
        return handle

    monkeypatch.setattr(os, "open", counting)
    return counts


class TestCgroupsThatContainersMake:
    @pytest.mark.parametrize("container", [f"{POD}/c1", f"{SLICE}/cri-containerd-c1.scope"])
    def test_are_not_read_however_deep(
        self, tmp_path: Path, container: str, descriptors: list[int]
    ) -> None:
        pod = container.rpartition("/")[0]
        put_tree(tmp_path, {pod: CGROUP, container: CGROUP, f"{pod}/c2": CGROUP})
        with deep_folder(tmp_path / container[1:]):
            descriptors.clear()
            tree = read_tree(str(tmp_path), FILES)
        assert max(descriptors) <= 2
        assert [path for path in tree.cgroups if path.startswith(pod)] == sorted(
            [pod, container, f"{pod}/c2"]
        )
        assert tree.unreadable == {}

    def test_are_not_even_listed(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        put_tree(tmp_path, dict.fromkeys([f"{POD}/c1", *[f"{POD}/c1/{n}" for n in "xyz"]], CGROUP))
        listed, real = list[int](), os.scandir

        def scandir(folder: int) -> Any:
            listed.append(os.fstat(folder).st_ino)
            return real(folder)

        monkeypatch.setattr(os, "scandir", scandir)
        tree = read_tree(str(tmp_path), FILES, [POD, f"{POD}/c1"])
        assert listed == [tree.identities[POD]]
        assert list(read_tree(str(tmp_path), FILES, [f"{POD}/c1"]).cgroups) == [f"{POD}/c1"]

    def test_are_not_those_that_crun_makes(self, tmp_path: Path) -> None:
        scope = f"{SLICE}/crio-c1.scope"
        paths = [scope, f"{scope}/container", f"{scope}/container/own", f"{scope}/other"]
        put_tree(tmp_path, dict.fromkeys(paths, CGROUP))
        assert list(read_tree(str(tmp_path), FILES, [SLICE]).cgroups) == [SLICE, *paths[:2]]


class TestCgroupsThatOthersMake:
    def test_are_read_so_deep_and_no_deeper(self, tmp_path: Path, descriptors: list[int]) -> None:
        put_tree(tmp_path, {"/user.slice/user-1.slice/own": CGROUP, "/z": CGROUP})
        with deep_folder(tmp_path / "user.slice/user-1.slice/own"):
            descriptors.clear()
            tree = read_tree(str(tmp_path), FILES)
        assert max(descriptors) <= 2
        assert max(path.count("/") for path in tree.cgroups) == DEEPEST
        assert "/z" in tree.cgroups
        assert list(tree.unreadable) == ["/user.slice/user-1.slice"]

    def test_are_so_many_and_no_more_of_one_branch(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        wide = [f"/user.slice/u1/{first}/{second}" for first in range(10) for second in range(10)]
        put_tree(tmp_path, dict.fromkeys([*wide, "/user.slice/u2/a/b"], CGROUP))
        monkeypatch.setattr(host_tree, "MOST_CGROUPS", 35)
        tree = read_tree(str(tmp_path), FILES)
        assert len([path for path in tree.cgroups if path.startswith("/user.slice/u1/")]) == 35
        assert "/user.slice/u2/a/b" in tree.cgroups
        assert tree.unreadable == {
            "/user.slice/u1": "More than 35 cgroups, or more than 32 levels of them: the rest is "
            "not read"
        }
