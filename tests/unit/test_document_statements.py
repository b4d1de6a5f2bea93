"""What the source documents state holds: document, statement, command, expected.

The table is tests/documents/statements.yaml.
"""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.commands import ROOT, memqos

TABLE: dict[str, Any] = yaml.safe_load((ROOT / "tests/documents/statements.yaml").read_text())


def manifest(spec: dict[str, Any]) -> dict[str, Any]:
    """A pod of which only the resources are given."""

    def containers(kind: str, letter: str) -> list[dict[str, Any]]:
        return [
            {
                "name": f"{letter}{number}",
                "image": "i",
                "resources": {k: each[k] for k in ("requests", "limits") if k in each},
                **({"restartPolicy": each["restartPolicy"]} if "restartPolicy" in each else {}),
            }
            for number, each in enumerate(spec.get(kind, ()), 1)
        ]

    pod_spec = {"containers": containers("containers", "c")}
    if "initContainers" in spec:
        pod_spec["initContainers"] = containers("initContainers", "i")
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": pod_spec}


def snapshot(changes: dict[str, Any]) -> dict[str, Any]:
    """A recorded node with something else about it."""
    node: dict[str, Any] = json.loads((ROOT / "tests/nodes/systemd.json").read_text())
    changes = dict(changes)
    usage = changes.pop("usage", None)
    for path, files in changes.pop("cgroups", {}).items():
        node["cgroups"][path] |= files
    if usage is not None:
        for files in node["cgroups"].values():
            files["memory.current"] = str(usage)
    return node | changes


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    folder = tmp_path_factory.mktemp("documents")
    made = {name: manifest(spec) for name, spec in TABLE["inputs"].items()}
    made |= {name: snapshot(changes) for name, changes in TABLE["nodes"].items()}
    paths: dict[str, Path] = {name: folder / f"{name}.json" for name in made}
    for name, data in made.items():
        paths[name].write_text(json.dumps(data))
    return {name: str(path) for name, path in paths.items()}


@pytest.mark.parametrize(
    "stated", TABLE["statements"], ids=lambda each: f"{each['document']}: {each['statement']}"
)
def test_a_statement_of_a_document_holds(stated: dict[str, Any], files: dict[str, str]) -> None:
    arguments = [
        files[word[1:-1]] if word.startswith("{") else word for word in stated["command"].split()
    ]
    done = memqos(*arguments)
    printed = done.out + done.err
    assert done.code == stated.get("code", 0), printed
    for text in stated["shows"]:
        assert text in _single_spaced(printed)


def _single_spaced(text: str) -> str:
    """Columns are as wide as their widest cell: the table has them one space apart."""
    return "\n".join(" ".join(line.split()) for line in text.splitlines())


def test_each_failure_mode_of_the_kep_is_in_the_table() -> None:
    documents = {each["document"] for each in TABLE["statements"]}
    modes = {each.partition('"')[2].rstrip('"') for each in documents if "failure mode" in each}
    assert modes == {
        "Livelock at memory.high (kernel < 5.9)",
        "memory.min protection ineffective",
        "Cgroups v2 not available",
        "Runtime doesn't support unified map",
        "Cgroups v2 available but kernel < 5.9",
    }
