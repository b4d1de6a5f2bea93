"""Resizing a running pod in place: what the API server makes of the new resources."""

from collections.abc import Callable
from typing import Final

import msgspec

from memqos.cluster.resize_checks import ResizeRequest, has_resources, resize_errors
from memqos.kube.defaulting import decoding_defaults, with_pod_level
from memqos.kube.pod import Container, Pod, QosClass
from memqos.kube.qos import compute_qos_class, qos_class
from memqos.kube.shape import Shape, shape_of
from memqos.kube.validation import FieldError
from memqos.release import Release, Since


class Resize(msgspec.Struct, frozen=True):
    """A resize and its verdict: the pod before, after, and what is refused about the change."""

    before: Shape
    after: Shape
    class_before: QosClass
    class_after: QosClass
    errors: tuple[FieldError, ...]

    @property
    def valid(self) -> bool:
        """Whether nothing is refused."""
        return not self.errors


def resize_pod(old: Pod, new: Pod, release: Release) -> Resize:
    """What happens when the stored pod `old` is sent to its `resize` subresource as `new`."""
    stored = shape_of(old, release)
    kept = _POD_TO_STORE.at(release.minor)(old, new)
    before, after = _shapes_to_compare(
        stored, decoding_defaults(kept, release), release, as_sent=kept is new
    )
    change = ResizeRequest(
        old, kept, before, after, qos_class(stored, release), compute_qos_class(after, release)
    )
    errors = sorted(resize_errors(change, release), key=lambda error: (error.field, error.type))
    return Resize(before, after, change.class_before, change.class_after, tuple(errors))


def _regular_containers(old: Pod, new: Pod) -> Pod:
    """Until 1.32 only regular containers were looked at, each found by its name."""
    sent = {container.name: container.resources for container in new.spec.containers or ()}
    containers = tuple(
        msgspec.structs.replace(container, resources=sent.get(container.name, container.resources))
        for container in old.spec.containers or ()
    )
    return msgspec.structs.replace(
        old, spec=msgspec.structs.replace(old.spec, containers=containers)
    )


def _all_resources(old: Pod, new: Pod) -> Pod:
    """All but resources is taken from the old pod, unless containers were added or removed."""
    before, after = old.spec, new.spec
    containers, sent = before.containers or (), after.containers or ()
    init_containers, sent_init = before.init_containers or (), after.init_containers or ()
    if len(containers) != len(sent) or len(init_containers) != len(sent_init):
        return new
    spec = msgspec.structs.replace(
        before,
        containers=_with_sent_resources(containers, sent),
        init_containers=_with_sent_resources(init_containers, sent_init),
        resources=after.resources,
    )
    return msgspec.structs.replace(old, spec=spec)


_POD_TO_STORE: Final[Since[Callable[[Pod, Pod], Pod]]] = Since(
    {22: _regular_containers, 33: _all_resources}
)
"""What is kept of the pod that was sent."""


def _with_sent_resources(
    old: tuple[Container, ...], sent: tuple[Container, ...]
) -> tuple[Container, ...]:
    if [container.name for container in old] != [container.name for container in sent]:
        return sent
    return tuple(
        msgspec.structs.replace(
            before, resources=after.resources, resize_policy=after.resize_policy
        )
        for before, after in zip(old, sent, strict=True)
    )


def _shapes_to_compare(
    stored: Shape, sent: Shape, release: Release, *, as_sent: bool
) -> tuple[Shape, Shape]:
    """The pods that are compared: who may set the pod level, and how it is completed."""
    if not release.is_enabled("PodLevelResources") and not has_resources(stored.pod):
        return stored, msgspec.structs.replace(sent, pod=None)
    is_taken = as_sent or release.is_enabled("InPlacePodLevelResourcesVerticalScaling")
    after = sent if is_taken else msgspec.structs.replace(sent, pod=stored.pod)
    if not release.is_enabled("PodLevelResourcesFixDefaulting"):
        return stored, after
    if after.pod is None:
        # A client that knows nothing of the pod level drops it without meaning to.
        after = msgspec.structs.replace(after, pod=stored.pod)
    after = with_pod_level(after, release)
    # A stanza that may not be set is the stored one itself: completing it completes both pods.
    return (stored if is_taken else msgspec.structs.replace(stored, pod=after.pod)), after
