"""What an agent reads of its node: settings, pods, cgroups, and what the kubelet leaves behind."""

import os
import time
from collections.abc import Callable
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from typing import Final, TypeVar

import msgspec

from memqos.agent.configuration import AgentConfiguration
from memqos.agent.core.observed import Checkpoint, NodeReading, ReadScope, RestartMarkers
from memqos.agent.core.pod_intent import AgentSettings
from memqos.agent.core.report import LogSeverity
from memqos.agent.events import Announcer, announcer_of
from memqos.agent.pod_source import agent_pod_source, list_containers
from memqos.agent.settings_source import KUBELET_CGROUP, SettingsSource
from memqos.converge.pod_sources import PodSource
from memqos.converge.runtime_labels import ContainersByRuntime
from memqos.host.cgroups import CgroupFs, read_tree
from memqos.host.file_version import FileVersion, file_version
from memqos.host.machine import SYSTEM, Roots
from memqos.kube.kubelet import STATE_FILE

_UNITS_LOADED: Final = "/run/systemd/systemd-units-load"
"""systemd touches it whenever it has loaded its units, since 250 (src/core/manager.c). Before, the
drift after a daemon-reload has no known cause."""

_T = TypeVar("_T")


def new_kubelet_executor() -> Executor:
    """Sends requests to the kubelet, one at a time. It has no thread until there is one."""
    return ThreadPoolExecutor(1, "memqos-kubelet")


def ignore_notification() -> None:
    """Before there is a loop."""


class NodeReader:
    """Reads this machine, and the sources of its pods and settings."""

    def __init__(
        self,
        configuration: AgentConfiguration,
        fs: CgroupFs,
        *,
        roots: Roots = SYSTEM,
        clock: Callable[[], float] = time.monotonic,
        new_executor: Callable[[], Executor] = new_kubelet_executor,
    ) -> None:
        self.fs = fs
        self.roots = msgspec.structs.replace(roots, cgroup=fs.root)
        self.configuration = configuration
        self.on_pods: Callable[[], object] = ignore_notification
        """Called, from any thread, when a source that watches its pods has seen a change."""
        self.on_answer: Callable[[], object] = ignore_notification
        """Called, from any thread, when the kubelet has answered, or will not."""
        self._new_executor = new_executor
        self._executor = new_executor()
        self.source = self._new_source(configuration)
        self._pod_origin = self.source.describe()
        self.announcer: Announcer | None = announcer_of(configuration, self.source)
        """Posts events to the cluster that the pods come from, where there is one."""
        self.settings_source = SettingsSource(fs, self.roots, clock, self._submit_request)
        self._checkpoint = CheckpointFile()

    def configure(self, configuration: AgentConfiguration) -> None:
        """Read as another configuration says."""
        before, self.configuration = self.configuration, configuration
        is_other_source = configuration.pods != before.pods
        if is_other_source:
            self._replace_source(configuration)
        if self.announcer is None or is_other_source or configuration.events != before.events:
            self._stop_announcing()
            self.announcer = announcer_of(configuration, self.source)

    def close(self) -> None:
        """End requests, watches and threads. To do it twice does no harm."""
        self._stop_announcing()
        self.source.stop()
        self.settings_source.cancel_request()
        self._executor.shutdown(cancel_futures=True)

    def node_settings(self) -> AgentSettings:
        """What the node's plans rest on; the same as before where nothing has changed."""
        node = self.source.node()
        endpoint = self.source.kubelet_endpoint(node)
        return self.settings_source.resolve(self.configuration, node, endpoint)

    def take_settings_notes(self) -> list[tuple[LogSeverity, str]]:
        """What is worth logging about the settings and the source of pods, once."""
        notes = self.settings_source.take_notes(self.configuration.mode)
        origin = self.source.describe()
        if origin != self._pod_origin:
            self._pod_origin = origin
            notes.append(("info", f"pods come from {origin}"))
        return notes

    def read_own_cgroup(self) -> str | None:
        """Where this process lives, as far as its own namespace shows."""
        try:
            with open(f"{self.roots.proc}/self/cgroup", encoding="utf-8") as file:
                lines = file.read().splitlines()
        except OSError:
            return None
        # In a cgroup namespace of its own the path is relative to its root: "0::/" says nothing
        # (cgroup_namespaces(7)).
        return next(
            (line[3:] for line in lines if line.startswith("0::/") and line != "0::/"), None
        )

    def read_checkpoint(self) -> Checkpoint:
        """The kubelet's memory_manager_state; the very same as before where nothing changed."""
        configured = self.configuration.memory_manager_state
        return self._checkpoint.read(configured or f"{self.roots.kubelet}/{STATE_FILE}")

    def read_cgroups(self, scope: ReadScope) -> NodeReading:
        """Read all that is in scope."""
        tree = read_tree(self.fs.root, scope.files, scope.subtrees)
        for path in scope.cgroups:
            identity = self.fs.identity(path)
            if identity is not None:
                files = ((file, self.fs.read(path, file)) for file in scope.files)
                tree.cgroups[path] = {name: text for name, text in files if text is not None}
                tree.identities[path] = identity
        return NodeReading(
            tree.cgroups, tree.identities, tree.unreadable, self.read_restart_markers()
        )

    def read_restart_markers(self) -> RestartMarkers:
        """Marks that systemd and the kubelet leave behind."""
        try:
            loaded = os.stat(_UNITS_LOADED).st_mtime_ns
        except OSError:
            loaded = None
        # systemd makes a new cgroup at each start of a service: another inode is another kubelet.
        return RestartMarkers(loaded, self.fs.identity(KUBELET_CGROUP))

    def _new_source(self, configuration: AgentConfiguration) -> PodSource:
        return agent_pod_source(
            configuration.pods,
            self._list_containers,
            self._notify_pods,
            self._submit_request,
        )

    def _notify_pods(self) -> None:
        self.on_pods()

    def _replace_source(self, configuration: AgentConfiguration) -> None:
        before, executor, self._executor = self.source, self._executor, self._new_executor()
        self.source = self._new_source(configuration)
        # First the events, which go through the connection of the source.
        self._stop_announcing()
        before.stop()
        self.settings_source.cancel_request()
        # Not joined: its thread ends by itself, and a pass does not wait for it.
        executor.shutdown(wait=False, cancel_futures=True)

    def _submit_request(self, request: Callable[[], _T]) -> Future[_T]:
        """Have the kubelet asked by another thread."""
        answer = self._executor.submit(request)
        answer.add_done_callback(lambda _: self.on_answer())
        return answer

    def _stop_announcing(self) -> None:
        if self.announcer is not None:
            self.announcer.stop()
            self.announcer = None

    def _list_containers(self) -> ContainersByRuntime:
        return list_containers(self.fs.root, self.configuration.cri_socket)


class CheckpointFile:
    """Remembers what it read last, and what the file looked like then."""

    def __init__(self) -> None:
        self._version: tuple[str, FileVersion | None] | None = None
        self._last = Checkpoint("", None)

    def read(self, path: str) -> Checkpoint:
        """What the file says; the very same where it has not changed since."""
        version = path, _version(path)
        if version != self._version:
            self._version, self._last = version, Checkpoint(path, _text(path))
        return self._last


def _version(path: str) -> FileVersion | None:
    try:
        return file_version(path)
    except OSError:
        return None


def _text(path: str) -> str | None:
    """None where it cannot be read: the kubelet may not have written it yet."""
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read()
    except OSError:
        return None
