"""Cgroups and workloads of the lab, and what the kernel shows of them, for tests in the machine.

The machine is slow and its speed means nothing: wait for what the kernel shows, never for a time.
"""

import os
import re
from collections.abc import Mapping
from typing import Final

from memqos.lab.cgroup import CGROUP_ROOT, ScratchCgroup
from memqos.lab.processes import HOLD_FILE, HoldingProcess

Cgroup = ScratchCgroup
Workload = HoldingProcess
ROOT: Final = CGROUP_ROOT
WORKLOAD: Final = HOLD_FILE
MI: Final = 1 << 20


def killed_in_order(workloads: Mapping[str, "Workload"]) -> list[str]:
    """Those the kernel has killed for want of memory, in its own order.

    One death may follow the other before a test has looked, so the kernel's log is asked.
    """
    names = {workload.pid: name for name, workload in workloads.items()}
    killed = (int(pid) for pid in re.findall(r"Killed process (\d+) ", _kernel_log()))
    return list(dict.fromkeys(names[pid] for pid in killed if pid in names))


def _kernel_log() -> str:
    records = []
    log = os.open("/dev/kmsg", os.O_RDONLY | os.O_NONBLOCK)
    try:
        while True:
            try:
                records.append(os.read(log, 1 << 13).decode("utf-8", "replace"))
            except BrokenPipeError:  # overwritten by newer records
                continue
    except BlockingIOError:
        return "".join(records)
    finally:
        os.close(log)
