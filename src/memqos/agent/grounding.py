"""What an agent's plans rest on: the machine, the kubelet's configuration, the names of cgroups.

In a cluster the Node says what is in force, and the kubelet itself what it was configured with,
where it may be asked; else its file does.
"""

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

import msgspec

from memqos.agent.configuration import Configuration
from memqos.agent.tally import Severity
from memqos.api.kubelet import Driver
from memqos.api.node import Node
from memqos.converge.asking import configuration_of
from memqos.converge.observing import Configuration as KubeletFile
from memqos.converge.planning import Ground, Wanted, ground_of
from memqos.errors import InputError, MemqosError
from memqos.host.cgroups import CgroupFs
from memqos.host.kubelet import KubeletEndpoint
from memqos.host.machine import Roots, read_machine
from memqos.host.versions import kubelet_version
from memqos.plan.names import cgroup_names

if TYPE_CHECKING:
    from memqos.numa.machines import NumaMachine

_DRIVERS: Final[tuple[Driver, ...]] = ("systemd", "cgroupfs")
_KUBELET_CONFIG: Final = "config.yaml"
_ASK_AGAIN: Final = 300.0
"""Seconds after which a kubelet is asked anew for its configuration."""


class Grounds:
    """Works it out anew only when something has changed."""

    def __init__(
        self, fs: CgroupFs, roots: Roots, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.notes: list[tuple[Severity, str]] = []
        """What is worth saying of it, until somebody has."""
        self._clock = clock
        self._asked: tuple[str, float] | None = None
        self._told: KubeletFile | None = None
        self._why: str | None = None
        self._fs = fs
        self._roots = roots
        self._kubelet = kubelet_version()
        self._last: Ground | None = None
        self._mark: object = None
        self._cgroup_root = ""
        self.is_fresh = False
        """Whether the last answer holds what the kubelet, or its file, said just then."""

    def refresh(self) -> None:
        """Have the kubelet asked at the next call, however recently it was."""
        if self._asked is not None:
            self._asked = self._asked[0], float("-inf")

    def under(
        self,
        told: Configuration,
        node: Node | None = None,
        kubelet: KubeletEndpoint | None = None,
    ) -> Ground:
        """What plans rest on under a configuration, with what a cluster says of the node."""
        self.is_fresh = True
        config = None if told.kubelet_config is not None else self._ask(kubelet)
        if config is None:
            config = self._kubelet_config(told.kubelet_config)
        wanted = Wanted(
            told.release, told.gates, told.policy, told.factor, told.numa, told.placement
        )
        nodes = None if told.numa == "off" else self._nodes()
        said = None if node is None else node.status
        mark = wanted, config, said, self._driver_there(self._cgroup_root), nodes
        if self._last is not None and mark == self._mark:
            return self._last
        machine = msgspec.structs.replace(read_machine(self._roots), kubelet=self._kubelet)
        try:
            ground = ground_of(machine, config, None, wanted, node)
        except MemqosError as error:
            if node is None:
                raise
            node = None
            ground = ground_of(machine, config, None, wanted)
            self.notes.append(("warning", f"what the Node says is left aside: {error}"))
        self._cgroup_root = ground.config.cgroup_root
        driver = self._driver_there(self._cgroup_root)
        if driver is not None and driver != ground.config.driver:
            ground = ground_of(machine, config, driver, wanted, node)
        ground = msgspec.structs.replace(ground, numa=nodes)
        self._last, self._mark = ground, (wanted, config, said, driver, nodes)
        return ground

    def _nodes(self) -> "NumaMachine | None":
        """The machine's NUMA nodes: huge pages are set aside at any time."""
        from memqos.numa.machines import machine_of_kernel

        return machine_of_kernel(read_machine(self._roots))

    def _ask(self, kubelet: KubeletEndpoint | None) -> KubeletFile | None:
        """What a kubelet tells of itself; what it told last while it does not answer."""
        if kubelet is None:
            return None
        now = self._clock()
        if self._asked is not None:
            address, at = self._asked
            if address == kubelet.url and now - at < _ASK_AGAIN:
                self.is_fresh = False
                return self._told
            if address != kubelet.url:
                self._told = None
        self._asked = kubelet.url, now
        notes: list[str] = []
        found = configuration_of(kubelet, notes)
        if found is not None:
            self._told, self._why = found, None
        else:
            # A refusal sends to the file, which is read each time; silence leaves it open.
            self.is_fresh = self._told is None
        if found is None and notes and notes[0] != self._why:
            self._why = notes[0]
            instead = "its file is read" if self._told is None else "what it told before holds"
            what = f"the kubelet does not tell its configuration, {instead}: {notes[0]}"
            self.notes.append(("info", what))
        return self._told

    def _driver_there(self, root: str) -> Driver | None:
        """The driver that made the cgroups below a root; None where that is not clear."""
        found = [
            driver
            for driver in _DRIVERS
            if self._fs.identity(cgroup_names(driver, root).kubepods) is not None
        ]
        return found[0] if len(found) == 1 else None

    def _kubelet_config(self, given: str | None) -> KubeletFile | None:
        file = given or f"{self._roots.kubelet}/{_KUBELET_CONFIG}"
        try:
            with open(file, "rb") as opened:
                return KubeletFile(file, opened.read())
        except OSError as error:
            if given is None and isinstance(error, FileNotFoundError):
                return None
            raise InputError((error.strerror or str(error)).lower(), file=file) from None
