"""A node on which an agent and a scripted kubelet are at work, on one clock."""

from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec
from tests.eventually import PATIENCE
from tests.fakes.agent import LEVELS, RESERVING_KUBELET, SteppedNode, container_paths
from tests.fakes.cgroups import PAGE
from tests.fakes.scripted_kubelet import (
    LOW,
    MIN,
    TIERED,
    File,
    ScriptedKubelet,
    Settings,
    request_of,
)

from memqos.agent.configuration import AgentConfiguration
from memqos.agent.core.observed import RestartMarkers
from memqos.agent.core.pod_intent import AgentSettings
from memqos.agent.settings_source import SettingsSource
from memqos.converge.cgroup_writer import CgroupWriter
from memqos.converge.direct_driver import DirectDriver
from memqos.converge.journal import open_journal
from memqos.converge.rollback import KubeletFiles, RollbackResult, rollback
from memqos.converge.running_kubelet import files_kept_with
from memqos.converge.steps import WriteOptions
from memqos.host.kubelet import KubeletEndpoint
from memqos.host.machine import read_machine
from memqos.host.owner_discovery import OwnerEndpoints
from memqos.kube.node import Node, NodeStatus, NodeSystemInfo
from memqos.settings.facts import RawKubeletConfig, facts_of_machine
from memqos.settings.resolver import resolve
from memqos.settings.settings import SettingsOptions

STEP: Final = 0.5
"""Seconds at a time, so that a hole is seen when it opens and when it is closed."""
ABOVE: Final = tuple((path, file) for path in LEVELS[:2] for file in (MIN, LOW))


class Hole(NamedTuple):
    """Protection above pods that is missing."""

    since: float
    waited: float
    """Seconds that agents had waited for answers before."""
    answers: int
    """How many the agent had had before."""


class Killed(BaseException):
    """The agent was killed."""


class ScriptedSettings(SettingsSource):
    """What the agent learns of a scripted kubelet: nothing new while that does not answer."""

    def __init__(self, node: "NodeWithKubelet") -> None:
        super().__init__(node.reader.fs, node.reader.roots)
        self._node = node
        self._answer = node.settings
        self._is_due = True

    def refresh(self) -> None:
        self._is_due = True

    def resolve(
        self,
        configuration: AgentConfiguration,
        node: Node | None = None,
        kubelet: KubeletEndpoint | None = None,
    ) -> AgentSettings:
        # Of another release the Node tells by itself.
        self._is_due |= self._answer.minor != self._node.settings.minor
        self.is_fresh = self._is_due and self._node.now >= self._node.answers_at
        if self.is_fresh:
            self._answer, self._is_due = self._node.settings, False
        info = NodeSystemInfo(kubelet_version=f"v1.{self._answer.minor}.0")
        facts = facts_of_machine(
            read_machine(self._node.reader.roots),
            RawKubeletConfig("configz", self._answer.configuration.encode()),
            None,
            Node(status=NodeStatus(node_info=info)),
        )
        options = SettingsOptions(
            release=configuration.release,
            gates=configuration.gates,
            policy=configuration.policy,
            factor=configuration.factor,
        )
        self._last = AgentSettings(**msgspec.structs.asdict(resolve(facts, options)))
        return self._last

    def is_due(self) -> bool:
        return False  # all that would tell of a restart goes by the signs


class NodeWithKubelet(SteppedNode):
    """The agent asks the kubelet again when in doubt; what both of them write is kept apart."""

    kubelet = RESERVING_KUBELET

    def __init__(
        self,
        folder: Path,
        settings: Settings = TIERED,
        *,
        restart_visible: bool = True,
        **options: Any,
    ) -> None:
        """`restart_visible`: whether a restart of the kubelet can be told by its cgroup."""
        self.restart_visible = restart_visible
        self.settings = settings
        self.starts = 1
        """Those that the kubelet's cgroup tells of."""
        self.answers_at = 0.0
        self.kubelet_values: dict[File, str] = {}
        """What the kubelet, or the kernel at first, last put into each file."""
        self.earlier: dict[File, set[str]] = {}
        """What it had put there before that."""
        self.steady: dict[File, set[str]] = {}
        """What was above pods when a kubelet confirmed that it keeps it, and who had written it."""
        self.dropped_at: dict[File, float] = {}
        """When it last took away what was protected above pods."""
        self.writes: list[tuple[float, str, str, str]] = []
        """By the agent: when, where, and what."""
        self.longest_hole = 0.0
        """Seconds that protection above pods was missing while the kubelet would have answered an
        agent, but for those in which an answer was on its way."""
        self.most_answers = 0
        """How many answers an agent has had while such a hole was open."""
        self._holes: dict[File, Hole] = {}
        self._writes_left, self._dies_before = -1, False
        super().__init__(folder, **{"release": None, **options})
        self._take = self.kernel.write
        self.kernel.write = self._agent_writes  # type: ignore[method-assign]
        self.kubelet_values = {file: self.read(*file) for file in ABOVE}
        self.scripted = ScriptedKubelet(self._kubelet_writes, settings, self.now)
        self.answers_at = self.scripted.answers_at

    def start(self, **options: Any) -> None:
        # Another agent has had no answer. That it has to ask anew takes no longer.
        answers = self.asker.answers
        self._holes = {file: hole._replace(answers=answers) for file, hole in self._holes.items()}
        super().start(**options)

    def crash(self) -> None:
        self.asker.lose()
        super().crash()

    def prepare(self) -> None:
        self.reader.settings_source = ScriptedSettings(self)
        self.reader.read_restart_markers = self._restart_markers  # type: ignore[method-assign]

    def _restart_markers(self) -> RestartMarkers:
        return RestartMarkers(1, self.starts)

    @property
    def settings_known_at(self) -> float:
        """From when on all that the agent needs to know can be learned."""
        return self.answers_at

    # What the kubelet does.

    def restart(self, settings: Settings | None = None) -> None:
        """Another process of the kubelet, perhaps of another release or configured otherwise."""
        self.settings = settings or self.settings
        self.starts += self.restart_visible
        self.scripted.start(self.settings, self.now)
        self.answers_at = self.scripted.answers_at

    def run_pod(self, manifest: dict[str, Any], *, listed: bool = True) -> dict[str, Any]:
        super().run_pod(manifest, listed=listed)
        self.scripted.create(manifest)
        return manifest

    def end_pod(self, manifest: dict[str, Any]) -> None:
        self.scripted.remove(manifest)
        super().end_pod(manifest)

    def resize(self, manifest: dict[str, Any]) -> None:
        """In place; the kubelet says so as soon as it is done."""
        self.pods.manifests[manifest["metadata"]["uid"]] = manifest
        self.scripted.resize(manifest)
        for path in container_paths(manifest):
            self.core.note_limit_write(path, self.now)
        self.core.schedule.schedule_fetch(self.now)

    # Without an agent.

    def kept_files(self) -> KubeletFiles:
        """What rollback learns of the kubelet's configuration; None while it does not run."""
        if self.now < self.answers_at:
            return None
        config = RawKubeletConfig("configz", self.settings.configuration.encode())
        return files_kept_with(config, f"1.{self.settings.minor}", self.kernel)

    def roll_back_without_agent(
        self, files: KubeletFiles, *, force: bool = False
    ) -> RollbackResult:
        """As `memqos rollback` does, by what it knows of the kubelet."""
        writer = CgroupWriter(self.kernel, OwnerEndpoints(is_copy=True), roots=self.reader.roots)
        with open_journal(self.configuration.journal, writer.hierarchy()) as journal:
            driver, options = DirectDriver(self.kernel, PATIENCE), WriteOptions(PAGE, 0, force)
            return rollback(self.kernel, driver, journal, options, kubelet_files=files)

    # Time.

    def wait(self, seconds: float) -> None:
        end = self.now + seconds
        while self.now < end:
            self.scripted.run(self.now)
            if self.now - STEP < self.settings_known_at <= self.now:
                self.core.schedule.schedule_fetch(self.now)  # as the watch of its Node would
            self._watch()
            super().wait(min(STEP, end - self.now))
            self._watch()

    def wait_alone(self, seconds: float) -> None:
        """Time goes by for the kubelet, while there is no agent."""
        self.now += seconds
        for file, hole in self._holes.items():  # nobody could have closed it meanwhile
            self._holes[file] = hole._replace(since=hole.since + seconds)
        self.scripted.run(self.now)

    def kill_at_write(self, writes: int, *, before: bool = False) -> None:
        """Have the agent killed after so many writes, just before or after the next one."""
        self._writes_left, self._dies_before = writes, before

    def _watch(self) -> None:
        """How long holes are open, counted from when the kubelet answers."""
        asker = self.asker
        for file in self.protected():
            if self.read(*file) == "0" and self.now >= self.settings_known_at:
                new = Hole(self.now, asker.waited, asker.answers)
                hole = self._holes.setdefault(file, new)
                seconds = self.now - hole.since - (asker.waited - hole.waited)
                self.longest_hole = max(self.longest_hole, seconds)
                self.most_answers = max(self.most_answers, asker.answers - hole.answers)
            else:
                self._holes.pop(file, None)

    def protected(self) -> set[File]:
        """Files above pods that must not be 0, as the kubelet has it, or else the agent."""
        if self.settings.gate:
            return {file for file, amount in self.scripted.sums().items() if amount}
        if not self.configuration.gates.get("MemoryQoS") or self.configuration.mode != "enforce":
            return set()
        pods = [pod for pod in self.scripted.pods.values() if request_of(pod)]
        burstable = any(LEVELS[1] in container_paths(pod)[0] for pod in pods)
        guaranteed = any(LEVELS[1] not in container_paths(pod)[0] for pod in pods)
        if self.settings.minor < 36:
            files = {(LEVELS[0], MIN)} if pods else set()
            return files | ({(LEVELS[1], MIN)} if burstable else set())
        files = {(LEVELS[0], MIN)} if guaranteed else set()
        return files | ({(LEVELS[0], LOW), (LEVELS[1], LOW)} if burstable else set())

    # Who writes.

    def _kubelet_writes(self, path: str, file: str, value: str) -> None:
        if (path, file) in ABOVE and value == "0" != self.read(path, file):
            self.dropped_at[path, file] = self.now
        self.kernel.set(path, file, value)
        if (path, file) in self.kubelet_values:
            self.earlier.setdefault((path, file), set()).add(self.kubelet_values[path, file])
        self.kubelet_values[path, file] = value

    def _agent_writes(self, path: str, file: str, value: str) -> None:
        is_last = self._writes_left == 0
        self._writes_left -= 1
        if is_last and self._dies_before:
            raise Killed
        self.writes.append((self.now, path, file, value))
        self._take(path, file, value)
        if is_last:
            raise Killed
