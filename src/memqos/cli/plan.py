"""`memqos plan`: what would change on a node, and why."""

import os
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, get_args

import click
import msgspec

from memqos.cli.node_agent import (
    agent_data,
    agent_line,
    agent_options,
    agent_places,
    follows_agent,
    no_agent_option,
    with_notes,
)
from memqos.cli.output import Form, check_out, complain, emit, output_option, print_lines, write_out
from memqos.cli.owners import owner_options, route_lines, with_route
from memqos.cli.pod_sources import source_given, source_options
from memqos.cli.releases import gates_of, release_options
from memqos.cli.roots import cgroup_root_option
from memqos.cli.terms import FactorType, placement_option
from memqos.converge.node_agent import with_agent
from memqos.converge.observing import Observation, configuration_in, observe_live
from memqos.converge.planning import FILES, NodePlan, plan_of
from memqos.converge.running import KubeletSources, kubelet_behind
from memqos.converge.settings import Wanted
from memqos.draw.changes import changes_data, changes_text, gaps_text, summary
from memqos.draw.explained import terms_line
from memqos.errors import InputError
from memqos.host.cgroups import SYSTEM_ROOT
from memqos.host.machine import Roots, read_machine
from memqos.host.versions import kubelet_version, own_version, runtime_version
from memqos.manifests.agent_state import AgentState
from memqos.numa.unaligned import NOTICE
from memqos.plan.terms import Numa, Policy

if TYPE_CHECKING:
    from memqos.converge.routing import Router

ERROR = 1
CHANGES_PENDING = 2


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
        source_options,
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
    output: Form,
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
    check_out(out)
    if out is not None:
        insist_on_pods(options)
    # A saved plan is for apply, which does not write as an agent would.
    follows = out is None and follows_agent(options)
    asked = msgspec.structs.replace(wanted(**options), agent=follows)
    observation = (
        with_agent(observed(options), options["cgroup_root"], *agent_places(options))
        if snapshot is None
        else of_snapshot(snapshot, options)
    )
    plan = with_notes(planned(observation, asked), observation)
    if snapshot is not None:
        plan = msgspec.structs.replace(plan, doubt=None)  # nobody could write it
    if out is not None:
        insist_on_all(plan)
        insist_on_no_doubt(plan)
        save(out, plan, observation, options["cgroup_root"])
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
    if not plan.is_whole:
        return ERROR
    return CHANGES_PENDING if plan.comparison.changes else 0


def insist_on_pods(options: Mapping[str, Any]) -> None:
    """Planned without its pods, a node would lose all its protection."""
    if options["pods"] is None:
        raise click.UsageError("which pods run here? Give their source with --pods")


def insist_on_all(plan: NodePlan) -> None:
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


def insist_on_no_doubt(plan: NodePlan) -> None:
    """What rests on a guess is not written."""
    if plan.doubt is not None:
        raise InputError(f"nothing is written on a guess: {plan.doubt}")


def planned(observation: Observation, asked: Wanted) -> NodePlan:
    """The plan, with a note where options are of no effect since MemoryQoS is off."""
    plan = plan_of(observation, asked)
    given = [f"--{name}" for name in ("policy", "factor") if getattr(asked, name) is not None]
    if not given or "MemoryQoS" in asked.gates or plan.terms.release.enabled("MemoryQoS"):
        return plan
    on = msgspec.structs.replace(asked, gates={**asked.gates, "MemoryQoS": True})
    count = len(plan_of(observation, on).comparison.changes)
    verb = "is" if len(given) == 1 else "are"
    note = (
        f"MemoryQoS is off on this node, so {' and '.join(given)} {verb} of no effect: with "
        f"--gate MemoryQoS=true, {count} change{'s' if count != 1 else ''} would be pending"
    )
    return msgspec.structs.replace(plan, notes=(*plan.notes, note))


def wanted(**options: Any) -> Wanted:
    """The terms that `node_options` gave."""
    return Wanted(
        options["release"],
        gates_of(options["gates"]),
        options["policy"],
        options["factor"],
        _numa(options["numa"], options["state"]),
        options["placement"] or "containers",
    )


def _numa(asked: Numa | None, state: str | None) -> Numa:
    if state is not None and asked not in ("state", None):
        raise click.UsageError(f"--state tells what the kubelet assigned: not with --numa {asked}")
    return "state" if state is not None else asked or "off"


def observed(options: Mapping[str, Any], files: Iterable[str] = FILES) -> Observation:
    """This machine, with its pods from where the options of `node_options` say."""
    roots = Roots(cgroup=options["cgroup_root"])
    if roots.cgroup != SYSTEM_ROOT and not os.path.isdir(roots.cgroup):
        raise InputError(
            "there is no such folder",
            file=roots.cgroup,
            hint="--cgroup-root says where the cgroups are",
        )
    source, stated = source_given(options), configuration_in(options["kubelet"])
    node, endpoint = kubelet_behind(source)
    kubelet = KubeletSources(roots).ask(node, endpoint, configuration=stated is None)
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
    return _with_state(observation, options["state"])


def of_snapshot(file: str, options: Mapping[str, Any]) -> Observation:
    """The node of a snapshot, with another configuration or state if one is given."""
    from memqos.converge.snapshots import load

    observation = load(file)
    configuration = configuration_in(options["kubelet"]) or observation.configuration
    observation = msgspec.structs.replace(observation, configuration=configuration)
    return _with_state(observation, options["state"])


def _with_state(observation: Observation, file: str | None) -> Observation:
    if file is None:
        return observation
    from memqos.cli.numa.sources import text_from
    from memqos.numa.unreadable import loaded_from

    text = text_from(file)
    loaded_from(text, file)
    return msgspec.structs.replace(observation, memory_manager_state=text)


def save(file: str, plan: NodePlan, observation: Observation, root: str) -> None:
    """Write the plan to a file."""
    from memqos.converge.saved_plan import encode, saved_plan
    from memqos.converge.steps import steps_of

    steps = steps_of(
        # Whoever applies it may be late: what the kubelet keeps is left to the kubelet.
        [
            each
            for each in plan.comparison.changes
            if (each.path, each.file) not in plan.kubelet_keeps
        ],
        observation.identities,
    )
    saved = saved_plan(steps, observation.machine.boot_id or "", root, own_version())
    write_out(file, encode(saved))


def _router(root: str, cri_socket: str | None, *, direct: bool) -> "Router":
    from memqos.converge.routing import Router
    from memqos.host.cgroups import CgroupFs
    from memqos.host.owner_discovery import reach

    return Router(CgroupFs(root), reach(root, cri_socket, direct=direct))


def caveats_of(plan: NodePlan) -> list[str]:
    """What a person should know before believing a plan."""
    comparison = plan.comparison
    doubt = [] if plan.doubt is None else [f"memqos apply refuses this plan: {plan.doubt}"]
    gaps = gaps_text(plan.tree.unresolved, comparison.nobodys, comparison.missing)
    notes = [*plan.notes, *doubt, *(f"{pod}: {NOTICE}" for pod in plan.unaligned)]
    return [*(f"note: {note}" for note in notes), *gaps]


def _print(plan: NodePlan, agent: AgentState | None, router: "Router | None", *, why: bool) -> None:
    print(terms_line(plan.terms))
    if agent is not None and plan.managed:
        print_lines([agent_line(agent)])
    for line in (*plan.faults, *caveats_of(plan)):
        complain(line)
    lines = changes_text(plan.comparison, plan.protections, why=why)
    if lines:
        print_lines(["", *lines])
    if plan.comparison.changes or plan.is_whole:
        print("\n" + summary(plan.comparison))
    for line in route_lines(plan.comparison.changes, router) if router is not None else ():
        print_lines([line])


def _data(plan: NodePlan, router: "Router | None") -> dict[str, Any]:
    changes = changes_data(plan.comparison.changes, plan.protections)
    if router is not None:
        routes = map(router.route, plan.comparison.changes)
        changes = [with_route(data, route) for data, route in zip(changes, routes, strict=True)]
    return {
        "release": str(plan.terms.release),
        "policy": plan.terms.policy,
        "factor": plan.terms.factor,
        "converged": not plan.comparison.changes and plan.is_whole,
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
