"""Which pods a kubelet takes while its node is under pressure."""

from typing import Any

import msgspec
import pytest

from memqos.cluster.pressure_admission import PressureAdmission, pressure_admission
from memqos.kube.kubelet.thresholds import NodeCondition
from memqos.kube.pod import Pod
from memqos.kube.shape import shape_of
from memqos.release import Release

R138 = Release.of("1.38")
MEMORY: tuple[NodeCondition, ...] = ("MemoryPressure",)
BURSTABLE = {"resources": {"requests": {"memory": "1Mi"}}}
TAINT = "node.kubernetes.io/memory-pressure"


def answer(
    conditions: tuple[NodeCondition, ...], container: dict[str, Any] | None = None, **spec: Any
) -> PressureAdmission:
    whole = {"spec": {"containers": [{"name": "main", **(container or {})}], **spec}}
    pod = msgspec.convert(whole, Pod)
    return pressure_admission(pod, shape_of(pod, R138), conditions, R138)


def test_without_pressure_every_pod_is_taken() -> None:
    assert answer(()).because == "no pressure"
    assert answer(()).admitted


def test_best_effort_is_refused_under_memory_pressure() -> None:
    refused = answer(MEMORY)
    assert not refused.admitted
    assert refused.reason == "Evicted"
    assert refused.because == "BestEffort under memory pressure"


def test_a_pod_that_requests_memory_is_taken_under_memory_pressure_alone() -> None:
    assert answer(MEMORY, BURSTABLE).because == "not BestEffort"
    assert not answer(("MemoryPressure", "DiskPressure"), BURSTABLE).admitted


@pytest.mark.parametrize("condition", ["DiskPressure", "PIDPressure"])
def test_any_other_pressure_refuses_all_but_critical_pods(condition: NodeCondition) -> None:
    assert answer((condition,), BURSTABLE).because == "pressure other than memory"
    assert answer((condition,), priority=2_000_000_000).because == "critical"


@pytest.mark.parametrize(
    ("toleration", "admitted"),
    [
        ({"operator": "Exists"}, True),
        ({"key": TAINT, "operator": "Exists", "effect": "NoSchedule"}, True),
        ({"key": TAINT}, True),
        ({"key": TAINT, "operator": "Equal", "value": ""}, True),
        ({"key": TAINT, "operator": "Equal", "value": "x"}, False),
        ({"key": TAINT, "operator": "Exists", "effect": "NoExecute"}, False),
        ({"key": TAINT, "operator": "Lt", "value": "5"}, False),
        ({"key": "node.kubernetes.io/disk-pressure", "operator": "Exists"}, False),
    ],
)
def test_best_effort_is_taken_if_it_tolerates_the_taint(
    toleration: dict[str, str], admitted: bool
) -> None:
    assert answer(MEMORY, tolerations=[toleration]).admitted is admitted
