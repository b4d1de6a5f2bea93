"""Every field of an agent's configuration is a flag of its own."""

from typing import Any

import click
import pytest
from click.testing import CliRunner

from memqos.agent.configuration import AgentConfiguration, PodSourceConfig
from memqos.agent.configuration.fields import CONFIG_FIELDS
from memqos.agent.configuration.sources import load_configuration
from memqos.cli.agent import configuration_options, flag_values


def given(
    *arguments: str, environ: dict[str, str] | None = None
) -> tuple[str | None, dict[str, object]]:
    found: list[tuple[str | None, dict[str, object]]] = []

    @click.command()
    @configuration_options
    def command(config: str | None, **options: Any) -> None:
        found.append((config, flag_values(options)))

    done = CliRunner(env=environ).invoke(command, arguments, catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return found[0]


def taken(*arguments: str) -> AgentConfiguration:
    return load_configuration(None, {}, given(*arguments)[1])


def test_without_flags_nothing_is_given() -> None:
    assert given() == (None, {})
    assert taken() == AgentConfiguration()


def test_the_file_is_named_by_a_flag_or_the_environment() -> None:
    assert given("--config", "a.yaml") == ("a.yaml", {})
    assert given(environ={"MEMQOS_CONFIG": "b.yaml"}) == ("b.yaml", {})


def test_flags_are_read_like_the_fields_of_a_file() -> None:
    configuration = taken(
        *("--mode", "enforce", "--factor", "0.8", "--resync", "90s", "--gate", "MemoryQoS=true"),
        *("--gate", "PodLevelResources=false", "--canary-labels", "tier in (web)"),
        *("--select-namespaces", "a,b", "--kep-metrics", "--fight-times", "7"),
    )
    assert configuration.mode == "enforce"
    assert configuration.factor == 0.8
    assert configuration.resync == 90
    assert configuration.gates == {"MemoryQoS": True, "PodLevelResources": False}
    assert configuration.canary is not None
    assert configuration.canary.labels == "tier in (web)"
    assert configuration.select.namespaces == ("a", "b")
    assert configuration.kep_metrics
    assert configuration.fight.times == 7


def test_a_switch_can_be_turned_off_again() -> None:
    assert given("--no-kep-metrics")[1] == {"kepMetrics": False}


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("/a,b", PodSourceConfig(files=("/a,b",))),
        ("https://127.0.0.1:10250", PodSourceConfig(files=(), kubelet="https://127.0.0.1:10250")),
    ],
)
def test_pods_come_from_a_file_or_a_kubelet(source: str, expected: PodSourceConfig) -> None:
    assert taken("--pods", source).pods == expected


def test_every_field_has_a_flag_that_says_what_it_is() -> None:
    @click.command()
    @configuration_options
    def command(**options: Any) -> None:
        """All of them."""

    text = CliRunner().invoke(command, ["--help"]).output
    for field in CONFIG_FIELDS.values():
        assert f"{field.flag} " in text
