"""A kubelet looks at a pod that was bound to its node before it starts it."""

from typing import Any

import msgspec
import pytest
from tests.builders import box, pod, stanza

from memqos.cluster.node_admission import AdmittingNode, admit_pod, admitting_node
from memqos.kube.node import Node, Taint
from memqos.kube.pod import Pod, ResourceList
from memqos.kube.shape import amounts_of
from memqos.release import Release

NEWEST = Release.of("1.38")


def a_node(memory: str = "4Gi", cpu: str = "4", **more: Any) -> AdmittingNode:
    amounts: ResourceList = {"cpu": cpu, "memory": memory, "pods": "10"}
    return AdmittingNode(name="n1", allocatable=amounts_of(amounts, "allocatable"), **more)


def reason(pod: Pod, node: AdmittingNode, *others: Pod, release: Release = NEWEST) -> str | None:
    return admit_pod(pod, others, node, release).reason


def affinity(*expressions: dict[str, Any]) -> dict[str, Any]:
    terms = [{"matchExpressions": list(expressions)}]
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
    return {"nodeAffinity": required}


class TestPlacement:
    @pytest.mark.parametrize(
        ("expression", "chosen"),
        [
            ({"key": "zone", "operator": "In", "values": ["a", "b"]}, True),
            ({"key": "zone", "operator": "NotIn", "values": ["a"]}, False),
            ({"key": "rack", "operator": "NotIn", "values": ["a"]}, True),
            ({"key": "zone", "operator": "Exists"}, True),
            ({"key": "zone", "operator": "DoesNotExist"}, False),
            ({"key": "cores", "operator": "Gt", "values": ["4"]}, True),
            ({"key": "cores", "operator": "Lt", "values": ["4"]}, False),
            ({"key": "zone", "operator": "Gt", "values": ["4"]}, False),
        ],
    )
    def test_a_node_must_match_the_required_affinity(
        self, expression: dict[str, Any], chosen: bool
    ) -> None:
        node = a_node(labels={"zone": "a", "cores": "8"})
        found = reason(pod([box()], affinity=affinity(expression)), node)
        assert found == (None if chosen else "NodeAffinity")

    def test_a_term_without_conditions_matches_no_node(self) -> None:
        assert reason(pod([box()], affinity=affinity()), a_node()) == "NodeAffinity"

    def test_another_node_name_is_refused(self) -> None:
        assert reason(pod([box()], nodeName="n1"), a_node()) is None
        assert reason(pod([box()], nodeName="n2"), a_node()) == "NodeName"

    @pytest.mark.parametrize(
        ("address", "protocol", "free"),
        [(None, None, False), ("10.0.0.1", None, False), (None, "UDP", True)],
    )
    def test_a_host_port_is_taken_once(
        self, address: str | None, protocol: str | None, free: bool
    ) -> None:
        taken = pod([{"ports": [{"hostPort": 80, "containerPort": 80}]}])
        port = {"hostPort": 80, "hostIP": address, "protocol": protocol}
        assert reason(pod([{"ports": [port]}]), a_node(), taken) == (None if free else "NodePorts")

    def test_two_addresses_share_a_port(self) -> None:
        taken = pod([{"ports": [{"hostPort": 80, "hostIP": "10.0.0.2"}]}])
        port = {"hostPort": 80, "hostIP": "10.0.0.1"}
        assert reason(pod([{"ports": [port]}]), a_node(), taken) is None

    def test_only_noexecute_taints_keep_a_pod_away_and_static_pods_stay(self) -> None:
        tainted = a_node(taints=(Taint("a", "b", "NoExecute"), Taint("c", None, "NoSchedule")))
        assert reason(pod([box()]), tainted) == "TaintToleration"
        tolerant = [{"key": "a", "value": "b"}]
        assert reason(pod([box()], tolerations=tolerant), tainted) is None
        other_value = [{"key": "a", "value": "x"}]
        assert reason(pod([box()], tolerations=other_value), tainted) == "TaintToleration"
        static = {"kubernetes.io/config.source": "file"}
        assert reason(pod([box()], annotations=static), tainted) is None


class TestPreemption:
    def named(self, name: str, *containers: Any, **spec: Any) -> Pod:
        made = pod(containers, uid=name, **spec)
        return msgspec.structs.replace(
            made, metadata=msgspec.structs.replace(made.metadata, name=name)
        )

    def preempted(self, needed: str, *others: Pod) -> list[str | None]:
        critical = pod([box(needed)], priority=2_000_000_000)
        admission = admit_pod(critical, others, a_node("4Gi"), NEWEST)
        assert admission.admitted
        return [each.metadata.name for each in admission.preempted]

    def test_guaranteed_pods_go_only_for_what_others_cannot_give(self) -> None:
        guaranteed = self.named("g", box("2Gi", "2Gi", cpu=("1", "1")))
        burstable = self.named("b", box("2Gi"))
        assert self.preempted("2Gi", guaranteed, burstable) == ["b"]
        assert self.preempted("3Gi", guaranteed, burstable) == ["b", "g"]

    def test_the_pod_that_gives_most_goes_first_and_of_enough_the_smallest(self) -> None:
        small, middle, large = (
            self.named(name, box(f"{gi}Gi")) for name, gi in (("s", 1), ("m", 1.25), ("l", 1.75))
        )
        assert self.preempted("1Gi", small, middle, large) == ["s"]
        assert self.preempted("1.5Gi", small, middle, large) == ["l"]

    def test_what_no_pod_can_give_is_named(self) -> None:
        critical = pod([box("5Gi")], priority=2_000_000_000)
        admission = admit_pod(critical, [self.named("b", box("1Gi"))], a_node("4Gi"), NEWEST)
        assert admission.reason == "UnexpectedAdmissionError"
        assert "(res: memory, q: 1073741824)" in (admission.message or "")

    def test_other_critical_pods_stay_unless_their_priority_is_lower(self) -> None:
        first = pod([box("4Gi")], priority=2_000_001_000)
        peer = self.named("peer", box("2Gi"), priority=2_000_001_000)
        lower = self.named("lower", box("2Gi"), priority=2_000_000_000)
        assert reason(first, a_node("4Gi"), peer) == "UnexpectedAdmissionError"
        admission = admit_pod(first, [lower], a_node("4Gi"), NEWEST)
        assert admission.preempted == (lower,)


class TestFeatures:
    def test_pod_level_resources_need_linux_and_the_gate_but_not_cgroup_v2(self) -> None:
        with_pod_level = pod([box()], resources=stanza("1Gi"))
        assert reason(with_pod_level, a_node()) is None
        assert reason(with_pod_level, a_node(os="windows")) == "PodLevelResourcesNotSupported"
        off = Release.of("1.38", {"PodLevelResources": False})
        assert reason(with_pod_level, a_node(), release=off) == "PodLevelResourcesNotSupported"
        assert reason(pod([box()], resources={}), a_node(), release=off) is None

    def test_strict_groups_are_checked_since_the_gate_is_beta(self) -> None:
        strict = pod([box()], securityContext={"supplementalGroupsPolicy": "Strict"})
        assert reason(strict, a_node()) == "SupplementalGroupsPolicyNotSupported"
        assert reason(strict, a_node(), release=Release.of("1.32")) is None
        assert reason(strict, a_node(supplemental_groups_policy=True)) is None


def test_a_node_object_gives_all_that_admission_looks_at() -> None:
    data = {
        "metadata": {"name": "n1", "labels": {"zone": "a"}},
        "spec": {"taints": [{"key": "a", "effect": "NoExecute"}]},
        "status": {
            "allocatable": {"memory": "1Gi"},
            "nodeInfo": {"operatingSystem": "windows"},
            "features": {"supplementalGroupsPolicy": True},
        },
    }
    node = admitting_node(msgspec.convert(data, Node))
    assert (node.name, node.os, node.labels) == ("n1", "windows", {"zone": "a"})
    assert node.taints == (Taint("a", None, "NoExecute"),)
    assert node.supplemental_groups_policy
    assert node.allocatable == {"memory": (1 << 30) * 1000}
