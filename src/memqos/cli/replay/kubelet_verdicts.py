"""Replays recorded verdicts of a kubelet: on pods it is to admit, and on resizes."""

from collections.abc import Mapping
from typing import Any

import msgspec

from memqos.cli.replay.pods import ReplayCase, case_release
from memqos.cluster.node_admission import AdmittingNode, admit_pod
from memqos.cluster.resize_verdict import ResizingNode, resize_admission, resize_verdict
from memqos.kube.node import Taint
from memqos.kube.pod import Pod
from memqos.kube.qos import qos_class
from memqos.kube.shape import amounts_of, is_static, shape_of
from memqos.kube.swap import SwapNode

_NODE_NAME = "node"


def replay_pod_os_admission(case: ReplayCase) -> dict[str, Any]:
    """A kubelet's admission of a pod that was bound to its node."""
    admission = admit_pod(
        msgspec.convert(case["pod"], Pod),
        msgspec.convert(case.get("other_pods") or [], list[Pod]),
        _admitting_node(case["node"]),
        case_release(case),
    )
    return {
        "admit": admission.admitted,
        "reason": admission.reason,
        "message": admission.message,
        "preempted": sorted([pod.metadata.name or "" for pod in admission.preempted]),
    }


def replay_resize_verdict(case: ReplayCase) -> dict[str, Any]:
    """The answers of a kubelet, and of the API server, to a resize in place."""
    release, node, kubelet = case_release(case), case["node"], case["kubelet"]
    allocated = msgspec.convert(case["allocated_pod"], Pod)
    desired = msgspec.convert(case["desired_pod"], Pod)
    resizing = ResizingNode(
        admission=_admitting_node(node),
        swap=SwapNode(
            behavior=kubelet["swap_behavior"],
            memory_capacity=node["memory_capacity"],
            swap_capacity=node["swap_capacity"],
            has_controller=node["swap_controller_available"],
            cgroup_version=node["cgroup_version"],
        ),
        cpu_manager_policy=kubelet["cpu_manager_policy"],
        memory_manager_policy=kubelet["memory_manager_policy"],
        unreserved=amounts_of(node.get("allocatable_absolute"), "node.allocatable_absolute")
        or None,
    )
    others = msgspec.convert(case.get("other_pods") or [], list[Pod])
    found = resize_verdict(allocated, desired, others, resizing, release)
    actual = {
        "verdict": found.verdict,
        "reason": found.reason,
        "message": found.message,
        "preempted": sorted([pod.metadata.name or "" for pod in found.preempted]),
        "still_pending": found.still_pending,
        "qos_class": qos_class(shape_of(desired, release), release),
    }
    if "release" in case and release.minor < 36:
        return actual
    admission = (
        None
        if is_static(desired)
        else resize_admission(allocated, desired, resizing.admission, release)
    )
    return actual | {
        "api_admission": None
        if admission is None
        else {
            "allowed": admission.allowed,
            "cause": admission.cause,
            "message": admission.message,
        }
    }


def _admitting_node(node: Mapping[str, Any]) -> AdmittingNode:
    return AdmittingNode(
        name=_NODE_NAME,
        os=node.get("os", "linux"),
        allocatable=amounts_of(node["allocatable"], "node.allocatable"),
        labels=node.get("labels") or {},
        taints=msgspec.convert(node.get("taints") or [], tuple[Taint, ...]),
        supplemental_groups_policy=bool(
            (node.get("features") or {}).get("supplementalGroupsPolicy")
        ),
    )
