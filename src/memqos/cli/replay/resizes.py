"""Replays recorded verdicts of a kubelet: admission, resizes."""

from collections.abc import Mapping
from typing import Any

import msgspec

from memqos.cli.replay.pods import ReplayCase, case_release
from memqos.cluster.node_admission import AdmittingNode, admit_pod
from memqos.kube.node import Taint
from memqos.kube.pod import Pod
from memqos.kube.shape import amounts_of

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
