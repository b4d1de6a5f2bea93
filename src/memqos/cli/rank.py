"""`memqos rank`: who is evicted by the kubelet, or killed by the kernel, first."""

from typing import Final

import click

from memqos.cli.lazy_group import LazyGroup

_RANKS: Final = {
    "eviction": "Show the order in which the kubelet evicts pods under memory pressure.",
    "oom": "Show the order in which the kernel OOM-kills processes.",
}


@click.group(cls=LazyGroup, prefix="memqos.cli.rank_", about=_RANKS)
def command() -> None:
    """Show the order of eviction and OOM kills."""
