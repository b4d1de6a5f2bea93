"""Arriving pods: what a node's kubelet gets to see of a pod that somebody wrote.

The API server completes a new pod (a missing request takes its limit) and spells its quantities
anew: `1.5Gi` reaches the kubelet as `1536Mi`. Static pods are completed by the kubelet itself, and
their quantities stay as they are written: the Memory Manager refuses `1.5Gi` there.
"""

import msgspec

from memqos.kube.defaulting import apply_defaults
from memqos.kube.pod import Container, Pod, ResourceList, ResourceRequirements
from memqos.kube.quantity import Quantity, milli_of
from memqos.kube.resources import Amounts, Resources, format_amount
from memqos.kube.shape import Part
from memqos.release import Release


def pod_for_kubelet(pod: Pod, release: Release, *, static: bool = False) -> Pod:
    """A valid new pod as a node gets it."""
    shape, spec = apply_defaults(pod, release), pod.spec
    return msgspec.structs.replace(
        pod,
        spec=msgspec.structs.replace(
            spec,
            containers=_containers(spec.containers, shape.containers, static),
            init_containers=_containers(spec.init_containers, shape.init_containers, static),
            resources=None
            if shape.pod is None
            else _requirements(spec.resources, shape.pod, static),
        ),
    )


def _containers(
    containers: tuple[Container, ...] | None, parts: tuple[Part, ...], static: bool
) -> tuple[Container, ...]:
    return tuple(
        [
            msgspec.structs.replace(
                container, resources=_requirements(container.resources, part, static)
            )
            for container, part in zip(containers or (), parts, strict=True)
        ]
    )


def _requirements(
    written: ResourceRequirements | None, complete: Part | Resources, static: bool
) -> ResourceRequirements:
    requests = (written and written.requests) or {}
    limits = (written and written.limits) or {}
    return ResourceRequirements(
        _texts(complete.requests, (requests, limits), static),
        _texts(complete.limits, (limits,), static),
    )


def _texts(amounts: Amounts, sources: tuple[ResourceList, ...], static: bool) -> ResourceList:
    texts: ResourceList = {}
    for name, amount in amounts.items():
        raw = next((source[name] for source in sources if name in source), None)
        if raw is None or milli_of(raw) != amount:
            texts[name] = format_amount(name, amount)
        else:
            texts[name] = raw if static else str(Quantity.parse(raw))
    return texts
