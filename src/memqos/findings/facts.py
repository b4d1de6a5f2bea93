"""The facts that rules judge: a machine, its cgroups at one or two moments, and its plan."""

import msgspec

from memqos.kernel.machine import Machine
from memqos.kube.kubelet import CgroupDriver
from memqos.manifests.agent_state import AgentState
from memqos.plan.changes import Comparison, Files
from memqos.plan.names import CgroupNames, outer
from memqos.plan.tree import Tree
from memqos.release import Release
from memqos.settings.settings import PAGE_SIZE


class SecondReading(msgspec.Struct, frozen=True):
    """The cgroups once more, some seconds after."""

    seconds: float
    cgroups: dict[str, dict[str, str]]


class PlanFacts(msgspec.Struct, frozen=True, kw_only=True):
    """What Kubernetes would set on the node."""

    names: CgroupNames
    tree: Tree
    comparison: Comparison
    release: Release
    memory_qos: bool | None
    """Whether the feature is on; None where the kubelet's release or configuration is not known."""
    unaligned: tuple[str, ...] = ()
    """Pods whose pod-level resources the Memory Manager ignores."""
    doubt: str | None = None
    """Why the plan is a guess, by which nothing is judged."""
    managed: frozenset[str] = frozenset()
    """The cgroups that an agent of memqos manages, planned as it plans them."""


class NriFacts(msgspec.Struct, frozen=True, kw_only=True):
    """The runtime's NRI socket, and who uses it."""

    socket: str
    mode: int | None = None
    """Its permissions; None where it is not there."""
    folder_mode: int = 0
    plugins: tuple[str, ...] | None = None
    """The processes that are connected; None where that is not known."""
    installed: tuple[str, ...] = ()
    """Plugins that the runtime starts itself."""


class NodeFacts(msgspec.Struct, frozen=True, kw_only=True):
    """A node as far as it is known."""

    machine: Machine
    cgroups: dict[str, dict[str, str]] = {}
    """Path → file → content."""
    later: SecondReading | None = None
    configured_driver: CgroupDriver | None = None
    """As the kubelet's configuration has it; None where it does not say."""
    planned: PlanFacts | None = None
    not_planned: str | None = None
    """Why there is no plan."""
    pods: int = 0
    """How many are known."""
    agent: AgentState | None = None
    """The agent of memqos on the node, where one answers."""
    nri: NriFacts | None = None
    """None where it was not looked at."""
    own_values: dict[str, tuple[str, ...]] = {}
    """Path → files whose value in place is memqos's own, by its journal."""

    @property
    def page_size(self) -> int:
        return self.machine.page_size or PAGE_SIZE

    def display_name(self, path: str) -> str:
        """A cgroup by its pod and container where they are known, else by its path."""
        cgroups = {} if self.planned is None else self.planned.tree.cgroups
        cgroup, above = cgroups.get(path), cgroups.get(path.rpartition("/")[0])
        if cgroup is not None and cgroup.pod is not None:
            return f"{cgroup.pod} {cgroup.container}" if cgroup.container else cgroup.pod
        is_unnamed = cgroup is None and above is not None and above.level == "pod"
        return f"{above.pod} (sandbox)" if above is not None and is_unnamed else path

    def is_managed(self, path: str) -> bool:
        """Whether a cgroup is planned as the agent on the node plans it."""
        return self.planned is not None and outer(path) in self.planned.managed

    def is_written_by_memqos(self, path: str, file: str) -> bool:
        """Whether memqos wrote a value: it is not compared with what Kubernetes sets."""
        return self.is_managed(path) or file in self.own_values.get(path, ())

    def is_pod(self, path: str) -> bool:
        """Whether a cgroup is a pod's, by its name."""
        place = None if self.planned is None else self.planned.names.recognise(path)
        return place is not None and place.kind == "pod"

    def is_reserved(self, path: str) -> bool:
        """Whether a cgroup is the system's, with a reservation that the kubelet enforces."""
        cgroup = None if self.planned is None else self.planned.tree.cgroups.get(path)
        return cgroup is not None and cgroup.level == "reserved"


def file_number(files: Files, file: str) -> int | None:
    """A file that holds one number; None where it is not known or holds `max`."""
    content = files.get(file, "").strip()
    return int(content) if content.isdigit() else None
