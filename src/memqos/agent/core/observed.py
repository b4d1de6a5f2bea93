"""The cgroups of a node as last read, and the values that an agent expects there."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Final, Literal, NamedTuple

import msgspec

from memqos.agent.core.pod_intent import MEMORY_FILES
from memqos.plan.names import CgroupNames, inner, outer

DriftCause = Literal["daemon-reload", "cri-update", "kubelet-resync", "kubelet-restart", "unknown"]


class RestartMarkers(NamedTuple):
    """Marks that others leave behind when they are at work."""

    units_loaded: int | None = None
    """When systemd last loaded its units, as it says; None where there is no systemd."""
    kubelet: int | None = None
    """The inode of the kubelet's own cgroup, which is another one after a restart."""


class Drift(msgspec.Struct, frozen=True, kw_only=True):
    """One value that something else has changed."""

    path: str
    file: str
    expected: str
    found: str
    cause: DriftCause
    evidence: str
    at: float


class ObservedCgroup(msgspec.Struct):
    """One cgroup."""

    identity: int
    files: Mapping[str, str]
    """As last seen or written. Replaced, never changed: published views share it."""
    first_seen: float
    converged_at: float
    """When the expected values were last seen to be in place."""
    pod: str | None
    """The path of the pod it belongs to; None for cgroups above pods."""
    expected: dict[str, str] = {}
    """File → the value that was put there, or found as it should be."""


READ_FILES: Final = (*MEMORY_FILES, "memory.max", "memory.current")
"""What is read of every cgroup."""


class ReadScope(NamedTuple):
    """What has to be read."""

    subtrees: tuple[str, ...]
    """Cgroups to read with all that is in them."""
    cgroups: tuple[str, ...]
    """Cgroups to read by themselves."""
    files: tuple[str, ...] = READ_FILES


class NodeReading(NamedTuple):
    """What was read of a node."""

    cgroups: dict[str, dict[str, str]]
    identities: dict[str, int]
    unreadable: dict[str, str]
    """File or folder → why it could not be read, though it is there."""
    markers: RestartMarkers = RestartMarkers()


class Checkpoint(NamedTuple):
    """A kubelet's memory_manager_state as it was read."""

    name: str
    text: str | None
    """None where it is not there."""


class ChangedValue(NamedTuple):
    """A value that is no longer the expected one."""

    path: str
    file: str
    expected: str
    found: str
    cgroup: ObservedCgroup
    """As it was known before."""


class ObservationUpdate(NamedTuple):
    """What a look has shown."""

    new: list[str]
    """Cgroups that were not known."""
    changed: list[ChangedValue]
    limit_changed: set[str]
    """Pods with another memory.max than before, of their own or of a container."""


class ObservedCgroups:
    """All cgroups known, by path."""

    def __init__(self, names: CgroupNames) -> None:
        self.names = names
        self.by_path: dict[str, ObservedCgroup] = {}
        self.pods: dict[str, set[str]] = {}
        """Path of a pod that is there → its containers'."""

    def __contains__(self, path: str) -> bool:
        return path in self.by_path

    def pod_of(self, path: str) -> str | None:
        """The path of the pod that a cgroup belongs to, whether it is known or not."""
        cgroup = self.by_path.get(path)
        if cgroup is not None:
            return cgroup.pod
        place = self.names.recognise(path)
        if place is None or place.kind not in ("pod", "container", "inner"):
            return None
        return path if place.kind == "pod" else outer(path).rpartition("/")[0]

    def pod_cgroup_paths(self, pod: str) -> Iterator[str]:
        """What is known of a pod: its own cgroup and its containers'."""
        if pod in self.pods:
            yield pod
            yield from self.pods[pod]

    def files_of(self, paths: Iterable[str]) -> dict[str, Mapping[str, str]]:
        """The files of those cgroups that are known."""
        return {path: self.by_path[path].files for path in paths if path in self.by_path}

    def number(self, path: str, file: str) -> int:
        """A value as last seen; 0 where it is not known, or not a number."""
        cgroup = self.by_path.get(path)
        content = "" if cgroup is None else cgroup.files.get(file, "")
        return int(content) if content.isdigit() else 0

    def values(self, path: str, file: str) -> set[str]:
        """A container's value as last seen; crun sets it in a cgroup within that of the runtime."""
        found = [self.by_path[each] for each in (path, inner(path)) if each in self.by_path]
        return {cgroup.files[file] for cgroup in found if file in cgroup.files}

    def apply_observation(self, seen: NodeReading, now: float) -> ObservationUpdate:
        """Bring up to date; what is new, and what something else has changed."""
        new: list[str] = []
        changed: list[ChangedValue] = []
        limited: set[str] = set()
        for path, files in seen.cgroups.items():
            before = self.by_path.get(path)
            if before is not None and before.identity == seen.identities[path]:
                changed += _find_changes(path, before, files)
                if before.pod is not None and _limit(before.files) != _limit(files):
                    limited.add(before.pod)
                before.files = files
            elif self._add(path, seen.identities[path], files, now):
                new.append(path)
        return ObservationUpdate(new, changed, limited)

    def forget(self, path: str) -> list[str]:
        """Forget a cgroup that was removed; all that went with it."""
        cgroup = self.by_path.get(path)
        removed = (
            list(self.pod_cgroup_paths(path))
            if cgroup is not None and cgroup.pod == path
            else [path]
        )
        for each in removed:
            self.by_path.pop(each, None)
        self.pods.pop(path, None)
        if cgroup is not None and cgroup.pod in self.pods:
            self.pods[cgroup.pod].discard(path)
        return removed

    def _add(self, path: str, identity: int, files: dict[str, str], now: float) -> bool:
        self.forget(path)
        pod = self.pod_of(path)
        names = self.names
        if pod is None and path.startswith(f"{names.kubepods}/") and path not in names.levels:
            return False  # a cgroup that a container has made for itself
        self.by_path[path] = ObservedCgroup(identity, files, now, now, pod)
        if pod == path:
            self.pods[pod] = set()
        elif pod in self.pods:
            self.pods[pod].add(path)
        return True


def _find_changes(
    path: str, before: ObservedCgroup, files: dict[str, str]
) -> Iterator[ChangedValue]:
    for file, expected in list(before.expected.items()):
        found = files.get(file, expected)
        if found != expected:
            del before.expected[file]
            yield ChangedValue(path, file, expected, found, before)


def _limit(files: Mapping[str, str]) -> str | None:
    return files.get("memory.max")
