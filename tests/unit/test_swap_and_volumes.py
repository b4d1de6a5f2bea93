"""Swap and memory-backed volumes: what the kubelet gives a container, release by release."""

from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.builders import GI, MI, Json, box, pod
from tests.commands import memqos

from memqos.kube.qos import qos_class
from memqos.kube.shape import shape_of
from memqos.plan.changes import MANAGED, as_stored
from memqos.plan.pod import PodPlan, plan_pod
from memqos.plan.setting import NEEDS_NODE, Setting
from memqos.plan.volumes import memory_volumes
from memqos.release import Release
from memqos.settings.settings import Settings


def named(name: str, request: str, limit: str) -> Json:
    return {"name": name, "image": "i", **box(request, limit)}


def plan(
    release: str,
    *containers: Json,
    behavior: str = "LimitedSwap",
    gates: dict[str, bool] | None = None,
    **spec: Any,
) -> PodPlan:
    of = Release.of(release, gates)
    settings = Settings(
        of,
        None,
        memory_capacity=8 * GI,
        swap_capacity=2 * GI,
        swap_behavior=behavior,
    )
    shape = shape_of(pod(containers, **spec), of)
    return plan_pod(shape, settings, qos_class(shape, of))


def swap(release: str, *containers: Json, **more: Any) -> Setting:
    return plan(release, *containers, **more).containers[0].settings["memory.swap.max"]


class TestSwap:
    def test_a_container_gets_the_share_of_swap_that_it_requests_of_memory(self) -> None:
        found = swap("1.38", box("1Gi", "2Gi"))
        assert found.value == GI // 4
        assert found.because.rule == "swap/share"

    @pytest.mark.parametrize(
        ("container", "rule"),
        [
            (box("1Gi", "1Gi"), "swap/request-is-limit"),
            (box("1Gi", "1Gi", cpu=("1", "1")), "swap/class"),
            (box(cpu=("1", None)), "swap/no-memory"),
            (box(), "swap/class"),
            (box("9Gi"), "swap/above-capacity"),
        ],
    )
    def test_who_gets_none(self, container: Json, rule: str) -> None:
        found = swap("1.38", container)
        assert (found.value, found.because.rule) == (0, rule)

    def test_critical_pods_swap_no_more_since_1_31(self) -> None:
        critical = {"priority": 2_000_000_000}
        assert swap("1.30", box("1Gi", "2Gi"), **critical).value == GI // 4
        assert swap("1.31", box("1Gi", "2Gi"), **critical).because.rule == "swap/critical"

    @pytest.mark.parametrize(
        ("release", "behavior", "on", "value"),
        [
            ("1.27", "UnlimitedSwap", True, "max"),
            ("1.27", "LimitedSwap", True, 0),
            ("1.27", "", False, None),
            ("1.29", "", True, "max"),
            ("1.29", "UnlimitedSwap", False, 0),
            ("1.30", "", True, 0),
            ("1.30", "NoSwap", True, 0),
        ],
    )
    def test_what_a_behaviour_means_has_changed(
        self, release: str, behavior: str, on: bool, value: int | str | None
    ) -> None:
        gates = {"NodeSwap": on}
        assert swap(release, box("1Gi", "2Gi"), behavior=behavior, gates=gates).value == value

    def test_without_a_node_the_share_is_not_known(self) -> None:
        of = Release.of("1.38")
        shape = shape_of(pod([box("1Gi", "2Gi")]), of)
        settings = Settings(of, None, swap_behavior="LimitedSwap")
        made = plan_pod(shape, settings, "Burstable").containers[0]
        assert made.settings["memory.swap.max"].value == NEEDS_NODE

    def test_it_is_compared_in_pages_and_never_written(self) -> None:
        assert as_stored("memory.swap.max", 4097, 4096) == "4096"
        assert "memory.swap.max" not in MANAGED


class TestVolumes:
    def size(
        self,
        limit: str | None,
        size_limit: str | None,
        release: str = "1.38",
        node: int | None = GI,
    ) -> tuple[int | None, str]:
        made = pod(
            [box("1Mi", limit)],
            volumes=[
                {"name": "disk", "emptyDir": {}},
                {"name": "v", "emptyDir": {"medium": "Memory", "sizeLimit": size_limit}},
            ],
        )
        of = Release.of(release)
        shape = shape_of(made, of)
        planned = plan_pod(shape, Settings(of, None), qos_class(shape, of))
        (found,) = memory_volumes(made, planned.settings, node, of)
        return found.size, found.source

    def test_the_smallest_of_node_pod_and_size_limit_counts(self) -> None:
        assert self.size(None, None) == (GI, "allocatable")
        assert self.size("512Mi", None) == (512 * MI, "pod limit")
        assert self.size("512Mi", "64Mi") == (64 * MI, "sizeLimit")
        assert self.size("512Mi", "600Mi") == (512 * MI, "pod limit")
        assert self.size("512Mi", "0") == (512 * MI, "pod limit")

    def test_a_node_that_is_not_known_matters_only_without_limits(self) -> None:
        assert self.size(None, None, node=None) == (None, "needs node")
        assert self.size("512Mi", "64Mi", node=None) == (64 * MI, "sizeLimit")

    def test_with_nothing_allocatable_yet_the_kernel_decides(self) -> None:
        assert self.size("512Mi", "64Mi", node=0) == (None, "half of RAM")

    @pytest.mark.parametrize(
        ("size_limit", "risk"),
        [("64Mi", ": if small fills it, it is OOM-killed, after each restart too"), ("63Mi", "")],
    )
    def test_explain_names_whom_a_full_volume_kills_again(
        self, size_limit: str, risk: str, tmp_path: Path
    ) -> None:
        boxes = [named("small", "1Mi", "64Mi"), named("large", "1Mi", "1Gi")]
        volume = {"name": "shm", "emptyDir": {"medium": "Memory", "sizeLimit": size_limit}}
        manifest = tmp_path / "pod.json"
        spec = {"containers": boxes, "volumes": [volume]}
        manifest.write_bytes(msgspec.json.encode({**_POD, "spec": spec}))
        out = memqos("explain", str(manifest), "--capacity", "8Gi").out
        text = f"volume shm is memory-backed, up to {size_limit} (sizeLimit)"
        assert f"  {text}, and outlives its containers{risk}\n" in out

    def test_explain_goes_by_what_the_node_publishes(self, tmp_path: Path) -> None:
        volume = {"name": "shm", "emptyDir": {"medium": "Memory"}}
        manifest, node = tmp_path / "pod.json", tmp_path / "node.json"
        spec = {"containers": [{"name": "app", "image": "i"}], "volumes": [volume]}
        manifest.write_bytes(msgspec.json.encode({**_POD, "spec": spec}))
        status = {"capacity": {"memory": "8Gi"}, "allocatable": {"memory": "7Gi"}}
        node.write_bytes(
            msgspec.json.encode({"apiVersion": "v1", "kind": "Node", "status": status})
        )
        for options, size in (
            (["--node", str(node)], "7Gi"),
            (["--capacity", "8Gi", "--allocatable", "6Gi"], "6044Mi"),
            (["--capacity", "8Gi"], "8092Mi"),
        ):
            out = memqos("explain", str(manifest), *options).out
            assert f"volume shm is memory-backed, up to {size} (allocatable)" in out


_POD: Json = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}}


def test_reasons_name_what_dra_claims_add(tmp_path: Path) -> None:
    containers = [named("app", "1Gi", "2Gi")]
    mapping = [{"name": "memory", "quantity": "512Mi"}]
    claim = {"resourceClaimName": "a", "containers": ["app"], "mapping": mapping}
    status = {"phase": "Running", "nodeAllocatableResourceClaimStatuses": [claim]}
    manifest = tmp_path / "pod.json"
    data = {**_POD, "spec": {"containers": containers}, "status": status}
    manifest.write_bytes(msgspec.json.encode(data))
    arguments = ("explain", str(manifest), "--release", "1.38", "--capacity", "8Gi", "--why")
    gate = "DRANodeAllocatableResources"
    out = memqos(*arguments, "--gate", f"{gate}=true").out
    added = "512Mi of DRA claims on top (KEP-5517)"
    assert (
        f"requests.memory = 1536Mi: 1Gi, containers and sidecars together; {added}\n"
        f"  limits.memory = 2560Mi: 2Gi, containers and sidecars together; {added}\n"
    ) in out
    share = "      of that 512Mi from its DRA claims (KEP-5517)\n"
    assert f"      limit = 2560Mi\n{share}" in out
    assert f"      request = 1536Mi, capacity = 8Gi\n{share}" in out
    assert "DRA" not in memqos(*arguments).out
