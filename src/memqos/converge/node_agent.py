"""memqos's own values on a node: those that an agent manages, and those that its journal lists.

A plan of Kubernetes' alone would call them stale, and have them taken back.
"""

from collections.abc import Mapping

import msgspec

from memqos.converge.journal import hierarchy_of, read_journal
from memqos.converge.observing import ObservedNode
from memqos.converge.undo import UndoEntries
from memqos.converge.values import file_fault, value_fault
from memqos.errors import InputError, MemqosError, Unreachable
from memqos.host.cgroups import CgroupFs
from memqos.manifests.agent_state import AgentState, FileState, read_agent_state
from memqos.plan.changes import MANAGED
from memqos.plan.setting import Rule, Setting
from memqos.plan.tree import Cgroup, Tree


def with_agent(
    observation: ObservedNode, root: str, socket: str | None, journal: str | None
) -> ObservedNode:
    """A live node and what memqos itself does there, by an agent's socket and a journal's folder.

    Why either does not tell goes to the notes; where there is none, there is nothing to say.
    """
    notes: list[str] = []
    agent = None if socket is None else _agent_at(socket, notes)
    own = {} if journal is None else _read_journal_values(observation, root, journal, notes)
    return msgspec.structs.replace(
        observation, agent=agent, own_values=own, notes=(*observation.notes, *notes)
    )


def with_agent_plan(tree: Tree, agent: AgentState) -> Tree:
    """A tree in which the cgroups that an agent manages are as it wants them.

    The files that memqos never writes stay as Kubernetes plans them, and so do all other cgroups.
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
    """Path → files whose value in place is one that memqos wrote, of what a journal lists."""
    found: dict[str, tuple[str, ...]] = {}
    for debt in entries.values():
        value = cgroups.get(debt.path, {}).get(debt.file, "").strip()
        is_there = identities.get(debt.path) == debt.cgroup
        if is_there and value in debt.ours and value != debt.original:
            found[debt.path] = (*found.get(debt.path, ()), debt.file)
    return found


def _agent_at(socket: str, notes: list[str]) -> AgentState | None:
    # A plan of a snapshot opens no socket, and does not pay for one.
    from memqos.host.agent_socket import ask_state

    try:
        answer = ask_state(socket)
        return None if answer is None else read_agent_state(answer, socket)
    except (Unreachable, InputError) as error:
        notes.append(f"the agent on this node is not known: {error}")
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
        notes.append(f"what memqos has written here is not known: {error}")
        return {}
    if reading.damage is not None and not reading.damage.torn:
        notes.append(f"{folder}: the journal is damaged, so not all that memqos wrote is known")
    return values_in_journal(reading.undo_entries, observation.cgroups, observation.identities)


def _setting(path: str, file: str, found: FileState) -> Setting:
    fault = file_fault(path, file) or value_fault(file, found.desired)
    if fault is not None:
        raise InputError(f"the agent on this node wants what memqos never writes: {fault}")
    rule = Rule(found.rule, found.because, found.source, lambda *steps: steps)
    return Setting(found.desired, rule, found.steps)
