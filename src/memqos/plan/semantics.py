"""Everything Kubernetes makes of one pod, from defaulting to cgroup values."""

from typing import Final

import msgspec

from memqos.kube.defaulting import apply_defaults
from memqos.kube.pod import Pod
from memqos.kube.qos import qos_class
from memqos.kube.resources_in_use import with_resources_in_use
from memqos.kube.shape import Shape, shape_key, shape_of, with_shape
from memqos.kube.validation import FieldError, claim_errors, container_errors, shape_errors
from memqos.plan.pod import PodPlan, plan_pod
from memqos.release import Release
from memqos.settings.settings import Settings

REMEMBERED: Final = 100_000
"""Shapes cached; past that the cache is cleared, which bounds it without bookkeeping."""


class Semantics(msgspec.Struct, frozen=True, gc=False):
    """A pod after defaulting, what is wrong with it, and its values if nothing is."""

    shape: Shape
    errors: tuple[FieldError, ...]
    plan: PodPlan | None


class Planner:
    """Semantics of pods under fixed settings; pods of one shape are computed once."""

    def __init__(self, settings: Settings, server: Release | None = None) -> None:
        """`server` is the API server's release, where it is not the kubelet's."""
        self.settings = settings
        self.server = server or settings.release
        self._by_shape: dict[bytes, Semantics] = {}

    def semantics(self, pod: Pod) -> Semantics:
        """What Kubernetes makes of a pod: a new one is defaulted and validated first."""
        if is_stored(pod):
            return semantics_of_stored(pod, self.settings)
        key = shape_key(pod)
        found = self._by_shape.get(key)
        if found is None:
            if len(self._by_shape) >= REMEMBERED:
                self._by_shape.clear()
            found = self._by_shape[key] = semantics_of_shape(pod, self.settings, self.server)
        errors = (*container_errors(pod), *claim_errors(pod, self.server))
        if not errors:
            return found
        return Semantics(found.shape, errors + found.errors, None)


def semantics(pod: Pod, settings: Settings) -> Semantics:
    """What Kubernetes makes of a pod; see `Planner` for many of them."""
    return Planner(settings).semantics(pod)


def is_stored(pod: Pod) -> bool:
    """Whether the pod comes from a cluster, which has defaulted and accepted it already."""
    return pod.metadata.uid is not None and pod.status is not None


def semantics_of_stored(pod: Pod, settings: Settings) -> Semantics:
    """The semantics of a pod that a cluster has stored: it is not defaulted or validated again."""
    shape = shape_of(with_resources_in_use(pod), settings.release)
    return Semantics(shape, (), plan_pod(shape, settings, qos_class(shape, settings.release)))


def semantics_of_shape(pod: Pod, settings: Settings, server: Release | None = None) -> Semantics:
    """The same, as far as it depends on the pod's shape alone.

    An API server of another release defaults, validates and classifies it: the kubelet sees what
    that has stored.
    """
    server = server or settings.release
    shape = apply_defaults(pod, server)
    errors = shape_errors(shape, server)
    if errors:
        return Semantics(shape, tuple(errors), None)
    qos, stored = qos_class(shape, server), shape
    if server != settings.release:
        stored = shape_of(with_shape(pod, shape), settings.release)
    return Semantics(shape, (), plan_pod(stored, settings, qos))
