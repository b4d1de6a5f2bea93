"""`memqos rank`: who is evicted by the kubelet, or killed by the kernel, first."""

from typing import Final

import click

from memqos.cli.lazy_group import LazyGroup

_RANKS: Final = {
    "eviction": "The kubelet: before memory is gone, a pod at a time.",
    "oom": "The kernel: when it is gone, a process at a time.",
}


@click.group(cls=LazyGroup, prefix="memqos.cli.rank_", about=_RANKS)
def command() -> None:
    """Who goes first when memory runs out."""
