"""Pods are found wherever Kubernetes objects contain them, and refused where they are written."""

from typing import Any

import msgspec
import pytest

from memqos.errors import InputError
from memqos.manifests.documents import Document, decoding_error, read_documents
from memqos.manifests.objects import NoPods, Template, pods
from memqos.manifests.positions import FieldPath

SUPPORTED = (
    "supported: Pod, Deployment, StatefulSet, DaemonSet, ReplicaSet, ReplicationController,"
    " Job, CronJob, and lists of them"
)


def only(text: str) -> Document:
    (document,) = read_documents(text.encode(), "f")
    assert isinstance(document, Document), document
    return document


def templates(text: str) -> list[Template]:
    found = list(pods(only(text)))
    assert all(isinstance(pod, Template) for pod in found), [str(pod) for pod in found]
    return [pod for pod in found if isinstance(pod, Template)]


def faults(text: str) -> list[str]:
    found = [each.fault if isinstance(each, NoPods) else each for each in pods(only(text))]
    return [str(each) for each in found if isinstance(each, InputError)]


def test_a_pod_is_its_own_template() -> None:
    text = (
        "apiVersion: v1\nkind: Pod\nmetadata: {name: web, namespace: shop}\nstatus: {phase: Up}\n"
    )
    (pod,) = templates(text)
    assert (pod.label, pod.namespace, pod.path) == ("pod/web", "shop", ())
    assert pod.data == pod.document.data


TEMPLATE: FieldPath = ("spec", "template")


@pytest.mark.parametrize(
    ("version", "kind", "path"),
    [
        ("apps/v1", "Deployment", TEMPLATE),
        ("apps/v1", "StatefulSet", TEMPLATE),
        ("apps/v1", "DaemonSet", TEMPLATE),
        ("apps/v1beta2", "ReplicaSet", TEMPLATE),
        ("v1", "ReplicationController", TEMPLATE),
        ("batch/v1", "Job", TEMPLATE),
        ("batch/v1beta1", "CronJob", ("spec", "jobTemplate", "spec", "template")),
    ],
)
def test_a_workload_holds_its_pod_in_a_template(version: str, kind: str, path: FieldPath) -> None:
    inner: Any = {"metadata": {"labels": {"a": "b"}, "name": "ignored"}, "spec": {"x": 1}}
    for step in reversed(path):
        inner = {step: inner}
    metadata = {"name": "web", "namespace": "shop", "uid": "1"}
    data = {"apiVersion": version, "kind": kind, "metadata": metadata, **inner}
    (pod,) = templates(msgspec.json.encode(data).decode())
    assert (pod.label, pod.namespace, pod.path) == (f"{kind.lower()}/web", "shop", path)
    assert pod.data == {
        "metadata": {"labels": {"a": "b"}, "name": "web", "namespace": "shop"},
        "spec": {"x": 1},
    }


def test_a_pod_without_a_name_of_its_own_is_labelled_all_the_same() -> None:
    assert templates("{apiVersion: v1, kind: Pod}")[0].label == "pod/(unnamed)"
    generated = "{apiVersion: v1, kind: Pod, metadata: {generateName: web-}}"
    assert templates(generated)[0].label == "pod/web-*"


def test_reading_a_template_leaves_the_document_alone() -> None:
    text = "{apiVersion: apps/v1, kind: Deployment, metadata: {name: a}, spec: {template: {}}}"
    (pod,) = templates(text)
    assert pod.data == {"metadata": {"name": "a"}}
    assert pod.document.data["spec"] == {"template": {}}


# --- lists


def test_a_list_is_walked_whatever_kinds_it_mixes() -> None:
    text = """\
apiVersion: v1
kind: List
items:
- {apiVersion: v1, kind: Pod, metadata: {name: a}}
- apiVersion: apps/v1
  kind: Deployment
  metadata: {name: b}
  spec:
    template: {spec: {}}
- apiVersion: v1
  kind: List
  items:
  - {apiVersion: v1, kind: Pod, metadata: {name: c}}
"""
    found = {pod.label: pod.path for pod in templates(text)}
    assert found == {
        "pod/a": ("items", 0),
        "deployment/b": ("items", 1, "spec", "template"),
        "pod/c": ("items", 2, "items", 0),
    }


def test_the_items_of_a_typed_list_need_no_kind() -> None:
    pod_list = '{"apiVersion": "v1", "kind": "PodList", "items": [{"metadata": {"name": "a"}}]}'
    assert [pod.label for pod in templates(pod_list)] == ["pod/a"]
    jobs = "{apiVersion: batch/v1, kind: JobList, items: [{spec: {template: {}}}]}"
    assert [pod.path for pod in templates(jobs)] == [("items", 0, "spec", "template")]


@pytest.mark.parametrize("items", ["", ", items: []", ", items: null"])
def test_an_empty_list_has_no_pods_and_no_faults(items: str) -> None:
    assert list(pods(only(f"{{apiVersion: v1, kind: List{items}}}"))) == []


def test_a_bad_item_of_a_list_costs_that_item_alone() -> None:
    text = """\
apiVersion: v1
kind: List
items:
- {apiVersion: v1, kind: Pod, metadata: {name: a}}
- {apiVersion: v1, kind: Service}
- {metadata: {name: b}}
- 3
- {apiVersion: v1, kind: Pod, metadata: {name: c}}
"""
    found = list(pods(only(text)))
    assert [pod.label for pod in found if isinstance(pod, Template)] == ["pod/a", "pod/c"]
    assert faults(text) == [
        f"f:5:26: items[1].kind: 'Service' is not supported – {SUPPORTED}",
        f"f:6:3: items[2].kind: required, but missing – {SUPPORTED}",
        "f:7:3: items[3]: expected a mapping, got an integer",
    ]


# --- objects that are refused


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("a: 1", f"1:1: kind: required, but missing – {SUPPORTED}"),
        ("apiVersion: v1\nkind: ''", f"2:7: kind: required, but missing – {SUPPORTED}"),
        ("kind: Pod", "1:1: apiVersion: required, but missing – write v1"),
        ("kind: CronJob", "1:1: apiVersion: required, but missing – write batch/v1"),
        ("kind: pod\napiVersion: v1", "1:7: kind: 'pod' is not supported – write Pod"),
        ("kind: Service", f"1:7: kind: 'Service' is not supported – {SUPPORTED}"),
        ("kind: 3", "1:7: kind: expected a string, got an integer – put it in quotes"),
        ("kind: [Pod]", "1:1: kind: expected a string, got a list"),
        (
            "kind: Job\napiVersion: batch.volcano.sh/v1alpha1",
            "2:13: apiVersion: Job of 'batch.volcano.sh/v1alpha1' is not supported"
            " – only that of batch/v1 is",
        ),
        (
            "kind: Deployment\napiVersion: apps/v1\nspec:\n  replicas: 1",
            "3:1: spec.template: required, but missing",
        ),
        (
            "kind: Deployment\napiVersion: apps/v1\nspec:\n  template: []",
            "4:3: spec.template: expected a mapping, got a list",
        ),
        (
            "kind: Pod\napiVersion: v1\nmetadata: {name: 007}",
            "3:18: metadata.name: expected a string, got an integer – put it in quotes",
        ),
        (
            "kind: List\napiVersion: v1\nitems: {}",
            "3:1: items: expected a list, got a mapping",
        ),
    ],
)
def test_an_object_without_pods_is_refused_with_a_hint(text: str, what: str) -> None:
    assert faults(text) == [f"f:{what}"]


@pytest.mark.parametrize("kind", ["Service", "ConfigMap", "Node"])
def test_other_kinds_hold_no_pods(kind: str) -> None:
    (found,) = pods(only(f"apiVersion: v1\nkind: {kind}\n"))
    assert isinstance(found, NoPods)
    assert found.kind == kind


# --- decoding


class Container(msgspec.Struct):
    name: str
    limits: dict[str, str | int | float | None] = {}
    ports: tuple[int, ...] = ()
    mode: str | None = None


class Spec(msgspec.Struct):
    containers: list[Container]
    by_name: dict[str, Container] = {}


class Pod(msgspec.Struct, forbid_unknown_fields=True):
    spec: Spec
    metadata: dict[str, Any] = {}


DEPLOYMENT = """\
apiVersion: apps/v1
kind: Deployment
metadata:
  name: web
spec:
  template:
    spec:
      containers:
      - name: app
        limits:
          cpu: 1
          memory: 1Gi
        ports: [80]
"""


def decoding_fault(old: str, new: str) -> str:
    (pod,) = templates(DEPLOYMENT.replace(old, new))
    with pytest.raises(InputError) as caught:
        pod.decode(Pod)
    return str(caught.value)


def test_a_fitting_pod_is_decoded() -> None:
    (pod,) = templates(DEPLOYMENT)
    (container,) = pod.decode(Pod).spec.containers
    assert (container.name, container.limits) == ("app", {"cpu": 1, "memory": "1Gi"})


CONTAINER = "spec.template.spec.containers[0]"


@pytest.mark.parametrize(
    ("old", "new", "what"),
    [
        (
            "name: app",
            "name: 12",
            f"9:15: {CONTAINER}.name: expected a string, got an integer – put it in quotes",
        ),
        ("name: app", "mode: app", f"9:9: {CONTAINER}.name: required, but missing"),
        ("name: app", "name:", f"9:9: {CONTAINER}.name: expected a string, got null"),
        (
            "memory: 1Gi",
            "memory: yes",
            f"12:19: {CONTAINER}.limits.memory: expected a number or a string, got a boolean"
            " – put it in quotes",
        ),
        (
            "memory: 1Gi",
            "nvidia.com/gpu: []",
            f"12:11: {CONTAINER}.limits[nvidia.com/gpu]: expected a number or a string, got a list",
        ),
        ("[80]", "[80, http]", f"13:21: {CONTAINER}.ports[1]: expected an integer, got a string"),
        ("[80]", "{a: 80}", f"13:9: {CONTAINER}.ports: expected a list, got a mapping"),
        (
            "ports: [80]",
            "x: 1\n      by_name: {a: {name: b}, c: {name: 3}}",
            "14:41: spec.template.spec.by_name.c.name: expected a string, got an integer"
            " – put it in quotes",
        ),
        (
            "ports: [80]",
            "x: 1\n      by_name: {a: {name: b}, c: {}}",
            "14:31: spec.template.spec.by_name.c.name: required, but missing",
        ),
        (
            "  template:\n",
            "  template:\n    x: 1\n",
            "6:3: spec.template: object contains unknown field x",
        ),
    ],
)
def test_what_does_not_fit_is_refused_where_it_is_written(old: str, new: str, what: str) -> None:
    assert decoding_fault(old, new).startswith(f"f:{what}")


def test_a_refusal_names_the_place_within_a_list() -> None:
    text = '{"apiVersion": "v1", "kind": "PodList", "items": [{},\n {"spec": {"containers": 3}}]}'
    second = templates(text)[1]
    with pytest.raises(InputError, match="expected a list") as caught:
        second.decode(Pod)
    assert caught.value.where == "f:2:26: items[1].spec.containers"


def test_a_whole_document_can_be_refused_alike() -> None:
    document = only("kind: Node\nspec: 3\n")
    error = msgspec.ValidationError("Expected `object`, got `int` - at `$.spec`")
    assert str(decoding_error(error, document.data, document)) == (
        "f:2:7: spec: expected a mapping, got an integer"
    )


def test_an_error_of_a_field_gets_its_place_and_one_with_a_place_keeps_it() -> None:
    (pod,) = templates(DEPLOYMENT)
    located = pod.with_position(InputError("too much", field="spec.containers[0].limits[memory]"))
    assert str(located) == f"f:12:19: {CONTAINER}.limits.memory: too much"
    assert pod.with_position(located) is located
    assert (
        str(pod.with_position(InputError("odd", hint="why"))) == "f:6:3: spec.template: odd – why"
    )
