"""The values that a cgroup file takes, and how the kernel shows them afterwards."""

import re
from collections.abc import Callable, Iterable, Mapping
from errno import ENOSPC
from typing import Final

import msgspec

from memqos.errors import WriteRefused
from memqos.host.cgroups import CgroupFs
from memqos.kernel.file_formats import NODE_LIST, node_list, nodes_in
from memqos.plan.changes import MANAGED, Change, as_stored
from memqos.plan.cpuset import MEMS
from memqos.plan.names import inner, kind_of
from memqos.plan.tree import Level

# 2^63 has 19 digits; the kernel shows higher values as "max" (PAGE_COUNTER_MAX,
# include/linux/page_counter.h).
_AMOUNT: Final = re.compile(r"max|[0-9]{1,19}")
_FORMS: Final = {
    "memory.min": _AMOUNT,
    "memory.low": _AMOUNT,
    "memory.high": _AMOUNT,
    "cpuset.mems": NODE_LIST,
}
_LONGEST_NAME: Final = 255
_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f]")


def file_fault(path: str, file: str) -> str | None:
    """Why memqos never writes to this file; None where it does."""
    if file not in MANAGED:
        return f"{file[:80]!r} is not a file that memqos writes"
    return path_fault(path)


def level_fault(path: str, file: str, level: Level) -> str | None:
    """Why memqos never writes to this file at this level; None where it does.

    A reserved cgroup may have any name: it comes from the kubelet's configuration.
    """
    if level == "reserved":
        plain = file != "cpuset.mems"
        return None if plain else f"memqos does not write {file} of reserved cgroups"
    return None if kind_of(path) == level else f"{path[:80]!r} is not a cgroup of level {level}"


def path_fault(path: str) -> str | None:
    """Why this is not the path of a cgroup below the root; None where it is."""
    parts = path.split("/")
    plain = all(
        part not in ("", ".", "..") and len(part.encode()) <= _LONGEST_NAME for part in parts[1:]
    )
    if parts[0] or len(parts) < 2 or not plain or _CONTROL.search(path):
        return f"{path[:80]!r} is not the path of a cgroup"
    return None


def value_fault(file: str, value: str) -> str | None:
    """Why a file cannot hold a value; None where it can."""
    if _FORMS[file].fullmatch(value):
        return None
    return f"{value[:80]!r} is not a value of {file}"


def kernel_form(file: str, value: str, page_size: int) -> str:
    """A value as the kernel will show it once it is written."""
    return _KERNEL_FORMS[file](file, value, page_size)


def _page_form(file: str, value: str, page_size: int) -> str:
    return as_stored(file, int(value) if value.isdigit() else value, page_size)


def _node_list_form(_file: str, value: str, _page_size: int) -> str:
    return node_list(nodes_in(value))


_KERNEL_FORMS: Final[dict[str, Callable[[str, str, int], str]]] = {
    "memory.min": _page_form,
    "memory.low": _page_form,
    "memory.high": _page_form,
    "cpuset.mems": _node_list_form,
}


_SCOPE: Final = ".scope"


class NodePermit(msgspec.Struct, frozen=True):
    """The nodes a cgroup may use, and the cgroup above it that restricts them."""

    nodes: frozenset[int]
    by: str = "/"


def bound_nodes(files: Mapping[str, str]) -> frozenset[int]:
    """The nodes of a cgroup's own cpuset.mems; none where it is not bound."""
    content = files.get(MEMS, "").strip()
    return frozenset() if value_fault(MEMS, content) else frozenset(nodes_in(content))


def container_files(
    path: str, cgroups: Mapping[str, Mapping[str, str]]
) -> Mapping[str, str] | None:
    """The files that bind a container, if it exists. With crun they are in a cgroup within the
    scope (libcrun/cgroup-systemd.c, run.oci.systemd.subgroup)."""
    within = cgroups.get(inner(path)) if path.endswith(_SCOPE) else None
    return cgroups.get(path) if within is None else within


def node_permit(
    path: str, cgroups: Mapping[str, Mapping[str, str]], nodes: Iterable[int]
) -> NodePermit:
    """The machine's nodes that a cgroup may use, as the cgroups above it restrict them.

    The kernel accepts a cpuset.mems beyond the parent's and ignores the excess: only nodes that the
    parent has too are used, and all of the parent's where there is none of those.
    """
    # cgroup-v2.rst, cpuset.mems; kernel/cgroup/cpuset.c, update_nodemasks_hier().
    permit = NodePermit(frozenset(nodes))
    parts = path.split("/")[1:]
    for depth in range(1, len(parts)):
        above = "/" + "/".join(parts[:depth])
        allowed = permit.nodes & bound_nodes(cgroups.get(above, {}))
        if allowed and allowed != permit.nodes:
            permit = NodePermit(allowed, above)
    return permit


def clear_cpuset(path: str, fs: CgroupFs) -> None:
    """Clear a cgroup's cpuset.mems; where it has processes, set it to all nodes of the parent."""
    try:
        fs.write(path, MEMS, "")
    except WriteRefused as error:
        # validate_change() (kernel/cgroup/cpuset.c) refuses an empty list with ENOSPC while the
        # cgroup has tasks.
        every = parent_nodes(path, fs.read)
        if error.errno != ENOSPC or not every:
            raise
        fs.write(path, MEMS, every)


def parent_nodes(path: str, read: Callable[[str, str], str | None]) -> str | None:
    """All nodes that a cgroup could use, as its parent lists them."""
    return read(path.rpartition("/")[0] or "/", f"{MEMS}.effective")


def cpuset_fault(change: Change, fs: CgroupFs) -> str | None:
    """Why the kernel would ignore a part of a cpuset.mems; None where it would not."""
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
