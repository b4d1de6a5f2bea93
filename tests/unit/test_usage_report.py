"""What pods and nodes use, as kubelets, metrics and kernels report it."""

import json
from typing import Any

import pytest

from memqos.cluster.eviction_order import PodMemoryUsage
from memqos.cluster.eviction_signals import (
    SignalObservation,
    node_observation,
    pods_observation,
    working_set,
)
from memqos.cluster.usage_report import read_usage_report
from memqos.errors import InputError
from memqos.manifests.documents import Document, read_documents
from memqos.release import Release

MI = 1 << 20
MEMINFO = """MemTotal:        1000000 kB
MemFree:          300000 kB
Buffers:           10000 kB
Cached:           400000 kB
SwapCached:         5000 kB
AnonPages:        150000 kB
Inactive(file):   100000 kB
HugePages_Total:       0
"""


def document(data: Any) -> Document:
    found = next(iter(read_documents(json.dumps(data).encode(), "usage.json")))
    assert isinstance(found, Document)
    return found


def metrics(name: str, *memory: str) -> dict[str, Any]:
    containers = [{"name": f"c{i}", "usage": {"memory": each}} for i, each in enumerate(memory)]
    return {"metadata": {"name": name, "namespace": "shop"}, "containers": containers}


def test_pod_metrics_are_summed_over_containers() -> None:
    items = [metrics("web", "100Mi", "28Mi"), metrics("db", "1Gi")]
    found = read_usage_report(document({"kind": "PodMetricsList", "items": items}))
    assert found.summed
    assert found.pods["shop/web"] == PodMemoryUsage(128 * MI, {"c0": 100 * MI, "c1": 28 * MI})
    assert found.pods["shop/db"].working_set == 1024 * MI


def test_kubectl_prints_pod_metrics_as_a_list_of_no_kind_of_its_own() -> None:
    """`kubectl get podmetrics -A -o json`."""
    items = [{"kind": "PodMetrics", **metrics("web", "100Mi")}]
    found = read_usage_report(document({"kind": "List", "items": items}))
    assert found.summed
    assert found.pods == {"shop/web": PodMemoryUsage(100 * MI, {"c0": 100 * MI})}


def test_the_kubelets_summary_has_the_pods_own_number_and_the_nodes() -> None:
    summary = {
        "node": {
            "memory": {"availableBytes": 100, "workingSetBytes": 900},
            "systemContainers": [
                {"name": "kubelet", "memory": {"workingSetBytes": 5}},
                {"name": "pods", "memory": {"availableBytes": 50, "workingSetBytes": 450}},
            ],
        },
        "pods": [
            {
                "podRef": {"name": "web", "namespace": "shop", "uid": "u"},
                "memory": {"workingSetBytes": 70},
                "containers": [{"name": "c", "memory": {"workingSetBytes": 60}}],
            },
            {"podRef": {"name": "new", "namespace": "shop"}},
        ],
    }
    found = read_usage_report(document(summary))
    assert not found.summed
    assert found.pods == {
        "shop/web": PodMemoryUsage(70, {"c": 60}),
        "shop/new": PodMemoryUsage(None, {}),
    }
    assert found.observations == {
        "memory.available": SignalObservation(100, 1000),
        "allocatableMemory.available": SignalObservation(50, 500),
    }


def test_a_mapping_is_the_shortest_form() -> None:
    data = {"shop/web": "512Mi", "job": 1048576, "shop/db": {"a": "1Gi", "b": "1Gi"}, "x/y": None}
    found = read_usage_report(document(data))
    assert {name: usage.working_set for name, usage in found.pods.items()} == {
        "shop/web": 512 * MI,
        "default/job": MI,
        "shop/db": 2048 * MI,
    }


@pytest.mark.parametrize(
    ("data", "says"),
    [
        ({"kind": "PodList", "items": []}, "kind: a PodList has no usage of pods"),
        (
            {"kind": "List", "items": [{"kind": "Pod"}]},
            r"items\[0\].kind: a Pod has no usage of pods",
        ),
        (
            {"kind": "List", "items": [{}]},
            r"items\[0\].kind: a nameless kind has no usage of pods",
        ),
        ({"shop/web": "lots"}, r"\[shop/web\]: 'lots' is not a quantity"),
        ({"shop/web": ["1Gi"]}, "expected a string, got a list – write a quantity"),
        ({"shop/web": {"c": True}}, "expected a string, got a boolean"),
        ({"kind": "PodMetrics", "metadata": {"name": 3}}, "metadata.name: expected a string"),
        ({"node": {}, "pods": [{"memory": {}}]}, r"pods\[0\].podRef: required, but missing"),
    ],
)
def test_what_cannot_be_read_is_refused_with_its_place(data: Any, says: str) -> None:
    with pytest.raises(InputError, match=says) as refused:
        read_usage_report(document(data))
    assert refused.value.line == 1


def test_what_a_node_uses_is_counted_differently_since_1_29() -> None:
    older = node_observation(MEMINFO, 0, Release.of("1.28"))
    newer = node_observation(MEMINFO, 0, Release.of("1.29"))
    # All but free memory, then anonymous and file pages alone; inactive file pages never count.
    assert older == SignalObservation((1000000 - (700000 - 100000)) << 10, 1000000 << 10)
    assert newer == SignalObservation((1000000 - (565000 - 100000)) << 10, 1000000 << 10)


def test_a_meminfo_without_a_line_is_refused() -> None:
    with pytest.raises(InputError, match="no AnonPages"):
        node_observation(MEMINFO.replace("AnonPages", "Other"), 0, Release.of())


def test_a_working_set_leaves_out_inactive_file_pages() -> None:
    assert working_set({"memory.current": "100", "memory.stat": "anon 5\ninactive_file 30"}) == 70
    assert working_set({"memory.current": "20", "memory.stat": "inactive_file 30"}) == 0
    assert working_set({"memory.current": "100"}) == 100
    assert working_set({"memory.max": "100"}) is None


def test_what_all_pods_may_still_use_needs_a_limit() -> None:
    assert pods_observation({"memory.current": "40", "memory.max": "100"}) == SignalObservation(
        60, 100
    )
    assert pods_observation({"memory.current": "40", "memory.max": "max"}) is None
    assert pods_observation({"memory.current": "40", "memory.max": str((1 << 62) + 1)}) is None
    assert pods_observation({"memory.max": "100"}) is None
