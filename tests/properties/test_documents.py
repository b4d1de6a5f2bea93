"""What holds for reading whatever the bytes are."""

import json
import math
from contextlib import suppress
from typing import Any

import msgspec
from hypothesis import example, given
from hypothesis import strategies as st

from memqos.errors import InputError
from memqos.kube.pod import Pod
from memqos.manifests.documents import Document, read_documents
from memqos.manifests.objects import Template, pods
from memqos.manifests.positions import FieldPath

MANIFEST = b"""\
# a deployment
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, labels: &labels {app: "web", tier: 'front'}}
spec:
  template:
    metadata:
      labels:
        <<: *labels
    spec:
      containers:
      - name: app
        args: [a, "b", 1.5, 0x1F, yes]
        command:
        - |
          echo "hello"
        resources:
          limits: {memory: 1Gi}
---
{"apiVersion": "v1", "kind": "PodList", "items": [{"metadata": {"name": "a"}}, {"spec": {}}]}
{"apiVersion": "v1", "kind": "Pod"}
...
%YAML 1.1
---
apiVersion: v1
kind: Pod
spec: ~
"""
TOKENS = [
    b"---\n", b"\n---", b"...\n", b"{", b"}", b"[", b"]", b":", b": ", b"- ", b"? ", b",", b"\n",
    b"\t", b" ", b"'", b'"', b"\\", b"&a ", b"*a", b"<<: *a", b"!!int ", b"!x ", b"#", b"%", b"|\n",
    b">", b"\0", b"\xff", b"\xe2\x80\xa8", b"\r", b"kind: Pod\n", b'{"a": 1}', b"null", b".nan",
    b"\\u0022", b"\\ud800", b"{{", b"1e999",
]  # fmt: skip


def visit(data: bytes) -> None:
    """Do with a file all that a reader of it does."""
    for document in read_documents(data, "f"):
        if isinstance(document, InputError):
            assert document.file == "f"
            continue
        msgspec.json.encode(document.data)
        for path in paths(document.data):
            assert document.position(path) >= (1, 1)
        for pod in pods(document):
            if isinstance(pod, Template):
                with suppress(InputError):
                    pod.decode(Pod)


def paths(value: Any, path: FieldPath = ()) -> list[FieldPath]:
    found = [path, (*path, "no such field")]
    if isinstance(value, dict):
        found += [inner for key, child in value.items() for inner in paths(child, (*path, key))]
    if isinstance(value, list):
        found += [inner for at, child in enumerate(value) for inner in paths(child, (*path, at))]
    return found


@st.composite
def mutated(draw: st.DrawFn) -> bytes:
    """A manifest with a few stretches cut, doubled or overwritten."""
    data = MANIFEST
    for _ in range(draw(st.integers(1, 6))):
        start = draw(st.integers(0, len(data)))
        end = draw(st.integers(start, min(len(data), start + 40)))
        patch = draw(st.one_of(st.sampled_from(TOKENS), st.just(data[start:end] * 2)))
        data = data[:start] + patch + data[end:]
    return data


@given(st.one_of(st.binary(), st.lists(st.sampled_from(TOKENS)).map(b"".join)))
@example(b"\xef\xbb\xbf")
@example(b'{"a": "\\ud800"}')
@example(b"a: \xef\xbf\xbe")
def test_no_bytes_give_anything_but_documents_and_faults(data: bytes) -> None:
    visit(data)


@given(mutated())
def test_no_damage_to_a_manifest_gives_anything_but_documents_and_faults(data: bytes) -> None:
    visit(data)


@given(st.integers(0, len(MANIFEST)))
def test_a_manifest_cut_off_anywhere_keeps_its_whole_documents(length: int) -> None:
    whole = [item.data for item in read_documents(MANIFEST, "f") if isinstance(item, Document)]
    ends = [MANIFEST.index(b"\n{"), MANIFEST.index(b'\n{"apiVersion": "v1", "kind": "Pod"}')]
    found = [
        item.data for item in read_documents(MANIFEST[:length], "f") if isinstance(item, Document)
    ]
    for count, end in enumerate(ends, start=1):
        if length >= end:
            assert found[:count] == whole[:count]


@given(st.binary(max_size=60).filter(lambda data: b"{" not in data and b"%" not in data))
def test_what_stands_between_separators_never_hides_its_neighbours(data: bytes) -> None:
    found = list(read_documents(b"a: 1\n---\n" + data + b"\n---\nb: 2\n", "f"))
    first, last = found[0], found[-1]
    assert isinstance(first, Document)
    assert first.data == {"a": 1}
    assert isinstance(last, Document)
    assert last.data == {"b": 2}
    assert last.position("b").column == 4


def objects(texts: st.SearchStrategy[str]) -> st.SearchStrategy[dict[str, Any]]:
    """Whatever a JSON object can hold."""
    integers = st.integers(-(2**63), 2**64 - 1)
    floats = st.floats(allow_nan=False, allow_infinity=False)
    values = st.recursive(
        st.one_of(st.none(), st.booleans(), integers, floats, texts),
        lambda inner: st.lists(inner, max_size=4) | st.dictionaries(texts, inner, max_size=4),
        max_leaves=20,
    )
    return st.dictionaries(texts, values, max_size=4)


OBJECTS = objects(st.text(st.characters(codec="utf-8"), max_size=20))
# YAML takes control characters and line separators only when they are escaped.
PRINTABLE = st.characters(codec="utf-8", exclude_categories=("C", "Zl", "Zp"))
YAML_OBJECTS = objects(st.text(PRINTABLE, max_size=20))


@given(OBJECTS, st.sampled_from([None, 0, 1, 4]))
def test_json_is_read_as_it_was_written(value: dict[str, Any], indent: int | None) -> None:
    (document,) = read_documents(json.dumps(value, indent=indent).encode(), "f")
    assert isinstance(document, Document)
    assert document.data == value


@given(YAML_OBJECTS)
def test_json_means_the_same_to_the_yaml_reader(value: dict[str, Any]) -> None:
    text = msgspec.json.encode(value)
    # A comment behind the first bracket makes JSON into YAML.
    as_json, as_yaml = (next(read_documents(data, "f")) for data in (text, b"{ # why\n" + text[1:]))
    assert isinstance(as_json, Document)
    assert isinstance(as_yaml, Document)
    assert same(as_json.data, as_yaml.data)
    for path in paths(value):
        line, column = as_yaml.position(path)
        if line > 1:
            assert (line, column) == (2, as_json.position(path).column - 1)


def same(left: Any, right: Any) -> bool:
    if isinstance(left, dict) and isinstance(right, dict):
        return left.keys() == right.keys() and all(same(left[key], right[key]) for key in left)
    if isinstance(left, list) and isinstance(right, list):
        return len(left) == len(right) and all(map(same, left, right))
    if isinstance(left, float) and not isinstance(right, bool):
        return math.isclose(left, right)
    return type(left) is type(right) and bool(left == right)


@given(st.lists(OBJECTS, min_size=1, max_size=4), st.sampled_from([b"", b"\n", b" ", b"\n---\n"]))
def test_json_values_are_separated(values: list[dict[str, Any]], glue: bytes) -> None:
    found = list(read_documents(glue.join(msgspec.json.encode(value) for value in values), "f"))
    assert [item.data if isinstance(item, Document) else item for item in found] == values
