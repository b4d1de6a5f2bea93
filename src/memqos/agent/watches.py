"""The folders an agent watches: cgroups that come and go, and manifests that change."""

import os
from collections.abc import Collection, Iterable, Iterator
from typing import Final, Literal, NamedTuple

from memqos.errors import MemqosError
from memqos.host.inotify import FILE_EVENTS, FOLDER_EVENTS, WRITE_EVENTS, FileChangeWatch, Inotify
from memqos.plan.names import CgroupNames, inner

_LIMIT: Final = "memory.max"


class WatchEvent(NamedTuple):
    """What a watch has shown: a cgroup by its path, pods that may have changed, or a gap.

    Or that the kubelet has answered.
    """

    kind: Literal["appeared", "vanished", "limited", "pods", "answer", "missed"]
    """`limited`: memory.max of a container was written."""
    path: str = ""


class FolderWatches:
    """Watches the cgroups above pods, those of pods, and the folders of manifests."""

    def __init__(self, root: str, manifests: Iterable[str]) -> None:
        self._inotify = Inotify()
        self._root = root
        self._manifests = frozenset(manifests)
        self._names: CgroupNames | None = None
        self.failure: str | None = None
        """Why some cgroups are not watched: then only the resync finds what is not."""

    def fileno(self) -> int:
        return self._inotify.fileno()

    def close(self) -> None:
        self._inotify.close()

    def update(self, names: CgroupNames, manifests: Iterable[str]) -> None:
        """Watch all that is there; what is watched already stays so."""
        self._names = names
        self.failure = None
        self._manifests = frozenset(_folders_of(manifests))
        for folder in self._manifests:
            for parent, folders, _ in os.walk(folder):
                folders[:] = [name for name in folders if not name.startswith(".")]
                self._watch_folder(parent, FILE_EVENTS)
        for level in names.levels:
            self._watch_level(level)

    def read_events(self) -> Iterator[WatchEvent]:
        """What has happened since the last time."""
        for event in self._inotify.read():
            if event.folder is None:
                yield WatchEvent("missed")
            elif not f"{event.folder}/".startswith(f"{self._root}/"):
                if event.is_folder and not event.is_removed:
                    self._watch_folder(f"{event.folder}/{event.name}", FILE_EVENTS)
                yield WatchEvent("pods")
            elif event.is_folder:
                path = f"{event.folder.removeprefix(self._root)}/{event.name}"
                if not event.is_removed:
                    self._watch_cgroup(path)
                yield WatchEvent("vanished" if event.is_removed else "appeared", path)
            elif event.name == _LIMIT:
                yield WatchEvent("limited", event.folder.removeprefix(self._root))

    def _watch_level(self, path: str) -> None:
        """Watch a cgroup above pods and the pods in it, or else where it will be made."""
        while path and not self._watch(path):
            path = path.rpartition("/")[0]
        if not path:
            self._watch("")
        if self._names is None or path not in self._names.levels:
            return
        for name in self._folders_in(path):
            self._watch_cgroup(f"{path}/{name}")

    def _folders_in(self, path: str) -> list[str]:
        try:
            with os.scandir(self._root + path) as entries:
                return [entry.name for entry in entries if entry.is_dir(follow_symlinks=False)]
        except OSError:
            return []

    def _watch_cgroup(self, path: str) -> None:
        """What is in a container is not watched: its cgroups are its own."""
        names = self._names
        assert names is not None
        place = names.recognise(path)
        if place is not None and place.kind == "pod":
            self._watch(path)
            for name in self._folders_in(path):
                self._watch_cgroup(f"{path}/{name}")
        elif place is not None and place.kind in ("container", "inner"):
            # Writes by processes to cgroup files go through the VFS, so a watch of the folder sees
            # IN_CLOSE_WRITE; one watch covers all files.
            self._watch(path, WRITE_EVENTS)
            self._watch(inner(path), WRITE_EVENTS)
        elif path in names.levels or any(level.startswith(f"{path}/") for level in names.levels):
            for level in names.levels:
                if f"{level}/".startswith(f"{path}/"):
                    self._watch_level(level)

    def _watch(self, path: str, mask: int = FOLDER_EVENTS) -> bool:
        folder = self._root + path
        return self._inotify.is_watched(folder) or self._watch_folder(folder, mask)

    def _watch_folder(self, folder: str, mask: int) -> bool:
        try:
            return self._inotify.watch(folder, mask)
        except MemqosError as error:
            self.failure = str(error)
            return False


def _folders_of(paths: Iterable[str]) -> Iterator[str]:
    """A file is watched in its folder: most programs put another in its place."""
    for path in paths:
        yield path if os.path.isdir(path) else os.path.dirname(path) or "."


EVENTS_FILE: Final = "memory.events"


class EventWatches:
    """Watches the events of cgroups. `failure` says why some are not, if so."""

    def __init__(self, root: str) -> None:
        self.failure: str | None = None
        self._root = root
        self._watched: dict[str, int] = {}
        """Path of a cgroup → its identity."""
        self._changes: FileChangeWatch | None = None
        try:
            self._changes = FileChangeWatch()
        except MemqosError as error:
            self.failure = str(error)

    def read_changes(self) -> None:
        """Take in the events since the last call."""
        if self._changes is None:
            return
        changed = self._changes.read_changes()
        if changed is None:
            self.keep_only(())
            return
        for file in changed:
            self._watched.pop(file[len(self._root) : -len(EVENTS_FILE) - 1], None)

    def is_quiet(self, path: str, identity: int) -> bool:
        """Whether that very cgroup, not one of its name, has met nothing since it was set."""
        return self._watched.get(path) == identity

    def watch(self, path: str, identity: int) -> None:
        """Have the next event notified. Read what there is already after, not before."""
        self._watched.pop(path, None)
        if self._changes is None:
            return
        try:
            if self._changes.watch(f"{self._root}{path}/{EVENTS_FILE}"):
                self._watched[path] = identity
            self.failure = None
        except MemqosError as error:
            self.failure = str(error)

    def keep_only(self, paths: Collection[str]) -> None:
        """Forget all removed cgroups."""
        for removed in self._watched.keys() - set(paths):
            del self._watched[removed]
            if self._changes is not None:
                self._changes.forget(f"{self._root}{removed}/{EVENTS_FILE}")

    def close(self) -> None:
        """Watch no more. To do it twice does no harm."""
        changes, self._changes = self._changes, None
        self._watched.clear()
        if changes is not None:
            changes.close()
