"""Recommended sizes as Kubernetes objects: patches, autoscaler bounds, a kustomization."""

from collections.abc import Iterator, Sequence
from typing import Any, Final

import msgspec

from memqos.errors import InputError
from memqos.size.consequences import MemorySize
from memqos.size.workloads import SizedWorkload, SizeReport, WorkloadManifest

_API: Final = {
    "pod": ("v1", "Pod"),
    "deployment": ("apps/v1", "Deployment"),
    "statefulset": ("apps/v1", "StatefulSet"),
    "daemonset": ("apps/v1", "DaemonSet"),
    "replicaset": ("apps/v1", "ReplicaSet"),
    "replicationcontroller": ("v1", "ReplicationController"),
    "job": ("batch/v1", "Job"),
    "cronjob": ("batch/v1", "CronJob"),
}


def size_patches(report: SizeReport) -> list[dict[str, Any]]:
    """A strategic-merge patch for every workload with a manifest."""
    found = []
    for manifest, containers in _by_manifest(report):
        spec = {
            "containers": [
                {"name": name, "resources": _resources(size)} for name, size in containers
            ]
        }
        found.append({**_identity(manifest), "spec": _in_template(manifest.kind, spec)})
    return found


def autoscaler_bounds(report: SizeReport) -> list[dict[str, Any]]:
    """A VerticalPodAutoscaler for every workload: not below the request, nor above the limit."""
    found = []
    for manifest, containers in _by_manifest(report):
        identity = _identity(manifest)
        policies = [
            {
                "containerName": name,
                "controlledResources": ["memory"],
                "minAllowed": {"memory": _quantity(size.request)},
                "maxAllowed": {"memory": _quantity(size.limit)},
            }
            for name, size in containers
        ]
        target = {"apiVersion": identity["apiVersion"], "kind": identity["kind"]}
        found.append(
            {
                "apiVersion": "autoscaling.k8s.io/v1",
                "kind": "VerticalPodAutoscaler",
                "metadata": identity["metadata"],
                "spec": {
                    "targetRef": {**target, "name": manifest.name},
                    "resourcePolicy": {"containerPolicies": policies},
                },
            }
        )
    return found


def kustomization(report: SizeReport) -> dict[str, Any]:
    """The patches in a kustomization."""
    return {
        "apiVersion": "kustomize.config.k8s.io/v1beta1",
        "kind": "Kustomization",
        "patches": [
            {
                "target": {"kind": patch["kind"], **patch["metadata"]},
                # JSON is YAML too.
                "patch": msgspec.json.encode(patch).decode(),
            }
            for patch in size_patches(report)
        ],
    }


def _by_manifest(
    report: SizeReport,
) -> Iterator[tuple[WorkloadManifest, Sequence[tuple[str, MemorySize]]]]:
    grouped: dict[int, tuple[WorkloadManifest, list[tuple[str, MemorySize]]]] = {}
    for each in report.workloads:
        if each.manifest is None:
            raise InputError(
                f"the kind of workload of {_shown(each)} is unknown",
                hint="name its manifest, such as memqos size deployment.yaml --history …",
            )
        if each.size is not None:
            group = grouped.setdefault(id(each.manifest), (each.manifest, []))
            group[1].append((each.container, each.size))
    yield from grouped.values()


def _identity(manifest: WorkloadManifest) -> dict[str, Any]:
    version, kind = _API[manifest.kind]
    metadata = {"name": manifest.name}
    if manifest.namespace is not None:
        metadata["namespace"] = manifest.namespace
    return {"apiVersion": version, "kind": kind, "metadata": metadata}


def _in_template(kind: str, spec: dict[str, Any]) -> dict[str, Any]:
    if kind == "pod":
        return spec
    template = {"template": {"spec": spec}}
    return {"jobTemplate": {"spec": template}} if kind == "cronjob" else template


def _resources(size: MemorySize) -> dict[str, Any]:
    return {
        "requests": {"memory": _quantity(size.request)},
        "limits": {"memory": _quantity(size.limit)},
    }


def _quantity(amount: int | None) -> str:
    assert amount is not None
    return f"{amount >> 20}Mi"


def _shown(each: SizedWorkload) -> str:
    return "/".join(part for part in (each.namespace, each.workload) if part)
