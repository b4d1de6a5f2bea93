"""Which cgroups have met something, as the kernel tells; where it cannot, everything is read."""

import errno
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from memqos.agent.watches import EVENTS_FILE, EventWatches
from memqos.host import inotify


class Cgroups:
    """A folder with cgroups that have events."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.watches = EventWatches(str(folder))

    def make(self, path: str) -> int:
        folder = self.folder / path.removeprefix("/")
        folder.mkdir()
        (folder / EVENTS_FILE).write_text("high 0\n")
        return folder.stat().st_ino

    def count(self, path: str, events: int) -> None:
        (self.folder / path.removeprefix("/") / EVENTS_FILE).write_text(f"high {events}\n")

    def remove(self, path: str) -> None:
        folder = self.folder / path.removeprefix("/")
        (folder / EVENTS_FILE).unlink()
        folder.rmdir()

    def are_silent(self, path: str, identity: int) -> bool:
        self.watches.read_changes()
        return self.watches.is_quiet(path, identity)


@pytest.fixture
def cgroups(tmp_path: Path) -> Iterator[Cgroups]:
    made = Cgroups(tmp_path)
    yield made
    made.watches.close()


def test_what_was_never_set_is_not_silent(cgroups: Cgroups) -> None:
    assert not cgroups.are_silent("/a", cgroups.make("/a"))


def test_a_change_is_heard_until_it_is_set_again(cgroups: Cgroups) -> None:
    a, b = cgroups.make("/a"), cgroups.make("/b")
    cgroups.watches.watch("/a", a)
    cgroups.watches.watch("/b", b)
    assert cgroups.are_silent("/a", a)
    for events in range(3):
        cgroups.count("/a", events)
    assert not cgroups.are_silent("/a", a)
    assert not cgroups.are_silent("/a", a)
    assert cgroups.are_silent("/b", b)
    cgroups.watches.watch("/a", a)
    assert cgroups.are_silent("/a", a)
    cgroups.count("/a", 9)
    assert not cgroups.are_silent("/a", a)


def test_another_cgroup_of_the_same_name_is_not_silent(cgroups: Cgroups) -> None:
    before = cgroups.make("/a")
    cgroups.watches.watch("/a", before)
    cgroups.remove("/a")
    cgroups.make("/kept-apart")  # a folder's number may be given to the next one made
    after = cgroups.make("/a")
    assert not cgroups.are_silent("/a", after)
    cgroups.watches.watch("/a", after)
    assert cgroups.are_silent("/a", after)
    cgroups.count("/a", 1)
    assert not cgroups.are_silent("/a", after)


def test_a_cgroup_that_is_gone_cannot_be_set(cgroups: Cgroups) -> None:
    cgroups.watches.watch("/gone", 1)
    assert not cgroups.are_silent("/gone", 1)
    assert cgroups.watches.failure is None


def test_what_is_not_kept_is_watched_no_more(cgroups: Cgroups) -> None:
    a, b = cgroups.make("/a"), cgroups.make("/b")
    cgroups.watches.watch("/a", a)
    cgroups.watches.watch("/b", b)
    cgroups.watches.keep_only({"/b"})
    assert _watches() == 1
    assert cgroups.are_silent("/b", b)
    assert not cgroups.are_silent("/a", a)


def test_where_too_much_has_happened_nothing_is_silent(
    cgroups: Cgroups, monkeypatch: pytest.MonkeyPatch
) -> None:
    a = cgroups.make("/a")
    cgroups.watches.watch("/a", a)
    lost = inotify._EVENT.pack(-1, 0x4000, 0, 0)
    answers = [lost]

    def read(handle: int, size: int) -> bytes:
        if answers:
            return answers.pop()
        raise BlockingIOError

    with monkeypatch.context() as patched:
        patched.setattr(os, "read", read)
        assert not cgroups.are_silent("/a", a)
    assert _watches() == 0
    cgroups.watches.watch("/a", a)
    assert cgroups.are_silent("/a", a)


def test_a_watch_that_cannot_be_set_is_said_and_leaves_it_to_be_read(
    cgroups: Cgroups, monkeypatch: pytest.MonkeyPatch
) -> None:
    a = cgroups.make("/a")
    with monkeypatch.context() as patched:
        patched.setattr(inotify._Instance, "add", _refused)
        cgroups.watches.watch("/a", a)
    assert not cgroups.are_silent("/a", a)
    assert "No space left" in (cgroups.watches.failure or "")
    cgroups.watches.watch("/a", a)
    assert cgroups.watches.failure is None
    assert cgroups.are_silent("/a", a)


def test_without_a_queue_nothing_is_ever_silent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def none_left() -> None:
        raise inotify._inotify_error("nothing can be watched", errno.EMFILE)

    monkeypatch.setattr("memqos.agent.watches.FileChangeWatch", none_left)
    cgroups = Cgroups(tmp_path)
    a = cgroups.make("/a")
    cgroups.watches.watch("/a", a)
    assert not cgroups.are_silent("/a", a)
    assert "Too many open files" in (cgroups.watches.failure or "")
    cgroups.watches.keep_only(())
    cgroups.watches.close()


def _refused(_instance: object, path: str, _mask: int) -> int:
    raise inotify._inotify_error(f"{path}: cannot be watched", errno.ENOSPC)


def _watches() -> int:
    """How many of this process the kernel knows."""
    found = 0
    for handle in os.listdir("/proc/self/fdinfo"):
        try:
            text = Path(f"/proc/self/fdinfo/{handle}").read_text()
        except OSError:
            continue
        found += text.count("inotify wd:")
    return found
