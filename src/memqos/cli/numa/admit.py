"""`memqos numa admit`: would a pod be admitted; if not, why, and what would fit."""

from collections.abc import Iterator, Sequence
from typing import Any, get_args

import click
import msgspec

from memqos.cli.help_sections import SectionedCommand, help_section
from memqos.cli.manifest_reader import ManifestReader
from memqos.cli.numa.kubelet import (
    kubelet_option,
    manager_settings,
    reserved_option,
    resolve_kubelet,
)
from memqos.cli.numa.node_source import (
    NumaNodeFacts,
    machine_option,
    read_node_facts,
    snapshot_option,
    state_option,
)
from memqos.cli.options import manifest_arguments, release_options, strict_option
from memqos.cli.output import OutputFormat, complain, emit, output_option, print_lines, print_notes
from memqos.cluster.node_admission import LINUX, AdmittingNode, NodeAdmission, refuse_on_node
from memqos.draw.text.numa_admission import NumaVerdict, verdict_data, verdict_lines
from memqos.errors import InputError
from memqos.kube.defaulting import apply_defaults
from memqos.kube.kubelet import STATIC
from memqos.kube.node import WINDOWS
from memqos.kube.pod import Pod
from memqos.kube.qos import qos_class
from memqos.kube.shape import containers_of, shape_of
from memqos.kube.validation import container_errors, shape_errors
from memqos.manifests.objects import Template
from memqos.numa.admission import AdmittedPod, MemoryPolicy
from memqos.numa.advice import advise
from memqos.numa.manager import Manager, StartRefused, start_manager
from memqos.numa.refusal_text import start_sentences, topology_sentence
from memqos.numa.requests import (
    alignment_texts,
    lacks_pod_scope,
    pod_for_kubelet,
    pod_memory_request,
)
from memqos.numa.running_pods import pods_in_state
from memqos.numa.topology_manager import (
    TOPOLOGY_POLICY_NAMES,
    TOPOLOGY_SCOPE_NAMES,
    InvalidTopology,
)
from memqos.release import Release
from memqos.units import pluralize

_REFUSED = 2


@click.command("admit", cls=SectionedCommand)
@manifest_arguments(required=True)
@help_section("Settings")(
    click.option("--policy", type=click.Choice(get_args(MemoryPolicy)), help="memoryManagerPolicy.")
)
@help_section("Settings")(
    click.option(
        "--topology-policy", type=click.Choice(TOPOLOGY_POLICY_NAMES), help="topologyManagerPolicy."
    )
)
@help_section("Settings")(
    click.option("--scope", type=click.Choice(TOPOLOGY_SCOPE_NAMES), help="topologyManagerScope.")
)
@help_section("Settings")(
    click.option(
        "--option",
        "options",
        multiple=True,
        metavar="NAME=VALUE",
        help="One of topologyManagerPolicyOptions; may be repeated.",
    )
)
@click.option(
    "--static",
    is_flag=True,
    help="The pods are static pods, whose quantities no API server normalizes.",
)
@strict_option
@output_option()
@reserved_option
@kubelet_option
@snapshot_option
@machine_option
@state_option
@release_options
def command(
    files: tuple[str, ...],
    state: str | None,
    machine: str | None,
    snapshot: str | None,
    kubelet: str | None,
    reserved: str | None,
    policy: str | None,
    topology_policy: str | None,
    scope: str | None,
    options: tuple[str, ...],
    static: bool,
    strict: bool,
    release: str | None,
    gates: tuple[str, ...],
    output: OutputFormat,
) -> int:
    """Check whether the Pods in FILE… would be admitted, one after the other.

    A state file has the memory that is already assigned; alone it also describes the machine.
    Settings are those of --kubelet; without it the policy is Static, with the kubelet's defaults.
    An admitted pod keeps its memory while the next one is checked.

    Only memory is checked: CPUs and devices may restrict the nodes further.

    Exit code 2 if a pod is refused, or the kubelet would not start.
    """
    facts = read_node_facts(machine, state, snapshot)
    running = resolve_kubelet(facts, kubelet, release, gates)
    settings, notes = manager_settings(
        facts,
        running,
        policy=policy,
        topology_policy=topology_policy,
        scope=scope,
        options=dict(map(_option, options)),
        reserved=reserved,
    )
    begun: Manager | StartRefused | InvalidTopology = (
        settings
        if isinstance(settings, InvalidTopology)
        else start_manager(settings, None if facts.loaded is None else facts.loaded.state)
    )
    if not isinstance(begun, Manager):
        _print_refused_start(begun, output)
        return _REFUSED
    if facts.loaded is not None:
        pods = pods_in_state(begun.state, facts.pods, begun.settings.release)
        begun = msgspec.structs.replace(begun, active=pods)
    reader = ManifestReader(strict=strict)
    names = dict(facts.names)
    verdicts = _verdicts(reader, files, begun, names, static=static)
    topology = begun.settings.topology
    if output == "table":
        refused = _print(verdicts, begun, facts, notes, names)
    else:
        data = []
        refused = False
        for verdict in verdicts:
            refused = refused or not isinstance(verdict.outcome, AdmittedPod)
            data.append(verdict_data(verdict, topology, names))
        emit({"terms": _settings_data(begun, facts, notes), "pods": data}, output)
    return 1 if reader.faults else _REFUSED if refused else 0


def _verdicts(
    reader: ManifestReader,
    files: Sequence[str],
    manager: Manager,
    names: dict[str, str],
    *,
    static: bool,
) -> Iterator[NumaVerdict]:
    release = manager.settings.release
    for template, pod in reader.pods(files):
        try:
            arrived = _pod_on_arrival(reader, template, pod, release, static=static)
            if arrived is None:
                continue
            qos = qos_class(shape_of(arrived, release), release)
        except InputError as error:
            reader.refuse(template.with_position(error))
            continue
        arrived = _with_uid(arrived, template, names)
        refused = None if static else _refused_by_node(arrived, manager)
        after, outcome = (manager, refused) if refused else manager.admit(arrived)
        line, _ = template.document.position(template.path)
        verdict = NumaVerdict(
            origin=f"{template.document.file}:{line}",
            label=template.label,
            namespace=template.namespace,
            qos=qos,
            outcome=outcome,
            state=after.state,
            pins=not manager.settings.windows,
        )
        if isinstance(outcome, AdmittedPod):
            notes = _notes(outcome, arrived, qos, manager)
            yield msgspec.structs.replace(verdict, outcome=_in_order(outcome, arrived), notes=notes)
        elif isinstance(outcome, NodeAdmission):
            yield verdict
        else:
            yield msgspec.structs.replace(verdict, advice=advise(manager, arrived, outcome))
        manager = after


def _pod_on_arrival(
    reader: ManifestReader, template: Template, pod: Pod, release: Release, *, static: bool
) -> Pod | None:
    """The pod as the node gets it; None where the API server would not take it."""
    if pod.metadata.uid is not None and pod.status is not None:
        return pod
    errors = [*container_errors(pod), *shape_errors(apply_defaults(pod, release), release)]
    for error in dict.fromkeys(errors):
        reader.refuse(template.field_error(error.field, error.message))
    return None if errors else pod_for_kubelet(pod, release, static=static)


def _with_uid(pod: Pod, template: Template, names: dict[str, str]) -> Pod:
    """The pod with a UID, and its name among the others."""
    called = f"{template.namespace or 'default'}/{pod.metadata.name or template.label}"
    uid, number = pod.metadata.uid, 1
    if uid is None:
        uid = called
        while uid in names:
            number += 1
            uid = f"{called}#{number}"
        called = uid
    names.setdefault(uid, called)
    metadata = msgspec.structs.replace(pod.metadata, uid=uid)
    return msgspec.structs.replace(pod, metadata=metadata)


def _in_order(outcome: AdmittedPod, pod: Pod) -> AdmittedPod:
    """The blocks in the order in which the containers start."""
    names = [container.name for container in containers_of(pod)]
    blocks = dict(sorted(outcome.blocks.items(), key=lambda item: names.index(item[0])))
    return msgspec.structs.replace(outcome, blocks=blocks)


def _refused_by_node(pod: Pod, manager: Manager) -> NodeAdmission | None:
    """What the kubelet refuses before any manager is asked."""
    settings = manager.settings
    node = AdmittingNode(name="", os=WINDOWS if settings.windows else LINUX, allocatable={})
    return refuse_on_node(pod, node, settings.release)


def _notes(outcome: AdmittedPod, pod: Pod, qos: str, manager: Manager) -> tuple[str, ...]:
    policy, topology = manager.settings.policy, manager.settings.topology
    request = pod_memory_request(pod, manager.settings.release)
    unscoped = policy == STATIC and lacks_pod_scope(request, topology.policy, topology.scope)
    notes = (
        [" – ".join(alignment_texts(manager.settings.release))]
        if outcome.unaligned or unscoped
        else []
    )
    if policy == "None":
        notes.append("memoryManagerPolicy is None: no pod gets exclusive memory")
    elif qos != "Guaranteed":
        notes.append(f"{qos}: only Guaranteed pods get exclusive memory")
    elif not outcome.blocks and not notes:
        notes.append("no container requests exclusive memory")
    return tuple(notes)


def _print(
    verdicts: Iterator[NumaVerdict],
    manager: Manager,
    facts: NumaNodeFacts,
    notes: Sequence[str],
    names: dict[str, str],
) -> bool:
    refused = False
    for index, verdict in enumerate(verdicts):
        if not index:
            print_lines([_settings_line(manager, facts)])
            print_notes(notes)
        print()
        print_lines(verdict_lines(verdict, manager.settings.topology, names))
        refused = refused or not isinstance(verdict.outcome, AdmittedPod)
    return refused


def _settings_line(manager: Manager, facts: NumaNodeFacts) -> str:
    settings = manager.settings
    topology = settings.topology
    scope = "" if topology.policy == "none" else f", scope {topology.scope}"
    return (
        f"Kubernetes {settings.release} · Memory Manager {settings.policy} · "
        f"topology {topology.policy}{scope} · {pluralize(len(settings.machine), 'NUMA node')}"
    )


def _settings_data(manager: Manager, facts: NumaNodeFacts, notes: Sequence[str]) -> dict[str, Any]:
    settings = manager.settings
    return {
        "release": str(settings.release),
        "gates": dict(settings.release.gates),
        "policy": settings.policy,
        "topologyPolicy": settings.topology.policy,
        "scope": settings.topology.scope,
        "preferClosest": settings.topology.distances is not None,
        "machine": facts.source,
        "state": facts.state_file,
        "notes": list(notes),
    }


def _print_refused_start(refused: StartRefused | InvalidTopology, output: OutputFormat) -> None:
    sentences = (
        [topology_sentence(refused)]
        if isinstance(refused, InvalidTopology)
        else list(start_sentences(refused))
    )
    if output != "table":
        emit({"started": False, "kind": refused.kind, "why": sentences}, output)
        return
    for sentence in sentences:
        complain(f"the kubelet does not start: {sentence}")


def _option(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals:
        raise click.BadParameter(f"{text!r} is not NAME=VALUE", param_hint="--option")
    return name, value
