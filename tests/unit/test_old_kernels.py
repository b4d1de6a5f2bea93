"""Kernels before 5.9 can stop a container at memory.high for good (KEP-2570)."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace
from tests.commands import ROOT, memqos
from tests.fakes.agent import MI, SteppedNode, a_pod, container_paths, view_of
from tests.fakes.machine import put
from tests.fakes.node import memory_folder

from memqos.agent.metrics import metric_families
from memqos.findings.facts import NodeFacts, SecondReading
from memqos.findings.node import judge_node
from memqos.kernel.machine import Machine, old_kernel_risk
from memqos.serve.exposition import exposition

LOW, HIGH = "memory.low", "memory.high"
WARNING = (
    "warning: kernel 5.4.0-150-generic is older than 5.9, and can hang a container at "
    "memory.high permanently: memory.high is neither set nor reset – run 5.9 or newer, or give "
    "--allow-old-kernel"
)


@pytest.mark.parametrize(
    ("kernel", "is_risky"),
    [
        ("4.18.0-513.el8", True),
        ("5.4.0-150-generic", True),
        ("5.8.18", True),
        ("5.9.0", False),
        ("5.10.0-28-amd64", False),
        ("6.1.0", False),
        (None, False),
    ],
)
def test_the_fix_came_with_5_9(kernel: str | None, is_risky: bool) -> None:
    assert (old_kernel_risk(kernel) is not None) == is_risky


@pytest.fixture
def node(tmp_path: Path) -> str:
    """A recorded node with a memory.high that nobody planned, on an old kernel."""
    data = json.loads((ROOT / "tests/nodes/systemd.json").read_text())
    data["kernel"] = "5.4.0-150-generic"
    path = next(path for path, files in data["cgroups"].items() if files.get(HIGH, "max") != "max")
    data["cgroups"][path][HIGH] = str(512 * MI)
    file = tmp_path / "old.json"
    file.write_text(json.dumps(data))
    return str(file)


class TestPlan:
    def test_warns_and_shows_what_is_withheld(self, node: str) -> None:
        done = memqos("plan", "--snapshot", node)
        assert (done.code, done.err.splitlines()[0]) == (0, WARNING)
        lines = done.out.splitlines()
        start = lines.index(
            "withheld on this kernel, neither set nor reset (--allow-old-kernel writes):"
        )
        assert lines[start + 1].endswith("withheld")
        assert "memory.high  512Mi  →" in lines[start + 1]
        assert lines[-1] == "converged: nothing to change, 1 withheld"

    def test_has_it_apart_in_json(self, node: str) -> None:
        data = memqos("plan", "--snapshot", node, "-o", "json").data
        assert (data["changes"], data["converged"]) == ([], True)
        (withheld,) = data["withheld"]
        assert (withheld["file"], withheld["old"]) == (HIGH, str(512 * MI))

    def test_plans_it_where_that_is_allowed(self, node: str) -> None:
        done = memqos("plan", "--snapshot", node, "--allow-old-kernel", "-o", "json")
        assert (done.code, done.err) == (2, "")
        assert [change["file"] for change in done.data["changes"]] == [HIGH]
        assert done.data["withheld"] == []

    def test_a_newer_kernel_needs_no_leave(self) -> None:
        done = memqos("plan", "--snapshot", "tests/nodes/systemd.json", "-o", "json")
        assert (done.err, done.data["withheld"]) == ("", [])


class TestTheAgent:
    @pytest.fixture
    def folder(self) -> Iterator[Path]:
        with memory_folder() as made:
            yield made

    def on_old_kernel(self, folder: Path, **options: Any) -> SteppedNode:
        class Old(SteppedNode):
            def prepare(self) -> None:
                put(self.folder / "proc", {"sys": {"kernel": {"osrelease": "5.4.0\n"}}})

        return Old(folder, **options)

    def test_protects_and_leaves_memory_high_as_it_is(self, folder: Path) -> None:
        bed = self.on_old_kernel(folder)
        pod = bed.run_pod(a_pod("u1", 64, 128, containers=("a", "b")))
        first, second = container_paths(pod)
        bed.kernel.set(second, HIGH, str(100 * MI))  # as a kubelet with the gate on has set it
        bed.settle()
        assert [bed.mi(path, LOW) for path in (first, second)] == [64, 64]
        assert [bed.read(path, HIGH) for path in (first, second)] == ["max", str(100 * MI)]
        bed.wait(120)
        assert [bed.read(path, HIGH) for path in (first, second)] == ["max", str(100 * MI)]

    def test_warns_once_at_start(self, folder: Path) -> None:
        bed = self.on_old_kernel(folder)
        bed.settle()
        bed.wait(120)
        warnings = [event.what for event in bed.events if "older than 5.9" in event.what]
        assert warnings == [
            "kernel 5.4.0 is older than 5.9, and can hang a container at memory.high permanently: "
            "memory.high is neither set nor reset, unless allowOldKernel is on"
        ]

    @pytest.mark.parametrize(("allowed", "value"), [(False, 1), (True, 0)])
    def test_has_a_metric_of_it(self, folder: Path, allowed: bool, value: int) -> None:
        bed = self.on_old_kernel(folder, allow_old_kernel=allowed)
        text = exposition(metric_families(view_of(bed))).decode()
        assert f"memqos_memory_high_withheld {value}\n" in text

    def test_writes_it_where_that_is_configured(self, folder: Path) -> None:
        bed = self.on_old_kernel(folder, allow_old_kernel=True)
        pod = bed.run_pod(a_pod("u1", 64, 128))
        bed.settle()
        assert bed.mi(container_paths(pod)[0], HIGH) == 96


class TestDoctor:
    OLD = Machine(
        kernel="5.4.0",
        page_size=4096,
        meminfo="MemTotal: 4194304 kB\nSwapTotal: 1048576 kB\n",
        mount=("cgroup2 /sys/fs/cgroup cgroup2 rw,memory_recursiveprot 0 0",),
        layout="v2",
        pressure={"memory": ""},
        runtime="containerd 1.7.1",
    )

    def stalled(self, avg10: float, cpu: int, machine: Machine) -> NodeFacts:
        """A container at its memory.high, with swap, seen twice in two seconds."""

        def files(high: int, used: int) -> dict[str, str]:
            return {
                "memory.high": str(64 * MI),
                "memory.current": str(64 * MI),
                "memory.events": f"high {high}",
                "memory.pressure": f"some avg10={avg10} total=0\nfull avg10={avg10} total=0",
                "cpu.stat": f"usage_usec {used}",
            }

        path = "/kubepods/podx/c"
        later = SecondReading(2.0, {path: files(40, 1000 + cpu)})
        return NodeFacts(machine=machine, cgroups={path: files(10, 1000)}, later=later, pods=1)

    def rules(self, facts: NodeFacts) -> dict[str, tuple[str, ...]]:
        return {finding.rule: finding.evidence for finding in judge_node(facts)}

    def test_names_both_mitigations(self) -> None:
        (found,) = [
            each
            for each in judge_node(NodeFacts(machine=self.OLD, pods=1))
            if each.rule == "machine/kernel"
        ]
        assert found.fix == (
            "run kernel 5.9 or newer; until then set memoryThrottlingFactor: 1.0 in the kubelet's "
            "configuration, so that nothing is throttled below its limit, and "
            "memoryReservationPolicy: None, so that nothing is reserved, or turn the feature gate "
            "MemoryQoS off"
        )

    def test_a_cpu_near_zero_and_full_avg10_above_10_are_a_livelock(self) -> None:
        found = self.rules(self.stalled(12.5, 500, self.OLD))
        assert found["throttling/livelock"][2:4] == (
            "memory.pressure: full avg10 12.5, by KEP-2570 a sign of a livelock",
            "cpu.stat: 0.0% of a CPU, though it runs",
        )

    def test_a_container_that_computes_is_not_stuck(self) -> None:
        found = self.rules(self.stalled(12.5, 1_000_000, self.OLD))
        assert "throttling/livelock" not in found
        assert "throttling/now" in found

    def test_newer_kernels_are_not_judged_by_that(self) -> None:
        found = self.rules(self.stalled(12.5, 500, replace(self.OLD, kernel="6.1.0")))
        assert "throttling/livelock" not in found

    def test_full_avg10_above_5_is_significant_throttling_even_at_one_look(self) -> None:
        seen = replace(self.stalled(6.0, 0, replace(self.OLD, kernel="6.1.0")), later=None)
        assert (
            "memory.pressure: full avg10 6, by KEP-2570 a sign of significant throttling"
            in self.rules(seen)["throttling/now"]
        )
        calm = replace(self.stalled(4.0, 0, replace(self.OLD, kernel="6.1.0")), later=None)
        assert "throttling/now" not in self.rules(calm)


def test_explain_warns_of_memory_high_on_a_node_with_an_old_kernel(tmp_path: Path) -> None:
    node = (ROOT / "examples/node/node.yaml").read_text()
    assert "kernelVersion" not in node
    old = tmp_path / "node.yaml"
    old.write_text(node.replace("nodeInfo: {", "nodeInfo: {kernelVersion: 5.4.0-150, "))
    arguments = ("explain", "examples/one.yaml", "--node", str(old))
    on = memqos(*arguments, "--gate", "MemoryQoS=true")
    assert "note: kernel 5.4.0-150 is older than 5.9, and can hang a container" in on.out
    assert "kernel" not in memqos(*arguments, "--gate", "MemoryQoS=false").out
