"""What commands print for scripts is as docs/schemas says: one schema a command."""

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import click
import msgspec
import pytest
from jsonschema import Draft202012Validator
from tests.commands import ROOT, memqos

from memqos.cli.main import cli
from memqos.lab.report import LabComparison, LabReport

SCHEMAS: Final = ROOT / "docs" / "schemas"
SAMPLES: Final[dict[str, list[str]]] = {
    "admit": [
        "admit examples/shop.yaml --namespace-state examples/cluster/namespace.yaml",
        "admit examples/cluster/refused.yaml --why --namespace-state "
        "examples/cluster/namespace.yaml",
        "admit examples/shop.yaml --policy examples/webhook/policy.yaml",
    ],
    "apply": [
        "apply --cgroup-root {tmp}/cgroup --journal {tmp}/journal --pods {tmp}/pods.yaml "
        "--kubelet {tmp}/kubelet.yaml --release 1.38 --yes",
    ],
    "audit": [
        "audit examples/cluster/dump.json --usage examples/cluster/metrics.json",
        "audit examples/cluster/incident.json",
        "audit examples/cluster/dump.json --history examples/records",
        "audit examples/cluster/dump.json --compare policy=HardReservation",
        "audit examples/broken/dump.ndjson",
    ],
    "backtest": [
        "backtest --history examples/records --request 256Mi --limit 512Mi --compare factor=0.6",
    ],
    "config check": [
        "config check examples/agent/memqos.yaml",
        "config check examples/broken/memqos.yaml",
    ],
    "doctor": [
        "doctor --snapshot tests/nodes/systemd.json",
        "doctor --snapshot tests/nodes/numa.json",
    ],
    "explain": [
        "explain examples/shop.yaml --node examples/node/node.yaml --kubelet "
        "examples/node/kubelet.yaml",
        "explain examples/shop.yaml --node examples/node/node.yaml --kubelet "
        "examples/node/kubelet.yaml --why",
        "explain examples/one.yaml examples/ide.yaml --capacity 16Gi",
        "explain examples/windows.yaml",
        "explain examples/broken/pods.yaml",
        "explain examples/one.yaml --capacity 16Gi --why",
        "explain examples/one.yaml --capacity 16Gi --compare 1.22,1.37",
    ],
    "fit": [
        "fit examples/shop.yaml --nodes examples/cluster/nodes.yaml --why",
        "fit examples/ide.yaml --nodes examples/cluster/mixed-nodes.yaml",
    ],
    "lab list": ["lab list"],
    "numa admit": [
        "numa admit examples/numa/pods.yaml --state examples/numa/memory_manager_state "
        "--machine examples/numa/machine.yaml --kubelet examples/numa/kubelet.yaml",
    ],
    "numa check": [
        "numa check --machine examples/numa/machine.yaml --kube-reserved 2Gi --reserved "
        "0:memory=1.5Gi",
    ],
    "numa checkpoint diff": [
        "numa checkpoint diff examples/numa/memory_manager_state "
        "examples/numa/memory_manager_state",
    ],
    "numa checkpoint verify": [
        "numa checkpoint verify examples/numa/memory_manager_state --machine "
        "examples/numa/machine.yaml",
        "numa checkpoint verify examples/numa/memory_manager_state --machine "
        "examples/numa/smaller.yaml",
    ],
    "numa reserve": [
        "numa reserve --machine examples/numa/machine.yaml --kube-reserved 2Gi --eviction 512Mi",
    ],
    "numa show": [
        "numa show --state examples/numa/memory_manager_state --machine examples/numa/machine.yaml",
    ],
    "plan": [
        "plan --cgroup-root {tmp}/cgroup --pods {tmp}/pods.yaml --kubelet {tmp}/kubelet.yaml "
        "--release 1.38",
        "plan --snapshot tests/nodes/numa.json --policy None",
        "plan --snapshot tests/nodes/systemd.json",
    ],
    "rank eviction": [
        "rank eviction --pods examples/cluster/pods.yaml --usage examples/cluster/usage.json "
        "--why --kubelet examples/node/kubelet-eviction.yaml --simulate --admit "
        "examples/cluster/pods.yaml",
        "rank eviction --pods examples/cluster/pods.yaml --usage examples/cluster/usage.json "
        "--need 2Gi",
    ],
    "rank oom": [
        "rank oom --from examples/cluster/processes.json --pods examples/cluster/pods.yaml "
        "--total 16Gi",
    ],
    "resize": [
        "resize examples/swap/cache.yaml examples/swap/cache-smaller.yaml --usage 1700Mi "
        "--node examples/swap/node.yaml --kubelet examples/swap/kubelet.yaml",
        "resize examples/one.yaml examples/cluster/web-larger.yaml --capacity 16Gi",
        "resize examples/one.yaml examples/cluster/web-guaranteed.yaml --why",
    ],
    "rollback": [
        "rollback --list --cgroup-root {tmp}/cgroup --journal {tmp}/journal",
        "rollback --cgroup-root {tmp}/cgroup --journal {tmp}/journal",
    ],
    "rules": [
        "rules",
        "rules pod/throttled",
    ],
    "status": [
        "status --snapshot tests/nodes/k138-none.json",
        "status --play examples/records",
    ],
    "top": [
        "top --once --snapshot tests/nodes/k138-none.json",
        "top --once --play examples/records",
    ],
    "size": [
        "size --history examples/records",
    ],
    "why": [
        "why pod/api-1 -n shop --records examples/records",
        "why pod/report-28 -n shop --records examples/records",
        "why pod/db-0 -n shop --records examples/records --readings",
        "why --records examples/records",
    ],
}


OF_REPORTS: Final = {"lab compare": LabComparison, "lab run": LabReport}
"""They take a virtual machine, or its reports: their schemas are those of these types."""


def schema_of(command: str) -> dict[str, Any]:
    data: dict[str, Any] = json.loads((SCHEMAS / f"{command.replace(' ', '-')}.json").read_text())
    return data


def outputs(command: str, folder: Path) -> list[Any]:
    """What every sample prints; on a copy of the example's node, where it is written to."""
    shutil.copytree(ROOT / "examples" / "tree", folder, dirs_exist_ok=True)
    if command == "rollback":
        memqos(*SAMPLES["apply"][0].format(tmp=folder).split())
    return [
        memqos(*sample.format(tmp=folder).split(), "-o", "json").data for sample in SAMPLES[command]
    ]


@pytest.mark.parametrize("command", list(SAMPLES))
def test_what_a_command_prints_is_as_its_schema_says(command: str, tmp_path: Path) -> None:
    schema = schema_of(command)
    Draft202012Validator.check_schema(schema)
    for data in outputs(command, tmp_path):
        Draft202012Validator(schema).validate(data)


@pytest.mark.parametrize("command", list(SAMPLES))
def test_a_schema_refuses_data_without_what_is_always_there(command: str, tmp_path: Path) -> None:
    validator = Draft202012Validator(schema_of(command))
    data = outputs(command, tmp_path)[0]
    if isinstance(data, list):
        data = data[0]
        validator = validator.evolve(schema=schema_of(command)["items"])
    else:
        assert data["schemaVersion"] == 1
    assert validator.is_valid(data)
    assert not validator.is_valid({})
    assert not validator.is_valid(dict.fromkeys(data, "something else"))


@pytest.mark.parametrize("command", list(OF_REPORTS))
def test_the_schema_of_a_report_is_that_of_its_type(command: str) -> None:
    assert schema_of(command) == {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": f"memqos {command} -o json, version 1",
        **json.loads(json.dumps(msgspec.json.schema(OF_REPORTS[command]))),
    }


def properties(schema: Any) -> Iterator[tuple[str, dict[str, Any], dict[str, Any]]]:
    """Every name in a schema, what it says of it, and the names beside it."""
    for each in schema.values() if isinstance(schema, dict) else ():
        yield from properties(each)
    for each in schema if isinstance(schema, list) else ():
        yield from properties(each)
    beside = schema.get("properties", {}) if isinstance(schema, dict) else {}
    yield from [(name, said, beside) for name, said in beside.items()]


@pytest.mark.parametrize("command", [*SAMPLES, *OF_REPORTS])
def test_names_are_camel_case_and_others_deprecated(command: str) -> None:
    for name, said, beside in properties(schema_of(command)):
        if "_" in name and name not in ("oom_score", "oom_score_adj"):  # names of the kernel's
            first, *rest = name.split("_")
            assert said.get("deprecated"), name
            assert first + "".join(word.title() for word in rest) in beside


def commands(group: click.Group, path: str = "") -> Iterator[tuple[str, click.Command]]:
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        if isinstance(command, click.Group):
            yield from commands(command, f"{path}{name} ")
        else:
            yield f"{path}{name}", command


def test_every_command_with_data_has_a_schema() -> None:
    with_data = {
        name
        for name, command in commands(cli)
        for option in command.params
        if isinstance(option.type, click.Choice) and "json" in option.type.choices
    }
    assert with_data == {*SAMPLES, *OF_REPORTS}
    assert {each.stem for each in SCHEMAS.glob("*.json")} == {
        name.replace(" ", "-") for name in with_data
    }
