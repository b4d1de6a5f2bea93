"""`memqos numa show`: Show NUMA nodes, their memory, and the pods it is assigned to."""

from typing import Any, Literal

import click

from memqos.cli.help_sections import SectionedCommand
from memqos.cli.numa.node_source import (
    NumaNodeFacts,
    machine_option,
    read_node_facts,
    snapshot_option,
    state_option,
)
from memqos.cli.output import emit, output_option, print_lines, print_markup, print_notes
from memqos.draw.text.numa_state import (
    holders_table,
    machine_data,
    machine_table,
    state_data,
    total_differences,
    usage_table,
)
from memqos.units import pluralize


@click.command("show", cls=SectionedCommand)
@output_option("svg")
@snapshot_option
@machine_option
@state_option
def command(
    state: str | None,
    machine: str | None,
    snapshot: str | None,
    output: Literal["table", "json", "yaml", "svg"],
) -> int:
    """Show NUMA nodes and, from a kubelet's memory_manager_state, the memory assigned to pods.

    Without options it shows this machine, and its kubelet's state if that can be read. The output
    of -o yaml is a machine file for --machine.
    """
    facts = read_node_facts(machine, state, snapshot)
    if output == "svg":
        from memqos.draw.svg.numa_map import numa_map_svg

        state_now = None if facts.loaded is None else facts.loaded.state
        title = f"NUMA memory of {facts.source}"
        print_markup(numa_map_svg(facts.machine, state_now, facts.names, title))
    elif output == "table":
        _print(facts)
    else:
        emit(_data(facts), output)
    return 0


def _print(facts: NumaNodeFacts) -> None:
    print_lines([f"{pluralize(len(facts.machine.nodes), 'NUMA node')} of {facts.source}"])
    print_lines([machine_table(facts.machine)])
    print_notes(_notes(facts))
    if facts.loaded is None:
        return
    state = facts.loaded.state
    print_lines(["", f"{facts.state_file}: policy {state.policy}, format {facts.loaded.version}"])
    if state.nodes:
        print_lines([usage_table(state)])
    print()
    if state.assignments:
        print_lines([holders_table(state, facts.names)])
    else:
        print("no memory is assigned")


def _data(facts: NumaNodeFacts) -> dict[str, Any]:
    data: dict[str, Any] = {
        "source": facts.source,
        "numa": machine_data(facts.machine),
        "notes": _notes(facts),
    }
    if facts.loaded is not None:
        data["state"] = {
            "file": facts.state_file,
            "version": facts.loaded.version,
            **state_data(facts.loaded.state, facts.names),
        }
    return data


def _notes(facts: NumaNodeFacts) -> list[str]:
    notes = list(facts.notes)
    if facts.loaded is not None:
        notes += total_differences(facts.machine, facts.loaded.state)
    return notes
