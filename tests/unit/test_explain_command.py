"""`memqos explain` as a person or a script meets it."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[2]
GOOD = """
apiVersion: v1
kind: Pod
metadata: {name: good}
spec:
  containers:
    - {name: c, image: i, resources: {requests: {memory: 256Mi}, limits: {memory: 1Gi}}}
"""


def memqos(*arguments: str, stdin: str | bytes = "") -> "subprocess.CompletedProcess[str]":
    data = stdin.encode() if isinstance(stdin, str) else stdin
    done = subprocess.run(
        [sys.executable, "-m", "memqos.cli.main", *arguments],
        input=data,
        capture_output=True,
        cwd=ROOT,
        check=False,
    )
    return subprocess.CompletedProcess(
        done.args, done.returncode, done.stdout.decode(), done.stderr.decode()
    )


def test_a_pod_is_explained_in_a_table() -> None:
    done = memqos("explain", "-", stdin=GOOD)
    assert done.returncode == 0
    assert done.stderr == ""
    row = next(line for line in done.stdout.splitlines() if line.startswith("└ c"))
    assert row.split()[2:8] == ["on", "256Mi", "1Gi", "0", "0", "947.2Mi"]


def test_what_needs_the_node_says_so_until_the_node_is_given() -> None:
    without = memqos("explain", "-", stdin=GOOD)
    assert "--node?" in without.stdout
    given = memqos("explain", "-", "--capacity", "16Gi", stdin=GOOD)
    assert "--node?" not in given.stdout
    assert "985" in given.stdout


def test_why_derives_every_number() -> None:
    done = memqos("explain", "-", "--why", "--capacity", "16Gi", stdin=GOOD)
    for line in (
        "class Burstable: container c: memory request 256Mi ≠ limit 1Gi",
        "memory.high      993210368 = 993,210,368 (947.2Mi)",
        "request + factor × (limit − request) = 993,211,187",
        "rounded down to a page of 4096 bytes",
        "rule high/above-request (KEP-2570, Alpha v1.27)",
        "1000 − 1000 × 268,435,456 / 17,179,869,184, between 3 and 999",
    ):
        assert line in done.stdout


@pytest.mark.parametrize("form", ["json", "yaml"])
def test_scripts_get_the_exact_numbers(form: str) -> None:
    done = memqos("explain", "-", "-o", form, "--why", stdin=GOOD)
    data = json.loads(done.stdout) if form == "json" else yaml.safe_load(done.stdout)
    (pod,) = data["pods"]
    assert pod["qosClass"] == "Burstable"
    high = pod["containers"][0]["values"]["memory.high"]
    assert high["value"] == 993210368
    assert high["because"]["rule"] == "high/above-request"
    assert data["terms"]["release"] == "1.36"
    assert data["terms"]["factor"] == 0.9


def test_releases_are_compared_with_the_differences_marked() -> None:
    done = memqos("explain", "-", "--compare", "1.22,1.27,1.36,1.37", stdin=GOOD)
    lines = {tuple(line.split()) for line in done.stdout.splitlines()}
    assert ("≠", "c", "memory.high", "on", "819.2Mi", "947.2Mi", "947.2Mi", "–") in lines
    assert ("≠", "c", "memory.high", "off", "–", "–", "–", "max") in lines
    assert ("c", "memory.max", "1Gi", "1Gi", "1Gi", "1Gi") in lines


def test_a_comparison_is_also_data() -> None:
    done = memqos("explain", "-", "--compare", "1.22,1.36", "-o", "json", stdin=GOOD)
    (pod,) = json.loads(done.stdout)["pods"]
    high = next(value for value in pod["values"] if value["value"] == "c memory.high")
    assert high["differs"]
    assert high["by_release"] == {"1.22": 858993459, "1.36": 993210368}


def test_the_picture_is_of_this_very_pod() -> None:
    done = memqos("explain", "-", "-o", "svg", stdin=GOOD)
    assert done.stdout.startswith("<svg")
    assert "pod/good · Burstable" in done.stdout
    assert "947.2Mi" in done.stdout


def test_the_seeds_of_the_rules_are_among_the_examples() -> None:
    table = memqos("explain", "examples/kep-2570.yaml", "--page-size", "1Mi", "-o", "json")
    highs = [
        pod["containers"][0]["values"]["memory.high"] for pod in json.loads(table.stdout)["pods"]
    ]
    mebi = 1 << 20
    assert highs == [*(mebi * (900 + 10 * row) for row in range(10)), None]


def test_every_example_but_the_broken_ones_is_valid() -> None:
    files = sorted(str(file) for file in (ROOT / "examples").glob("*.yaml"))
    done = memqos("explain", *files, "--release", "1.38")
    broken_rows = "kep-2837"
    assert [line for line in done.stderr.splitlines() if broken_rows not in line] == []


def test_a_kubelet_configuration_and_a_node_set_the_terms() -> None:
    done = memqos(
        "explain",
        "examples/one.yaml",
        "--node",
        "examples/node/node.yaml",
        "--kubelet",
        "examples/node/kubelet.yaml",
        "-o",
        "json",
    )
    terms = json.loads(done.stdout)["terms"]
    assert terms["policy"] == "TieredReservation"
    assert terms["memory_capacity"] == 16 << 30
    assert terms["memory_allocatable"] == (16 << 30) - (1026 << 20)


def test_a_file_with_two_nodes_is_refused(tmp_path: Path) -> None:
    node = (ROOT / "examples/node/node.yaml").read_text()
    file = tmp_path / "nodes.yaml"
    file.write_text(f"{node}---\n{node}")
    done = memqos("explain", "examples/one.yaml", "--node", str(file))
    assert done.returncode == 1
    assert "kind: the file has another Node – give a file with one Node" in done.stderr


def test_a_policy_the_release_does_not_know_is_ignored_with_a_note() -> None:
    done = memqos("explain", "-", "--release", "1.27", "--policy", "TieredReservation", stdin=GOOD)
    assert "policy TieredReservation is ignored" in done.stdout


def test_a_gate_that_is_stated_is_shown_alone() -> None:
    off = memqos("explain", "-", "--gate", "MemoryQoS=false", "--release", "1.37", stdin=GOOD)
    assert "by default" not in off.stdout
    row = next(line for line in off.stdout.splitlines() if line.startswith("└ c"))
    assert row.split()[4:7] == ["–", "–", "max"]


def test_a_dropped_stanza_is_reported() -> None:
    done = memqos("explain", "examples/ide.yaml", "--release", "1.33")
    assert "PodLevelResources is alpha and off by default in 1.33" in done.stdout


def test_a_pod_out_of_a_cluster_is_taken_as_it_is_held() -> None:
    pod = yaml.safe_load(GOOD)
    pod["metadata"]["uid"] = "11111111-2222-3333-4444-555555555555"
    pod["status"] = {"phase": "Running", "qosClass": "Burstable"}
    pod["spec"]["ephemeralContainers"] = [{"name": "debug", "image": "i"}]
    done = memqos("explain", "-", stdin=json.dumps(pod))
    assert done.returncode == 0
    assert "debug (ephemeral)" in done.stdout


BAD: dict[str, tuple[str | bytes, str]] = {
    "duplicate keys": ("kind: Pod\nkind: Pod\n", ":2:1: "),
    "tabs": ("kind: Pod\nspec:\n\tcontainers: []\n", ":3:1: "),
    "a wrong type": (
        GOOD.replace("name: c,", "name: [c],"),
        ":7:8: spec.containers[0].name: expected a string, got a list",
    ),
    "an unknown kind": ("apiVersion: v1\nkind: Pot\nmetadata: {name: x}\n", ":2:7: kind"),
    "an empty file": ("", ": no document"),
    "a binary file": (b"\x00\x01\x02\xff", ":1:1: "),
    "two dots in a quantity": (GOOD.replace("256Mi", "1.5.2Gi"), ":7:58: spec.containers[0]"),
    "a negative quantity": (GOOD.replace("256Mi", '"-1"'), "must be greater than or equal to 0"),
    "an alias bomb": (
        "a: &a [x,x,x,x,x,x,x,x,x]\n"
        + "".join(
            f"{chr(98 + i)}: &{chr(98 + i)} [{','.join([f'*{chr(97 + i)}'] * 9)}]\n"
            for i in range(9)
        ),
        ":",
    ),
    "endless nesting": ("[" * 10_000_000, ":1:"),
    "a UID that leaves the tree": (
        GOOD.replace("name: good", "name: good, uid: ../../etc"),
        ":4:29: metadata.uid: pod UID '../../etc' cannot name a cgroup",
    ),
    "a scalar": ("just words\n", ":1:1: "),
}


@pytest.mark.parametrize("fault", BAD)
def test_bad_input_gets_one_clear_error_and_nothing_that_looks_like_an_answer(
    fault: str, tmp_path: Path
) -> None:
    text, says = BAD[fault]
    file = tmp_path / "bad.yaml"
    file.write_bytes(text if isinstance(text, bytes) else text.encode())
    done = memqos("explain", str(file))
    assert done.returncode == 1
    assert done.stdout == ""
    assert len(done.stderr.splitlines()) == 1, done.stderr
    assert done.stderr.startswith(str(file))
    assert says in done.stderr
    assert "Traceback" not in done.stderr


def test_one_bad_document_does_not_hide_the_others() -> None:
    bad = GOOD.replace("name: good", "name: bad").replace("256Mi", "2Gi")
    done = memqos("explain", "-", stdin=f"{GOOD}\n---\n{bad}\n---\nkind: [\n---\n{GOOD}")
    assert done.returncode == 1
    assert done.stdout.count("pod/good") == 2
    assert "pod/bad" not in done.stdout
    assert len(done.stderr.splitlines()) == 2


def test_field_errors_are_those_of_kubernetes_with_their_place() -> None:
    done = memqos("explain", "examples/broken/pods.yaml")
    assert done.stderr.splitlines()[0] == (
        "examples/broken/pods.yaml:9:19: spec.containers[0].resources.requests: "
        'Invalid value: "2Gi": must be less than or equal to memory limit of 1Gi'
    )


def test_a_folder_may_hold_other_objects_but_a_file_of_one_may_not(tmp_path: Path) -> None:
    others = {
        "list.yaml": "apiVersion: v1\nkind: List\nitems: [{apiVersion: v1, kind: ConfigMap}]\n",
        "service.yaml": "apiVersion: v1\nkind: Service\n",
        "values.yaml": "replicas: 3\n",
    }
    for name, content in others.items():
        (tmp_path / name).write_text(content)
        expected = 0 if name == "list.yaml" else 1
        assert memqos("explain", str(tmp_path / name)).returncode == expected
    (tmp_path / "pod.yml").write_text(GOOD)
    folder = memqos("explain", str(tmp_path))
    assert folder.returncode == 0
    note = "skipped, as they have no pods: 1 ConfigMap, 1 Service, 1 of no kind"
    assert note in folder.stderr


@pytest.mark.parametrize(
    "arguments",
    [
        ["explain"],
        ["explain", "x", "--factor", "0"],
        ["explain", "x", "--factor", "1.1"],
        ["explain", "x", "--page-size", "5000"],
        ["explain", "x", "--gate", "MemoryQoS"],
        ["explain", "x", "--capacity", "-1Gi"],
        ["explain", "x", "-o", "xml"],
        ["nonsense"],
    ],
)
def test_wrong_usage_exits_with_64(arguments: list[str]) -> None:
    done = memqos(*arguments)
    assert done.returncode == 64
    assert "Usage: memqos" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--release", "1.21"], "the oldest is 1.22"),
        (["--release", "1.39"], "the newest is 1.38"),
        (["--gate", "MemoryQos=true"], "did you mean MemoryQoS"),
        (["--kubelet", "examples/one.yaml"], "not a KubeletConfiguration"),
        (["--node", "examples/none.yaml"], "no such file"),
    ],
)
def test_terms_that_cannot_hold_are_refused_with_the_next_step(
    arguments: list[str], says: str
) -> None:
    done = memqos("explain", "-", *arguments, stdin=GOOD)
    assert done.returncode == 1
    assert says in done.stderr
    assert done.stdout == ""


def test_a_reader_that_leaves_early_is_no_error_to_speak_of() -> None:
    shell = f"{sys.executable} -m memqos.cli.main explain examples/ --why 2>/dev/null | head -1"
    done = subprocess.run(
        ["bash", "-c", shell], capture_output=True, text=True, cwd=ROOT, check=False
    )
    assert "Traceback" not in done.stdout + done.stderr


def test_a_full_disk_is_reported() -> None:
    shell = f"{sys.executable} -m memqos.cli.main explain examples/one.yaml > /dev/full"
    done = subprocess.run(
        ["bash", "-c", shell], capture_output=True, text=True, cwd=ROOT, check=False
    )
    assert done.returncode == 1
    assert "No space left on device" in done.stderr
    assert "Traceback" not in done.stderr


def test_closed_standard_input_is_empty() -> None:
    shell = f"{sys.executable} -m memqos.cli.main explain - <&-"
    done = subprocess.run(
        ["bash", "-c", shell], capture_output=True, text=True, cwd=ROOT, check=False
    )
    assert done.returncode == 1
    assert done.stderr == "<stdin>: no document – the file is empty, or has only comments\n"


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_shells_can_complete(shell: str) -> None:
    assert "_MEMQOS_COMPLETE" in memqos("completion", shell).stdout


def imports_of(*arguments: str) -> set[str]:
    """The modules that a command has loaded at its end."""
    code = (
        f"import sys; sys.argv = {['memqos', *arguments]}\n"
        "from memqos.cli.main import main\n"
        "try: main()\n"
        "except SystemExit: pass\n"
        "print(*sys.modules, file=sys.stderr)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, check=True
    )
    return set(done.stderr.split())


def test_a_quick_question_imports_nothing_slow() -> None:
    loaded = imports_of("explain", "examples/one.yaml")
    assert not loaded & {"asyncio", "dataclasses", "rich", "subprocess", "socket", "tempfile"}
    assert not loaded & {"memqos.kube.kubelet.reading", "memqos.cluster.fit"}


def test_help_imports_nothing_that_reads_or_writes_data() -> None:
    assert not imports_of("--help") & {"msgspec", "yaml", "memqos.release", "memqos.kube"}


def autoscaler_lines(*arguments: str, stdin: str = "") -> list[str]:
    done = memqos("explain", *arguments, "--why", stdin=stdin)
    words = ("HPA", "cluster autoscaler")
    return [line.strip() for line in done.stdout.splitlines() if any(map(line.count, words))]


def test_why_says_what_the_autoscalers_count() -> None:
    whole = "the request of the pod, with overhead"
    assert autoscaler_lines("examples/ide.yaml") == [
        f"HPA divides cpu usage by 500m: {whole}",
        f"HPA divides memory usage by 128Mi: {whole}",
        "the cluster autoscaler looks for a node with room for 500m cpu and 128Mi memory",
    ]
    assert autoscaler_lines("-", stdin=GOOD) == [
        "HPA cannot compute cpu utilization: container c requests no cpu",
        "HPA divides memory usage by 256Mi: requests of the long-running containers, without "
        "overhead",
        "the cluster autoscaler looks for a node with room for 256Mi memory",
    ]


def test_the_hpa_did_not_know_pod_level_requests_before_1_34() -> None:
    gate = ("--gate", "PodLevelResources=true", "--release")
    assert autoscaler_lines("examples/ide.yaml", *gate, "1.33")[0] == (
        "HPA cannot compute cpu utilization: container shell requests no cpu"
    )
    done = memqos("explain", "examples/ide.yaml", "-o", "json", *gate, "1.33")
    (pod,) = json.loads(done.stdout)["pods"]
    assert pod["autoscaling"] == {
        "hpaDivisor": {"cpu": None, "memory": None},
        "hpaFailures": {
            "cpu": "container shell requests no cpu",
            "memory": "container shell requests no memory",
        },
        "hpaCountsPodLevel": False,
        "clusterAutoscaler": {"memory": "128Mi", "cpu": "500m"},
    }


@pytest.mark.parametrize(
    ("driver", "of_pod"), [("systemd", "10000 100000"), ("cgroupfs", "9700 100000")]
)
def test_the_systemd_driver_rounds_the_cpu_time_of_a_pod(
    tmp_path: Path, driver: str, of_pod: str
) -> None:
    pod, kubelet = tmp_path / "pod.yaml", tmp_path / "kubelet.yaml"
    pod.write_text(
        "apiVersion: v1\nkind: Pod\nmetadata: {name: p}\nspec:\n  containers:\n"
        "  - {name: c, image: i, resources: {limits: {cpu: 97m, memory: 64Mi}}}\n"
    )
    kubelet.write_text(
        "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n"
        f"cgroupDriver: {driver}\n"
    )
    done = memqos("explain", str(pod), "--kubelet", str(kubelet), "-o", "json")
    data = json.loads(done.stdout)
    (explained,) = data["pods"]
    assert data["terms"]["driver"] == driver
    assert explained["pod"]["cpu.max"] == of_pod
    assert explained["containers"][0]["values"]["cpu.max"] == "9700 100000"


def test_the_picture_names_namespace_release_and_whether_memory_qos_is_on() -> None:
    text = GOOD.replace("name: good", "name: good, namespace: shop", 1)
    drawn = memqos("explain", "-", "--release", "1.37", "-o", "svg", stdin=text).stdout
    assert "pod/good in shop · Burstable" in drawn
    assert "Kubernetes 1.37 · MemoryQoS as if on" in drawn


def test_releases_with_equal_settings_are_one_line() -> None:
    done = memqos("explain", "-", "--compare", "1.24,1.26,1.36", stdin=GOOD)
    first, second, shown, *_ = done.stdout.splitlines()
    assert first.startswith("Kubernetes 1.24, 1.26 · MemoryQoS as if on · hard reservation")
    assert second.startswith("Kubernetes 1.36 · ")
    assert "by default it is off in 1.24, 1.26, 1.36 (alpha)" in shown


def test_why_is_of_one_release() -> None:
    done = memqos("explain", "-", "--compare", "1.24,1.36", "--why", stdin=GOOD)
    assert done.returncode == 64
    assert "give --release" in done.stderr
