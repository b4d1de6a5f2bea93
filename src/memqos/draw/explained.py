"""A pod that was read and explained: what the other modules here put into words or pictures."""

import msgspec

from memqos.draw.table import short_bytes
from memqos.kube.shape import Shape
from memqos.plan.pod import PodPlan
from memqos.plan.semantics import Semantics
from memqos.plan.terms import KNOWS_POLICY, Settings


class PodExplanation(msgspec.Struct, frozen=True):
    """A pod that was read, and what Kubernetes makes of it."""

    origin: str
    """file:line of the object it comes from."""
    label: str
    """`pod/web`, `deployment/web`, …"""
    namespace: str | None
    names: tuple[str, ...]
    """Of the containers, in the order of `Shape.parts`."""
    written: Shape
    semantics: Semantics
    notes: tuple[str, ...] = ()

    @property
    def plan(self) -> PodPlan:
        """The plan of a valid pod."""
        assert self.semantics.plan is not None
        return self.semantics.plan


def settings_line(terms: Settings) -> str:
    """The terms everything below holds under."""
    factor = "no throttling factor" if terms.factor is None else f"factor {terms.factor:g}"
    node = (
        "no node given"
        if terms.memory_capacity is None
        else f"node of {short_bytes(terms.memory_capacity)}"
    )
    if terms.memory_allocatable is not None:
        node += f", {short_bytes(terms.memory_allocatable)} allocatable"
    policy = (
        f"policy {terms.policy}" if KNOWS_POLICY.at(terms.release.minor) else "hard reservation"
    )
    if terms.placement != "containers":
        policy += f", placement {terms.placement}"
    return f"Kubernetes {terms.release} · {policy} · {factor} · {node}"
