"""What a kubelet answers to a resize, what helps, and what a lower limit does."""

from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.builders import MI, Json, box, pod
from tests.commands import memqos

from memqos.cluster.limit_effect import heap_runtime, limit_effect
from memqos.cluster.node_admission import AdmittingNode
from memqos.cluster.resize_verdict import (
    ResizeVerdict,
    ResizingNode,
    resize_admission,
    resize_help,
    resize_verdict,
)
from memqos.kube.pod import Pod, ResourceList
from memqos.kube.shape import amounts_of
from memqos.kube.swap import SwapNode
from memqos.release import Release


def a_node(memory: str = "4Gi", **more: Any) -> ResizingNode:
    amounts: ResourceList = {"cpu": "4", "memory": memory, "pods": "10"}
    admission = AdmittingNode(name="n1", allocatable=amounts_of(amounts, "allocatable"))
    return ResizingNode(admission=admission, **more)


def verdict(
    before: Json, after: Json, node: ResizingNode, release: str = "1.38", *others: Pod, **spec: Any
) -> ResizeVerdict:
    of = Release.of(release)
    return resize_verdict(
        pod([before], uid="u", **spec), pod([after], uid="u", **spec), others, node, of
    )


GUARANTEED: Json = {"cpu": ("1", "1")}


class TestVerdict:
    def test_what_fits_is_accepted_and_what_is_equal_is_unchanged(self) -> None:
        assert verdict(box("1Gi"), box("2Gi"), a_node()).verdict == "Accepted"
        assert verdict(box("1Gi"), box("1024Mi"), a_node()).verdict == "Unchanged"

    def test_a_pod_does_not_stand_in_its_own_way(self) -> None:
        assert verdict(box("3Gi"), box("4Gi"), a_node()).verdict == "Accepted"

    def test_without_room_it_waits(self) -> None:
        other = pod([box("2Gi")], uid="o")
        found = verdict(box("1Gi"), box("3Gi"), a_node(), "1.38", other)
        assert (found.verdict, found.reason) == ("Deferred", "OutOfmemory")
        assert found.still_pending
        assert "free resources" in (resize_help(found) or "")

    @pytest.mark.parametrize(
        ("release", "answer"),
        [("1.33", "Infeasible"), ("1.35", "Infeasible"), ("1.36", "Deferred")],
    )
    def test_larger_than_the_node_was_refused_for_good_until_1_35(
        self, release: str, answer: str
    ) -> None:
        assert verdict(box("1Gi"), box("5Gi"), a_node(), release).verdict == answer

    def test_the_api_server_refuses_it_since_1_36(self) -> None:
        old, new, node = pod([box("1Gi")]), pod([box("5Gi")]), a_node().admission
        assert resize_admission(old, new, node, Release.of("1.35")) is None
        found = resize_admission(old, new, node, Release.of("1.36"))
        assert found is not None
        assert found.cause == "NodeCapacity"

    def test_swap_stands_in_the_way_of_another_request_but_not_of_a_limit(self) -> None:
        swapping = a_node(
            swap=SwapNode(behavior="LimitedSwap", memory_capacity=4 << 30, swap_capacity=0)
        )
        found = verdict(box("1Gi", "2Gi"), box("1.5Gi", "2Gi"), swapping)
        assert (found.verdict, found.obstacle) == ("Infeasible", "swap")
        assert "RestartContainer" in (resize_help(found) or "")
        assert verdict(box("1Gi", "2Gi"), box("1Gi", "3Gi"), swapping).verdict == "Accepted"

    def test_static_managers_refuse_what_they_assigned(self) -> None:
        static = a_node(cpu_manager_policy="static", memory_manager_policy="Static")
        before = box("1Gi", "1Gi", **GUARANTEED)
        assert verdict(before, box("1Gi", "1Gi", cpu=("2", "2")), static).obstacle == "cpu manager"
        assert verdict(before, box("2Gi", "2Gi", **GUARANTEED), static).obstacle == "memory manager"
        cpu_only = a_node(cpu_manager_policy="static")
        larger = box("2Gi", "2Gi", **GUARANTEED)
        assert verdict(before, larger, cpu_only).verdict == "Accepted"
        assert verdict(before, larger, cpu_only, "1.33").obstacle == "cpu manager"


class TestLimits:
    @pytest.mark.parametrize(
        ("new", "usage", "release", "restarts", "effect"),
        [
            (200, 50, "1.38", False, None),
            (60, 50, "1.32", False, "fits"),
            (60, 60, "1.32", False, "deadly"),
            (60, 80, "1.34", False, "held back"),
            (60, 80, "1.38", True, "restart"),
        ],
    )
    def test_what_a_lower_limit_does(
        self, new: int, usage: int, release: str, restarts: bool, effect: str | None
    ) -> None:
        of = Release.of(release)
        found = limit_effect(100 * MI, new * MI, usage * MI, of, restarts=restarts)
        assert found == effect

    @pytest.mark.parametrize(
        ("image", "runtime"),
        [
            ("eclipse-temurin:21", "JVM"),
            ("docker.io/library/node:20", "Node.js"),
            ("golang:1.22", "Go"),
            ("registry/node-exporter:1", None),
            ("nginx", None),
            (None, None),
        ],
    )
    def test_runtimes_are_recognised_by_their_images(
        self, image: str | None, runtime: str | None
    ) -> None:
        assert heap_runtime(image) == runtime


NODE: Json = {
    "apiVersion": "v1",
    "kind": "Node",
    "metadata": {"name": "n1"},
    "status": {
        "capacity": {"cpu": "4", "memory": "4Gi", "pods": "10"},
        "allocatable": {"cpu": "4", "memory": "4Gi", "pods": "10"},
        "nodeInfo": {"kubeletVersion": "v1.37.0"},
    },
}


class TestCommand:
    def file(self, folder: Path, name: str, data: Json) -> str:
        path = folder / name
        path.write_text(yaml.safe_dump(data))
        return str(path)

    def a_pod(self, name: str, request: str, limit: str, image: str = "a") -> Json:
        container = {"name": "app", "image": image, **box(request, limit)}
        return {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": name},
            "spec": {"containers": [container]},
        }

    def test_a_full_node_makes_the_resize_wait_and_says_what_helps(self, tmp_path: Path) -> None:
        old = self.file(tmp_path, "old.yaml", self.a_pod("web", "1Gi", "2Gi"))
        new = self.file(tmp_path, "new.yaml", self.a_pod("web", "2Gi", "3Gi"))
        node = self.file(tmp_path, "node.yaml", NODE)
        others = self.file(tmp_path, "others.yaml", self.a_pod("db", "3Gi", "3.5Gi"))
        done = memqos("resize", old, new, "--node", node, "--others", others)
        assert done.code == 2
        assert (
            "the kubelet's decision: Deferred, Node didn't have enough resource: memory" in done.out
        )
        assert "fix: it is retried" in done.out
        alone = memqos("resize", old, new, "--node", node)
        assert alone.code == 0
        assert "the kubelet's decision: Accepted" in alone.out

    def test_usage_and_the_image_are_taken_into_account(self, tmp_path: Path) -> None:
        image = "eclipse-temurin:21"
        old = self.file(tmp_path, "old.yaml", self.a_pod("web", "1Gi", "2Gi", image))
        new = self.file(tmp_path, "new.yaml", self.a_pod("web", "1Gi", "1.5Gi", image))
        done = memqos("resize", old, new, "--release", "1.37", "--usage", "app=1.75Gi")
        assert "the kubelet delays the limit until usage is below it" in done.out
        assert "app runs JVM, by its image, which reads its limit only at start" in done.out

    def test_others_are_about_a_node(self, tmp_path: Path) -> None:
        old = self.file(tmp_path, "old.yaml", self.a_pod("web", "1Gi", "2Gi"))
        done = memqos("resize", old, old, "--others", old)
        assert done.code == 64
        assert "give --node" in done.err
