"""The agent as a plugin of the container runtime: containers start with their values.

A thread of its own answers the runtime, out of the last published view and never out of the core.
What it does not know it answers with nothing, at once: the pass that follows writes the values.
"""

import os
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final, Protocol

from memqos.agent.core.creation import ContainerValues, values_at_creation, values_at_resize
from memqos.agent.core.pod_intent import IntentPlanner
from memqos.agent.core.view import NodeView
from memqos.agent.events import EventLog
from memqos.agent.state import NriAnswer, NriView
from memqos.host.lock import FolderLock, Locked
from memqos.host.nri.messages import NriContainer, RuntimeInfo
from memqos.host.nri.mux import ConnectionEnded
from memqos.host.nri.plugin import NriConnection, UpdateRefused, unreachable_over_nri
from memqos.plan.changes import magnitude
from memqos.plan.names import RuntimeName, container_of

if TYPE_CHECKING:
    from memqos.host.cri import StoredResources

PLUGIN_NAME: Final = "memqos"
PLUGIN_INDEX: Final = "90"
"""Two digits: the order in which a runtime calls its plugins."""
_RECONNECT: Final = 1.0
"""Seconds between two attempts to connect."""
WRITE_SECONDS: Final = 5.0
"""How long the runtime may take for an update."""
_REFUSALS: Final = 2
"""So many creations in a row that end without a start are another plugin's doing."""


class RuntimeJournal(Protocol):
    """Remembers what a runtime writes for memqos, before it does."""

    def record_creation(self, container: ContainerValues) -> None: ...

    def record_resize(self, container: ContainerValues) -> None: ...

    def forget_creations(self, is_expected: Callable[[str], bool]) -> None: ...


class ContainerUpdater(Protocol):
    """A plugin that may be connected."""

    def update_containers(
        self, updates: Mapping[str, Mapping[str, str]], timeout: float
    ) -> None: ...


class NriRuntime:
    """The runtime that a plugin is connected to, for those who write values."""

    def __init__(self, plugin: ContainerUpdater, timeout: float) -> None:
        self._plugin = plugin
        self._timeout = timeout

    def read_resources(self, container: str) -> "StoredResources":
        """Nothing: plugins are not shown what a runtime has stored of unified values."""
        from memqos.host.cri import StoredResources

        return StoredResources()

    def update(self, container: str, unified: Mapping[str, str], cpuset_mems: str = "") -> None:
        from memqos.host.grpc import GrpcError

        try:
            self._plugin.update_containers({container: unified}, self._timeout)
        except UpdateRefused as error:
            raise GrpcError("2", str(error)) from None


class NriPlugin:
    """Connects, and connects again, until it is stopped."""

    def __init__(
        self,
        socket: str,
        *,
        view: Callable[[], NodeView],
        journal: RuntimeJournal,
        read_usage: Callable[[str], int],
        own_cgroup: str | None,
        log: EventLog,
    ) -> None:
        self._socket = socket
        self._view = view
        self._journal = journal
        self._read_usage = read_usage
        self._own_cgroup = own_cgroup
        self._log = log
        self.on_connected: Callable[[], object] = _ignore
        """Called, from the plugin's thread, when containers may have been missed."""
        self.on_unknown: Callable[[], object] = _ignore
        """Called, from the plugin's thread, when a container of an unknown pod is created."""
        self.answers: Counter[NriAnswer] = Counter()
        self.slowest_answer = 0.0
        self.runtime: RuntimeInfo | None = None
        """The runtime that is connected."""
        self._connection: NriConnection | None = None
        self._unstarted: set[str] = set()
        """Containers that got values and have not started."""
        self._refusals = 0
        self._planner: IntentPlanner | None = None
        self._problem: str | None = None
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="memqos-nri", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Hang up for good; the runtime goes on by itself."""
        self._stopping.set()
        connection = self._connection
        if connection is not None:
            connection.hang_up()
        self._thread.join()

    def view(self) -> NriView:
        """What is shown of it."""
        runtime = self.runtime
        return NriView(
            runtime=None if runtime is None else f"{runtime.name} {runtime.version}",
            problem=self._problem,
            is_contested=self._is_contested,
            answers=dict(self.answers),
            slowest_answer=self.slowest_answer,
        )

    def update_containers(self, updates: Mapping[str, Mapping[str, str]], timeout: float) -> None:
        """Have the runtime set and store values; see `NriConnection.update_containers`."""
        connection = self._connection
        if connection is None or self.runtime is None:
            raise unreachable_over_nri("is not connected")
        connection.update_containers(updates, timeout)

    # The thread.

    def _run(self) -> None:
        while not self._stopping.is_set():
            try:
                self._connect()
            except (ConnectionEnded, Locked, OSError) as error:
                self._note_problem(str(error))
            except Exception as error:
                # Whatever it is, the runtime goes on without the plugin, which connects again.
                self._note_problem(f"{type(error).__name__}: {error}")
            self._stopping.wait(_RECONNECT)

    def _connect(self) -> None:
        """Serve one connection to its end. Two at once would make every creation fail."""
        lock = FolderLock(os.path.dirname(self._socket), "is connected to the runtime's NRI socket")
        try:
            self._connection = NriConnection(self._socket, PLUGIN_NAME, PLUGIN_INDEX, self)
            if not self._stopping.is_set():
                self._connection.serve()
        finally:
            if self._connection is not None:
                self._connection.hang_up()
                self._connection = None
            lock.release()

    def _note_problem(self, problem: str) -> None:
        self.runtime = None
        if problem != self._problem and not self._stopping.is_set():
            self._log.log("warning", f"containers get their values after their start: {problem}")
        self._problem = problem

    # The runtime's calls.

    def configure(self, runtime: RuntimeInfo) -> None:
        self.runtime = runtime

    def synchronize(self, containers: list[NriContainer]) -> None:
        self._problem = None
        self._unstarted, self._refusals = set(), 0
        existing = {each.id for each in containers}
        self._journal.forget_creations(lambda path: _container_id(path) in existing)
        runtime = self.runtime
        self._log.log(
            "info",
            "connected over NRI: containers start with their values",
            runtime="" if runtime is None else f"{runtime.name} {runtime.version}",
            containers=len(containers),
        )
        self.on_connected()

    def create(self, container: NriContainer) -> Mapping[str, str]:
        start = time.perf_counter()
        found = values_at_creation(self._view(), container, self._runtime_name)
        answer = self._judge(found)
        if found is not None and answer == "set":
            self._journal.record_creation(found)
            self._unstarted.add(container.id)
        elif answer == "unknown":
            self.on_unknown()
        return self._finish(found, answer, start)

    def update(self, container: NriContainer) -> Mapping[str, str]:
        """A resize. An update without a limit is memqos's own, or of the CPU alone."""
        if not container.limit:
            return {}
        start = time.perf_counter()
        view = self._view()
        found = values_at_resize(view, self._planner_of(view), container, self._runtime_name)
        high = None if found is None else found.values.get("memory.high")
        if (
            found is not None
            and high is not None
            and magnitude(high) < self._read_usage(found.path)
        ):
            # Whoever writes memory.high below usage reclaims until usage has fallen: not the
            # runtime. The pass that follows lowers it step by step.
            found = found.without("memory.high")
        answer = self._judge(found)
        if found is not None and answer == "set":
            self._journal.record_resize(found)
        return self._finish(found, answer, start)

    def note_started(self, container: str) -> None:
        if container in self._unstarted:
            self._unstarted.discard(container)
            self._refusals = 0

    def note_stopped(self, container: str) -> None:
        """A creation ends so, too, where two plugins set one value."""
        # Its cgroup was never made, or has come and gone between two looks.
        self._journal.forget_creations(lambda path: _container_id(path) != container)
        if container not in self._unstarted:
            return
        self._unstarted.discard(container)
        self._refusals += 1
        if self._refusals == _REFUSALS:
            self._log.log(
                "warning",
                f"{_REFUSALS} containers that got values over NRI did not start: perhaps another "
                "plugin sets the same ones. From now on values are written after the start",
            )

    def note_failure(self, error: Exception) -> None:
        self.answers["failed"] += 1
        self._log.log("warning", f"not answered over NRI: {type(error).__name__}: {error}")

    @property
    def _is_contested(self) -> bool:
        return self._refusals >= _REFUSALS

    @property
    def _runtime_name(self) -> RuntimeName:
        runtime = self.runtime
        return "cri-o" if runtime is not None and runtime.name.startswith("cri") else "containerd"

    def _judge(self, found: ContainerValues | None) -> NriAnswer:
        if found is None:
            return "unknown"
        if not found.values:
            return "unchanged"
        if not found.is_enforced:
            return "observed"
        return "withheld" if self._is_contested else "set"

    def _finish(
        self, found: ContainerValues | None, answer: NriAnswer, start: float
    ) -> Mapping[str, str]:
        self.answers[answer] += 1
        self.slowest_answer = max(self.slowest_answer, time.perf_counter() - start)
        return found.values if found is not None and answer == "set" else {}

    def _planner_of(self, view: NodeView) -> IntentPlanner:
        """A planner of this thread's own: that of the core is not shared."""
        planner = self._planner
        if planner is None or (planner.configuration, planner.node_settings) != (
            view.configuration,
            view.node_settings,
        ):
            planner = self._planner = IntentPlanner(
                view.configuration, view.node_settings, self._own_cgroup
            )
        return planner


def _container_id(path: str) -> str:
    found = container_of(path)
    return "" if found is None else found.container_id


def _ignore() -> None:
    """Before there is a loop."""
