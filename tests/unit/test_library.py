"""The library as a Python program uses it: four functions, typed results, errors at the door."""

import os
import subprocess
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from tests.commands import ROOT

import memqos
from memqos.errors import InputError, MemqosError

ONE = ROOT / "examples" / "one.yaml"
POD = {
    "kind": "Pod",
    "metadata": {"name": "web", "uid": "0b7e3a52-1111-4222-8333-944444444444"},
    "spec": {
        "containers": [
            {
                "name": "app",
                "image": "i",
                "resources": {"requests": {"memory": "1Gi"}, "limits": {"memory": "2Gi"}},
            }
        ]
    },
}


def one() -> memqos.LoadedPod:
    (pod,) = memqos.load(ONE)
    return pod


def test_pods_are_loaded_with_their_positions() -> None:
    pod = one()
    assert (pod.kind, pod.name, pod.namespace, pod.line) == ("Pod", "web", None, 2)
    assert str(pod) == f"pod/web ({ONE}:2)"


def test_workloads_are_loaded_as_pods() -> None:
    kinds = {pod.kind for pod in memqos.load(str(ROOT / "examples" / "shop.yaml"))}
    assert {"Deployment", "StatefulSet"} <= kinds


def test_a_text_is_loaded_as_a_manifest() -> None:
    (pod,) = memqos.load(ONE.read_text())
    assert (pod.name, pod.file) == ("web", "<text>")


def test_values_are_in_bytes_and_have_their_reason() -> None:
    explained = memqos.explain(one(), release="1.37", capacity="16Gi", factor=0.9)
    setting = explained.setting("memory.high", "app")
    assert setting.value == 993_210_368
    assert setting.because.rule == "high/above-request"
    assert explained.qos_class == "Burstable"
    assert explained.setting("memory.max").value == 1 << 30


def test_an_explanation_prints_as_the_command_does() -> None:
    explained = memqos.explain(one(), capacity="16Gi")
    command = [sys.executable, "-m", "memqos", "explain", str(ONE), "--capacity", "16Gi"]
    plain = {name: value for name, value in os.environ.items() if name != "COLUMNS"}
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=plain)
    assert f"{explained}\n" == done.stdout


def test_both_states_are_there_where_nothing_says_whether_it_is_on() -> None:
    explained = memqos.explain(one(), release="1.36", capacity="16Gi", factor=0.9)
    assert explained.enablement.state == "as if on"
    assert explained.gate_off is not None
    assert explained.gate_off.setting("memory.high", "app").value is None
    stated = memqos.explain(one(), release="1.36", gates={"MemoryQoS": False}, capacity="16Gi")
    assert (stated.enablement.state, stated.gate_off) == ("off", None)


def test_an_invalid_pod_has_errors_and_no_values() -> None:
    container = {"name": "app", "image": "i", "resources": {"requests": {"memory": "-1"}}}
    explained = memqos.explain({"spec": {"containers": [container]}})
    assert explained.qos_class is None
    assert explained.errors[0].field == "spec.containers[0].resources.requests[memory]"


def test_a_node_is_planned() -> None:
    planned = memqos.plan(
        [POD], capacity="16Gi", release="1.38", policy="TieredReservation", factor=0.9
    )
    assert planned.enablement.is_on
    values = {
        cgroup.container: cgroup.settings["memory.low"].value
        for cgroup in planned.cgroups.values()
        if cgroup.level == "pod"
    }
    assert values == {None: 1 << 30}
    assert "memory.low 1Gi" in str(planned)


def test_a_cluster_is_audited() -> None:
    report = memqos.audit([*memqos.load(ROOT / "examples" / "shop.yaml")], rules=["pod"])
    assert {finding.rule for finding in report.findings} == {"pod/no-request", "pod/no-limit"}
    assert "shop/report: containers request no memory" in str(report)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda: memqos.explain(POD, policy="Tiered"),  # type: ignore[arg-type]
            "policy: 'Tiered' is not a policy – one of None, TieredReservation, HardReservation",
        ),
        (
            lambda: memqos.explain({"kind": "Deployment"}),
            "pod: this is a Deployment, not a Pod – memqos.load() returns the pods of workloads",
        ),
        (
            lambda: memqos.explain(POD, release=1.36),  # type: ignore[arg-type]
            'release: 1.36 is a number – quote it: release="1.36"',
        ),
        (
            lambda: memqos.Settings("1.36", 0.9),  # type: ignore[arg-type]
            "release: '1.36' is not a Release – write Release.of(\"1.36\"), or call "
            'memqos.explain(pod, release="1.36")',
        ),
        (
            lambda: memqos.explain(POD, capacity="16GB"),
            "capacity: '16GB' is not a quantity – write 16G or 16Gi",
        ),
        (lambda: memqos.explain(POD, factor=2), "factor: 2 is not a factor above 0 and up to 1"),
        (
            lambda: memqos.explain(POD, gates={"MemoryQoS": "on"}),  # type: ignore[dict-item]
            "gates: MemoryQoS is 'on' – write True or False",
        ),
        (
            lambda: memqos.plan([POD]),
            'capacity: the node\'s memory is unknown – give capacity="16Gi" or node',
        ),
        (
            lambda: memqos.plan(POD, capacity="1Gi"),  # type: ignore[arg-type]
            "pods: a dict is not a list of pods",
        ),
        (
            lambda: memqos.audit(5),  # type: ignore[arg-type]
            "objects: an int is not a list of objects",
        ),
        (
            lambda: memqos.explain(POD, gates={1: True}),  # type: ignore[dict-item]
            "gates: an int is not the name of a gate",
        ),
        (
            lambda: memqos.explain(POD, capacity="-1"),
            "capacity: '-1' is not the size of a memory – give bytes above 0 and below 2⁶³",
        ),
        (
            lambda: memqos.explain(POD, allocatable=1 << 63),
            "allocatable: '9223372036854775808' is not the size of a memory",
        ),
        (
            lambda: memqos.explain(POD, kubelet={"memoryThrottlingFactor": object()}),
            "kubelet: it cannot be JSON: Encoding objects of type object",
        ),
        (
            lambda: memqos.explain({"kind": "Pod", "spec": object()}),
            "pod: Encoding objects of type object",
        ),
        (
            lambda: memqos.audit([POD, 5]),  # type: ignore[list-item]
            "objects[1]: an int is not an object of Kubernetes",
        ),
        (
            lambda: memqos.audit({"kind": "List", "items": []}),  # type: ignore[dict-item]
            'objects: this is a List of Kubernetes – give its "items"',
        ),
        (
            lambda: memqos.audit([], rules="pod"),
            "rules: 'pod' is not a list of rule ids and groups",
        ),
        (
            lambda: memqos.audit([], rules=None),  # type: ignore[arg-type]
            "rules: None is not a list of rule ids and groups",
        ),
        (
            lambda: memqos.audit([], rules=[1]),  # type: ignore[list-item]
            "rules: an int is not the id of a rule",
        ),
        (
            lambda: memqos.audit([], own_rules=lambda _: []),  # type: ignore[arg-type]
            "own_rules: a function is not a list of functions",
        ),
        (
            lambda: memqos.audit([], own_rules=[5]),  # type: ignore[list-item]
            "own_rules: an int is not a function that takes an Audit",
        ),
        (
            lambda: memqos.audit([], own_rules=[lambda _: None]),  # type: ignore[list-item,return-value]
            "own_rules: None is not a list of Findings, as a rule gives them",
        ),
        (
            lambda: memqos.audit([], own_rules=[lambda _: ["x"]]),  # type: ignore[list-item]
            "own_rules: 'x' is not a Finding, as a rule gives them",
        ),
        (lambda: memqos.load("no-such.yaml"), "no-such.yaml: no such file or directory"),
        (lambda: memqos.explain(POD, node="kind: Pod\n"), "<text>: there is no Node in it"),
        (
            lambda: memqos.explain(POD).setting("memory.high", "db"),
            "there is no container 'db' – there is app",
        ),
    ],
)
def test_a_wrong_argument_is_refused_with_its_name(call: Callable[[], Any], message: str) -> None:
    with pytest.raises(InputError) as raised:
        call()
    assert str(raised.value).startswith(message)


def test_the_parts_of_results_print_well() -> None:
    explained = memqos.explain(POD, release="1.37", capacity="16Gi", factor=0.9)
    high = explained.setting("memory.high", "app")
    rule = "high/above-request: throttled above request + factor × (limit − request)"
    assert str(high) == f"{high.value} ({rule})"
    assert str(high.because).startswith(f"{rule} (KEP-2570, Alpha v1.27)\n  request = 1Gi")
    assert str(explained.setting("memory.high")).startswith("not written (")
    planned = memqos.plan([POD], capacity="16Gi", release="1.37")
    assert str(planned.cgroups["/kubepods/besteffort"]) == "/kubepods/besteffort\n  cpu.weight 1"
    finding = memqos.audit([{"kind": "Pod", "metadata": {"name": "a"}}]).findings[0]
    assert str(finding).startswith(f"{finding.severity}  {finding.rule}  ")


def test_doubts_about_the_node_are_printed() -> None:
    sizes: dict[str, Any] = {"capacity": "1Gi", "allocatable": "2Gi"}
    for result in (memqos.explain(POD, **sizes), memqos.plan([POD], **sizes)):
        assert "note: allocatable of 2Gi is more than the capacity of 1Gi" in str(result)


def test_what_a_yaml_library_decodes_is_taken() -> None:
    made = datetime(2026, 3, 2, tzinfo=UTC)
    pod = {**POD, "metadata": {"name": "web", "creationTimestamp": made}}
    assert memqos.explain(pod).qos_class == "Burstable"
    assert not memqos.audit([pod]).faults


def test_a_kubelet_configuration_may_be_one_line_of_json() -> None:
    text = '{"kind": "KubeletConfiguration", "featureGates": {"MemoryQoS": true}}'
    assert memqos.explain(POD, kubelet=text).enablement.state == "on"


def test_an_object_that_cannot_be_json_is_a_fault_of_its_own() -> None:
    report = memqos.audit([{"kind": "Pod", "spec": object()}, POD])
    assert str(report.faults[0]).startswith("objects[0]: it cannot be JSON")
    assert report.audit.pods == 1


def test_an_unknown_gate_is_answered_with_the_right_one() -> None:
    with pytest.raises(MemqosError, match="did you mean MemoryQoS"):
        memqos.explain(POD, gates={"MemoryQos": True})


def test_packages_stay_importable_beside_the_functions() -> None:
    program = "import memqos.plan.tree, memqos.audit; import memqos; print(callable(memqos.plan))"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )
    assert done.stdout == "True\n", done.stderr


def test_the_version_is_that_of_the_package() -> None:
    assert memqos.__version__ == "0.1.0"


def test_the_snippet_of_the_readme_is_typed(tmp_path: Path) -> None:
    text = (ROOT / "README.md").read_text()
    snippet = text.partition("```python\n")[2].partition("```")[0]
    assert "memqos.explain(" in snippet
    (tmp_path / "snippet.py").write_text(snippet)
    checked = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", "snippet.py"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        env={"MYPYPATH": str(ROOT / "src"), "MYPY_CACHE_DIR": str(ROOT / ".mypy_cache")},
    )
    assert checked.returncode == 0, checked.stdout
    ran = subprocess.run([sys.executable, str(tmp_path / "snippet.py")], cwd=ROOT, check=False)
    assert ran.returncode == 0


PAGE = (ROOT / "docs" / "library.md").read_text()
SNIPPETS = [part.partition("```")[0] for part in PAGE.split("```python\n")[1:]]


@pytest.mark.parametrize("snippet", SNIPPETS)
def test_a_snippet_of_the_page_prints_what_its_comments_say(snippet: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", snippet], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    printed = [line.partition("  # ")[2] for line in snippet.splitlines() if "print(" in line]
    for comment in printed:
        if comment and not comment.startswith("the table"):
            assert comment in done.stdout
