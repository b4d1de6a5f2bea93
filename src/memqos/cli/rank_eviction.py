"""`memqos rank eviction`: the order in which a kubelet would evict, and what that frees."""

from collections.abc import Iterator, Sequence

import click
import msgspec

from memqos.cli.cluster_access import LiveCluster, cluster_options
from memqos.cli.help_sections import SectionedCommand, help_section
from memqos.cli.manifest_reader import ManifestReader
from memqos.cli.options import BytesType, parse_gates, release_options
from memqos.cli.output import OutputFormat, emit, output_option, print_lines, print_notes
from memqos.cli.rank_eviction_inputs import EvictionInputs, read_eviction_inputs
from memqos.cli.settings import with_kubelet_file
from memqos.cluster.eviction_loop import EvictionSettings, simulate_eviction
from memqos.cluster.eviction_order import (
    PodMemoryUsage,
    eviction_order,
    first_evictable,
    offending_usage,
)
from memqos.cluster.eviction_signals import ThresholdReading, threshold_readings
from memqos.cluster.pressure_admission import pressure_admission
from memqos.draw.text.eviction import (
    AdmittedUnderPressure,
    EvictionReport,
    eviction_text,
    full_pod_name,
)
from memqos.errors import InputError
from memqos.kube.defaulting import apply_defaults
from memqos.kube.kubelet import KubeletConfiguration
from memqos.kube.kubelet.thresholds import (
    ALLOCATABLE_MEMORY,
    MEMORY_AVAILABLE,
    Threshold,
    read_thresholds,
)
from memqos.kube.pod import Pod
from memqos.kube.qos import qos_class
from memqos.kube.resources_in_use import is_terminal
from memqos.kube.shape import shape_of
from memqos.release import Release
from memqos.settings.resolver import resolve
from memqos.settings.settings import SettingsOptions
from memqos.units import name_some, pluralize

_MEMORY_SIGNALS = (MEMORY_AVAILABLE, ALLOCATABLE_MEMORY)
_REFUSED = 2


@click.command(cls=SectionedCommand)
@click.option(
    "--pods",
    "pods_file",
    metavar="FILE",
    help="The Pods of one node, or 'cluster' for those of --node-name.",
)
@click.option(
    "--usage",
    "usage_file",
    metavar="FILE",
    help="Usage of the pods: PodMetrics, a kubelet's /stats/summary, or a mapping.  "
    "[default: the cluster's metrics, for its pods]",
)
@click.option("--snapshot", "snapshot_file", metavar="FILE", help="Pods and usage from a snapshot.")
@help_section("Settings")(
    click.option(
        "--kubelet",
        "kubelet_file",
        metavar="FILE",
        help="A KubeletConfiguration, for its eviction thresholds.",
    )
)
@click.option("--need", type=BytesType(), help="Memory to free.  [default: from the thresholds]")
@click.option(
    "--available",
    type=BytesType(),
    help="Available memory of the node, instead of the observed value.",
)
@click.option("--simulate", is_flag=True, help="Simulate evictions until the pressure ends.")
@click.option(
    "--admit",
    "new_pods",
    metavar="FILE",
    help="New Pods: check whether the kubelet admits them under the current pressure.",
)
@click.option("--why", is_flag=True, help="Show every sort key of every pod.")
@output_option()
@cluster_options("context", "node_name")
@release_options
def command(
    pods_file: str | None,
    usage_file: str | None,
    snapshot_file: str | None,
    kubelet_file: str | None,
    need: int | None,
    available: int | None,
    simulate: bool,
    new_pods: str | None,
    why: bool,
    output: OutputFormat,
    context: str | None,
    node_name: str | None,
    release: str | None,
    gates: tuple[str, ...],
) -> int:
    """Show the order in which the kubelet evicts pods under memory pressure, and what it frees.

    \b
    kubectl get pods -A --field-selector spec.nodeName=node-1 -o yaml > pods.yaml
    kubectl get --raw /apis/metrics.k8s.io/v1beta1/pods > usage.json
    memqos rank eviction --pods pods.yaml --usage usage.json
    memqos rank eviction --node-name node-1 --context prod

    Pods without statistics are evicted first, then those above their request, then those of lower
    priority, then those that use most above their request. Usage may also be given as
    `namespace/name: 512Mi`, or `namespace/name: {container: 512Mi}`.

    --simulate assumes that usage stays the same, and that the memory of an evicted pod is free
    when its grace period is over. Without --kubelet the default thresholds apply.
    Exit code 2 if a pod of --admit is refused.
    """
    given = read_eviction_inputs(
        pods_file, usage_file, snapshot_file, LiveCluster(context, node_name=node_name)
    )
    node_settings = resolve(
        with_kubelet_file(given.node, kubelet_file),
        SettingsOptions(release=release, gates=parse_gates(gates)),
    )
    running = node_settings.settings.release
    given = given._replace(observations=given.observed_by(running))
    if available is not None:
        given = given.with_available(available)
    is_asked = simulate or new_pods is not None
    met = _readings(node_settings.config, given) if node_settings.is_configured or is_asked else ()
    if is_asked and not given.observations:
        raise InputError(
            "memory.available is unknown",
            hint="give a /stats/summary as --usage, a snapshot, or --available",
        )
    found = _rank_pods(given, running, need, met, (*node_settings.notes, *given.notes))
    if simulate:
        steps = simulate_eviction(
            _pods_with_usage(given), given.observations, _settings(node_settings.config), running
        )
        found = msgspec.structs.replace(found, simulation=tuple(steps))
    reader = ManifestReader()
    if new_pods is not None:
        found = msgspec.structs.replace(
            found, admissions=tuple(_admissions(reader, new_pods, found, running))
        )
    if output == "table":
        _print(found, running, why=why)
    else:
        from memqos.draw.text.eviction import eviction_data

        head = {"release": str(running), "gates": dict(running.gates)}
        emit(head | eviction_data(found, why=why), output)
    if given.faults or reader.faults:
        return 1
    return 0 if all(each.admission.admitted for each in found.admissions) else _REFUSED


def _readings(config: KubeletConfiguration, given: EvictionInputs) -> tuple[ThresholdReading, ...]:
    thresholds = _settings(config).thresholds
    for threshold in thresholds:
        observed = given.observations.get(threshold.signal)
        if observed is not None and not observed.capacity_known and threshold.is_share:
            raise InputError(
                f"the threshold of {threshold.signal} is a share of the node's memory, which is "
                "unknown",
                hint="give a /stats/summary as --usage, or a snapshot",
            )
    return tuple(threshold_readings(thresholds, given.observations))


def _settings(config: KubeletConfiguration) -> EvictionSettings:
    """How this kubelet evicts, as far as memory is concerned."""
    found: Sequence[Threshold] = read_thresholds(
        config.eviction_hard,
        config.eviction_soft,
        config.eviction_soft_grace_period,
        config.eviction_minimum_reclaim,
        config.enforce_node_allocatable,
    ).thresholds
    return EvictionSettings(
        tuple(threshold for threshold in found if threshold.signal in _MEMORY_SIGNALS),
        config.eviction_pressure_transition_period,
        config.eviction_max_pod_grace_period,
    )


def _pods_with_usage(given: EvictionInputs) -> list[tuple[Pod, PodMemoryUsage | None]]:
    active = [pod for pod in given.pods if not is_terminal(pod)]
    return [(pod, given.usage.get(full_pod_name(pod))) for pod in active]


def _admissions(
    reader: ManifestReader, file: str, found: EvictionReport, release: Release
) -> Iterator[AdmittedUnderPressure]:
    """The kubelet's verdict on new pods, in the conditions that thresholds put the node into."""
    for template, pod in reader.pods([file]):
        try:
            shape = apply_defaults(pod, release)
        except InputError as error:
            reader.refuse(template.with_position(error))
            continue
        verdict = pressure_admission(pod, shape, found.conditions, release)
        yield AdmittedUnderPressure(template.label, verdict)


def _rank_pods(
    given: EvictionInputs,
    release: Release,
    need: int | None,
    met: tuple[ThresholdReading, ...],
    notes: Sequence[str],
) -> EvictionReport:
    pairs = _pods_with_usage(given)
    active = [pod for pod, _ in pairs]
    order = eviction_order(pairs, release)
    first = first_evictable(order)
    return EvictionReport(
        order=tuple(order),
        classes=tuple(qos_class(shape_of(each.pod, release), release) for each in order),
        need=_bytes_needed(met) if need is None else need,
        readings=met,
        blame=None
        if first is None
        else offending_usage(first.pod, given.usage.get(full_pod_name(first.pod)), release),
        notes=(*notes, *_usage_notes(given, active), *_threshold_notes(met, need)),
    )


def _bytes_needed(met: Sequence[ThresholdReading]) -> int | None:
    """What is missing up to the thresholds that are met, with what is to be reclaimed at least."""
    missing = [
        each.limit_reclaimed.value - each.observation.available
        for each in met
        if each.met and each.limit_reclaimed is not None and each.observation is not None
    ]
    return max(missing, default=None)


def _usage_notes(given: EvictionInputs, active: Sequence[Pod]) -> list[str]:
    notes = []
    ended = len(given.pods) - len(active)
    if ended:
        notes.append(f"skipped: {pluralize(ended, 'pod that has', 'pods that have')} ended")
    known = {full_pod_name(pod) for pod in given.pods}
    unknown_pods = sorted(given.usage.keys() - known)
    if unknown_pods:
        notes.append(f"usage given for unknown pods: {name_some(unknown_pods)}")
    unknown = [name for pod in active if (name := full_pod_name(pod)) not in given.usage]
    if unknown and given.usage:
        notes.append(f"no statistics of {name_some(unknown)}: the kubelet evicts such pods first")
    return notes


def _threshold_notes(met: Sequence[ThresholdReading], need: int | None) -> list[str]:
    if not met or need is not None:
        return []
    if all(each.observation is None for each in met):
        return ["memory.available is unknown: give a /stats/summary, a snapshot, or --need"]
    if not any(each.met for each in met):
        return ["no eviction threshold is met now: this is the order if one were"]
    return []


def _print(found: EvictionReport, release: Release, *, why: bool) -> None:
    from memqos.draw.text.eviction import (
        pressure_admission_text,
        simulation_text,
        threshold_lines,
    )

    print_lines([f"Kubernetes {release} · {pluralize(len(found.order), 'pod')} on one node"])
    for line in threshold_lines(found.readings):
        print_lines([line])
    print_notes(found.notes)
    print_lines(["", *eviction_text(found)])
    if found.simulation:
        print_lines(["", *simulation_text(found.simulation)])
    if found.admissions:
        print_lines(["", *pressure_admission_text(found)])
    if why:
        from memqos.draw.text.eviction import eviction_reasons

        print_lines(eviction_reasons(found))
