"""What a cgroup file may be given, and how the kernel shows it afterwards."""

import re
from collections.abc import Callable
from typing import Final

from memqos.kernel.nodelists import node_list, nodes_in
from memqos.plan.changes import MANAGED, as_stored
from memqos.plan.names import kind_of
from memqos.plan.tree import Level

_AMOUNT: Final = re.compile(r"max|[0-9]{1,19}")
_LIST: Final = re.compile(r"(?:[0-9]{1,5}(?:-[0-9]{1,5})?(?:,[0-9]{1,5}(?:-[0-9]{1,5})?)*)?")
_FORMS: Final = {
    "memory.min": _AMOUNT,
    "memory.low": _AMOUNT,
    "memory.high": _AMOUNT,
    "cpuset.mems": _LIST,
}
_LONGEST_NAME: Final = 255
_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f]")


def file_fault(path: str, file: str) -> str | None:
    """Why memqos would never write to this place; None where it would."""
    if file not in MANAGED:
        return f"{file[:80]!r} is no file that memqos writes"
    return path_fault(path)


def level_fault(path: str, file: str, level: Level) -> str | None:
    """Why memqos would never write to this place as one of this level; None where it would.

    What is reserved has a name out of the kubelet's configuration, which may be any.
    """
    if level == "reserved":
        plain = file != "cpuset.mems"
        return None if plain else f"memqos does not write {file} of what is reserved"
    return None if kind_of(path) == level else f"{path[:80]!r} names no cgroup of level {level}"


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
    return f"{value[:80]!r} is no value of {file}"


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
