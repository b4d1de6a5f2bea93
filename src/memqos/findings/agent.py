"""Rules about values that memqos wrote: which of them an agent manages, and which none does."""

from collections.abc import Iterator, Sequence

from memqos.findings.catalogue import (
    AGENT_LEFT_ALONE,
    AGENT_MANAGES,
    AGENT_PENDING,
    AGENT_UNMANAGED,
)
from memqos.findings.facts import NodeFacts
from memqos.findings.finding import Finding
from memqos.manifests.agent_state import AgentState
from memqos.plan.names import outer


def check_pending_values(facts: NodeFacts) -> Iterator[Finding]:
    """Values that the agent has yet to write."""
    if facts.planned is None:
        return
    changes = [c for c in facts.planned.comparison.changes if facts.is_managed(c.path)]
    left_alone = _values_left_alone(facts)
    waiting = [c for c in changes if (c.path, c.file) not in left_alone]
    if waiting:
        yield Finding(
            AGENT_PENDING.id,
            "info",
            f"values that the agent on this node has yet to set: {len(waiting)}",
            facts.display_name(waiting[0].path),
            tuple(
                f"{facts.display_name(c.path)}: {c.file} is {c.old}, not {c.new}" for c in waiting
            ),
            "it sets them by itself: memory.high in steps, memory.min as memory gets free; "
            "memqos plan --why shows its plan",
        )


def check_contested_values(facts: NodeFacts) -> Iterator[Finding]:
    """Values that the agent no longer writes, as another program writes them, too."""
    found = _values_left_alone(facts)
    if found:
        yield Finding(
            AGENT_LEFT_ALONE.id,
            "warning",
            f"values that the agent on this node no longer sets, as something else keeps "
            f"changing them: "
            f"{len(found)}",
            facts.display_name(next(iter(found))[0]),
            tuple(
                f"{facts.display_name(path)}: {file}, cause: {cause}"
                for (path, file), cause in found.items()
            ),
            "stop the other writer, then send SIGHUP to the agent",
        )


def check_own_values(facts: NodeFacts) -> Iterator[Finding]:
    """Values in place that memqos wrote and Kubernetes would not set."""
    ours = tuple(_values_unlike_kubernetes(facts))
    managed_paths = frozenset() if facts.agent is None else facts.agent.managed_paths
    managed = [place for place in ours if outer(place[0]) in managed_paths]
    others = [place for place in ours if outer(place[0]) not in managed_paths]
    if managed:
        yield Finding(
            AGENT_MANAGES.id,
            "info",
            "values that Kubernetes would not set are managed by the agent on this node: "
            f"{len(managed)}",
            facts.display_name(managed[0][0]),
            _value_evidence(facts, managed),
            "none needed; without --no-agent and options such as --policy, they are compared "
            "with the agent's plan",
        )
    if others:
        why, fix = why_unmanaged(facts.agent)
        yield Finding(
            AGENT_UNMANAGED.id,
            "warning" if _is_compared(facts) else "info",
            f"values that memqos wrote are in place, and {why}: {len(others)}",
            facts.display_name(others[0][0]),
            _value_evidence(facts, others),
            fix,
        )


def why_unmanaged(agent: AgentState | None) -> tuple[str, str]:
    """Why no agent manages values that memqos wrote, and what to do about them."""
    if agent is not None and agent.enforces:
        return (
            "the agent on this node manages other pods",
            "the agent restores the previous values at its next resync",
        )
    return (
        "no agent manages them" if agent is None else "the agent on this node only observes",
        "memqos rollback restores the previous values, memqos agent --mode enforce manages them",
    )


def _value_evidence(facts: NodeFacts, places: Sequence[tuple[str, str]]) -> tuple[str, ...]:
    return tuple(
        f"{facts.display_name(path)}: {file} is {facts.cgroups[path][file].strip()}"
        for path, file in places
    )


def _values_unlike_kubernetes(facts: NodeFacts) -> Iterator[tuple[str, str]]:
    """What memqos wrote and a plan would change; without a plan, all that memqos wrote."""
    changes = () if facts.planned is None else facts.planned.comparison.changes
    changed = {(change.path, change.file) for change in changes}
    for path, files in facts.own_values.items():
        if facts.is_managed(path):
            continue
        for file in files:
            is_there = file in facts.cgroups.get(path, {})
            if is_there and ((path, file) in changed or not _is_compared(facts)):
                yield path, file


def _is_compared(facts: NodeFacts) -> bool:
    """Whether it is known what Kubernetes would set here."""
    return facts.planned is not None and facts.planned.memory_qos is not None and facts.pods > 0


def _values_left_alone(facts: NodeFacts) -> dict[tuple[str, str], str]:
    if facts.agent is None:
        return {}
    return {
        (each.path, each.file): each.cause
        for each in facts.agent.left_alone
        if each.path in facts.cgroups
    }
