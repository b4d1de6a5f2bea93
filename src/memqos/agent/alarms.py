"""Which containers have met something, as the kernel tells by itself: nothing else has to be read.

The kernel notifies memory.events whenever it counts an event there. A watch is set before the file
is read, so that a change is seen by one or the other; it ends with its first notice, so that a
storm of events costs no more than one. Where a watch cannot be set, the file has to be read.
"""

from collections.abc import Collection
from typing import Final

from memqos.errors import MemqosError
from memqos.host.inotify import FileChangeWatch

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
        """Take in what has gone off since the last time."""
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
        """Be told of the next event. Read what there is already after, not before."""
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
        """Forget all cgroups that are gone."""
        for gone in self._watched.keys() - set(paths):
            del self._watched[gone]
            if self._changes is not None:
                self._changes.forget(f"{self._root}{gone}/{EVENTS_FILE}")

    def close(self) -> None:
        """Hear no more. To do it twice does no harm."""
        changes, self._changes = self._changes, None
        self._watched.clear()
        if changes is not None:
            changes.close()
