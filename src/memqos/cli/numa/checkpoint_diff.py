"""`memqos numa checkpoint diff`: what two state files say otherwise."""

import click
import msgspec

from memqos.cli.numa.sources import read_state_text
from memqos.cli.output import OutputFormat, complain, emit, output_option
from memqos.draw.numa_words import exact_bytes, signed_difference
from memqos.draw.table import table
from memqos.kernel.nodelists import node_list
from memqos.numa.checkpoint import UnreadableCheckpoint
from memqos.numa.diffs import StateDifference, StateValue, state_differences
from memqos.numa.repair import salvage_state
from memqos.numa.state import MemoryManagerState
from memqos.numa.unreadable import checkpoint_error

DIFFERENT = 2


@click.command("diff")
@click.argument("one", metavar="FILE")
@click.argument("other", metavar="FILE")
@output_option()
def diff(one: str, other: str, output: OutputFormat) -> int:
    """Compare two state files value by value, whatever their formats.

    Exit code 2 if they differ.
    """
    found = state_differences(_read_state(one), _read_state(other))
    if output != "table":
        emit({"same": not found, "differences": msgspec.to_builtins(found)}, output)
    elif found:
        rows = [["", "", one, other, ""], *[_diff_row(each) for each in found]]
        print("\n".join(table(rows, left=2)))
    else:
        print("both say the same")
    return DIFFERENT if found else 0


def _read_state(path: str) -> MemoryManagerState:
    found = salvage_state(read_state_text(path))
    if isinstance(found, UnreadableCheckpoint):
        raise checkpoint_error(found, path)
    if found.how != "whole":
        complain(f"{path}: no kubelet would take this file; compared as far as it can be read")
    return found.loaded.state


def _diff_row(each: StateDifference) -> list[str]:
    both = isinstance(each.one, int) and isinstance(each.other, int) and each.is_size
    change = signed_difference(each.one, each.other) if both else ""  # type: ignore[arg-type]
    return [each.where, each.what, _diff_cell(each, each.one), _diff_cell(each, each.other), change]


def _diff_cell(each: StateDifference, value: StateValue | None) -> str:
    if value is None:
        return "–"
    if isinstance(value, tuple):
        return node_list(value)
    return exact_bytes(value) if isinstance(value, int) and each.is_size else str(value)
