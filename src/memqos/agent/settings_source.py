"""Where an agent's settings come from: the machine, the running kubelet, the names of cgroups.

In a cluster the version and the memory are those of the Node. The configuration is the kubelet's
own, where its endpoint may be read; else that of its process, or its file. Nothing here waits for
the kubelet: `submit` sends the request, and each call goes by the last answer.
"""

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

import msgspec

from memqos.agent.configuration import AgentConfiguration
from memqos.agent.core.pod_intent import AgentSettings
from memqos.agent.core.report import LogSeverity
from memqos.converge.observation import driver_in_tree
from memqos.converge.running_kubelet import KubeletFacts, KubeletSources, Submit, run_at_once
from memqos.errors import InputError, MemqosError, UnsupportedRelease, os_reason
from memqos.host.cgroups import CgroupFs
from memqos.host.kubelet import KubeletEndpoint
from memqos.host.machine import Roots, read_machine
from memqos.host.versions import kubelet_version
from memqos.kube.kubelet import CgroupDriver
from memqos.kube.node import Node
from memqos.settings.facts import RawKubeletConfig, facts_of_machine
from memqos.settings.resolver import NodeSettings, kubelet_with, resolve
from memqos.settings.settings import SettingsOptions

if TYPE_CHECKING:
    from memqos.numa.machines import NumaMachine

KUBELET_CGROUP: Final = "/system.slice/kubelet.service"
"""Where systemd runs a kubelet: another cgroup, of another inode, after each restart."""
_FIRST_DOUBT: Final = 2.0
_LAST_DOUBT: Final = 60.0
"""Seconds until all sources are read again while something is in doubt, doubling."""
KUBELET_PENDING: Final = "the running kubelet has not reported its version and configuration yet"
"""The doubt until a kubelet's first reply: other sources may say something else."""


class SettingsSource:
    """Resolves the settings again only when something has changed."""

    def __init__(
        self,
        fs: CgroupFs,
        roots: Roots,
        clock: Callable[[], float] = time.monotonic,
        submit: Submit = run_at_once,
    ) -> None:
        self._clock = clock
        self._fs = fs
        self._roots = roots
        self._sources = KubeletSources(roots, clock, submit)
        self._version_on_path = kubelet_version()
        self._last: AgentSettings | None = None
        self._inputs: object = None
        self._cgroup_root = ""
        self._restarts = self._restart_marker()
        self._retry_at = float("inf")
        self._retry_delay = _FIRST_DOUBT
        self._notes: list[tuple[LogSeverity, str]] = []
        self._reported: AgentSettings | None = None
        self._complaints: tuple[str, ...] = ()
        self.is_fresh = False
        """Whether the last settings are by what the kubelet, or its file, said just then."""
        self.is_requested = True
        """Whether the kubelet's endpoint was read in the last call, not only before it."""

    @property
    def is_request_pending(self) -> bool:
        """Whether a request was sent to the kubelet, and its reply has not been read."""
        return self._sources.is_request_pending

    def cancel_request(self) -> None:
        """Break off the pending request to the kubelet."""
        self._sources.cancel_request()

    def refresh(self) -> None:
        """Read the kubelet's endpoint at the next call, however recently it was read."""
        self._sources.refresh()

    def is_due(self) -> bool:
        """Whether to resolve again though nothing else is due: in doubt, or after a restart."""
        now = self._clock()
        self._sources.find_process(now)
        before, self._restarts = self._restarts, self._restart_marker(self._restarts)
        if self._restarts != before:
            self.refresh()
            self._retry_delay = _FIRST_DOUBT
            return True
        if self._sources.is_request_pending:
            return self._sources.has_reply
        if now >= self._retry_at:
            self.refresh()
            return True
        return now >= self._sources.retry_at

    def take_notes(self, mode: str) -> list[tuple[LogSeverity, str]]:
        """The notes on the last settings, each once."""
        notes, self._notes = self._notes, []
        node_settings, before = self._last, self._reported
        if (
            node_settings is None
            or node_settings is before
            or node_settings.doubt == KUBELET_PENDING
        ):
            return notes
        self._reported = node_settings
        known = () if before is None else before.notes
        notes += [("info", note) for note in node_settings.notes if note not in known]
        doubt = None if before is None else before.doubt
        if node_settings.doubt not in (None, doubt):
            severity: LogSeverity = "warning" if mode == "enforce" else "info"
            what = "nothing is written" if mode == "enforce" else "nothing would be written"
            notes.append((severity, f"{what}: {node_settings.doubt}"))
        elif doubt is not None and node_settings.doubt is None:
            notes.append(("info", "the running kubelet is known now"))
        risk = node_settings.high_withheld
        if risk is not None and (before is None or before.high_withheld is None):
            what = f"{risk}: memory.high is neither set nor reset, unless allowOldKernel is on"
            notes.append(("warning", what))
        was_on = (
            doubt is not None or before is None or before.settings.release.is_enabled("MemoryQoS")
        )
        if (
            was_on
            and node_settings.doubt is None
            and not node_settings.settings.release.is_enabled("MemoryQoS")
        ):
            notes.append(
                (
                    "warning",
                    f"{node_settings.enablement}: nothing is protected or throttled; set gates "
                    f"in the configuration to turn it on",
                )
            )
        return notes

    def resolve(
        self,
        configuration: AgentConfiguration,
        node: Node | None = None,
        kubelet: KubeletEndpoint | None = None,
    ) -> AgentSettings:
        """The settings with a configuration, and with what a cluster says of the node."""
        file = configuration.kubelet_config
        stated = None if file is None else _read_kubelet_file(file)
        facts = self._sources.read_facts(node, kubelet, configuration=stated is None)
        self.is_fresh, self.is_requested = facts.is_fresh, facts.is_requested
        if not facts.is_first_pending:
            self._note_complaints(facts)
        config = stated or facts.configuration
        options = SettingsOptions(
            release=configuration.release,
            gates=configuration.gates,
            policy=configuration.policy,
            factor=configuration.factor,
            placement=configuration.placement,
            allow_old_kernel=configuration.allow_old_kernel,
        )
        numa = None if configuration.numa == "off" else self._numa_machine()
        status = None if node is None else node.status
        inputs = options, config, facts.notes, facts.is_first_pending, status, numa
        if self._last is None or (inputs, self._driver()) != self._inputs:
            resolved = self._resolve_or_doubt(
                config, options, node, facts, is_stated=stated is not None
            )
            resolved = msgspec.structs.replace(
                resolved,
                notes=(*facts.notes, *resolved.notes),
                doubt=KUBELET_PENDING
                if facts.is_first_pending
                else resolved.doubt or _unknown_kubelet_doubt(resolved, config, options.release),
            )
            self._last = AgentSettings(**msgspec.structs.asdict(resolved), numa=numa)
            self._inputs = inputs, self._driver()
        self._schedule_retry(self._last)
        return self._last

    def _resolve_or_doubt(
        self,
        config: RawKubeletConfig | None,
        options: SettingsOptions,
        node: Node | None,
        facts: KubeletFacts,
        *,
        is_stated: bool,
    ) -> NodeSettings:
        """A configuration of the kubelet's that memqos cannot use ends no agent."""
        try:
            return self._resolve(config, options, node, facts)
        except MemqosError as error:
            if config is None or is_stated:
                raise
            node_settings = self._resolve(None, options, node, facts)
            doubt = f"the running kubelet's configuration cannot be used: {error}"
            return msgspec.structs.replace(node_settings, doubt=doubt, kubelet=None)

    def _resolve(
        self,
        config: RawKubeletConfig | None,
        options: SettingsOptions,
        node: Node | None,
        facts: KubeletFacts,
    ) -> NodeSettings:
        machine = msgspec.structs.replace(
            read_machine(self._roots),
            kubelet=facts.version,
            kubelet_on_path=self._version_on_path,
            missing={"kubelet": facts.why_unknown},
        )
        try:
            node_settings = resolve(facts_of_machine(machine, config, None, node), options)
        except MemqosError as error:
            is_unsupported = isinstance(error, UnsupportedRelease) and options.release is None
            if node is None and not is_unsupported:
                raise
            if node is not None:
                self._notes.append(("warning", f"the Node object is ignored: {error}"))
            node = None
            if is_unsupported:
                # A version that memqos does not support, or a gate that the guessed release lacks:
                # nothing is written until the kubelet answers otherwise.
                missing = {"kubelet": str(error)}
                machine = msgspec.structs.replace(machine, kubelet=None, missing=missing)
                options = msgspec.structs.replace(options, gates={})
            node_settings = resolve(facts_of_machine(machine, config, None), options)
        self._cgroup_root = node_settings.config.cgroup_root
        driver = self._driver()
        if driver is not None and driver != node_settings.config.driver:
            node_settings = resolve(facts_of_machine(machine, config, driver, node), options)
        return node_settings

    def _driver(self) -> CgroupDriver | None:
        return driver_in_tree(self._fs, self._cgroup_root)

    def _schedule_retry(self, node_settings: NodeSettings) -> None:
        if self._sources.is_request_pending:
            return  # scheduled when the reply is there
        if node_settings.doubt is None:
            self._retry_at, self._retry_delay = float("inf"), _FIRST_DOUBT
        elif self._retry_at <= self._clock() or self._retry_at == float("inf"):
            self._retry_at = self._clock() + self._retry_delay
            self._retry_delay = min(2 * self._retry_delay, _LAST_DOUBT)

    def _restart_marker(
        self, before: tuple[object, object] = (None, None)
    ) -> tuple[object, object]:
        """Another one after each restart of the kubelet; the same while it is down."""
        return self._fs.identity(KUBELET_CGROUP) or before[0], self._sources.process or before[1]

    def _note_complaints(self, facts: KubeletFacts) -> None:
        """Note once why a source gives no answer."""
        for each in facts.complaints:
            if each not in self._complaints:
                what = f"the kubelet does not report its configuration or version: {each}"
                self._notes.append(("info", what))
        self._complaints = facts.complaints

    def _numa_machine(self) -> "NumaMachine | None":
        """The machine's NUMA nodes: huge pages are set aside at any time."""
        from memqos.numa.machines import machine_from_kernel

        return machine_from_kernel(read_machine(self._roots))


def _unknown_kubelet_doubt(
    node_settings: NodeSettings, config: RawKubeletConfig | None, release: str | None
) -> str | None:
    """Why nothing is written where a kubelet may keep the levels, though none is known to run.

    A plan of `apply` has the kubelet's own values there; an agent plans the sum of what pods
    reserve, and a kubelet with the gate on would write its own again every minute (decision 12).
    """
    if node_settings.kubelet is not None or config is None or release is None:
        return None
    kubelet = kubelet_with(config, release)
    if kubelet is None or not kubelet.writes_levels:
        return None
    return (
        f"{config.name} has MemoryQoS on, and no kubelet is known to run with it: such a kubelet "
        f"sets protection above pods itself – name a source that has its version, or if no "
        f"kubelet runs, set gates instead"
    )


def _read_kubelet_file(file: str) -> RawKubeletConfig:
    try:
        with open(file, "rb") as opened:
            return RawKubeletConfig(file, opened.read())
    except OSError as error:
        raise InputError(os_reason(error), file=file) from None
