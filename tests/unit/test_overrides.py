"""A pod may ask for less than the node gives; for more only where its namespace may."""

import pytest
from tests.builders import node_settings

from memqos.agent.configuration import AgentConfiguration
from memqos.agent.core.overrides import Overrides, may_be_throttled, overrides_of
from memqos.kube.pod import ObjectMeta, Pod, PodSpec
from memqos.kube.selector import Selector

MODE, FACTOR, RESERVATION = (
    "memqos.io/mode",
    "memqos.io/throttling-factor",
    "memqos.io/reservation",
)
ENFORCING = AgentConfiguration(
    mode="enforce", policy="TieredReservation", factor=0.8, allow_namespaces=("platform",)
)


def asking(namespace: str | None = "shop", **annotations: str) -> Pod:
    named = {f"memqos.io/{name.replace('_', '-')}": text for name, text in annotations.items()}
    return Pod(ObjectMeta(namespace=namespace, annotations=named))


def test_a_pod_that_asks_for_nothing_gets_what_the_node_gives() -> None:
    assert overrides_of(Pod(), ENFORCING) == Overrides("enforce")
    assert overrides_of(Pod(), AgentConfiguration()) == Overrides("observe")


def test_a_pod_may_weaken_what_it_gets() -> None:
    pod = asking(mode="observe", throttling_factor="0.95", reservation="None")
    assert overrides_of(pod, ENFORCING) == Overrides("observe", 0.95, "None")


@pytest.mark.parametrize(
    ("annotations", "configuration"),
    [
        ({"throttling_factor": "0.7"}, ENFORCING),
        ({"reservation": "HardReservation"}, ENFORCING),
        ({"mode": "enforce"}, AgentConfiguration()),
        ({"throttling_factor": "0.9"}, AgentConfiguration()),
        ({"reservation": "TieredReservation"}, AgentConfiguration()),
    ],
)
def test_more_than_the_node_gives_is_for_allowed_namespaces(
    annotations: dict[str, str], configuration: AgentConfiguration
) -> None:
    refused = overrides_of(asking("shop", **annotations), configuration)
    assert refused._replace(refused=()) == Overrides(configuration.mode, ignored=1)
    (why,) = refused.refused
    assert "exceeds the node's policy – allowNamespaces" in why
    allowing = AgentConfiguration(
        mode=configuration.mode,
        policy=configuration.policy,
        factor=configuration.factor,
        allow_namespaces=("shop",),
    )
    granted = overrides_of(asking("shop", **annotations), allowing)
    assert not granted.refused
    assert granted != Overrides(configuration.mode)


def test_the_namespace_of_a_pod_without_one_is_default() -> None:
    configuration = AgentConfiguration(allow_namespaces=("default",))
    assert overrides_of(asking(None, mode="enforce"), configuration).mode == "enforce"


def test_the_terms_in_force_decide_what_is_more() -> None:
    pod = asking(throttling_factor="0.85", reservation="TieredReservation")
    granted = overrides_of(
        pod, AgentConfiguration(), node_settings(factor=0.8, policy="HardReservation")
    )
    assert granted == Overrides("observe", 0.85, "TieredReservation")
    assert len(overrides_of(pod, AgentConfiguration(), node_settings(factor=0.9)).refused) == 2
    assert overrides_of(
        asking(throttling_factor="0.1"), ENFORCING, node_settings(factor=None)
    ).refused


def test_a_release_without_policies_reserves_all_or_nothing() -> None:
    old = node_settings("1.30")
    assert overrides_of(asking(reservation="None"), ENFORCING, old).reservation == "None"
    (why,) = overrides_of(asking("platform", reservation="HardReservation"), ENFORCING, old).refused
    assert why.startswith("memqos.io/reservation: Kubernetes 1.30")


@pytest.mark.parametrize(
    ("name", "text", "complaint"),
    [
        ("mode", "enfroce", "is not observe or enforce"),
        ("mode", "", "is not observe or enforce"),
        ("throttling_factor", "0", "is not a factor above 0 and up to 1"),
        ("throttling_factor", "1.01", "is not a factor"),
        ("throttling_factor", "nan", "is not a factor"),
        ("throttling_factor", "ninety", "is not a factor"),
        ("throttling_factor", "0.9_5", "is not a factor"),
        ("throttling_factor", "٠.٩", "is not a factor"),
        ("throttling_factor", " 0.9", "is not a factor"),
        ("reservation", "none", "is not None or TieredReservation or HardReservation"),
        ("factor", "0.9", "there is no such annotation"),
        ("throtling_factor", "1", "did you mean memqos.io/throttling-factor?"),
    ],
)
def test_a_bad_annotation_is_reported_and_ignored(name: str, text: str, complaint: str) -> None:
    found = overrides_of(
        asking("platform", **{name: text, "mode": "observe"} | {name: text}), ENFORCING
    )
    (why,) = found.refused
    assert complaint in why
    assert found.factor is None
    assert found.reservation is None


def test_of_thousands_of_bad_annotations_a_few_are_named_and_all_counted() -> None:
    bogus = {f"memqos.io/a{number:04}": "x" * 9999 for number in range(7500)}
    pod = Pod(
        ObjectMeta(annotations={**bogus, MODE: "y" * 9999, FACTOR: "1"}),
    )
    found = overrides_of(pod, ENFORCING)
    assert found.factor == 1
    assert found.ignored == 7501
    assert len(found.refused) == 6
    assert "memqos.io/a0000: there is no such annotation" in found.refused[0]
    assert found.refused[-1].startswith("memqos.io/mode: ")
    assert max(map(len, found.refused)) <= 300


def test_one_bad_annotation_does_not_spoil_another() -> None:
    found = overrides_of(asking(mode="x", throttling_factor="1"), ENFORCING)
    assert found.factor == 1
    assert found.mode == "enforce"


def test_annotations_of_others_are_no_concern() -> None:
    pod = Pod(ObjectMeta(annotations={"example.com/mode": "x", "memqos": "y"}))
    assert not overrides_of(pod, ENFORCING).refused


def test_outside_the_canary_pods_are_observed() -> None:
    configuration = AgentConfiguration(mode="enforce", canary=Selector(namespaces=("shop",)))
    assert overrides_of(asking("shop"), configuration).mode == "enforce"
    assert overrides_of(asking("bank"), configuration).mode == "observe"
    assert overrides_of(asking("bank", mode="enforce"), configuration).refused


def test_who_is_not_selected_is_nobody_s_pod() -> None:
    configuration = AgentConfiguration(
        mode="enforce", select=Selector(not_namespaces=("kube-system",))
    )
    assert configuration.mode_of(asking("kube-system")) is None
    assert configuration.mode_of(asking("shop")) == "enforce"


@pytest.mark.parametrize(
    "pod",
    [
        Pod(spec=PodSpec(priority_class_name="system-node-critical")),
        Pod(spec=PodSpec(priority_class_name="system-cluster-critical")),
        Pod(spec=PodSpec(priority=2_000_001_000)),
        Pod(ObjectMeta(labels={"app.kubernetes.io/name": "memqos"})),
        Pod(ObjectMeta(annotations={"kubernetes.io/config.source": "file"})),
    ],
)
def test_critical_pods_and_memqos_itself_are_never_throttled(pod: Pod) -> None:
    assert not may_be_throttled(pod)
    assert not overrides_of(pod, ENFORCING).throttled


def test_other_pods_may_be_throttled() -> None:
    assert overrides_of(Pod(spec=PodSpec(priority=1_000_000_000)), ENFORCING).throttled
