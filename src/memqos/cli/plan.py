"""`memqos plan`: what would change on a node, and why."""

import os
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, get_args

import click
import msgspec

from memqos.cli.node_plan import (
    agent_data,
    agent_line,
    agent_options,
    agent_paths,
    follows_agent,
    no_agent_option,
    with_agent_notes,
)
from memqos.cli.options import (
    cgroup_root_option,
    owner_options,
    parse_gates,
    pod_source_from,
    pod_source_options,
    release_options,
    route_lines,
    with_route,
)
from memqos.cli.output import (
    OutputFormat,
    check_output_file,
    complain,
    emit,
    output_option,
    print_lines,
    write_output_file,
)
from memqos.cli.settings import FactorType, placement_option
from memqos.converge.node_plan import PLAN_FILES, NodePlan, PlanOptions, plan_observation
from memqos.converge.observation import ObservedNode, load_kubelet_config, observe_live, with_agent
from memqos.converge.running_kubelet import KubeletSources, kubelet_of_source
from memqos.draw.text.changes import changes_data, changes_summary, changes_text, gaps_text
from memqos.draw.text.pod import settings_line
from memqos.errors import InputError
from memqos.host.cgroups import SYSTEM_ROOT
from memqos.host.machine import Roots, read_machine
from memqos.host.versions import kubelet_version, own_version, runtime_version
from memqos.manifests.agent_state import AgentState
from memqos.numa.requests import UNALIGNED_NOTICE
from memqos.settings.settings import Numa, Policy

if TYPE_CHECKING:
    from memqos.converge.router import Router

_ERROR = 1
_CHANGES_PENDING = 2


def node_options(command: Any) -> Any:
    """Where a node is looked at, and under which terms it is planned."""
    for option in (
        click.option(
            "--state",
            metavar="FILE",
            help="The kubelet's memory_manager_state, for --numa state.  [default: the node's]",
        ),
        click.option(
            "--numa",
            type=click.Choice(get_args(Numa)),
            help="Bind containers to NUMA nodes (cpuset.mems): as the kubelet's state says, or as "
            "memqos allocates where the kubelet does not.  [default: off]",
        ),
        click.option("--factor", type=FactorType(), help="memoryThrottlingFactor."),
        click.option("--policy", type=click.Choice(get_args(Policy)), help="Reservation policy."),
        placement_option,
        click.option(
            "--kubelet",
            metavar="FILE",
            help="A KubeletConfiguration.  [default: the running kubelet's]",
        ),
        pod_source_options,
        cgroup_root_option,
        release_options,
    ):
        command = option(command)
    return command


@click.command()
@node_options
@owner_options
@click.option("--snapshot", metavar="FILE", help="Plan the node of a snapshot, not this one.")
@click.option("--why", is_flag=True, help="Show the derivation of every change.")
@click.option("--out", metavar="FILE", help="Save the plan, for memqos apply FILE.")
@agent_options
@no_agent_option
@output_option()
def command(
    snapshot: str | None,
    why: bool,
    out: str | None,
    output: OutputFormat,
    direct: bool,
    cri_socket: str | None,
    **options: Any,
) -> int:
    """Hold this node, or that of a snapshot, against what Kubernetes would have it be.

    Where an agent of memqos enforces, the values it manages are compared with its own plan. With
    --no-agent, or with options such as --policy that ask for another plan, Kubernetes' is shown.

    \b
    +  a value to set      ~  a value to change      -  a value to take back to the default

    Exit code 0: converged, 2: changes pending, 1: error.
    """
    if snapshot is not None and out is not None:
        raise click.UsageError("a plan of a snapshot cannot be applied, so it is not saved")
    check_output_file(out)
    if out is not None:
        require_pods(options)
    # A saved plan is for apply, which does not write as an agent would.
    follows = out is None and follows_agent(options)
    asked = msgspec.structs.replace(plan_options_from(**options), agent=follows)
    observation = (
        with_agent(observe_node(options), options["cgroup_root"], *agent_paths(options))
        if snapshot is None
        else load_observation(snapshot, options)
    )
    plan = with_agent_notes(make_plan(observation, asked), observation)
    if snapshot is not None:
        plan = msgspec.structs.replace(plan, doubt=None)  # nobody could write it
    if out is not None:
        require_whole_plan(plan)
        require_no_doubt(plan)
        save_plan(out, plan, observation, options["cgroup_root"])
    router = None
    if snapshot is None:
        router = _router(options["cgroup_root"], cri_socket, direct=direct)
    if output == "table":
        _print(plan, observation.agent, router, why=why)
    else:
        data = _data(plan, router)
        emit({**data, "agent": agent_data(plan, observation)}, output)
    if plan.unread:
        complain("some cgroups could not be read, so this is not all – run as root")
    if plan.faults:
        complain("some pods could not be read, so this is not all – see above")
    if not plan.is_complete:
        return _ERROR
    return _CHANGES_PENDING if plan.comparison.changes else 0


def require_pods(options: Mapping[str, Any]) -> None:
    """Planned without its pods, a node would lose all its protection."""
    if options["pods"] is None:
        raise click.UsageError("which pods run here? Give their source with --pods")


def require_whole_plan(plan: NodePlan) -> None:
    """What could be seen in part only is not written."""
    for fault in plan.faults:
        complain(fault)
    if plan.faults:
        raise InputError(
            "some pods could not be read, so there is no plan to be applied", hint="see above"
        )
    if plan.unread:
        raise InputError(
            f"{plan.unread[0]} cannot be read, so there is no plan to be applied",
            hint="run as root",
        )


def require_no_doubt(plan: NodePlan) -> None:
    """What rests on a guess is not written."""
    if plan.doubt is not None:
        raise InputError(f"nothing is written on a guess: {plan.doubt}")


def make_plan(observation: ObservedNode, plan_options: PlanOptions) -> NodePlan:
    """The plan, with a note where options are of no effect since MemoryQoS is off."""
    plan = plan_observation(observation, plan_options)
    given = [
        f"--{name}" for name in ("policy", "factor") if getattr(plan_options, name) is not None
    ]
    if (
        not given
        or "MemoryQoS" in plan_options.gates
        or plan.settings.release.is_enabled("MemoryQoS")
    ):
        return plan
    on = msgspec.structs.replace(plan_options, gates={**plan_options.gates, "MemoryQoS": True})
    count = len(plan_observation(observation, on).comparison.changes)
    verb = "is" if len(given) == 1 else "are"
    note = (
        f"MemoryQoS is off on this node, so {' and '.join(given)} {verb} of no effect: with "
        f"--gate MemoryQoS=true, {count} change{'s' if count != 1 else ''} would be pending"
    )
    return msgspec.structs.replace(plan, notes=(*plan.notes, note))


def plan_options_from(**options: Any) -> PlanOptions:
    """The terms that `node_options` gave."""
    return PlanOptions(
        release=options["release"],
        gates=parse_gates(options["gates"]),
        policy=options["policy"],
        factor=options["factor"],
        numa=_numa_mode(options["numa"], options["state"]),
        placement=options["placement"] or "containers",
    )


def _numa_mode(asked: Numa | None, state: str | None) -> Numa:
    if state is not None and asked not in ("state", None):
        raise click.UsageError(f"--state tells what the kubelet assigned: not with --numa {asked}")
    return "state" if state is not None else asked or "off"


def observe_node(options: Mapping[str, Any], files: Iterable[str] = PLAN_FILES) -> ObservedNode:
    """This machine, with its pods from where the options of `node_options` say."""
    roots = Roots(cgroup=options["cgroup_root"])
    if roots.cgroup != SYSTEM_ROOT and not os.path.isdir(roots.cgroup):
        raise InputError(
            "there is no such folder",
            file=roots.cgroup,
            hint="--cgroup-root says where the cgroups are",
        )
    source, stated = pod_source_from(options), load_kubelet_config(options["kubelet"])
    node, endpoint = kubelet_of_source(source)
    kubelet = KubeletSources(roots).read_facts(node, endpoint, configuration=stated is None)
    machine = msgspec.structs.replace(
        read_machine(roots),
        runtime=runtime_version(),
        kubelet_on_path=kubelet_version() if kubelet.version is None else None,
    )
    observation = observe_live(
        source,
        files,
        roots=roots,
        configuration=stated,
        machine=machine,
        kubelet=kubelet,
        node=node,
    )
    return _with_state_file(observation, options["state"])


def load_observation(file: str, options: Mapping[str, Any]) -> ObservedNode:
    """The node of a snapshot, with another configuration or state if one is given."""
    from memqos.converge.snapshots import observe_snapshot_file

    observation = observe_snapshot_file(file)
    configuration = load_kubelet_config(options["kubelet"]) or observation.configuration
    observation = msgspec.structs.replace(observation, configuration=configuration)
    return _with_state_file(observation, options["state"])


def _with_state_file(observation: ObservedNode, file: str | None) -> ObservedNode:
    if file is None:
        return observation
    from memqos.cli.numa.node_source import read_state_text
    from memqos.numa.checkpoint import load_checkpoint

    text = read_state_text(file)
    load_checkpoint(text, file)
    return msgspec.structs.replace(observation, memory_manager_state=text)


def save_plan(file: str, plan: NodePlan, observation: ObservedNode, root: str) -> None:
    """Write the plan to a file."""
    from memqos.converge.saved_plan import encode_saved_plan, plan_to_save
    from memqos.converge.steps import steps_of

    steps = steps_of(
        # Whoever applies it may be late: what the kubelet keeps is left to the kubelet.
        [
            each
            for each in plan.comparison.changes
            if (each.path, each.file) not in plan.kubelet_managed
        ],
        observation.identities,
    )
    saved = plan_to_save(steps, observation.machine.boot_id or "", root, own_version())
    write_output_file(file, encode_saved_plan(saved))


def _router(root: str, cri_socket: str | None, *, direct: bool) -> "Router":
    from memqos.converge.router import Router
    from memqos.host.cgroups import CgroupFs
    from memqos.host.owner_discovery import discover_owners

    return Router(CgroupFs(root), discover_owners(root, cri_socket, direct=direct))


def plan_caveats(plan: NodePlan) -> list[str]:
    """What a person should know before believing a plan."""
    comparison = plan.comparison
    doubt = [] if plan.doubt is None else [f"memqos apply refuses this plan: {plan.doubt}"]
    gaps = gaps_text(plan.tree.unresolved, comparison.nobodys, comparison.missing)
    notes = [*plan.notes, *doubt, *(f"{pod}: {UNALIGNED_NOTICE}" for pod in plan.unaligned)]
    return [*(f"note: {note}" for note in notes), *gaps]


def _print(plan: NodePlan, agent: AgentState | None, router: "Router | None", *, why: bool) -> None:
    print(settings_line(plan.settings))
    if agent is not None and plan.managed:
        print_lines([agent_line(agent)])
    for line in (*plan.faults, *plan_caveats(plan)):
        complain(line)
    lines = changes_text(plan.comparison, plan.protections, why=why)
    if lines:
        print_lines(["", *lines])
    if plan.comparison.changes or plan.is_complete:
        print("\n" + changes_summary(plan.comparison))
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
        "converged": not plan.comparison.changes and plan.is_complete,
        "changes": changes,
        "foreign": changes_data(plan.comparison.foreign, {}),
        "missing": [cgroup.path for cgroup in plan.comparison.missing],
        "unresolved": [
            {"pod": each.pod, "container": each.container, "why": each.why}
            for each in plan.tree.unresolved
        ],
        "unaligned": list(plan.unaligned),
        "unknown": list(plan.comparison.nobodys),
        "unread": list(plan.unread),
        "doubt": plan.doubt,
        "faults": list(plan.faults),
        "notes": list(plan.notes),
    }
