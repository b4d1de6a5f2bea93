"""What an agent's plans rest on: the machine, the kubelet's configuration, the names of cgroups."""

from typing import TYPE_CHECKING, Final

import msgspec

from memqos.agent.configuration import Configuration
from memqos.api.kubelet import Driver
from memqos.converge.observing import Configuration as KubeletFile
from memqos.converge.planning import Ground, Wanted, ground_of
from memqos.errors import InputError
from memqos.host.cgroups import CgroupFs
from memqos.host.machine import Roots, read_machine
from memqos.host.versions import kubelet_version
from memqos.plan.names import cgroup_names

if TYPE_CHECKING:
    from memqos.numa.machines import NumaMachine

_DRIVERS: Final[tuple[Driver, ...]] = ("systemd", "cgroupfs")
_KUBELET_CONFIG: Final = "config.yaml"


class Grounds:
    """Works it out anew only when something has changed."""

    def __init__(self, fs: CgroupFs, roots: Roots) -> None:
        self._fs = fs
        self._roots = roots
        self._kubelet = kubelet_version()
        self._last: Ground | None = None
        self._mark: object = None
        self._cgroup_root = ""

    def under(self, told: Configuration) -> Ground:
        """What plans rest on under a configuration."""
        config = self._kubelet_config(told.kubelet_config)
        wanted = Wanted(
            told.release, told.gates, told.policy, told.factor, told.numa, told.placement
        )
        nodes = None if told.numa == "off" else self._nodes()
        mark = wanted, config, self._driver_there(self._cgroup_root), nodes
        if self._last is not None and mark == self._mark:
            return self._last
        machine = msgspec.structs.replace(read_machine(self._roots), kubelet=self._kubelet)
        ground = ground_of(machine, config, None, wanted)
        self._cgroup_root = ground.config.cgroup_root
        driver = self._driver_there(self._cgroup_root)
        if driver is not None and driver != ground.config.driver:
            ground = ground_of(machine, config, driver, wanted)
        ground = msgspec.structs.replace(ground, numa=nodes)
        self._last, self._mark = ground, (wanted, config, driver, nodes)
        return ground

    def _nodes(self) -> "NumaMachine | None":
        """The machine's NUMA nodes: huge pages are set aside at any time."""
        from memqos.numa.machines import machine_of_kernel

        return machine_of_kernel(read_machine(self._roots))

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
