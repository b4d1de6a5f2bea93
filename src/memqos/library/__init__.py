"""What a Python program calls: load manifests, explain a pod, plan a node, audit a cluster.

Arguments are checked at the door: a wrong one raises InputError, with its name as the field and
what to write instead. Results are frozen, have amounts in bytes, and print as a person reads them.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from memqos.draw.text.lines import Line
from memqos.draw.text.pod import PodExplanation, pod_overview, settings_line
from memqos.draw.text.render import render
from memqos.errors import InputError, quote_excerpt
from memqos.findings.finding import Finding
from memqos.kube.node import Node
from memqos.kube.pod import Pod, QosClass
from memqos.kube.shape import containers_of, shape_of
from memqos.kube.validation import FieldError
from memqos.library.arguments import Amount, Manifest, resolve_arguments, take_pod
from memqos.library.loading import LoadedPod as LoadedPod
from memqos.library.loading import Source, check_list, wrong_type
from memqos.library.loading import load as load
from memqos.plan.semantics import Planner
from memqos.plan.setting import FileSettings, Setting
from memqos.plan.tree import Cgroup, plan_node
from memqos.settings.enablement import Enablement
from memqos.settings.resolver import NodeSettings, with_gate_off
from memqos.settings.settings import PolicyName
from memqos.units import format_bytes

if TYPE_CHECKING:
    from memqos.audit.cluster_audit import Audit
    from memqos.audit.rules import ClusterRule


class Explanation(msgspec.Struct, frozen=True, kw_only=True):
    """What Kubernetes makes of a pod. Without a class and values where the pod is not valid."""

    name: str
    enablement: Enablement
    """Whether Memory QoS is on for these values, and by which source."""
    qos_class: QosClass | None
    pod: FileSettings
    """By file, such as memory.high. A value of None is not written; `because` says why."""
    containers: dict[str, FileSettings]
    errors: tuple[FieldError, ...] = ()
    notes: tuple[str, ...] = ()
    gate_off: "Explanation | None" = None
    """The values with MemoryQoS off, where nothing says whether it is on."""
    lines: tuple[str, ...] = ()

    def setting(self, file: str, container: str | None = None) -> Setting:
        """The setting of a file, of a container or of the pod itself."""
        if container is not None and container not in self.containers:
            raise _no_such("container", container, self.containers)
        settings = self.pod if container is None else self.containers[container]
        if file not in settings:
            raise _no_such("file", file, settings)
        return settings[file]

    def __str__(self) -> str:
        return "\n".join(self.lines)


def explain(
    pod: "LoadedPod | Pod | Manifest",
    *,
    release: str | None = None,
    gates: Mapping[str, bool] | None = None,
    policy: PolicyName | None = None,
    factor: float | None = None,
    capacity: Amount | None = None,
    allocatable: Amount | None = None,
    node: "Node | Manifest | Source | None" = None,
    kubelet: "Manifest | Source | None" = None,
) -> Explanation:
    """What a node does with a pod, and why, as `memqos explain` shows it.

    Without a node, a kubelet's configuration and the gate MemoryQoS, values are shown as if it were
    on, and `gate_off` has the others.
    """
    taken, name, namespace = take_pod(pod)
    resolved = resolve_arguments(
        release=release,
        gates=gates,
        policy=policy,
        factor=factor,
        capacity=capacity,
        allocatable=allocatable,
        node=node,
        kubelet=kubelet,
    )
    states = [resolved]
    if resolved.enablement.state == "as if on":
        states.append(with_gate_off(resolved))
    explained = [_explained(taken, name, namespace, each) for each in states]
    heading: list[Line] = [
        settings_line(resolved.settings, resolved.enablement),
        str(resolved.enablement),
        *[f"note: {note}" for note in resolved.notes],
    ]
    overview: list[Line] = (
        ["", *pod_overview(*explained)]
        if explained[0].semantics.plan is not None
        else [str(error) for error in explained[0].semantics.errors]
    )
    gate_off = _explanation(explained[1], states[1], ()) if len(explained) > 1 else None
    lines = tuple(render([*heading, *overview]))
    return _explanation(explained[0], resolved, lines, gate_off)


def _explained(pod: Pod, name: str, namespace: str | None, node: NodeSettings) -> PodExplanation:
    return PodExplanation(
        origin=name,
        label=name,
        namespace=namespace,
        names=tuple(container.name for container in containers_of(pod)),
        written=shape_of(pod, node.settings.release),
        semantics=Planner(node.settings).semantics(pod),
    )


def _explanation(
    explained: PodExplanation,
    node: NodeSettings,
    lines: tuple[str, ...],
    gate_off: Explanation | None = None,
) -> Explanation:
    plan = explained.semantics.plan
    return Explanation(
        name=explained.label,
        enablement=node.enablement,
        qos_class=None if plan is None else plan.qos,
        pod={} if plan is None else plan.settings,
        containers={}
        if plan is None
        else {
            name: container.settings
            for name, container in zip(explained.names, plan.containers, strict=True)
        },
        errors=explained.semantics.errors,
        notes=node.notes,
        gate_off=gate_off,
        lines=lines,
    )


class PlannedNode(msgspec.Struct, frozen=True, kw_only=True):
    """The cgroups of a node that runs some pods, by path, and the values they get."""

    enablement: Enablement
    cgroups: dict[str, Cgroup]
    unresolved: tuple[str, ...] = ()
    """Pods and containers whose cgroup cannot be named, and why."""
    notes: tuple[str, ...] = ()

    def __str__(self) -> str:
        rows = [
            f"{path}  {file} {_value_text(setting)}"
            for path, cgroup in self.cgroups.items()
            for file, setting in cgroup.settings.items()
            if file in ("memory.min", "memory.low", "memory.high") and setting.value is not None
        ]
        notes = [f"note: {note}" for note in self.notes]
        return "\n".join([str(self.enablement), *notes, *rows, *self.unresolved])


def _value_text(setting: Setting) -> str:
    value = setting.value
    return format_bytes(value) if isinstance(value, int) else str(value)


def plan(
    pods: "Iterable[LoadedPod | Pod | Manifest]",
    *,
    capacity: Amount | None = None,
    release: str | None = None,
    gates: Mapping[str, bool] | None = None,
    policy: PolicyName | None = None,
    factor: float | None = None,
    allocatable: Amount | None = None,
    node: "Node | Manifest | Source | None" = None,
    kubelet: "Manifest | Source | None" = None,
) -> PlannedNode:
    """Every cgroup of a node that runs these pods, with its values and their reasons.

    The node's memory comes from `capacity` or `node`. Cgroups of pods have UIDs in their names, so
    pods without one are listed as unresolved.
    """
    check_list("pods", pods, "a list of pods")
    taken = [take_pod(each)[0] for each in pods]
    if capacity is None and node is None:
        raise InputError(
            "the node's memory is unknown", field="capacity", hint='give capacity="16Gi" or node'
        )
    resolved = resolve_arguments(
        release=release,
        gates=gates,
        policy=policy,
        factor=factor,
        capacity=capacity,
        allocatable=allocatable,
        node=node,
        kubelet=kubelet,
    )
    tree = plan_node(taken, resolved.settings, resolved.config, resolved.capacity)
    return PlannedNode(
        enablement=resolved.enablement,
        cgroups=tree.cgroups,
        unresolved=tuple(
            f"{each.pod}{'' if each.container is None else f' {each.container}'}: {each.why}"
            for each in tree.unresolved
        ),
        notes=resolved.notes,
    )


class AuditSummary(msgspec.Struct, frozen=True, kw_only=True):
    """What is wrong with a cluster, the worst first, and what could not be read."""

    enablement: Enablement
    findings: tuple[Finding, ...]
    faults: tuple[InputError, ...]
    audit: "Audit"
    """Sums by node and namespace."""

    def __str__(self) -> str:
        return "\n".join(map(str, [self.enablement, *self.findings, *self.faults]))


def audit(
    objects: "Iterable[Pod | LoadedPod | Node | Manifest]",
    *,
    release: str | None = None,
    gates: Mapping[str, bool] | None = None,
    policy: PolicyName | None = None,
    factor: float | None = None,
    kubelet: "Manifest | Source | None" = None,
    rules: Sequence[str] = (),
    own_rules: "Iterable[ClusterRule]" = (),
) -> AuditSummary:
    """Audit Pods, Nodes, LimitRanges, ResourceQuotas and PodMetrics, as `memqos audit` does.

    `rules` are the ids or groups to look for; without them it is all of them. `own_rules` are
    functions that take the Audit and give Findings.
    """
    from memqos.audit import audit_objects
    from memqos.audit.rules import select_rules
    from memqos.findings.catalogue import AUDIT_RULES, unknown_rule

    check_list("objects", objects, "a list of objects")
    check_list("rules", rules, "a list of rule ids and groups")
    check_list("own_rules", own_rules, "a list of functions")
    for rule in rules:
        if not isinstance(rule, str):
            raise wrong_type("rules", rule, "the id of a rule")
        if problem := unknown_rule(rule, [each.id for each in AUDIT_RULES]):
            raise InputError(problem, field="rules")
    resolved = resolve_arguments(
        release=release, gates=gates, policy=policy, factor=factor, kubelet=kubelet
    )
    result = audit_objects(
        [_plain(each, index) for index, each in enumerate(objects)],
        resolved.settings,
        kubelet=resolved.config if kubelet is not None else None,
        rules=select_rules(tuple(rules), ()),
        own_rules=[_checked_rule(rule) for rule in own_rules],
    )
    return AuditSummary(
        enablement=resolved.enablement,
        findings=result.findings,
        faults=result.faults,
        audit=result.audit,
    )


def _plain(each: Any, index: int) -> Any:
    if isinstance(each, LoadedPod):
        return each.pod
    if isinstance(each, Mapping):
        return dict(each)
    if not isinstance(each, msgspec.Struct):
        raise wrong_type(f"objects[{index}]", each, "an object of Kubernetes")
    return each


def _checked_rule(rule: "ClusterRule") -> "ClusterRule":
    if not callable(rule):
        raise wrong_type("own_rules", rule, "a function that takes an Audit")

    def findings_of(audit: "Audit") -> list[Finding]:
        given = rule(audit)
        check_list("own_rules", given, "a list of Findings, as a rule gives them")
        found = list(given)
        for each in found:
            if not isinstance(each, Finding):
                raise wrong_type("own_rules", each, "a Finding, as a rule gives them")
        return found

    return findings_of


def _no_such(what: str, name: str, known: Iterable[str]) -> InputError:
    return InputError(
        f"there is no {what} {quote_excerpt(name)}", hint=f"there is {', '.join(known)}"
    )
