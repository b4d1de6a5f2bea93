"""Which NUMA nodes a cgroup is bound to, and which those above it leave it."""

from collections.abc import Callable, Iterable, Mapping
from errno import ENOSPC
from typing import Final

import msgspec

from memqos.converge.values import value_fault
from memqos.errors import WriteRefused
from memqos.host.cgroups import CgroupFs
from memqos.kernel.nodelists import node_list, nodes_in
from memqos.plan.changes import Change
from memqos.plan.cpuset import MEMS
from memqos.plan.names import inner

_SCOPE: Final = ".scope"


class NodePermit(msgspec.Struct, frozen=True):
    """The nodes a cgroup may use, and the cgroup above it that sees to that."""

    nodes: frozenset[int]
    by: str = "/"


def bound_nodes(files: Mapping[str, str]) -> frozenset[int]:
    """The nodes of a cgroup's own cpuset.mems; none where it is not bound."""
    content = files.get(MEMS, "").strip()
    return frozenset() if value_fault(MEMS, content) else frozenset(nodes_in(content))


def container_files(
    path: str, cgroups: Mapping[str, Mapping[str, str]]
) -> Mapping[str, str] | None:
    """The files that bind a container, if it is there: crun's are in a cgroup within its scope."""
    within = cgroups.get(inner(path)) if path.endswith(_SCOPE) else None
    return cgroups.get(path) if within is None else within


def node_permit(
    path: str, cgroups: Mapping[str, Mapping[str, str]], nodes: Iterable[int]
) -> NodePermit:
    """What the cgroups above this one leave it of the machine's nodes.

    The kernel takes a cpuset.mems that goes beyond its parent's, and then does not heed it: of
    nodes that are not the parent's, none is used; where no other is left, all of the parent's are.
    """
    permit = NodePermit(frozenset(nodes))
    parts = path.split("/")[1:]
    for depth in range(1, len(parts)):
        above = "/" + "/".join(parts[:depth])
        left = permit.nodes & bound_nodes(cgroups.get(above, {}))
        if left and left != permit.nodes:
            permit = NodePermit(left, above)
    return permit


def clear_cpuset(path: str, fs: CgroupFs) -> None:
    """Take a cgroup's list of nodes away.

    The kernel does not let go of one while there are processes: then it is all nodes of the parent.
    """
    try:
        fs.write(path, MEMS, "")
    except WriteRefused as error:
        every = parent_nodes(path, fs.read)
        if error.errno != ENOSPC or not every:
            raise
        fs.write(path, MEMS, every)


def parent_nodes(path: str, read: Callable[[str, str], str | None]) -> str | None:
    """All nodes that a cgroup could use, as its parent lists them."""
    return read(path.rpartition("/")[0] or "/", f"{MEMS}.effective")


def cpuset_fault(change: Change, fs: CgroupFs) -> str | None:
    """Why the kernel would not heed a cpuset.mems; None where it would."""
    if change.file != MEMS:
        return None
    parent = change.path.rpartition("/")[0] or "/"
    effective = parent_nodes(change.path, fs.read) or ""
    if not effective or value_fault(MEMS, effective):
        return None
    beyond = nodes_in(change.new) - nodes_in(effective)
    if not beyond:
        return None
    return f"{parent} has no node {node_list(beyond)}: it may use {effective}"
