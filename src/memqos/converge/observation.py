"""Observe a node: the live machine or a snapshot, in one struct for both."""

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Final

import msgspec

from memqos.converge.journal import hierarchy_of, read_journal
from memqos.converge.pod_sources import PodSource
from memqos.converge.undo import UndoEntries
from memqos.converge.values import file_fault, value_fault
from memqos.errors import InputError, MemqosError, Unreachable, os_reason
from memqos.host.cgroups import CgroupFs, read_tree
from memqos.host.machine import SYSTEM, Roots, read_machine
from memqos.host.manifest_files import load_file
from memqos.kernel.machine import LAYOUTS, Machine
from memqos.kube.kubelet import STATE_FILE, CgroupDriver
from memqos.kube.kubelet.drivers import kubepods_in
from memqos.kube.pod import Pod
from memqos.manifests.agent_state import AgentState, FileState, read_agent_state
from memqos.plan.changes import MANAGED
from memqos.plan.setting import Rule, Setting
from memqos.plan.tree import Cgroup, Tree

if TYPE_CHECKING:
    from memqos.converge.running_kubelet import KubeletFacts
    from memqos.kube.node import Node
    from memqos.manifests.snapshot import Snapshot

from memqos.plan.names import cgroup_names
from memqos.settings.facts import (
    NodeFacts,
    RawKubeletConfig,
    facts_of_machine,
    snapshot_configuration,
)

LIVE_ORIGIN: Final = "this machine"
_DRIVERS: Final[tuple[CgroupDriver, ...]] = ("systemd", "cgroupfs")


class ObservedNode(msgspec.Struct, frozen=True, kw_only=True):
    """A node at one moment."""

    origin: str
    """`this machine`, or the snapshot's file."""
    machine: Machine
    pods: tuple[Pod, ...] = ()
    cgroups: dict[str, dict[str, str]]
    """Path → file → content, of the requested files that exist."""
    identities: dict[str, int] = {}
    """Path → inode, of a live machine."""
    driver: CgroupDriver | None
    """By the names in the tree; None where no kubelet has created cgroups."""
    configuration: RawKubeletConfig | None = None
    node: "Node | None" = None
    """The Node object, where a cluster was read."""
    memory_manager_state: str | None = None
    agent: AgentState | None = None
    """The state of the agent on the node, where one answers."""
    own_values: dict[str, tuple[str, ...]] = {}
    """Path → files whose current value was written by memqos, by its journal."""
    unreadable: tuple[str, ...] = ()
    """Cgroups, and files of cgroups, that exist and could not be read."""
    notes: tuple[str, ...] = ()
    """What is missing or could not be read, in words."""
    faults: tuple[str, ...] = ()
    """Files in a folder of manifests that could not be read: their pods are missing."""

    @property
    def facts(self) -> NodeFacts:
        """What its settings follow from; a node that cannot be planned is refused."""
        return facts_of_machine(self.machine, self.configuration, self.driver, self.node)


def observe_live(
    pods: PodSource | None,
    files: Iterable[str],
    *,
    below: Iterable[str] = ("/",),
    roots: Roots = SYSTEM,
    configuration: RawKubeletConfig | None = None,
    machine: Machine | None = None,
    kubelet: "KubeletFacts | None" = None,
    node: "Node | None" = None,
) -> ObservedNode:
    """Read the machine: these files of every cgroup from `below` down, each once.

    Where the machine has no unified hierarchy, by `machine.layout`, there are no cgroups. Without a
    `configuration`, that of the running kubelet is used, or the file where kubeadm puts it.
    """
    machine = read_machine(roots) if machine is None else machine
    tree = read_tree(roots.cgroup, files, below if machine.layout == "v2" else ())
    kubepods = kubepods_in(tree.cgroups)
    notes = [f"no {field}: {why}" for field, why in machine.missing.items()]
    if machine.layout is not None and machine.layout != "v2":
        notes.append(f"no cgroups: {LAYOUTS[machine.layout]} at {roots.cgroup}, not cgroup v2")
    if len(kubepods) > 1:
        notes.append(
            f"pods are in more than one cgroup: {', '.join(each.path for each in kubepods)}"
        )
    notes += [f"{what}: {why.lower()}" for what, why in tree.unreadable.items()]
    if kubelet is not None:
        notes += [*kubelet.complaints, *kubelet.notes]
        configuration = configuration or kubelet.configuration
        machine = msgspec.structs.replace(
            machine, kubelet=kubelet.version, missing=machine.missing | _missing(kubelet)
        )
    elif configuration is None:
        configuration = read_kubelet_config(f"{roots.kubelet}/config.yaml", notes)
    state = _read_optional(f"{roots.kubelet}/{STATE_FILE}", notes)
    found = () if pods is None else tuple(pods.pods())
    return ObservedNode(
        origin=LIVE_ORIGIN,
        machine=machine,
        pods=found,
        cgroups=tree.cgroups,
        identities=tree.identities,
        driver=kubepods[0].driver if kubepods else None,
        configuration=configuration,
        node=node,
        memory_manager_state=None if state is None else state.decode("utf-8", "replace"),
        unreadable=tuple(tree.unreadable),
        notes=tuple(notes),
        faults=() if pods is None else tuple(map(str, pods.faults)),
    )


def observe_snapshot(snapshot: "Snapshot", file: str) -> ObservedNode:
    """The node in a snapshot, as it was at that time."""
    kubepods = kubepods_in(snapshot.cgroups)
    return ObservedNode(
        origin=file,
        machine=snapshot.machine,
        pods=snapshot.running,
        cgroups=snapshot.cgroups,
        driver=kubepods[0].driver if kubepods else None,
        configuration=snapshot_configuration(snapshot, file),
        memory_manager_state=snapshot.memory_manager_state,
        agent=snapshot.agent,
        own_values=snapshot.own_values,
        notes=snapshot.gaps,
    )


def driver_in_tree(fs: CgroupFs, cgroup_root: str) -> CgroupDriver | None:
    """The driver that created the cgroups below a cgroupRoot; None where that is not clear."""
    found = [
        driver
        for driver in _DRIVERS
        if fs.identity(cgroup_names(driver, cgroup_root).kubepods) is not None
    ]
    return found[0] if len(found) == 1 else None


def load_kubelet_config(file: str | None) -> RawKubeletConfig | None:
    """The configuration in a file, still to be decoded; None where no file is given."""
    return None if file is None else RawKubeletConfig(*load_file(file))


def _missing(kubelet: "KubeletFacts") -> dict[str, str]:
    return {} if kubelet.version is not None else {"kubelet": kubelet.why_unknown}


def read_kubelet_config(file: str, notes: list[str]) -> RawKubeletConfig | None:
    """The configuration in a file, if it exists; an error is added to the notes."""
    data = _read_optional(file, notes)
    return None if data is None else RawKubeletConfig(file, data)


def _read_optional(file: str, notes: list[str]) -> bytes | None:
    """A file's content, if it exists; only root may read the kubelet's files."""
    try:
        with open(file, "rb") as opened:
            return opened.read()
    except FileNotFoundError:
        return None
    except OSError as error:
        notes.append(f"{file}: {os_reason(error)}")
        return None


def with_agent(
    observation: ObservedNode, root: str, socket: str | None, journal: str | None
) -> ObservedNode:
    """A live node with an agent's state, by its socket, and memqos's own values, by its journal.

    An error of either is added to the notes; a missing agent or journal is no error.
    """
    notes: list[str] = []
    agent = None if socket is None else _read_agent(socket, notes)
    own = {} if journal is None else _read_journal_values(observation, root, journal, notes)
    return msgspec.structs.replace(
        observation, agent=agent, own_values=own, notes=(*observation.notes, *notes)
    )


def with_agent_plan(tree: Tree, agent: AgentState) -> Tree:
    """The tree with an agent's plan of the cgroups that it manages.

    Files that memqos never writes stay as Kubernetes plans them, and so do all other cgroups.
    """
    cgroups = dict(tree.cgroups)
    for found, level, pod in agent.managed_cgroups:
        planned = cgroups.get(found.path) or Cgroup(found.path, level, {}, pod, found.container)
        settings = {
            file: setting for file, setting in planned.settings.items() if file not in MANAGED
        }
        settings |= {file: _setting(found.path, file, each) for file, each in found.files.items()}
        cgroups[found.path] = msgspec.structs.replace(planned, settings=settings)
    return msgspec.structs.replace(tree, cgroups=cgroups)


def values_in_journal(
    entries: UndoEntries, cgroups: Mapping[str, Mapping[str, str]], identities: Mapping[str, int]
) -> dict[str, tuple[str, ...]]:
    """Path → files whose current value was written by memqos, of those in a journal."""
    found: dict[str, tuple[str, ...]] = {}
    for entry in entries.values():
        value = cgroups.get(entry.path, {}).get(entry.file, "").strip()
        is_same_cgroup = identities.get(entry.path) == entry.cgroup
        if is_same_cgroup and value in entry.ours and value != entry.original:
            found[entry.path] = (*found.get(entry.path, ()), entry.file)
    return found


def _read_agent(socket: str, notes: list[str]) -> AgentState | None:
    # Imported here: the plan of a snapshot opens no socket, and saves the time of the import.
    from memqos.host.agent_socket import fetch_state

    try:
        answer = fetch_state(socket)
        return None if answer is None else read_agent_state(answer, socket)
    except (Unreachable, InputError) as error:
        notes.append(f"the state of the agent on this node is unknown: {error}")
        return None


def _read_journal_values(
    observation: ObservedNode, root: str, folder: str, notes: list[str]
) -> dict[str, tuple[str, ...]]:
    boot = observation.machine.boot_id
    if boot is None:
        return {}
    try:
        reading = read_journal(folder, hierarchy_of(CgroupFs(root), boot))
    except MemqosError as error:
        notes.append(f"the values that memqos has written here are unknown: {error}")
        return {}
    if reading.damage is not None and not reading.damage.torn:
        notes.append(f"{folder}: the journal is damaged, so not all that memqos wrote is known")
    return values_in_journal(reading.undo_entries, observation.cgroups, observation.identities)


def _setting(path: str, file: str, found: FileState) -> Setting:
    fault = file_fault(path, file) or value_fault(file, found.desired)
    if fault is not None:
        raise InputError(f"the agent on this node plans a value that memqos never writes: {fault}")
    rule = Rule(found.rule, found.because, found.source, lambda *steps: steps)
    return Setting(found.desired, rule, found.steps)
