"""`memqos plan`: what would change on a node, and why."""

from typing import TYPE_CHECKING, Any

import click
import msgspec

from memqos.cli.help_sections import SectionedCommand
from memqos.cli.node_agent import (
    agent_data,
    agent_line,
    agent_options,
    agent_paths,
    no_agent_option,
    with_agent_notes,
)
from memqos.cli.node_plan import (
    NodeOptions,
    load_observation,
    make_plan,
    node_options,
    observe_node,
    plan_caveats,
    require_pods,
    require_writable,
)
from memqos.cli.options import collect_options, owner_options, route_lines, with_route
from memqos.cli.output import (
    OutputFormat,
    check_output_file,
    complain,
    emit,
    output_option,
    print_lines,
    write_output_file,
)
from memqos.converge.node_plan import NodePlan
from memqos.converge.observation import ObservedNode, with_agent
from memqos.draw.text.changes import changes_data, changes_summary, changes_text
from memqos.draw.text.pod import settings_line
from memqos.host.versions import own_version
from memqos.manifests.agent_state import AgentState

if TYPE_CHECKING:
    from memqos.converge.router import Router

_ERROR = 1
_CHANGES_PENDING = 2


@click.command(cls=SectionedCommand)
@node_options
@owner_options
@click.option("--snapshot", metavar="FILE", help="Plan the node of a snapshot instead of this one.")
@click.option("--why", is_flag=True, help="Show the derivation of every change.")
@click.option("--out", metavar="FILE", help="Save the plan to a file, for memqos apply FILE.")
@agent_options
@no_agent_option
@output_option()
@collect_options(NodeOptions)
def command(
    options: NodeOptions,
    *,
    snapshot: str | None,
    why: bool,
    out: str | None,
    output: OutputFormat,
    direct: bool,
    cri_socket: str | None,
    agent: str | None,
    journal: str | None,
    no_agent: bool,
) -> int:
    """Compare this node, or that of a snapshot, with what Kubernetes would set.

    If an agent of memqos enforces on the node, the values it manages are compared with its own
    plan. With --no-agent, or with options such as --policy, Kubernetes' plan is shown.

    \b
    +  a value to set    ~  a value to change    -  a value to reset

    Exit code 0: converged, 2: changes pending, 1: error.
    """
    if snapshot is not None and out is not None:
        raise click.UsageError("a plan of a snapshot cannot be applied, so it is not saved")
    check_output_file(out)
    if out is not None:
        require_pods(options)
    # A saved plan is for apply, which does not write as an agent would.
    follows_agent = out is None and not no_agent and not options.overrides_plan
    plan_options = options.plan_options(agent=follows_agent)
    root = options.cgroup_root
    observation = (
        with_agent(observe_node(options), root, *agent_paths(root, agent, journal))
        if snapshot is None
        else load_observation(snapshot, options)
    )
    plan = with_agent_notes(make_plan(observation, plan_options), observation)
    if snapshot is not None:
        plan = msgspec.structs.replace(plan, doubt=None)  # a snapshot is never written
    if out is not None:
        require_writable(plan)
        _save_plan(out, plan, observation, root)
    followed = observation.agent if plan.managed else None
    router = None if snapshot is not None else _router(root, cri_socket, followed, direct=direct)
    if output == "table":
        _print(plan, observation.agent, router, why=why)
    else:
        data = _data(plan, router)
        emit({**data, "agent": agent_data(plan, observation)}, output)
    if plan.unread:
        complain("some cgroups could not be read, so this is incomplete – run as root")
    if plan.faults:
        complain("some pods could not be read, so this is incomplete – see above")
    if not plan.is_complete:
        return _ERROR
    return _CHANGES_PENDING if plan.comparison.changes else 0


def _save_plan(file: str, plan: NodePlan, observation: ObservedNode, root: str) -> None:
    from memqos.converge.saved_plan import encode_saved_plan, plan_to_save
    from memqos.converge.steps import steps_of

    steps = steps_of(
        # It may be applied much later: values that the kubelet manages are not written then.
        [
            each
            for each in plan.comparison.changes
            if (each.path, each.file) not in plan.kubelet_managed
        ],
        observation.identities,
    )
    saved = plan_to_save(steps, observation.machine.boot_id or "", root, own_version())
    write_output_file(file, encode_saved_plan(saved))


def _router(
    root: str, cri_socket: str | None, agent: AgentState | None, *, direct: bool
) -> "Router":
    from memqos.converge.router import Router
    from memqos.host.cgroups import CgroupFs
    from memqos.host.owner_discovery import discover_owners

    owners = discover_owners(root, cri_socket, direct=direct)
    has_nri = agent is not None and agent.nri.runtime is not None
    return Router(CgroupFs(root), msgspec.structs.replace(owners, has_nri=has_nri))


def _print(plan: NodePlan, agent: AgentState | None, router: "Router | None", *, why: bool) -> None:
    print_lines([settings_line(plan.settings, plan.enablement), str(plan.enablement)])
    if agent is not None and plan.managed:
        print_lines([agent_line(agent)])
    for line in (*plan.faults, *plan_caveats(plan)):
        complain(line)
    lines = changes_text(plan.comparison, plan.protections, why=why)
    if lines:
        print_lines(["", *lines])
    if plan.comparison.changes or plan.is_complete:
        print_lines(["", changes_summary(plan.comparison)])
    for line in route_lines(plan.comparison.changes, router) if router is not None else ():
        print_lines([line])


def _data(plan: NodePlan, router: "Router | None") -> dict[str, Any]:
    changes = changes_data(plan.comparison.changes, plan.protections)
    if router is not None:
        routes = map(router.route, plan.comparison.changes)
        changes = [with_route(data, route) for data, route in zip(changes, routes, strict=True)]
    return {
        "release": str(plan.settings.release),
        "policy": plan.settings.policy,
        "factor": plan.settings.factor,
        "enablement": plan.enablement.data,
        "converged": not plan.comparison.changes and plan.is_complete,
        "changes": changes,
        "foreign": changes_data(plan.comparison.unmanaged, {}),
        "withheld": changes_data(plan.comparison.withheld, {}),
        "missing": [cgroup.path for cgroup in plan.comparison.missing],
        "unresolved": [
            {"pod": each.pod, "container": each.container, "why": each.why}
            for each in plan.tree.unresolved
        ],
        "unaligned": list(plan.unaligned),
        "unknown": list(plan.comparison.orphans),
        "unread": list(plan.unread),
        "doubt": plan.doubt,
        "faults": list(plan.faults),
        "notes": list(plan.notes),
    }
