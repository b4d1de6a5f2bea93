"""Answers to the runtime over NRI: values by the last view, in the journal before they are set."""

from collections import Counter
from collections.abc import Callable, Mapping
from typing import Final, NamedTuple, Protocol

import msgspec

from memqos.agent.core.creation import (
    ContainerValues,
    is_excluded,
    values_at_creation,
    values_at_resize,
)
from memqos.agent.core.pod_intent import IntentPlanner
from memqos.agent.core.view import NodeView
from memqos.agent.events import EventLog
from memqos.agent.state import NriAnswer
from memqos.host.nri.messages import NriContainer
from memqos.plan.changes import magnitude
from memqos.plan.names import RuntimeName, container_of

_REFUSALS: Final = 2
"""So many creations in a row that are refused are another plugin's doing."""
_FAILED_STARTS: Final = 2
"""A container that has failed to start so often is tried without values."""


class RuntimeJournal(Protocol):
    """Remembers what a runtime writes for memqos, before it does."""

    def record_creation(self, container: ContainerValues) -> None: ...

    def record_resize(self, container: ContainerValues) -> None: ...

    def forget_creations(self, is_expected: Callable[[str], bool]) -> None: ...


class Answer(NamedTuple):
    """Values for a container, and what they are counted as."""

    kind: NriAnswer
    values: Mapping[str, str] = {}


class _Creation(msgspec.Struct):
    """A container that got values and has not started."""

    uid: str
    """Of its pod."""
    name: str
    is_created: bool = False


class AnswerComposer:
    """Knows containers from their creation to their start. For one thread, or as a method says."""

    def __init__(
        self,
        *,
        view: Callable[[], NodeView],
        journal: RuntimeJournal,
        read_usage: Callable[[str], int],
        own_cgroup: str | None,
        log: EventLog,
    ) -> None:
        self._view = view
        self._journal = journal
        self._read_usage = read_usage
        self._own_cgroup = own_cgroup
        self._log = log
        self._unstarted: dict[str, _Creation] = {}
        """By their IDs."""
        self._failed_starts: Counter[tuple[str, str]] = Counter()
        """By the pod's UID and the container's name. A command that does not exist ends so."""
        self._refusals = 0
        self._is_retired = False
        self._planner: IntentPlanner | None = None

    @property
    def is_contested(self) -> bool:
        """Whether another plugin seems to set the same values."""
        return self._refusals >= _REFUSALS

    def is_starting(self, path: str) -> bool:
        """Whether the container of a cgroup got values, and has not started. For any thread."""
        return _container_id(path) in self._unstarted

    def begin(self, existing: set[str]) -> None:
        """A runtime is connected, with these containers."""
        self._unstarted, self._refusals = {}, 0
        self._failed_starts.clear()
        self._journal.forget_creations(lambda path: _container_id(path) in existing)

    def retire(self) -> None:
        """No container gets values any more."""
        self._is_retired = True

    def compose_creation(self, container: NriContainer, runtime: RuntimeName) -> Answer:
        """What a new container gets."""
        view = self._view()
        if is_excluded(view, container.pod_uid):
            return Answer("unchanged")
        found = values_at_creation(view, container, runtime)
        kind = self._judge(found)
        failed = self._failed_starts[container.pod_uid, container.name]
        if kind == "set" and failed >= _FAILED_STARTS:
            kind = "withheld"
        if found is not None and kind == "set":
            self._journal.record_creation(found)
            self._unstarted[container.id] = _Creation(container.pod_uid, container.name)
        return _answer(kind, found)

    def revoke_creation(self, container: str) -> None:
        """It was created without values."""
        self._unstarted.pop(container, None)
        self._journal.forget_creations(lambda path: _container_id(path) != container)

    def compose_resize(self, container: NriContainer, runtime: RuntimeName) -> Answer:
        """What a container gets beside its new limit."""
        view = self._view()
        if is_excluded(view, container.pod_uid):
            return Answer("unchanged")
        found = values_at_resize(view, self._planner_of(view), container, runtime)
        high = None if found is None else found.values.get("memory.high")
        if (
            found is not None
            and high is not None
            and magnitude(high) < self._read_usage(found.path)
        ):
            # A process that writes memory.high below usage reclaims until usage has fallen: not
            # the runtime. The pass that follows lowers it step by step.
            found = found.without("memory.high")
        kind = self._judge(found)
        if found is not None and kind == "set":
            self._journal.record_resize(found)
        return _answer(kind, found)

    def note_created(self, container: str) -> None:
        """A runtime has created a container: no other plugin sets its values."""
        if container in self._unstarted:
            self._unstarted[container].is_created = True
            self._refusals = 0

    def note_started(self, container: str) -> None:
        """A container runs."""
        started = self._unstarted.pop(container, None)
        if started is not None:
            self._failed_starts.pop((started.uid, started.name), None)

    def note_stopped(self, container: str) -> None:
        """A container has ended, or was never made."""
        # Its cgroup was never made, or was made and removed between two passes.
        self._journal.forget_creations(lambda path: _container_id(path) != container)
        creation = self._unstarted.pop(container, None)
        if creation is None:
            return
        # Refused or not: another plugin may set values of this container alone, and others be
        # created meanwhile.
        self._count_failed_start(creation)
        if creation.is_created:
            return
        self._refusals += 1
        if self._refusals == _REFUSALS:
            self._log.log(
                "warning",
                f"the creation of {_REFUSALS} containers that got values over NRI was refused: "
                "perhaps another plugin sets the same ones. From now on values are written after "
                "the start",
            )

    def _count_failed_start(self, creation: _Creation) -> None:
        known = self._view().pods_by_uid
        for key in [key for key in self._failed_starts if key[0] not in known]:
            del self._failed_starts[key]
        key = creation.uid, creation.name
        self._failed_starts[key] += 1
        if self._failed_starts[key] == _FAILED_STARTS:
            pod = known[creation.uid].intent.key if creation.uid in known else creation.uid
            self._log.log(
                "warning",
                f"{pod}: the container {creation.name} has failed to start {_FAILED_STARTS} times: "
                "from now on its values are written after the start",
            )

    def _judge(self, found: ContainerValues | None) -> NriAnswer:
        if found is None:
            return "unknown"
        if not found.values:
            return "unchanged"
        if not found.is_enforced:
            return "observed"
        return "withheld" if self.is_contested or self._is_retired else "set"

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


def _answer(kind: NriAnswer, found: ContainerValues | None) -> Answer:
    return Answer(kind, found.values) if found is not None and kind == "set" else Answer(kind)


def _container_id(path: str) -> str:
    found = container_of(path)
    return "" if found is None else found.container_id
