"""Processes of a machine, as far as running out of memory depends on them."""

from typing import Annotated

import msgspec

from memqos.kube.quantity import MAX_INT64

ByteCount = Annotated[int, msgspec.Meta(ge=0, le=MAX_INT64)]


class Process(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """One process. Memory is in bytes; `rss` is None where it was not measured."""

    comm: str
    oom_score_adj: int
    pid: int | None = None
    rss: ByteCount | None = None
    swap: ByteCount = 0
    page_tables: ByteCount = 0
    kernel_thread: bool = False
    cgroup: str | None = None
    """Its path in the unified hierarchy."""
    oom_group: str | None = None
    """The cgroup whose processes are all killed with it: the highest with memory.oom.group."""
