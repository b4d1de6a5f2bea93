"""--help lists the options of a command under headings, on a terminal of 80 columns."""

from collections.abc import Iterator

import click
import pytest
from tests.commands import memqos

from memqos.cli.help_sections import SectionedCommand
from memqos.cli.main import cli

_MANY = 12


def _commands(group: click.Group, names: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    with click.Context(group) as context:
        for name in group.list_commands(context):
            command = group.get_command(context, name)
            if isinstance(command, click.Group):
                yield from _commands(command, (*names, name))
            else:
                yield *names, name


COMMANDS = list(_commands(cli))


def _sections(*names: str) -> dict[str, list[str]]:
    """The long options under each heading."""
    found: dict[str, list[str]] = {}
    for line in memqos(*names, "--help").out.splitlines():
        if line.endswith(":") and not line.startswith((" ", "Usage")):
            heading = line.removesuffix(":")
            found[heading] = []
        elif line.startswith(("  -", "      --")) and found:
            found[heading] += [word for word in line.split()[:2] if word.startswith("--")]
        elif found and line.startswith("  ") and not line.startswith("   "):
            raise AssertionError(f"{line!r} is no option")
    return found


@pytest.mark.parametrize("names", COMMANDS, ids=" ".join)
def test_help_fits_80_columns(names: tuple[str, ...]) -> None:
    assert [line for line in memqos(*names, "--help").out.splitlines() if len(line) > 80] == []


@pytest.mark.parametrize("names", COMMANDS, ids=" ".join)
def test_no_heading_has_too_many_options_to_find_one(names: tuple[str, ...]) -> None:
    sections = _sections(*names)
    assert {name: len(each) for name, each in sections.items() if len(each) > _MANY} == {}


def test_help_breaks_no_path_or_option_at_its_hyphens() -> None:
    assert "/var/lib/kubelet/pods-api/pods-api.sock" in memqos("agent", "--help").out
    assert "memqos-system]" in memqos("top", "--help").out
    broken = [
        line
        for names in COMMANDS
        for line in memqos(*names, "--help").out.splitlines()
        if line[-2:-1].isalpha() and line.endswith("-")
    ]
    assert broken == []


def test_every_option_is_listed_once() -> None:
    for names in COMMANDS:
        command: click.Command = cli
        for name in names:
            assert isinstance(command, click.Group)
            found = command.get_command(click.Context(command), name)
            assert found is not None
            command = found
        if isinstance(command, SectionedCommand):
            listed = [option for each in _sections(*names).values() for option in each]
            declared = [
                next(name for name in each.opts if name.startswith("--"))
                for each in command.params
                if isinstance(each, click.Option)
            ]
            assert sorted(listed) == sorted([*declared, "--help"]), names


def test_own_options_come_first_and_shared_ones_under_their_heading() -> None:
    assert _sections("plan") == {
        "Options": ["--snapshot", "--why", "--out"],
        "Cluster": ["--context", "--node-name", "--kubeconfig"],
        "Node": ["--cgroup-root", "--pods"],
        "Kubelet endpoint": [
            "--token-file",
            "--ca-file",
            "--client-cert",
            "--client-key",
            "--server-name",
        ],
        "Agent": ["--agent", "--journal", "--no-agent"],
        "Settings": [
            "--release",
            "--gate",
            "--kubelet",
            "--placement",
            "--policy",
            "--factor",
            "--allow-old-kernel",
            "--numa",
            "--state",
        ],
        "Writing": ["--cri-socket", "--direct"],
        "Output": ["--output", "--color", "--help"],
    }


def test_the_flags_of_the_agent_are_grouped_by_what_they_set() -> None:
    sections = _sections("agent")
    assert sections["Options"] == ["--config", "--mode", "--resync", "--jitter"]
    assert sections["Guard"][0] == "--guard-disabled"
    assert sections["Kubelet endpoint"] == [
        "--token-file",
        "--ca-file",
        "--client-cert",
        "--client-key",
        "--server-name",
    ]
