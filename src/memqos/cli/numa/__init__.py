"""`memqos numa`: a node's NUMA memory, who holds it, and who would be refused.

One file a subcommand, imported only to run it.
"""

from typing import Final

import click

from memqos.cli.lazy_group import LazyGroup

_COMMANDS: Final = {
    "show": "Show NUMA nodes, their memory, and the pods it is assigned to.",
    "admit": "Check whether a pod would be admitted; if not, why, and what would fit.",
    "reserve": "Print a reservedMemory that the kubelet accepts.",
    "check": "Check a reservedMemory, and show what is wrong with it.",
    "checkpoint": "Verify, repair or compare the kubelet's memory_manager_state.",
}


@click.group("numa", cls=LazyGroup, prefix="memqos.cli.numa.", about=_COMMANDS)
def command() -> None:
    """Inspect the NUMA memory of a node as its kubelet does.

    The machine is this one, unless --machine or --snapshot names another.

    \b
    memqos numa show                              NUMA nodes and assigned memory
    memqos numa admit pod.yaml                    is this pod admitted
    memqos numa reserve --kube-reserved 1Gi       a reservedMemory that adds up
    memqos numa checkpoint verify                 can the kubelet start with it
    """
