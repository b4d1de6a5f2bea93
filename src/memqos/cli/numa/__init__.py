"""`memqos numa`: a node's NUMA memory, who holds it, and who would be refused.

One file a subcommand, imported only to run it.
"""

from typing import Final

import click

from memqos.cli.lazy_group import LazyGroup

_COMMANDS: Final = {
    "show": "NUMA nodes, their memory, and who holds it.",
    "admit": "Would a pod be admitted; if not, why, and what would fit.",
    "reserve": "Print a reservedMemory that the kubelet accepts.",
    "check": "Say what is wrong with a reservedMemory, and by how much.",
    "checkpoint": "Verify, repair and compare the kubelet's memory_manager_state.",
}


@click.group("numa", cls=LazyGroup, prefix="memqos.cli.numa.", about=_COMMANDS)
def command() -> None:
    """Look into the NUMA memory of a node as its kubelet does.

    The machine is the one this runs on, unless --machine or --snapshot names another.

    \b
    memqos numa show                              who holds what where
    memqos numa admit pod.yaml                    would this pod be admitted
    memqos numa reserve --kube-reserved 1Gi       a reservedMemory that adds up
    memqos numa checkpoint verify                 would the kubelet start again
    """
