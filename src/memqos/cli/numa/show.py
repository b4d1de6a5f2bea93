"""`memqos numa show`: NUMA nodes, their memory, and who holds it."""

from typing import Any, Literal

import click

from memqos.cli.numa.node_source import (
    NumaNodeFacts,
    machine_option,
    read_node_facts,
    snapshot_option,
    state_option,
)
from memqos.cli.output import emit, output_option, print_lines
from memqos.draw.text.numa_state import (
    holders_table,
    machine_data,
    machine_table,
    state_data,
    total_differences,
    usage_table,
)
from memqos.units import pluralize


@click.command("show")
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
    """Show NUMA nodes and, from a kubelet's memory_manager_state, who holds what where.

    Without options it is this machine, and its kubelet's state if that can be read. What -o yaml
    prints is a machine file for --machine.
    """
    site = read_node_facts(machine, state, snapshot)
    if output == "svg":
        from memqos.draw.svg.numa_map import numa_map_svg

        state_now = None if site.loaded is None else site.loaded.state
        title = f"NUMA memory of {site.source}"
        print(numa_map_svg(site.machine, state_now, site.names, title))
    elif output == "table":
        _print(site)
    else:
        emit(_data(site), output)
    return 0


def _print(site: NumaNodeFacts) -> None:
    print(f"{pluralize(len(site.machine.nodes), 'NUMA node')} of {site.source}")
    print("\n".join(machine_table(site.machine)))
    for note in _notes(site):
        print_lines([f"note: {note}"])
    if site.loaded is None:
        return
    state = site.loaded.state
    print_lines(["", f"{site.state_file}: policy {state.policy}, format {site.loaded.version}"])
    if state.nodes:
        print("\n".join(usage_table(state)))
    print()
    if state.assignments:
        print("\n".join(holders_table(state, site.names)))
    else:
        print("nobody holds memory")


def _data(site: NumaNodeFacts) -> dict[str, Any]:
    data: dict[str, Any] = {
        "source": site.source,
        "numa": machine_data(site.machine),
        "notes": _notes(site),
    }
    if site.loaded is not None:
        data["state"] = {
            "file": site.state_file,
            "version": site.loaded.version,
            **state_data(site.loaded.state, site.names),
        }
    return data


def _notes(site: NumaNodeFacts) -> list[str]:
    notes = list(site.notes)
    if site.loaded is not None:
        notes += total_differences(site.machine, site.loaded.state)
    return notes
