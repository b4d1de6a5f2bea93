"""memqos config: what an agent would take, and the schema that says so."""

import json
from pathlib import Path

import pytest
from tests.commands import ROOT, memqos

from memqos.agent.configuration.fields import CONFIG_FIELDS
from memqos.agent.configuration.schema import configuration_schema

EXAMPLE = "examples/agent/memqos.yaml"
BROKEN = """\
apiVersion: memqos.io/v1alpha1
kind: AgentConfiguration
factor: 1.5
mdoe: enforce
"""


@pytest.fixture
def broken(tmp_path: Path) -> str:
    file = tmp_path / "memqos.yaml"
    file.write_text(BROKEN)
    return str(file)


def test_a_configuration_that_an_agent_takes_is_fine() -> None:
    done = memqos("config", "check", EXAMPLE)
    assert (done.code, done.err) == (0, "")
    assert done.out == f"{EXAMPLE}: fine: mode enforce, pods from https://127.0.0.1:10250\n"


def test_all_that_is_wrong_is_said_with_line_and_hint(broken: str) -> None:
    done = memqos("config", "check", broken, EXAMPLE)
    assert done.code == 2
    assert done.err == (
        f"{broken}:3:9: factor: 1.5 is not a factor above 0 and up to 1\n"
        f"{broken}:4:7: mdoe: there is no such field here – did you mean mode?\n"
    )
    assert "fine" in done.out


def test_data_shows_what_is_in_force(broken: str) -> None:
    fine, wrong = memqos("config", "check", EXAMPLE, broken, "-o", "json").data
    assert fine["valid"]
    assert fine["configuration"]["resync"] == "1m0s"
    assert fine["configuration"]["jitter"] == 0.1
    assert not wrong["valid"]
    assert wrong["configuration"] is None
    assert [fault["line"] for fault in wrong["faults"]] == [3, 4]


def test_standard_input_is_checked_as_well() -> None:
    done = memqos("config", "check", "-", stdin=BROKEN)
    assert done.code == 2
    assert done.err.startswith("<stdin>:3:9: factor")


def test_a_file_that_is_not_there_is_wrong(tmp_path: Path) -> None:
    done = memqos("config", "check", str(tmp_path / "none"))
    assert done.code == 2
    assert "check the path" in done.err


def test_the_environment_of_the_command_is_not_looked_at(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("MEMQOS_MODE", "nonsense")
    assert memqos("config", "check", EXAMPLE).code == 0


def test_the_published_schema_is_that_of_the_structs() -> None:
    published = json.loads((ROOT / "docs" / "memqos.schema.json").read_text())
    assert published == configuration_schema(), (
        "run: memqos config schema > docs/memqos.schema.json"
    )
    assert memqos("config", "schema").data == published


def test_the_schema_knows_every_field_and_says_what_it_is() -> None:
    for path in CONFIG_FIELDS:
        part = configuration_schema()
        for step in path:
            assert part["additionalProperties"] is False
            part = part["properties"][step]
        assert part["description"]
        assert "default" in part


def test_a_group_without_a_command_shows_its_commands() -> None:
    done = memqos("config")
    assert "check" in done.out + done.err
    assert "schema" in done.out + done.err
