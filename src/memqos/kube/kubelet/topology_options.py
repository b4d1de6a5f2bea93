"""topologyManagerPolicyOptions, as far as they can be judged without the machine."""

import re
from collections.abc import Mapping
from typing import Final, Literal

import msgspec

from memqos.kube.quantity import MAX_INT64

OptionProblem = Literal["unknown_option", "bad_bool", "bad_int", "max_numa_below_default"]

PREFER_CLOSEST_OPTION: Final = "prefer-closest-numa-nodes"
MAX_NODES_OPTION: Final = "max-allowable-numa-nodes"
DEFAULT_MAX_NODES: Final = 8
BOOLEANS: Final = {
    **dict.fromkeys(("1", "t", "T", "true", "TRUE", "True"), True),
    **dict.fromkeys(("0", "f", "F", "false", "FALSE", "False"), False),
}
"""What strconv.ParseBool() reads."""
_INTEGER: Final = re.compile(r"[+-]?[0-9]+", re.ASCII)


class OptionFault(msgspec.Struct, frozen=True):
    """An option with which no policy but `none` starts."""

    name: str
    problem: OptionProblem
    detail: str


# NewPolicyOptions(), kubelet cm/topologymanager/policy_options.go.
def option_fault(options: Mapping[str, str]) -> OptionFault | None:
    """The first option, by name, that the kubelet does not start with."""
    for name, value in sorted(options.items()):
        if name == PREFER_CLOSEST_OPTION:
            if value not in BOOLEANS:
                return OptionFault(name, "bad_bool", f"{value!r} is neither true nor false")
        elif name == MAX_NODES_OPTION:
            if not _INTEGER.fullmatch(value) or abs(int(value)) > MAX_INT64:
                return OptionFault(name, "bad_int", f"{value!r} is not a whole number")
            if int(value) < DEFAULT_MAX_NODES:
                return OptionFault(
                    name, "max_numa_below_default", f"{value} is less than {DEFAULT_MAX_NODES}"
                )
        else:
            return OptionFault(name, "unknown_option", "there is no such option")
    return None
