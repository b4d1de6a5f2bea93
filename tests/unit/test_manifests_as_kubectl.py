"""Manifests as kubectl judges them: misspelt fields, doubtful numbers, objects without pods."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml
from tests.commands import memqos

from memqos.kube.quantity import Quantity
from memqos.manifests.strict_fields import FIELDS

ROOTS = {
    "core.v1": ("Pod", "ReplicationController"),
    "apps.v1": ("Deployment", "StatefulSet", "DaemonSet", "ReplicaSet"),
    "batch.v1": ("Job", "CronJob"),
}
SERVICE = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "web"}}
SETTINGS = (
    "Kubernetes 1.36 · MemoryQoS as if on · policy None · factor 0.9 · no node given\n"
    "MemoryQoS is shown as if on: no kubelet is known; by default it is off in 1.36 (alpha)\n"
)


def pod(memory: str = "256Mi") -> dict[str, Any]:
    resources = {"requests": {"memory": memory}, "limits": {"memory": memory}}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "web"},
        "spec": {"containers": [{"name": "app", "image": "web", "resources": resources}]},
    }


def explain(*objects: dict[str, Any], options: tuple[str, ...] = ()) -> Any:
    return memqos("explain", "-", *options, stdin=yaml.safe_dump_all(objects, sort_keys=False))


def test_a_misspelt_field_is_reported_where_it_stands_and_the_pod_is_refused() -> None:
    done = memqos(
        "explain",
        "-",
        stdin="""\
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, lables: {app: web}}
spec:
  template:
    spec:
      containers:
        - name: app
          image: web
          resorces: {limits: {memory: 1Gi}}
        - name: log
          image: log
          requests: {memory: 1Gi}
          resources: {request: {memory: 1Gi}, Limits: {memory: 1Gi}}
          ram: 1Gi
""",
    )
    assert done.code == 1
    assert done.out == ""
    containers = "spec.template.spec.containers"
    assert done.err.splitlines() == [
        "<stdin>:3:23: metadata.lables: unknown field – did you mean labels?",
        f"<stdin>:10:11: {containers}[0].resorces: unknown field – did you mean resources?",
        f"<stdin>:13:11: {containers}[1].requests: unknown field – did you mean "
        "resources.requests?",
        f"<stdin>:14:23: {containers}[1].resources.request: unknown field – did you mean requests?",
        f"<stdin>:14:47: {containers}[1].resources.Limits: unknown field – did you mean limits?",
        f"<stdin>:15:16: {containers}[1].ram: unknown field – no Kubernetes release up to 1.37 "
        "has it",
    ]


def test_what_a_cluster_has_stored_may_have_fields_of_a_newer_release() -> None:
    stored = pod() | {"status": {"phase": "Running"}}
    stored["metadata"]["uid"] = "7f1c"
    stored["spec"]["inventedIn2030"] = {"anything": True}
    done = explain(stored)
    assert (done.code, done.err) == (0, "")


def test_memory_with_the_suffix_of_thousandths_brings_the_warning_of_the_api_server() -> None:
    done = explain(pod("512m"))
    assert done.code == 0
    stanza = "spec.containers[0].resources"
    warning = (
        'fractional byte value "512m" is invalid, must be an integer – did you mean 512M or 512Mi?'
    )
    assert done.err.splitlines() == [
        f"warning: <stdin>:11:17: {stanza}.requests.memory: {warning}",
        f"warning: <stdin>:13:17: {stanza}.limits.memory: {warning}",
    ]


def test_bytes_in_thousandths_are_not_taken_for_another_suffix() -> None:
    """Autoscalers write 1717986918400m for 1.6Gi."""
    done = explain(pod("1717986918401m"))
    assert "must be an integer – write 1717986919, to which it is rounded up" in done.err


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("64MB", "write 64M or 64Mi"),
        ("64mb", "write 64M or 64Mi"),
        ("1.5GiB", "write 1.5Gi"),
        ("64mi", "write 64Mi"),
        ("64 Mi", "write 64Mi"),
        ("1K", "write 1k or 1Ki"),
        ("100B", "write 100"),
        ("much", "write a number with a unit, such as 500m or 1.5Gi"),
    ],
)
def test_a_unit_of_other_programs_is_answered_with_those_of_kubernetes(
    text: str, hint: str
) -> None:
    done = explain(pod(text))
    assert done.code == 1
    field = "<stdin>:11:17: spec.containers[0].resources.requests.memory"
    assert done.err == f"{field}: {text!r} is not a quantity – {hint}\n"
    for spelling in hint.removeprefix("write ").split(" or "):
        if spelling[0].isdigit():
            assert Quantity.parse(spelling).value


CUSTOM_JOB = {"apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job", "metadata": {"name": "j"}}
RESOURCE = {"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition"}


def test_what_helm_prints_is_explained_and_the_rest_of_it_is_counted() -> None:
    done = explain(SERVICE, RESOURCE, pod(), SERVICE, CUSTOM_JOB)
    assert done.code == 0
    assert done.out == (
        f"{SETTINGS}\n"
        "pod/web  Burstable\n"
        "                            memory.                         oom_    cpu.\n"
        "            request  limit      min  low  high    max  score_adj  weight  max\n"
        "pod    on     256Mi  256Mi        –    –     –  256Mi                  1    –\n"
        "       off                        –    –     –\n"
        "└ app  on     256Mi  256Mi        0    0     –  256Mi    --node?       1  max\n"
        "       off                        –    –     –\n"
    )
    assert done.err == (
        "skipped, as they have no pods: 2 Service, 1 CustomResourceDefinition, "
        "1 Job of batch.volcano.sh\n"
    )


def test_a_list_may_hold_other_objects() -> None:
    done = explain({"apiVersion": "v1", "kind": "List", "items": [SERVICE, pod()]})
    assert (done.code, done.err) == (0, "skipped, as they have no pods: 1 Service\n")


@pytest.mark.parametrize(
    "command",
    [
        ["explain", "-"],
        ["admit", "-", "--namespace-state", "examples/cluster/namespace.yaml"],
        ["fit", "-", "--nodes", "examples/cluster/nodes.yaml"],
        ["numa", "admit", "-", "--machine", "examples/numa/machine.yaml"],
    ],
    ids=lambda command: command[0],
)
def test_a_list_without_pods_is_reported(command: list[str]) -> None:
    """As kubectl prints it where a namespace has none, or is misspelt."""
    done = memqos(*command, stdin="apiVersion: v1\nitems: []\nkind: List\n")
    assert (done.code, done.out) == (0, "")
    assert done.err == "there are no pods in <stdin> – is it the right file, the right namespace?\n"


def test_strict_refuses_objects_without_pods() -> None:
    done = explain(SERVICE, pod(), options=("--strict",))
    assert done.code == 1
    assert done.err.startswith("<stdin>:2:7: kind: 'Service' is not supported – supported: Pod,")
    assert "pod/web" in done.out


def test_a_file_with_nothing_but_a_service_and_a_misspelt_kind_are_faults() -> None:
    assert explain(SERVICE).code == 1
    done = explain(pod() | {"kind": "Pood"}, pod() | {"kind": "deployment"}, pod())
    assert done.code == 1
    assert done.err.splitlines() == [
        "<stdin>:2:7: kind: 'Pood' is not supported – write Pod",
        "<stdin>:16:7: kind: 'deployment' is not supported – write Deployment",
    ]


@pytest.mark.parametrize(
    ("options", "notes"),
    [
        (
            ("--capacity", "16"),
            [
                "the capacity is 16 bytes, less than any node has: for gibibytes write 16Gi",
                "it requests 256Mi of memory, more than the 16B allocatable on this node: "
                "it can never run there",
            ],
        ),
        (
            ("--capacity", "1Gi", "--allocatable", "2Gi"),
            ["allocatable of 2Gi is more than the capacity of 1Gi: correct one of them"],
        ),
        (
            ("--capacity", "1Gi", "--allocatable", "200Mi"),
            [
                "it requests 256Mi of memory, more than the 200Mi allocatable on this node: "
                "it can never run there",
            ],
        ),
        (("--capacity", "1Gi"), []),
    ],
)
def test_doubtful_sizes_of_a_node_bring_a_note(options: tuple[str, ...], notes: list[str]) -> None:
    done = explain(pod(), options=options)
    found = [line.strip() for line in done.out.splitlines() if "note: " in line]
    assert found == [f"note: {note}" for note in notes]


@pytest.mark.parametrize(
    ("kind", "edit"),
    [
        ("Deployment", "is a rollout, which replaces its pods"),
        ("ReplicaSet", "changes only pods that are created later"),
    ],
)
def test_a_resize_of_a_workload_says_what_editing_its_template_does(
    tmp_path: Path, kind: str, edit: str
) -> None:
    files = []
    for memory in ("256Mi", "512Mi"):
        workload = {
            "apiVersion": "apps/v1",
            "kind": kind,
            "metadata": {"name": "web"},
            "spec": {"template": {"spec": pod(memory)["spec"]}},
        }
        file = tmp_path / f"{memory}.yaml"
        file.write_text(yaml.safe_dump(workload))
        files.append(str(file))
    done = memqos("resize", *files, "-o", "json")
    assert done.code == 0
    (resized,) = json.loads(done.out)["pods"]
    assert resized["notes"][1] == (
        f"editing the template of a {kind} {edit}: this result is for a running pod of it – "
        f"kubectl patch pod NAME --subresource resize"
    )


def test_pods_without_nodes_are_audited_with_a_note() -> None:
    done = memqos("audit", "examples/cluster/pods.yaml")
    assert (done.code, done.err) == (0, "")
    assert done.out.splitlines()[2] == (
        "note: no Node was read: 5 pods audited without the memory of their nodes – add them: "
        "kubectl get nodes -o json"
    )


def test_the_fields_are_those_of_every_release_in_its_openapi() -> None:
    found: dict[str, dict[str, str]] = {}
    for definitions in _openapi():
        names = [f"io.k8s.api.{group}.{kind}" for group, kinds in ROOTS.items() for kind in kinds]
        done: set[str] = set()
        while names:
            name = names.pop()
            done.add(name)
            fields = found.setdefault(name.rpartition(".")[2], {})
            for field, schema in definitions[name]["properties"].items():
                below = "" if field in ("status", "managedFields") else _type_below(schema)
                has_fields = "properties" in definitions.get(below, {})
                fields[field] = below.rpartition(".")[2] if has_fields else ""
                if has_fields and below not in done:
                    names.append(below)
    assert {name: text.split() for name, text in FIELDS.items()} == {
        name: [f"{field}:{below}" if below else field for field, below in sorted(fields.items())]
        for name, fields in found.items()
    }


def _openapi() -> Iterator[dict[str, Any]]:
    package = Path(kubernetes_validate.__file__).parent / "kubernetes-json-schema"
    files = sorted(package.glob("*-local/_definitions.json"))
    assert files
    for file in files:
        yield json.loads(file.read_text())["$defs"]


def _type_below(schema: dict[str, Any]) -> str:
    """The type of a field, of its items, or of the values of a map."""
    for inside in ("items", "additionalProperties"):
        if isinstance(schema.get(inside), dict):
            schema = schema[inside]
    return str(schema.get("$ref", "")).rpartition("/")[2]
