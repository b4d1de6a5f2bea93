"""What KEP-2837 and the page on QoS classes state holds: document, statement, command, expected.

The table is tests/documents/pod-level-resources.yaml.
"""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.commands import ROOT, memqos

TABLE: dict[str, Any] = yaml.safe_load(
    (ROOT / "tests/documents/pod-level-resources.yaml").read_text()
)
KUBELET = {"apiVersion": "kubelet.config.k8s.io/v1beta1", "kind": "KubeletConfiguration"}
AMOUNTS = {"cpu": "8", "memory": "16Gi", "pods": "110"}


def pod(name: str, spec: dict[str, Any]) -> dict[str, Any]:
    """A pod of which only the resources of its containers are given."""
    containers = [
        {"name": f"c{number}", "image": "i", "resources": resources}
        for number, resources in enumerate(spec["containers"], 1)
    ]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name},
        "spec": {**spec, "containers": containers},
    }


def node(name: str, info: dict[str, str]) -> dict[str, Any]:
    status = {"capacity": AMOUNTS, "allocatable": AMOUNTS, "nodeInfo": info}
    return {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}, "status": status}


def running() -> dict[str, Any]:
    """A pod with pod-level resources that runs on a node of examples/cluster/mixed-nodes.yaml."""
    stored = pod("ide", {**TABLE["inputs"]["pod-guaranteed"], "nodeName": "new-1"})
    stored["metadata"] |= {"namespace": "dev", "uid": "1"}
    return stored | {"status": {"phase": "Running"}}


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    folder: Path = tmp_path_factory.mktemp("documents")
    made = {name: pod(name, spec) for name, spec in TABLE["inputs"].items()}
    made |= {name: node(name, info) for name, info in TABLE["nodes"].items()}
    made |= {name: KUBELET | fields for name, fields in TABLE["kubelets"].items()}
    made["running"] = running()
    paths = {name: folder / f"{name}.json" for name in made}
    for name, data in made.items():
        paths[name].write_text(json.dumps(data))
    return {name: str(path) for name, path in paths.items()}


@pytest.mark.parametrize(
    "row",
    TABLE["statements"],
    ids=[f"{row['document']}: {row['statement']}" for row in TABLE["statements"]],
)
def test_a_statement_of_a_document_holds(row: dict[str, Any], files: dict[str, str]) -> None:
    done = memqos(*[part.format(**files) for part in row["command"].split()])
    shown = "\n".join(" ".join(line.split()) for line in (done.out + done.err).splitlines())
    for expected in row.get("shows", ()):
        assert expected in shown
    for unexpected in row.get("hides", ()):
        assert unexpected not in shown
    assert done.code == row.get("code", 0), shown
