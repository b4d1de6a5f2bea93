"""Everything Kubernetes makes of one pod, from defaulting to cgroup values."""

from typing import Final

import msgspec

from memqos.kube.defaulting import apply_defaults
from memqos.kube.pod import Pod
from memqos.kube.qos import qos_class
from memqos.kube.resources_in_use import with_resources_in_use
from memqos.kube.shape import Shape, shape_key, shape_of
from memqos.kube.validation import FieldError, container_errors, shape_errors
from memqos.plan.pod import PodPlan, plan_pod
from memqos.settings.settings import Settings

REMEMBERED: Final = 100_000
"""Shapes kept; past that the memory starts afresh, which bounds it without bookkeeping."""


class Semantics(msgspec.Struct, frozen=True, gc=False):
    """A pod after defaulting, what is wrong with it, and its values if nothing is."""

    shape: Shape
    errors: tuple[FieldError, ...]
    plan: PodPlan | None


class Planner:
    """Semantics of pods under fixed terms; pods of one shape are worked out once."""

    def __init__(self, terms: Settings) -> None:
        self.terms = terms
        self._known: dict[bytes, Semantics] = {}

    def semantics(self, pod: Pod) -> Semantics:
        """What Kubernetes makes of a pod: a new one is defaulted and validated first."""
        if is_stored(pod):
            return semantics_of_stored(pod, self.terms)
        key = shape_key(pod)
        known = self._known.get(key)
        if known is None:
            if len(self._known) >= REMEMBERED:
                self._known.clear()
            known = self._known[key] = semantics_of_shape(pod, self.terms)
        errors = tuple(container_errors(pod))
        if not errors:
            return known
        return Semantics(known.shape, errors + known.errors, None)


def semantics(pod: Pod, terms: Settings) -> Semantics:
    """What Kubernetes makes of a pod; see `Planner` for many of them."""
    return Planner(terms).semantics(pod)


def is_stored(pod: Pod) -> bool:
    """Whether the pod comes from a cluster, which has defaulted and accepted it already."""
    return pod.metadata.uid is not None and pod.status is not None


def semantics_of_stored(pod: Pod, terms: Settings) -> Semantics:
    """What a node makes of a pod that a cluster holds: nothing is defaulted or refused again."""
    shape = shape_of(with_resources_in_use(pod), terms.release)
    return Semantics(shape, (), plan_pod(shape, terms, qos_class(shape, terms.release)))


def semantics_of_shape(pod: Pod, terms: Settings) -> Semantics:
    """The same, as far as it depends on the pod's shape alone."""
    shape = apply_defaults(pod, terms.release)
    errors = shape_errors(shape, terms.release)
    if errors:
        return Semantics(shape, tuple(errors), None)
    plan = plan_pod(shape, terms, qos_class(shape, terms.release))
    return Semantics(shape, (), plan)
