"""`memqos numa reserve` and `memqos numa check`: reservedMemory that adds up."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.unit.test_numa_command import KUBELET, MACHINE, NODE, ROOT, memqos

ON_MACHINE = ("--machine", MACHINE)


def reserved(*arguments: str) -> dict[int, str]:
    printed = memqos("reserve", *ON_MACHINE, *arguments).stdout
    return {
        entry["numaNode"]: entry["limits"]["memory"]
        for entry in yaml.safe_load(printed)["reservedMemory"]
    }


def flag(*arguments: str) -> str:
    printed = memqos("reserve", *ON_MACHINE, *arguments, "-o", "json").stdout
    return str(json.loads(printed)["flag"]).partition("=")[2]


def test_what_is_printed_can_be_pasted_and_tells_the_sum() -> None:
    done = memqos("reserve", *ON_MACHINE, "--kubelet", KUBELET)
    assert done.returncode == 0
    first, *_, last = done.stdout.splitlines()
    assert (
        first == "# kubeReserved 2Gi + systemReserved 1Gi + evictionHard memory.available 1Gi = 4Gi"
    )
    assert last == "# or --reserved-memory='0:memory=1Gi;1:memory=1Gi;2:memory=1Gi;3:memory=1Gi'"
    assert reserved("--kubelet", KUBELET) == dict.fromkeys(range(4), "1Gi")


def test_options_stand_in_for_a_configuration() -> None:
    shares = reserved("--kube-reserved", "memory=1Gi,cpu=1", "--system-reserved", "512Mi")
    assert shares == dict.fromkeys(range(4), "409Mi")


def test_nodes_that_are_asked_for_get_what_is_asked() -> None:
    assert reserved(
        "--kube-reserved", "3Gi", "--eviction", "1Gi", "--node", "0=2Gi", "--node", "3=0"
    ) == {
        0: "2Gi",
        1: "1Gi",
        2: "1Gi",
    }


@pytest.mark.parametrize(
    "flags",
    [
        ("--kube-reserved", "1Gi"),
        ("--kube-reserved", "1Gi", "--eviction", "5%"),
        ("--kube-reserved", "1", "--system-reserved", "2"),
        ("--system-reserved", "200Gi", "--node", "1=59Gi"),
        ("--kubelet", KUBELET, "--node", "2=4Gi"),
    ],
)
def test_check_accepts_what_reserve_prints(flags: tuple[str, ...]) -> None:
    without_nodes = [
        each
        for index, each in enumerate(flags)
        if each != "--node" and (not index or flags[index - 1] != "--node")
    ]
    done = memqos("check", *ON_MACHINE, *without_nodes, "--reserved", flag(*flags))
    assert done.returncode == 0, done.stdout
    assert "fine" in done.stdout


@pytest.mark.parametrize(
    ("flags", "code", "says"),
    [
        (["--kube-reserved", "300Gi"], 2, "does not fit on the remaining nodes"),
        (["--kube-reserved", "1Gi", "--node", "0=2Gi"], 2, "924Mi more is set for the nodes"),
        (
            ["--kube-reserved", "99Gi", "--node", "0=61Gi"],
            2,
            "node 0 has 1Gi less than it should reserve",
        ),
        (["--eviction", "0%"], 2, "nothing is reserved"),
        (["--eviction", "x"], 1, "evictionHard[memory.available]"),
        (["--kube-reserved", "1X"], 1, "'1X' is not a quantity"),
        (["--kube-reserved", "-1Gi"], 1, "is negative"),
        (["--kube-reserved", "memory=1Gi,x"], 64, "is not NAME=AMOUNT"),
        (["--node", "9=1Gi"], 1, "the machine has no node 9"),
        (["--node", "0"], 64, "is not like 0=1Gi"),
        (["--node", "0=1Gi", "--node", "0=1Gi"], 64, "node 0 is given twice"),
    ],
)
def test_what_cannot_be_reserved_is_reported(flags: list[str], code: int, says: str) -> None:
    done = memqos("reserve", *ON_MACHINE, *flags)
    assert done.returncode == code
    assert says in done.stderr
    assert done.stdout == ""


def check(*arguments: str) -> dict[str, Any]:
    done = memqos("check", *arguments, "-o", "json")
    data: dict[str, Any] = json.loads(done.stdout)
    assert done.returncode == (0 if data["valid"] else 2)
    return data


def test_a_configuration_that_adds_up_is_fine() -> None:
    assert check(*ON_MACHINE, "--kubelet", KUBELET)["valid"]
    assert check("--snapshot", NODE)["valid"]


def test_everything_wrong_is_said_at_once_and_by_how_much() -> None:
    flag = "0:memory=1.5Gi;9:memory=1Gi,hugepages-2Mi=4Mi"
    found = check(*ON_MACHINE, "--reserved", flag, "--kube-reserved", "2Gi")
    assert found["problems"] == [
        "the machine has no node 9",
        "hugepages-2Mi: the nodes reserve 4Mi together, it must be 0: 4Mi too much",
        "memory: the nodes reserve 2560Mi together, it must be 2148Mi: 412Mi too much",
        "node 0: the kubelet cannot read the memory as whole bytes – write it without a decimal "
        "point, such as 1536Mi for 1.5Gi",
    ]
    assert found["suggested"] == "0:memory=537Mi;1:memory=537Mi;2:memory=537Mi;3:memory=537Mi"


def test_a_configuration_is_read_by_its_spelling(tmp_path: Path) -> None:
    spelled = (ROOT / KUBELET).read_text()
    (tmp_path / "kubelet.yaml").write_text(
        spelled.replace(
            "{numaNode: 0, limits: {memory: 1Gi}}", "{numaNode: 0, limits: {memory: 1.0Gi}}"
        )
    )
    found = check(*ON_MACHINE, "--kubelet", str(tmp_path / "kubelet.yaml"))
    assert ["cannot read the memory as whole bytes" in each for each in found["problems"]] == [True]


def test_faults_of_a_configuration_have_their_place(tmp_path: Path) -> None:
    file = tmp_path / "kubelet.yaml"
    text = (ROOT / KUBELET).read_text()
    file.write_text(
        text.replace("{numaNode: 1, limits: {memory: 1Gi}}", "{numaNode: 0, limits: {cpu: 1}}")
    )
    problems = check(*ON_MACHINE, "--kubelet", str(file))["problems"]
    assert problems[0].startswith(f"{file}:12:")
    assert "only memory and hugepages-* can" in problems[0]


def test_a_node_must_have_what_it_reserves(tmp_path: Path) -> None:
    found = check(
        *ON_MACHINE, "--reserved", "0:memory=61Gi", "--kube-reserved", "60.9Gi", "--eviction", "0%"
    )
    assert found["problems"][-1] == "node 0: 61Gi of memory is reserved, it has 60Gi: 1Gi too much"


def test_static_wants_something_reserved() -> None:
    found = check(*ON_MACHINE, "--reserved", "", "--eviction", "0%")
    assert found["problems"] == ["no memory is reserved, but policy Static requires some"]


def test_there_must_be_something_to_check() -> None:
    assert memqos("check", *ON_MACHINE).returncode == 64
