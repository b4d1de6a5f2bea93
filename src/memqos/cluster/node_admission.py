"""Whether a kubelet admits a pod that was bound to its node, and which pods it kills for it.

The reasons and messages are those a refused pod gets in its status: kubelet lifecycle/predicate.go
and handlers.go. Left out are the checks that need a machine: devices, topology, sysctls, AppArmor.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Final, NamedTuple

import msgspec

from memqos.cluster.fit import Shortage, shortages
from memqos.cluster.fit_demand import node_info, scheduling_demand, scheduling_demands
from memqos.cluster.node_predicates import has_free_ports, has_untolerated_taint, matches_node
from memqos.cluster.preemption import CannotPreempt, pods_to_preempt
from memqos.errors import UnsupportedRelease
from memqos.kube.aggregate import has_pod_level
from memqos.kube.node import OS_LABEL, WINDOWS, Node, Taint, node_os
from memqos.kube.pod import Pod
from memqos.kube.resources import Amounts, is_extended
from memqos.kube.shape import Shape, amounts_of, is_critical, is_static, shape_of
from memqos.release import Release, Since, stage

LINUX: Final = "linux"
UNEXPECTED: Final = "UnexpectedAdmissionError"


class AdmittingNode(msgspec.Struct, frozen=True, kw_only=True):
    """A node as its kubelet's admission sees it."""

    name: str
    os: str = LINUX
    """Of the kubelet itself, whatever the node's labels say."""
    allocatable: Amounts
    """In thousandths."""
    labels: Mapping[str, str] = {}
    taints: tuple[Taint, ...] = ()
    supplemental_groups_policy: bool = False


class NodeAdmission(msgspec.Struct, frozen=True, kw_only=True):
    """The kubelet's verdict: without a reason the pod is admitted."""

    reason: str | None = None
    message: str | None = None
    preempted: tuple[Pod, ...] = ()

    @property
    def admitted(self) -> bool:
        return self.reason is None

    @property
    def words(self) -> str:
        """The reason and the message, as the status of a refused pod has them."""
        return f"{self.reason}: {self.message}"


class _Refusal(NamedTuple):
    """A predicate that failed; `shortage` where a resource is short."""

    name: str
    description: str
    shortage: Shortage | None = None

    @property
    def admission(self) -> NodeAdmission:
        short = self.shortage
        if short is None:
            message = f"Predicate {self.name} failed: {self.description}"
            return NodeAdmission(reason=self.name, message=message)
        return NodeAdmission(
            reason=f"OutOf{short.resource}",
            message=f"Node didn't have enough resource: {short.resource}, requested: "
            f"{short.requested}, used: {short.used}, capacity: {short.capacity}",
        )


_NODE_AFFINITY: Final = _Refusal(
    "NodeAffinity", "node(s) didn't match Pod's node affinity/selector"
)


def admitting_node(node: Node) -> AdmittingNode:
    """A Node of the API server, as its kubelet's admission sees it."""
    features = node.status.features
    return AdmittingNode(
        name=node.metadata.name or "",
        os=node_os(node) or LINUX,
        allocatable=amounts_of(node.status.allocatable, "status.allocatable"),
        labels=node.metadata.labels or {},
        taints=(node.spec and node.spec.taints) or (),
        supplemental_groups_policy=bool(features and features.supplemental_groups_policy),
    )


def admit_pod(
    pod: Pod,
    others: Sequence[Pod],
    node: AdmittingNode,
    release: Release,
    *,
    resizing: bool = False,
) -> NodeAdmission:
    """The kubelet's verdict on a pod beside the `others` it has admitted already.

    With `resizing` the pod runs there already and is to get other resources.
    """
    shape = shape_of(pod, release)
    for check in (_check_os_label, _check_os_field, _check_groups_policy):
        refused = check(pod, node, release)
        if refused is not None:
            return refused
    refusals = list(_predicate_refusals(pod, shape, others, node, release))
    admission = _without_room(pod, others, refusals, release, resizing) if refusals else _ADMITTED
    unsupported = _pod_level_refusal(shape, node, release) if admission.admitted else None
    if unsupported is None:
        return admission
    # The features of a pod are looked at last: the pods that were to give way are killed by then.
    return NodeAdmission(
        reason="PodLevelResourcesNotSupported",
        message=unsupported,
        preempted=admission.preempted,
    )


def refuse_on_node(pod: Pod, node: AdmittingNode, release: Release) -> NodeAdmission | None:
    """What this kubelet refuses about a stored pod, whatever else runs on the node.

    That is another OS, a strict groups policy, and pod-level resources that it does not support.
    """
    for check in (_check_os_label, _check_os_field, _check_groups_policy, _check_os_selector):
        refused = check(pod, node, release)
        if refused is not None:
            return refused
    unsupported = _pod_level_refusal(shape_of(pod, release), node, release)
    if unsupported is None:
        return None
    return NodeAdmission(reason="PodLevelResourcesNotSupported", message=unsupported)


def names_os(pod: Pod) -> bool:
    """Whether a pod says which operating system it needs."""
    wanted = (pod.metadata.labels, pod.spec.node_selector)
    return pod.spec.os is not None or any([OS_LABEL in (each or {}) for each in wanted])


def ignores_pod_level(pod: Pod, kubelet: Release) -> bool:
    """Whether a kubelet runs the pod by its containers alone, as it does not know the field."""
    return not knows_pod_level(kubelet) and has_pod_level(shape_of(pod, kubelet), kubelet)


def knows_pod_level(kubelet: Release) -> bool:
    """Whether a kubelet knows spec.resources, on or off: any from 1.32 on."""
    return stage("PodLevelResources", kubelet.minor) is not None


def kubelet_release(version: str | None, server: Release) -> Release:
    """The release of a node's kubelet, with those of the server's gates that it has, too.

    Without a version it is taken for the server's.
    """
    if version is None:
        return server
    release = Release.of(version)
    for name, on in server.gates:
        with suppress(UnsupportedRelease):
            release = release.with_gates({name: on})
    return release


_ADMITTED: Final = NodeAdmission()


def _check_os_label(pod: Pod, node: AdmittingNode, release: Release) -> NodeAdmission | None:
    if (pod.metadata.labels or {}).get(OS_LABEL, node.os) == node.os:
        return None
    return NodeAdmission(
        reason="PodOSSelectorNodeLabelDoesNotMatch",
        message=f"Failed to admit pod as the `{OS_LABEL}` label doesn't match node label",
    )


def _check_os_field(pod: Pod, node: AdmittingNode, release: Release) -> NodeAdmission | None:
    if pod.spec.os is None or pod.spec.os.name == node.os:
        return None
    return NodeAdmission(
        reason="PodOSNotSupported",
        message="Failed to admit pod as the OS field doesn't match node OS",
    )


def _check_os_selector(pod: Pod, node: AdmittingNode, release: Release) -> NodeAdmission | None:
    """What a selector for another OS is refused with; other labels and fields are not judged."""
    if (pod.spec.node_selector or {}).get(OS_LABEL, node.os) == node.os:
        return None
    return _NODE_AFFINITY.admission


def _check_groups_policy(pod: Pod, node: AdmittingNode, release: Release) -> NodeAdmission | None:
    context = pod.spec.security_context
    if (
        context is None
        or context.supplemental_groups_policy != "Strict"
        or node.supplemental_groups_policy
        or not _CHECKS_GROUPS_POLICY.at(release.minor)
    ):
        return None
    return NodeAdmission(
        reason="SupplementalGroupsPolicyNotSupported",
        message="SupplementalGroupsPolicy=Strict is not supported in this node",
    )


# rejectPodAdmissionBasedOnSupplementalGroupsPolicy(): from the gate's beta on, set or not.
_CHECKS_GROUPS_POLICY: Final = Since({22: False, 33: True})


def _predicate_refusals(
    pod: Pod, shape: Shape, others: Sequence[Pod], node: AdmittingNode, release: Release
) -> Iterator[_Refusal]:
    short = node_shortages(pod, shape, others, node, release)
    yield from [_Refusal(shortage.resource, "", shortage) for shortage in short]
    elsewhere = list(_placement_refusals(pod, others, node, release))
    # When nothing but the selector fails, the kubelet reads its Node again from the API server
    # (predicate.go, generalFilter) and forgets about the label it had put right.
    only_selector = not short and not elsewhere
    if not _matches_labels_at_hand(pod, node) and not (
        only_selector and matches_node(pod, node.name, node.labels)
    ):
        yield _NODE_AFFINITY
    yield from elsewhere


def node_shortages(
    pod: Pod, shape: Shape, others: Sequence[Pod], node: AdmittingNode, release: Release
) -> tuple[Shortage, ...]:
    """What the node lacks for the pod; extended resources it does not know are ignored."""
    demand = scheduling_demand(pod, shape, release)
    info = node_info(node.name, node.allocatable, scheduling_demands(others, release))
    known = {
        name: amount
        for name, amount in demand.filtered.items()
        if name in info.allocatable or not is_extended(name)
    }
    return shortages(msgspec.structs.replace(demand, filtered=known), info, release)


def _matches_labels_at_hand(pod: Pod, node: AdmittingNode) -> bool:
    # rejectPodAdmissionBasedOnOSSelector() puts a missing or wrong label right in its copy of the
    # Node, which works only where the Node has labels at all.
    labels = {**node.labels, OS_LABEL: node.os} if node.labels else node.labels
    return matches_node(pod, node.name, labels)


def _placement_refusals(
    pod: Pod, others: Sequence[Pod], node: AdmittingNode, release: Release
) -> Iterator[_Refusal]:
    if pod.spec.node_name and pod.spec.node_name != node.name:
        yield _Refusal("NodeName", "node(s) didn't match the requested node name")
    if not has_free_ports(pod, others):
        yield _Refusal("NodePorts", "node(s) didn't have free ports for the requested pod ports")
    if not is_static(pod) and has_untolerated_taint(
        pod,
        node.taints,
        "NoExecute",
        compares_numbers=release.is_enabled("TaintTolerationComparisonOperators"),
    ):
        yield _Refusal("TaintToleration", "node(s) had taints that the pod didn't tolerate")


def _without_room(
    pod: Pod, others: Sequence[Pod], refusals: list[_Refusal], release: Release, resizing: bool
) -> NodeAdmission:
    """The first refusal; a critical pod that lacks nothing but resources takes them instead."""
    by_scheduler = resizing and release.is_enabled("InPlacePodVerticalScalingSchedulerPreemption")
    if not is_critical(pod) or by_scheduler:
        return refusals[0].admission
    for refusal in refusals:
        if refusal.shortage is None:
            return refusal.admission
    needs = {short.resource: short.lacking for _, _, short in refusals if short is not None}
    found = pods_to_preempt(pod, others, needs, release)
    if not isinstance(found, CannotPreempt):
        return NodeAdmission(preempted=tuple(found))
    missing = "".join([f"(res: {name}, q: {need}), " for name, need in found.missing.items()])
    return NodeAdmission(
        reason=UNEXPECTED,
        message="Unexpected error while attempting to recover from admission failure: preemption: "
        "error finding a set of pods to preempt: no set of running pods found to reclaim "
        f"resources: [{missing}]",
    )


def _pod_level_refusal(shape: Shape, node: AdmittingNode, release: Release) -> str | None:
    if not knows_pod_level(release) or not has_pod_level(shape, release):
        return None
    if node.os == WINDOWS:
        return "pod-level resources are not supported on Windows"
    if not release.is_enabled("PodLevelResources"):
        return "PodLevelResources feature gate is disabled"
    return None
