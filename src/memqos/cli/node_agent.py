"""memqos's own agent and journal, for the commands that look at a node."""

from collections.abc import Callable, Iterator
from typing import Any, Final, TypeVar

import click
import msgspec

from memqos.agent.configuration import AgentConfiguration
from memqos.cli.help_sections import help_section
from memqos.converge.journal import JOURNAL_FOLDER
from memqos.converge.node_plan import NodePlan
from memqos.converge.observation import ObservedNode
from memqos.findings.agent import why_unmanaged
from memqos.host.cgroups import SYSTEM_ROOT
from memqos.manifests.agent_state import AgentState
from memqos.plan.names import outer
from memqos.units import pluralize

_F = TypeVar("_F", bound=Callable[..., Any])

STATE_SOCKET: Final = AgentConfiguration().state_socket


@help_section("Agent")
def agent_options(command: _F) -> _F:
    """Where this node's agent and its journal are."""
    for option in (
        click.option(
            "--journal",
            metavar="DIR",
            help=f"The folder of the journal, with the previous values.  [default: "
            f"{JOURNAL_FOLDER}]",
        ),
        click.option(
            "--agent",
            metavar="SOCKET",
            help=f"The state socket of the agent on this node.  [default: {STATE_SOCKET}]",
        ),
    ):
        command = option(command)
    return command


no_agent_option = help_section("Agent")(
    click.option(
        "--no-agent",
        is_flag=True,
        help="Compare with Kubernetes' plan, even for pods that the agent manages.",
    )
)


def agent_paths(
    cgroup_root: str, socket: str | None, journal: str | None
) -> tuple[str | None, str | None]:
    """The socket and the journal's folder; the machine's own say nothing of a copy of its tree."""
    is_here = cgroup_root == SYSTEM_ROOT
    return (
        socket or (STATE_SOCKET if is_here else None),
        journal or (JOURNAL_FOLDER if is_here else None),
    )


def agent_line(agent: AgentState) -> str:
    """The settings an agent plans with, and how many pods it manages."""
    managed, pods = len(agent.managed_pods), pluralize(len(agent.pods), "pod")
    factor = "no throttling factor" if agent.factor is None else f"factor {agent.factor:g}"
    return (
        f"as planned by the agent on this node: {agent.mode} · Kubernetes {agent.release} · "
        f"policy {agent.policy} · {factor} · {managed} of {pods}"
    )


def agent_notes(agent: AgentState | None) -> Iterator[str]:
    """What an agent reports about itself."""
    if agent is not None and agent.failing is not None:
        yield f"the agent on this node reports: {agent.failing}"
    if agent is not None and agent.doubt is not None:
        yield f"the agent on this node writes nothing: {agent.doubt}"


def with_agent_notes(plan: NodePlan, observation: ObservedNode) -> NodePlan:
    """The plan with notes on values of memqos's own that it would change."""
    agent, notes = observation.agent, [*agent_notes(observation.agent)]
    managed = frozenset() if agent is None else agent.managed_paths
    if agent is not None and plan.managed:
        notes += [
            f"{each.path}/{each.file}: not managed any more, as something else keeps changing it: "
            f"{each.cause}"
            for each in agent.left_alone
        ]
    undone = [
        outer(change.path) in managed
        for change in plan.comparison.changes
        if outer(change.path) not in plan.managed
        and change.file in observation.own_values.get(change.path, ())
    ]
    if any(undone):
        notes.append(
            f"{sum(undone)} of these values are managed by the agent on this node: this is "
            "Kubernetes' plan, not the agent's"
        )
    if not all(undone):
        why, fix = why_unmanaged(agent)
        count = undone.count(False)
        notes.append(f"{count} of these values were written by memqos, and {why}: {fix}")
    return msgspec.structs.replace(plan, notes=(*plan.notes, *notes))


def agent_data(plan: NodePlan | None, observation: ObservedNode) -> dict[str, Any] | None:
    """The agent as plain data, and whether the plan is its own; None where none answers."""
    agent = observation.agent
    if agent is None:
        return None
    return {
        "version": agent.version,
        "mode": agent.mode,
        "release": agent.release,
        "policy": agent.policy,
        "factor": agent.factor,
        "followed": plan is not None and bool(plan.managed),
        "pods": [pod.pod for pod in agent.managed_pods],
        "left_alone": [msgspec.to_builtins(each) for each in agent.left_alone],
    }
