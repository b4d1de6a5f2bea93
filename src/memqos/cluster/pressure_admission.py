"""Whether a kubelet admits a pod while its node is under pressure."""

from collections.abc import Collection
from typing import Final, Literal, NamedTuple

from memqos.cluster.node_predicates import has_untolerated_taint
from memqos.kube.kubelet.thresholds import NodeCondition
from memqos.kube.node import Taint
from memqos.kube.pod import Pod, QosClass
from memqos.kube.qos import qos_class
from memqos.kube.shape import Shape, is_critical
from memqos.release import Release

EVICTED_REASON: Final = "Evicted"
"""The reason a refused pod is given in its status."""

_PRESSURE_TAINT: Final = Taint(key="node.kubernetes.io/memory-pressure", effect="NoSchedule")

PressureReason = Literal[
    "no pressure",
    "critical",
    "not BestEffort",
    "tolerates memory pressure",
    "BestEffort under memory pressure",
    "pressure other than memory",
]
_ADMITS: Final[frozenset[PressureReason]] = frozenset(
    {"no pressure", "critical", "not BestEffort", "tolerates memory pressure"}
)


class PressureAdmission(NamedTuple):
    """The kubelet's verdict and what decided it."""

    because: PressureReason
    qos: QosClass
    critical: bool

    @property
    def admitted(self) -> bool:
        return self.because in _ADMITS

    @property
    def reason(self) -> str | None:
        return None if self.admitted else EVICTED_REASON


def pressure_admission(
    pod: Pod, shape: Shape, conditions: Collection[NodeCondition], release: Release
) -> PressureAdmission:
    """The verdict on a pod that was bound to a node in these conditions."""
    qos, critical = qos_class(shape, release), is_critical(pod)
    return PressureAdmission(
        _admission_reason(pod, qos, critical, frozenset(conditions)), qos, critical
    )


def _admission_reason(
    pod: Pod, qos: QosClass, critical: bool, conditions: frozenset[NodeCondition]
) -> PressureReason:
    if not conditions:
        return "no pressure"
    if critical:
        return "critical"
    if conditions != {"MemoryPressure"}:
        return "pressure other than memory"
    if qos != "BestEffort":
        return "not BestEffort"
    if not has_untolerated_taint(pod, (_PRESSURE_TAINT,), _PRESSURE_TAINT.effect):
        return "tolerates memory pressure"
    return "BestEffort under memory pressure"
