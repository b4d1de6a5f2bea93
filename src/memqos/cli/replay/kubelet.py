"""Replays recorded answers of a kubelet: admission, resizes, swap, memory-backed volumes."""

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from memqos.cli.replay.pods import ReplayCase, case_release, case_settings
from memqos.cluster.node_admission import AdmittingNode, admit_pod
from memqos.cluster.resize_verdict import ResizingNode, resize_admission, resize_verdict
from memqos.kube.node import Taint
from memqos.kube.pod import Container, Pod
from memqos.kube.qos import qos_class
from memqos.kube.shape import amounts_of, containers_of, is_critical, is_static, shape_of
from memqos.kube.swap import SwapNode, container_swap
from memqos.plan.pod import plan_pod
from memqos.plan.volumes import VolumeSize, memory_volumes
from memqos.release import Release, Since

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


def replay_swap(case: ReplayCase) -> dict[str, Any]:
    """What each container of a pod may swap."""
    release, node = case_release(case), case["node"]
    pod = msgspec.convert(case["pod"], Pod)
    if added := case.get("ephemeral_containers_added_later"):
        spec = msgspec.structs.replace(
            pod.spec, ephemeral_containers=msgspec.convert(added, tuple[Container, ...])
        )
        pod = msgspec.structs.replace(pod, spec=spec)
    shape = shape_of(pod, release)
    qos = qos_class(shape, release)
    swap_node = SwapNode(
        behavior=case["kubelet"]["swap_behavior"],
        memory_capacity=node["memory_capacity"],
        swap_capacity=node["swap_capacity"],
        has_controller=node["swap_controller_available"],
        cgroup_version=node["cgroup_version"],
    )
    is_current = "release" not in case
    containers = {}
    plan = plan_pod(shape, case_settings(case), qos)
    for container, part, planned in zip(
        containers_of(pod), shape.parts, plan.containers, strict=True
    ):
        limit = planned.settings["memory.max"].value
        bounded = limit if isinstance(limit, int) else 0
        swap = container_swap(part, qos, swap_node, release, limit=bounded, critical=shape.critical)
        containers[container.name] = {
            "memory.swap.max": None if swap.maximum is None else str(swap.maximum),
            "memory_swap_limit_in_bytes": swap.with_memory,
            "memory_limit_in_bytes": bounded,
        } | ({"swap_behavior": swap.behavior} if is_current else {})
    actual: dict[str, Any] = {"containers": containers, "qos_class": qos}
    return actual | ({"critical": is_critical(pod)} if is_current else {})


def replay_memory_volumes(case: ReplayCase) -> dict[str, Any]:
    """The size of each memory-backed volume of a pod."""
    release = case_release(case)
    pod = msgspec.convert(case["pod"], Pod)
    shape = shape_of(pod, release)
    plan = plan_pod(shape, case_settings(case), qos_class(shape, release))
    volumes = {
        volume.name: volume
        for volume in memory_volumes(
            pod, plan.settings, case["node"]["memory_allocatable"], release
        )
    }
    return {
        "qos_class": plan.qos,
        "volumes": {
            volume.name: (volumes[volume.name].size or 0) if volume.name in volumes else None
            for volume in pod.spec.volumes or ()
        },
        "mount_options": {
            name: {
                "noswap_supported": _mount_options(volume, release, noswap=True) or None,
                "noswap_unsupported": _mount_options(volume, release, noswap=False) or None,
            }
            for name, volume in volumes.items()
        },
    }


def _mount_options(volume: VolumeSize, release: Release, *, noswap: bool) -> list[str]:
    """What the tmpfs is mounted with; `noswap` is whether the kernel has that option (6.4)."""
    sized = [] if volume.size is None else [f"size={volume.size}"]
    return sized + (["noswap"] if noswap and _NO_SWAP.at(release.minor) else [])


# KEP-2400: memory-backed volumes stay out of swap since 1.31, where the kernel can keep them out.
_NO_SWAP: Final = Since({22: False, 31: True})
