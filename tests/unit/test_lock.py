"""Who holds a lock, said in numbers that are true where they are read."""

import errno
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from memqos.host.lock import FolderLock, Lock, Locked

ELSEWHERE = ("unshare", "--user", "--map-root-user", "--pid", "--fork", "--mount-proc")
"""Runs a command as pid 1 of a PID namespace of its own."""
HOLDS_A_LOCK = """
import sys
from memqos.host.lock import Lock
lock = Lock(sys.argv[1])
print(flush=True)
sys.stdin.read()
"""


@pytest.fixture
def lock_of_pid_1(tmp_path: Path) -> Iterator[str]:
    """A lock that the first process of another PID namespace holds, as an agent's container is."""
    path = str(tmp_path / "lock")
    with subprocess.Popen(
        [*ELSEWHERE, sys.executable, "-c", HOLDS_A_LOCK, path],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as holder:
        assert holder.stdout is not None
        assert holder.stderr is not None
        if not holder.stdout.readline():
            pytest.skip(f"no PID namespace can be made here: {holder.stderr.read()}")
        assert Path(path).read_text().startswith("1 pid:[")
        yield path


def test_a_writer_in_a_container_is_named_by_its_pid_out_here(lock_of_pid_1: str) -> None:
    with pytest.raises(Locked) as refusal:
        Lock(lock_of_pid_1)
    named = re.search(r"another memqos \(pid (\d+)\) is writing", str(refusal.value))
    assert named is not None
    command = Path(f"/proc/{named[1]}/cmdline").read_bytes().split(b"\0")
    assert lock_of_pid_1.encode() in command
    assert named[1] != "1"


def test_a_writer_whose_pid_means_nothing_here_is_not_named_by_it(lock_of_pid_1: str) -> None:
    """Seen from a PID namespace beside it, where pid 1 is somebody else."""
    tries = "import sys\nfrom memqos.host.lock import Lock\nLock(sys.argv[1])"
    done = subprocess.run(
        [*ELSEWHERE, sys.executable, "-c", tries, lock_of_pid_1],
        capture_output=True,
        text=True,
        check=False,
    )
    assert "another memqos is writing to this node, from another PID namespace" in done.stderr
    assert "(pid" not in done.stderr


def test_a_lock_of_an_older_memqos_is_not_believed_about_its_pid(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    lock = Lock(str(path))
    path.write_text("1\n")
    with pytest.raises(Locked, match=rf"another memqos \(pid {os.getpid()}\) is writing"):
        Lock(str(path))
    lock.release()


def test_a_folder_is_free_again_though_a_process_that_has_inherited_the_lock_still_runs(
    tmp_path: Path,
) -> None:
    lock = FolderLock(str(tmp_path), "is at work")
    with pytest.raises(Locked, match="another memqos is at work"):
        FolderLock(str(tmp_path), "is at work")
    with subprocess.Popen(["cat"], stdin=subprocess.PIPE, pass_fds=(lock._handle,)):
        lock.release()
        FolderLock(str(tmp_path), "is at work").release()


def test_a_lock_is_taken_on_a_full_disk_where_its_owner_cannot_be_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    path = str(tmp_path / "lock")
    with monkeypatch.context() as patch:
        patch.setattr(os, "pwrite", full)
        lock = Lock(path)
    with pytest.raises(Locked, match=rf"another memqos \(pid {os.getpid()}\) is writing"):
        Lock(path)
    lock.release()
    Lock(path).release()
