"""The agent as a plugin of the container runtime: containers start with their values.

A thread of its own serves the runtime, another composes the answers, out of the last published view
and never out of the core. What is not known, or not in the journal in time, is answered with
nothing: the pass that follows writes the values.
"""

import os
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final, Protocol

from memqos.agent.core.view import NodeView
from memqos.agent.deadline import DeadlinePassed, DeadlineThread
from memqos.agent.events import EventLog
from memqos.agent.nri_answers import Answer, AnswerComposer, RuntimeJournal
from memqos.agent.state import NriAnswer, NriView
from memqos.host.lock import FolderLock, Locked
from memqos.host.nri.messages import NriContainer, RuntimeInfo
from memqos.host.nri.mux import ConnectionEnded
from memqos.host.nri.plugin import NriConnection, UpdateRefused, unreachable_over_nri
from memqos.plan.names import RuntimeName

if TYPE_CHECKING:
    from memqos.host.cri import StoredResources

PLUGIN_NAME: Final = "memqos"
PLUGIN_INDEX: Final = "90"
"""Two digits: the order in which a runtime calls its plugins."""
_RECONNECT: Final = 1.0
_LAST_RECONNECT: Final = 60.0
"""Seconds until another connection; doubling where the runtime was held up for nothing."""
"""Seconds between two attempts to connect."""
NRI_WRITE_SECONDS: Final = 5.0
"""How long the runtime may take for an update."""


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
        deadline: float,
        *,
        view: Callable[[], NodeView],
        journal: RuntimeJournal,
        read_usage: Callable[[str], int],
        own_cgroup: str | None,
        log: EventLog,
    ) -> None:
        self._socket = socket
        self._log = log
        self._composer = AnswerComposer(
            view=view,
            journal=journal,
            read_usage=read_usage,
            own_cgroup=own_cgroup,
            log=log,
        )
        self._composing = DeadlineThread("memqos-nri-answers", deadline)
        self.on_connected: Callable[[], object] = _ignore
        """Called, from the plugin's thread, when containers may have been missed."""
        self.on_unknown: Callable[[], object] = _ignore
        """Called, from the plugin's thread, when a container of an unknown pod is created."""
        self.answers: Counter[NriAnswer] = Counter()
        self.slowest_answer = 0.0
        self.runtime: RuntimeInfo | None = None
        """The runtime that is connected."""
        self._connection: NriConnection | None = None
        self._problem: str | None = None
        self._was_late = False
        self._incomplete = 0
        """Connections in a row that ended before the runtime's containers were read."""
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="memqos-nri", daemon=True)

    def start(self) -> None:
        self._composing.start()
        self._thread.start()

    def retire(self) -> None:
        """Set nothing from now on, and stay connected: the runtime may have to restore values."""
        self._composing.run_always(self._composer.retire)

    def stop(self) -> None:
        """Close the connection for the rest of the agent's life; the runtime works without it."""
        self._stopping.set()
        connection = self._connection
        if connection is not None:
            connection.hang_up()
        self._thread.join()
        self._composing.stop()

    def view(self) -> NriView:
        """What is shown of it."""
        runtime = self.runtime
        return NriView(
            runtime=None if runtime is None else f"{runtime.name} {runtime.version}",
            problem=self._problem,
            is_contested=self._composer.is_contested,
            answers=dict(self.answers),
            slowest_answer=self.slowest_answer,
        )

    def is_starting(self, path: str) -> bool:
        """Whether the container of a cgroup got values, and has not started yet."""
        return self._composer.is_starting(path)

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
            except (ConnectionEnded, Locked) as error:
                self._note_problem(str(error))
            except OSError as error:
                # The folder: where NRI is off, there is none. Without a name it is the socket's.
                self._note_problem(f"{error.filename or self._socket}: {error.strerror}")
            except Exception as error:
                # Whatever it is, the runtime continues without the plugin, which connects again.
                self._note_problem(f"{type(error).__name__}: {error}")
            # While containers are read, the runtime creates none.
            doubled = _RECONNECT * 2 ** min(self._incomplete, 6)
            self._stopping.wait(min(doubled, _LAST_RECONNECT))

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

    # The runtime's calls, each of them answered within the deadline.

    def configure(self, runtime: RuntimeInfo) -> None:
        self.runtime = runtime
        self._incomplete += 1

    def synchronize(self, containers: list[NriContainer]) -> None:
        self._problem = None
        self._incomplete = 0
        existing = {each.id for each in containers}
        self._composing.run_always(lambda: self._composer.begin(existing))
        runtime = self.runtime
        self._log.log(
            "info",
            "connected over NRI: containers start with their values",
            runtime="" if runtime is None else f"{runtime.name} {runtime.version}",
            containers=len(containers),
        )
        self.on_connected()

    def create(self, container: NriContainer) -> Mapping[str, str]:
        composer, runtime = self._composer, self._runtime_name
        answer = self._answer(
            lambda: composer.compose_creation(container, runtime),
            revoke=lambda: composer.revoke_creation(container.id),
        )
        if answer.kind == "unknown":
            self.on_unknown()
        return answer.values

    def update(self, container: NriContainer) -> Mapping[str, str]:
        """A resize. An update without a limit is memqos's own, or of the CPU alone."""
        if not container.limit:
            return {}
        composer, runtime = self._composer, self._runtime_name
        # An intent without a write does no harm: rollback reads the file.
        answer = self._answer(lambda: composer.compose_resize(container, runtime), revoke=_ignore)
        return answer.values

    def note_created(self, container: str) -> None:
        self._composing.run_always(lambda: self._composer.note_created(container))

    def note_started(self, container: str) -> None:
        self._composing.run_always(lambda: self._composer.note_started(container))

    def note_stopped(self, container: str) -> None:
        """A creation ends so, too, where two plugins set one value."""
        self._composing.run_always(lambda: self._composer.note_stopped(container))

    def note_failure(self, error: Exception) -> None:
        self.answers["failed"] += 1
        self._log.log("warning", f"not answered over NRI: {type(error).__name__}: {error}")

    def _answer(self, compose: Callable[[], Answer], revoke: Callable[[], object]) -> Answer:
        start = time.perf_counter()
        try:
            answer = self._composing.run(compose, revoke)
        except DeadlinePassed:
            answer = Answer("late")
        finally:
            self.slowest_answer = max(self.slowest_answer, time.perf_counter() - start)
        self.answers[answer.kind] += 1
        is_late = answer.kind == "late"
        if is_late and not self._was_late:
            self._log.log(
                "warning",
                "the journal was not written in time: containers get their values after their start"
                " until it is",
            )
        self._was_late = is_late
        return answer

    @property
    def _runtime_name(self) -> RuntimeName:
        runtime = self.runtime
        return "cri-o" if runtime is not None and runtime.name.startswith("cri") else "containerd"


def _ignore() -> None:
    """Before there is a loop."""
