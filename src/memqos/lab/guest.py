"""What runs in a virtual machine of the lab: `python3 -m memqos.lab.guest RUNS SCENARIO:VARIANT+…`.

Events go to file descriptor 4, a line each.
"""

import os
import sys
from typing import Final

from memqos.lab.catalogue import SCENARIOS
from memqos.lab.cgroup import CGROUP_ROOT, enable_controllers
from memqos.lab.events import LabEvent, encode_event
from memqos.lab.runner import Selected, describe_machine, run_experiments, scratch_space

RESULT: Final = 4


def selection_words(selection: list[Selected]) -> list[str]:
    """A selection as words of a command line."""
    return [f"{scenario.name}:{'+'.join(variants)}" for scenario, variants in selection]


def parse_selection(words: list[str]) -> list[Selected]:
    """The same, back."""
    pairs = [word.split(":") for word in words]
    return [Selected(SCENARIOS[name], tuple(variants.split("+"))) for name, variants in pairs]


def _send(event: LabEvent) -> None:
    os.write(RESULT, encode_event(event) + b"\n")


def run_from_words() -> None:
    """Run what the command line names."""
    enable_controllers(CGROUP_ROOT)
    _send(describe_machine())
    with scratch_space() as (cgroup, folder):
        for event in run_experiments(
            parse_selection(sys.argv[2:]), int(sys.argv[1]), cgroup, folder
        ):
            _send(event)


if __name__ == "__main__":
    run_from_words()
