"""Cgroup files below any folder: read one by one, or together of one and the same cgroup."""

from pathlib import Path

import pytest

from memqos.errors import InputError
from memqos.host.cgroups import CgroupFs


def test_files_are_read_together_as_they_are_one_by_one(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "memory.low").write_text("4096\n")
    (tmp_path / "a" / "cgroup.procs").write_text("1\n" * (1 << 16))
    fs = CgroupFs(str(tmp_path))
    files = ("memory.low", "cgroup.procs", "memory.high")
    one_by_one = {file: fs.read("/a", file) for file in files}
    assert one_by_one.pop("memory.high") is None
    assert fs.read_all("/a", files) == one_by_one


def test_of_a_cgroup_that_is_gone_nothing_is_read(tmp_path: Path) -> None:
    fs = CgroupFs(str(tmp_path))
    assert fs.read_all("/gone", ("memory.low",)) == {}
    assert fs.read("/gone", "memory.low") is None


@pytest.mark.parametrize("path", ["gone", "/../etc"])
def test_what_is_no_path_of_a_cgroup_is_refused(path: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="not the path of a cgroup"):
        CgroupFs(str(tmp_path)).read_all(path, ("memory.low",))
