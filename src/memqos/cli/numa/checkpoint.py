"""`memqos numa checkpoint`: verify, repair and compare the kubelet's memory_manager_state."""

import click

from memqos.cli.numa.checkpoint_diff import diff
from memqos.cli.numa.checkpoint_repair import repair
from memqos.cli.numa.checkpoint_verify import verify


@click.group("checkpoint")
def command() -> None:
    """Look after the kubelet's memory_manager_state.

    A kubelet with the Static policy does not start over a state file that is corrupt, or that says
    otherwise than the machine: after a change of memory, hugepages or reservedMemory.
    """


command.add_command(verify)
command.add_command(repair)
command.add_command(diff)
