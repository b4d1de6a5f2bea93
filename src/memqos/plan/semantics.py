"""Everything Kubernetes makes of one pod, from defaulting to cgroup values."""

from typing import Final

import msgspec

from memqos.api.defaulting import defaulted
from memqos.api.pod import Pod
from memqos.api.qos import qos_class
from memqos.api.shape import Shape, shape_key
from memqos.api.validation import FieldError, container_errors, shape_errors
from memqos.plan.pod import PodPlan, plan_pod
from memqos.plan.terms import Terms

REMEMBERED: Final = 100_000
"""Shapes kept; past that the memory starts afresh, which bounds it without bookkeeping."""


class Semantics(msgspec.Struct, frozen=True):
    """A pod after defaulting, what is wrong with it, and its values if nothing is."""

    shape: Shape
    errors: tuple[FieldError, ...]
    plan: PodPlan | None


class Planner:
    """Semantics of pods under fixed terms; pods of one shape are worked out once."""

    def __init__(self, terms: Terms) -> None:
        self.terms = terms
        self._known: dict[bytes, Semantics] = {}

    def semantics(self, pod: Pod) -> Semantics:
        """What Kubernetes makes of a newly created pod."""
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


def semantics(pod: Pod, terms: Terms) -> Semantics:
    """What Kubernetes makes of a newly created pod."""
    return Planner(terms).semantics(pod)


def semantics_of_shape(pod: Pod, terms: Terms) -> Semantics:
    """The same, as far as it depends on the pod's shape alone."""
    shape = defaulted(pod, terms.release)
    errors = shape_errors(shape, terms.release)
    if errors:
        return Semantics(shape, tuple(errors), None)
    plan = plan_pod(shape, terms, qos_class(shape, terms.release))
    return Semantics(shape, (), plan)
