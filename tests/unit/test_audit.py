"""What an audit makes of pods: their values, their sums, and what is found about them."""

import json
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.builders import GI, MI, Json

from memqos.audit import audit_objects
from memqos.audit.census import Census, MeasuredUsage, collect_objects
from memqos.audit.cluster_audit import Audit, audit_totals
from memqos.audit.comparison import compare_audits
from memqos.audit.node_memory import NodeMemory, NodeMemoryEstimator
from memqos.audit.pod_counter import CountRequest, count_pods
from memqos.audit.pod_specs import SpecCache, SpecMemory
from memqos.audit.rules import judge_cluster, select_rules
from memqos.audit.totals import NodeTotals
from memqos.findings.catalogue import AUDIT_RULES
from memqos.findings.finding import Finding
from memqos.kube.kubelet import with_defaults
from memqos.kube.node import Node
from memqos.kube.pod import Pod
from memqos.kube.qos import qos_class
from memqos.kube.shape import is_critical
from memqos.manifests.dumps.objects import (
    container_names,
    encode_abridged,
    likeness,
    object_decoder,
    pod_decoder,
)
from memqos.plan.effective import Claim, effective
from memqos.plan.memory_summary import memory_on_node, outline_of
from memqos.plan.pod import plan_pod
from memqos.plan.semantics import semantics
from memqos.release import Release
from memqos.settings.settings import Policy, Settings

ROOT = Path(__file__).parents[2]
CASES = ROOT / "tests" / "conformance" / "cases" / "pod_semantics.jsonl"
NODE = NodeMemory(capacity=16 * GI, enforced=15 * GI, published=14 * GI)


def settings(release: str = "1.36", policy: Policy = "TieredReservation") -> Settings:
    return Settings(Release.of(release, {"MemoryQoS": True}), 0.9, policy)


def running(
    name: str,
    *resources: Json,
    node: str = "n",
    qos: str | None = None,
    priority: int = 0,
    **more: Any,
) -> Json:
    containers = [
        {"name": f"c{number}", "image": "i", "resources": each}
        for number, each in enumerate(resources)
    ]
    return {
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "a", "uid": name},
        "spec": {"nodeName": node, "priority": priority, "containers": containers},
        "status": {"phase": "Running", "qosClass": qos},
    } | more


def asks(request: str | None = None, limit: str | None = None, cpu: str = "1") -> Json:
    return {
        "requests": {"cpu": cpu} | ({"memory": request} if request else {}),
        "limits": {"memory": limit} if limit else {},
    }


def census_of(objects: list[Json]) -> Census:
    census = Census()
    text = b"[" + b",".join(msgspec.json.encode(each) for each in objects) + b"]"
    assert census.read_block(0, memoryview(text), "items") is not None
    return census


def audited(
    objects: list[Json],
    usage: dict[str, dict[str, int]] | None = None,
    under: Settings | None = None,
    nodes: dict[str, NodeMemory] | None = None,
) -> Audit:
    under = under or settings()
    census = census_of(objects)
    for pod, containers in (usage or {}).items():
        census.add_usage(f"a/{pod}", containers)
    nodes = {"n": NODE} if nodes is None else nodes
    totals = count_pods(census, CountRequest(settings=under, nodes=nodes, usage=census.usage))
    others = collect_objects(census.other_objects, census.usage)
    audit, faults = audit_totals(totals, under, nodes, others.limit_ranges, others.quotas)
    assert not faults
    return audit


def found(audit: Audit, rule: str) -> list[Finding]:
    return list(judge_cluster(audit, [rule]))


def recorded() -> list[Pod]:
    pods = []
    for line in CASES.read_text().splitlines():
        case = json.loads(line)
        if not case["expect"]["errors"] and "container_cgroups" in case["expect"]:
            pods.append(msgspec.convert(case["input"]["pod"], Pod))
    return pods


@pytest.mark.parametrize("release", ["1.22", "1.27", "1.34", "1.36", "1.38"])
@pytest.mark.parametrize("policy", ["None", "TieredReservation", "HardReservation"])
def test_the_summary_of_a_plan_has_the_values_of_the_full_one(release: str, policy: Policy) -> None:
    unknown = settings(release, policy)
    node = msgspec.structs.replace(unknown, memory_capacity=64 * GI, memory_allocatable=60 * GI)
    for pod in recorded():
        shape = semantics(pod, node).shape
        qos = qos_class(shape, node.release)
        for under in (unknown, node):
            full = plan_pod(shape, under, qos)
            brief = memory_on_node(outline_of(shape, unknown, qos), under)
            assert (brief.qos, brief.min, brief.low, brief.high, brief.max) == (
                full.qos,
                *[full.settings[f"memory.{file}"].value for file in ("min", "low", "high", "max")],
            )
            for own, planned in zip(brief.containers, full.containers, strict=True):
                files = ("min", "low", "high", "max")
                values = [planned.settings[f"memory.{file}"].value for file in files]
                assert [own.min, own.low, own.high, own.max] == values
                score = planned.settings["oom_score_adj"].value
                assert own.oom_score_adj == (score if isinstance(score, int) else None)


def test_an_abridged_pod_has_the_values_of_the_whole_one() -> None:
    under = msgspec.structs.replace(settings("1.38"), memory_capacity=64 * GI)
    for pod in recorded():
        text = msgspec.json.encode(pod)
        dumped = object_decoder.decode(text)
        short = pod_decoder.decode(encode_abridged(dumped, container_names(dumped)))
        one, other = semantics(pod, under), semantics(short, under)
        assert one.shape == other.shape
        assert one.plan == other.plan
        assert dumped.is_critical == is_critical(pod)


def test_pods_are_alike_only_if_their_abridged_texts_are() -> None:
    texts: dict[object, bytes] = {}
    for pod in recorded():
        for uid in (None, "u"):
            for order in (1, -1):
                statuses = [
                    {"name": each.name, "resources": each.resources}
                    for each in (pod.spec.containers or ())[::order]
                ]
                data = msgspec.to_builtins(pod) | {"kind": "Pod"}
                data["metadata"] = {"uid": uid} if uid else {}
                data["status"] = {"containerStatuses": msgspec.to_builtins(statuses)}
                dumped = object_decoder.decode(msgspec.json.encode(data))
                names = container_names(dumped)
                key, text = likeness(dumped, names), encode_abridged(dumped, names)
                first = pod_decoder.decode(texts.setdefault(key, text))
                assert semantics(first, settings()) == semantics(
                    pod_decoder.decode(text), settings()
                )
    assert len(texts) > 100


def test_sums_of_a_node_are_those_of_its_pods() -> None:
    audit = audited(
        [
            running("g", asks("1Gi", "1Gi") | {"limits": {"cpu": "1", "memory": "1Gi"}}),
            running("b", asks("2Gi", "4Gi"), asks("1Gi", "1Gi")),
            running("e", {}),
            running("over", {}, status={"phase": "Succeeded"}),
        ]
    )
    (node,) = audit.nodes
    assert audit.ended == 1
    assert node.classes == {"Guaranteed": 1, "Burstable": 1, "BestEffort": 1}
    assert (node.requested, node.limits, node.unlimited) == (4 * GI, 6 * GI, 1)
    assert (node.min, node.low) == (4 * GI, 3 * GI)
    assert node.share(node.min) == 4 / 15


@pytest.mark.parametrize("policy", ["TieredReservation", "HardReservation"])
@pytest.mark.parametrize("release", ["1.27", "1.36", "1.38"])
def test_unrequested_protection_is_what_the_kernel_gives(release: str, policy: Policy) -> None:
    pods = {
        "g0": (asks("1Gi", "1Gi") | {"limits": {"cpu": "1", "memory": "1Gi"}}, 600 * MI),
        "g1": (asks("1Gi", "1Gi") | {"limits": {"cpu": "1", "memory": "1Gi"}}, 1024 * MI),
        "b0": (asks("2Gi", "4Gi"), 300 * MI),
        "b1": (asks("512Mi", "4Gi"), 3000 * MI),
        "b2": (asks("1Gi"), 1500 * MI + 12345),
        "e0": ({}, 700 * MI),
        "e1": ({}, 90 * MI),
    }
    under = settings(release, policy)
    audit = audited(
        [running(name, each) for name, (each, _) in pods.items()],
        {name: {"c0": used} for name, (_, used) in pods.items()},
        under,
    )
    (node,) = audit.nodes
    claims: dict[str, Claim] = {}
    burstable = besteffort = 0
    texts = [census_of([running(n, e)]).spec_texts[0] for n, (e, _) in pods.items()]
    for (name, (_, used)), text in zip(pods.items(), texts, strict=True):
        numbers = SpecCache([text], under).on_nodes(None, None)[0]
        assert isinstance(numbers, SpecMemory)
        above = {"Guaranteed": "", "Burstable": "/b", "BestEffort": "/e"}[numbers.summary.qos]
        claims[f"/k{above}/{name}"] = Claim(numbers.min, numbers.low, used)
        burstable += used if above == "/b" else 0
        besteffort += used if above == "/e" else 0
    total = sum(claim.usage for claim in claims.values())
    b_request = 3 * GI + 512 * MI
    hard = policy == "HardReservation" or release == "1.27"
    claims["/k"] = Claim(
        b_request + 2 * GI, b_request if not hard and release == "1.38" else 0, total
    )
    claims["/k/b"] = Claim(b_request if hard else 0, 0 if hard else b_request, burstable)
    claims["/k/e"] = Claim(0, 0, besteffort)
    honoured = effective(claims, recursive=True, page_size=4096)
    pages = 8 * 4096
    for knob, own in (("min", node.unrequested_min), ("low", node.unrequested_low)):
        kernel = {
            path.rpartition("/")[2]: getattr(each, knob).unclaimed
            for path, each in honoured.items()
            if path not in ("/k", "/k/b", "/k/e")
        }
        assert abs(own.total - sum(kernel.values())) <= pages
        for pod, amount in own.most:
            assert abs(amount - kernel[pod.removeprefix("a/")]) <= pages
        if own.most:
            assert abs(own.most[0][1] - max(kernel.values())) <= pages


def test_a_container_past_its_memory_high_to_be_is_throttled_at_once() -> None:
    pods = [running("calm", asks("1Gi", "2Gi")), running("busy", asks("1Gi", "2Gi"))]
    usage = {"calm": {"c0": 1900 * MI}, "busy": {"c0": 1990 * MI}}
    audit = audited(pods, usage)
    assert audit.nodes[0].throttled == 1
    (finding,) = found(audit, "pod/throttled")
    assert finding.where == "a/busy"
    assert finding.evidence == ("one pod: c0", "44.40Mi above memory.high")


def test_pods_are_evicted_and_killed_in_the_order_of_the_node() -> None:
    pods = [
        running("within", asks("2Gi", "4Gi")),
        running("above", asks("1Gi", "4Gi")),
        running("first", asks("1Gi", "4Gi"), priority=-1),
        running("nothing", {}),
        running(
            "static",
            {},
            metadata={
                "name": "static",
                "namespace": "a",
                "uid": "s",
                "annotations": {"kubernetes.io/config.source": "file"},
            },
        ),
    ]
    usage = {pod["metadata"]["name"]: {"c0": 1500 * MI} for pod in pods}
    (node,) = audited(pods, usage).nodes
    assert [each.pod for each in node.evicted_first] == ["a/first", "a/nothing", "a/above"]
    assert [each.excess for each in node.evicted_first] == [476 * MI, 1500 * MI, 476 * MI]
    assert {each.container for each in node.killed_first[:2]} == {"a/nothing c0", "a/static c0"}
    assert node.over_request == 4


def test_a_node_that_is_not_known_still_has_its_sums() -> None:
    audit = audited([running("p", asks("1Gi")), running("q", asks("1Gi"), node="")], nodes={})
    (node,) = audit.nodes
    assert (node.name, node.memory, node.requested, node.share(1)) == ("n", None, GI, None)
    assert audit.unscheduled is not None
    assert audit.pods == 2


def test_a_pod_the_release_would_refuse_is_found() -> None:
    (finding,) = found(audited([running("p", asks("2Gi", "1Gi"))]), "pod/invalid")
    assert finding.severity == "error"
    assert "must be less than or equal to memory limit" in finding.evidence[0]


def test_a_resize_that_is_not_granted_yet_has_no_effect() -> None:
    pod = running("p", asks("2Gi", "4Gi"))
    now = {"requests": {"memory": "1Gi"}, "limits": {"memory": "4Gi"}}
    pod["status"]["containerStatuses"] = [{"name": "c0", "resources": now}]
    audit = audited([pod])
    (node,) = audit.nodes
    assert node.low == GI
    assert node.requested == 2 * GI


def test_only_containers_that_run_on_lack_requests_and_limits() -> None:
    init = {"name": "init", "image": "i", "resources": {}}
    pod = running("p", asks("1Gi", "1Gi"))
    pod["spec"]["initContainers"] = [init]
    assert not found(audited([pod]), "pod/no-request")
    pod["spec"]["initContainers"] = [init | {"restartPolicy": "Always"}]
    (finding,) = found(audited([pod]), "pod/no-request")
    assert finding.evidence == ("one pod: init",)
    pod["spec"]["resources"] = {"requests": {"memory": "2Gi"}, "limits": {"memory": "2Gi"}}
    assert not found(audited([pod]), "pod/no-request")
    assert not found(audited([pod]), "pod/no-limit")


def test_limits_and_requests_far_above_usage_are_found() -> None:
    pods = [running("idle", asks("4Gi", "16Gi")), running("fine", asks("100Mi", "200Mi"))]
    audit = audited(pods, {"idle": {"c0": 500 * MI}, "fine": {"c0": 10 * MI}})
    assert [each.where for each in found(audit, "pod/idle-request")] == ["a/idle"]
    assert [each.where for each in found(audit, "pod/high-limit")] == ["a/idle"]


@pytest.mark.parametrize(
    ("rule", "request_mi", "limit_mi", "used_mi", "is_found"),
    [
        ("pod/high-limit", 100, 512, 128, True),  # four times what is in use
        ("pod/high-limit", 100, 511, 128, False),
        ("pod/high-limit", 10, 306, 50, True),  # 256 Mi more than what is in use
        ("pod/high-limit", 10, 305, 50, False),
        ("pod/high-limit", 512, 512, 128, False),  # as much as it requests
        ("pod/high-limit", 511, 512, 128, True),
        ("pod/idle-request", 400, 400, 100, True),
        ("pod/idle-request", 399, 400, 100, False),
        ("pod/idle-request", 306, 400, 50, True),
        ("pod/idle-request", 305, 400, 50, False),
    ],
)
def test_a_threshold_is_met_by_the_amount_it_names(
    rule: str, request_mi: int, limit_mi: int, used_mi: int, is_found: bool
) -> None:
    pods = [running("p", asks(f"{request_mi}Mi", f"{limit_mi}Mi"))]
    audit = audited(pods, {"p": {"c0": used_mi * MI}})
    assert bool(found(audit, rule)) == is_found


def test_containers_that_peak_apart_could_share_a_request() -> None:
    pod = running("p", asks("1Gi", "2Gi"), asks("1Gi", "2Gi"))
    census = census_of([pod])
    census.add_usage("a/p", {"c0": 1000 * MI, "c1": 100 * MI})
    assert not _found_in(census, "pod/pod-level")
    census.add_usage("a/p", {"c0": 100 * MI, "c1": 1000 * MI})
    (finding,) = _found_in(census, "pod/pod-level")
    assert finding.evidence[1] == "900Mi requested twice over"


def _found_in(census: Census, rule: str) -> list[Finding]:
    nodes = {"n": NODE}
    totals = count_pods(census, CountRequest(settings=settings(), nodes=nodes, usage=census.usage))
    return found(audit_totals(totals, settings(), nodes, [], [])[0], rule)


def test_a_namespace_without_defaults_is_found_only_if_it_needs_them() -> None:
    bare = running("p", {})
    limits = {"kind": "LimitRange", "metadata": {"namespace": "a", "name": "l"}}
    defaults = {"spec": {"limits": [{"type": "Container", "max": {"memory": "1Gi"}}]}}
    others = {"spec": {"limits": [{"type": "Pod", "max": {"memory": "1Gi"}}]}}
    rule = "namespace/no-limit-range"
    assert found(audited([bare]), rule)
    assert found(audited([bare, limits | others]), rule)
    assert not found(audited([bare, limits | defaults]), rule)
    assert not found(audited([running("p", asks("1Gi"))]), rule)


def test_a_quota_with_little_left_is_found() -> None:
    quota = {"kind": "ResourceQuota", "metadata": {"namespace": "a", "name": "q"}}
    for used, count in (("8Gi", 0), ("9500Mi", 1), ("11Gi", 1)):
        hard = {"limits.memory": "10Gi", "pods": "1"}
        status = {"status": {"hard": hard, "used": {"limits.memory": used, "pods": "1"}}}
        assert len(found(audited([running("p", {}), quota | status]), "namespace/quota")) == count


def test_nodes_that_hold_too_much_are_found() -> None:
    many = [running(f"p{number}", asks("3Gi", "8Gi")) for number in range(5)]
    audit = audited(many, {f"p{n}": {"c0": 2700 * MI} for n in range(5)}, settings("1.27"))
    assert found(audit, "node/overcommitted")[0].evidence == ("requested 15Gi", "offered 14Gi")
    assert found(audit, "node/hard-protection")
    assert found(audit, "node/limits")
    assert not found(audit, "node/full")
    fuller = audited(many, {f"p{n}": {"c0": 2900 * MI} for n in range(5)})
    assert found(fuller, "node/full")[0].evidence[1] == "evicted first: a/p0"


def test_nodes_of_which_only_some_have_swap_are_found() -> None:
    pods = [running("p", asks("1Gi"))]
    with_swap, without = (msgspec.structs.replace(NODE, swap=swap) for swap in (GI, 0))
    found_in = found(audited(pods, nodes={"n": with_swap, "m": without}), "node/swap")
    assert found_in[0].evidence == ("with swap: n", "without: m")
    assert not found(audited(pods, nodes={"n": with_swap, "m": with_swap}), "node/swap")
    assert not found(audited(pods, nodes={"n": with_swap, "m": NODE}), "node/swap")


@pytest.mark.parametrize(
    ("version", "hugepages", "severity", "when"),
    [
        ("v1.36.2", "2Gi", "warning", "the kernel runs out of memory before evictions begin"),
        ("v1.36.2", "40Mi", "info", "evictions begin when 60Mi are free"),
        ("v1.37.0", "2Gi", None, None),
        ("v1.36.2", "0", None, None),
    ],
)
def test_hugepages_that_pass_for_available_memory_are_found(
    version: str, hugepages: str, severity: str | None, when: str | None
) -> None:
    amounts = {"memory": "16Gi", "hugepages-2Mi": hugepages}
    status = {
        "capacity": amounts,
        "allocatable": {"memory": "13Gi"},
        "nodeInfo": {"kubeletVersion": version},
    }
    node = msgspec.convert({"metadata": {"name": "n"}, "status": status}, Node)
    for exact in (False, True):
        estimator = NodeMemoryEstimator(with_defaults({}, 36), settings("1.38"), exact=exact)
        memory = estimator.memory_of(node)
        findings = found(
            audited([running("p", asks("1Gi"))], nodes={"n": memory}), "node/hugepages"
        )
        assert [each.severity for each in findings] == ([] if severity is None else [severity])
        if when is not None:
            assert findings[0].evidence[1] == f"threshold of memory.available 100Mi: {when}"


def test_a_full_node_with_more_hugepages_than_its_threshold_kills_and_does_not_evict() -> None:
    pods = [running("p", asks("1Gi"))]
    used = {"p": {"c0": 14 * GI}}
    blind = msgspec.structs.replace(NODE, hugepages=GI, threshold=100 * MI, is_hugepage_aware=False)
    for node, evidence in ((NODE, "evicted first"), (blind, "killed first")):
        (finding,) = found(audited(pods, usage=used, nodes={"n": node}), "node/full")
        assert finding.evidence[1].startswith(evidence)


def test_memory_low_is_lost_below_a_level_that_has_none() -> None:
    pods = [running("p", asks("1Gi", "2Gi"))]
    (finding,) = found(audited(pods, under=settings("1.36")), "node/lost-low")
    assert finding.evidence == ("Burstable pods claim 1Gi of memory.low, not honoured",)
    assert not found(audited(pods, under=settings("1.37")), "node/lost-low")


def test_rules_are_chosen_by_id_and_by_group() -> None:
    assert select_rules(["pod/invalid"], []) == ("pod/invalid",)
    assert {rule.partition("/")[0] for rule in select_rules(["node"], [])} == {"node"}
    assert set(select_rules([], ["node", "pod"])) == {"namespace/no-limit-range", "namespace/quota"}
    assert len(select_rules([], [])) == len(AUDIT_RULES)


def test_a_node_says_what_it_has_before_evictions() -> None:
    stated = {"capacity": {"memory": "16Gi"}, "allocatable": {"memory": "14Gi"}}
    node = msgspec.convert({"metadata": {"name": "n"}, "status": stated}, Node)
    config = with_defaults({}, 36)
    memory = NodeMemoryEstimator(config, settings(), exact=False).memory_of(node)
    assert (memory.capacity, memory.published) == (16 * GI, 14 * GI)
    assert memory.enforced == 14 * GI + 100 * MI
    assert memory.threshold == 100 * MI
    assert NodeMemoryEstimator(config, settings(), exact=True).memory_of(node).enforced == 16 * GI


def test_two_audits_differ_by_node() -> None:
    pods = [running("p", asks("1Gi", "2Gi")), running("q", asks("1Gi", "2Gi"), node="m")]
    nodes = {"n": NODE, "m": NODE}
    one = audited(pods, under=settings(policy="None"), nodes=nodes)
    other = audited(pods[:1], under=settings(policy="HardReservation"), nodes={"n": NODE})
    differing = compare_audits(one, other, ((), ()), {"n": 1})
    assert [
        (node.name, node.change_in("min"), node.change_in("pods")) for node in differing.nodes
    ] == [
        ("n", GI, 0),
        ("m", 0, -1),
    ]
    assert differing.after["min"] == GI
    assert compare_audits(one, one, ((), ()), {}).nodes == ()


def test_samples_of_usage_are_kept_at_their_most() -> None:
    census = Census()
    census.add_usage("a/p", {"x": 3, "y": 1})
    census.add_usage("a/p", {"x": 1, "y": 5})
    assert census.usage["a/p"] == MeasuredUsage(6, {"x": 3, "y": 5}, 2)


def test_totals_start_with_nothing() -> None:
    one, other = NodeTotals(), NodeTotals()
    one.evicted_first.append((1,))
    assert other.evicted_first == []


def test_a_program_audits_decoded_objects() -> None:
    node = {
        "kind": "Node",
        "metadata": {"name": "n"},
        "status": {"capacity": {"memory": "16Gi"}, "allocatable": {"memory": "14Gi"}},
    }
    pods = [running(f"p{number}", asks("3Gi", "8Gi")) for number in range(5)]
    metrics = {
        "kind": "PodMetrics",
        "metadata": {"namespace": "a", "name": "p0"},
        "containers": [{"name": "c0", "usage": {"memory": "100Mi"}}],
    }
    usage = {"a/p1": MeasuredUsage(200 * MI, {"c0": 200 * MI})}
    objects = [*pods, {"kind": "List", "items": [node]}, metrics, {"kind": "ConfigMap"}]
    result = audit_objects(objects, settings(), usage=usage)
    assert not result.faults
    assert [(each.name, each.pods, each.usage) for each in result.audit.nodes] == [
        ("n", 5, 300 * MI)
    ]
    assert [each.evidence for each in result.findings if each.rule == "node/overcommitted"] == [
        ("requested 15Gi", "offered 14Gi")
    ]
    assert not audit_objects(objects, settings(), rules=["pod/invalid"]).findings
    typed = [msgspec.convert(pod, Pod) for pod in pods]
    assert (
        audit_objects([*typed, msgspec.convert(node, Node), metrics], settings(), usage=usage).audit
        == result.audit
    )


def test_an_object_that_cannot_be_read_does_not_stop_an_audit() -> None:
    pod = running("p", asks("1Gi"))
    wrong = running("q", {"requests": {"memory": "much"}})
    result = audit_objects([pod, {"kind": "Node"}, {"kind": 1}, pod, wrong], settings())
    assert result.audit.pods == 1
    assert [str(fault).split(": ")[0] for fault in result.faults] == [
        "objects[1].metadata.name",
        "objects[2].kind",
        "objects[3]",
        "spec.containers[0].resources.requests[memory]",
    ]


def test_the_example_of_the_charter_is_true() -> None:
    import doctest

    assert doctest.testmod(sys.modules["memqos.audit"]) == (0, 6)
