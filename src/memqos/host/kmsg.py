"""The kernel's log, record by record."""

import errno
import os
from collections.abc import Iterator
from typing import Final

from memqos.errors import Unreachable
from memqos.kernel.log import LogRecord, record_of

DEVICE: Final = "/dev/kmsg"
_LONGEST: Final = 8192
"""Bytes of a record: devkmsg_read() (kernel/printk/printk.c) fails for one that does not fit."""
_AT_ONCE: Final = 10_000
_HINTS: Final = {
    errno.EPERM: "run with CAP_SYSLOG, and not in a container that may not read devices",
    errno.EACCES: "run as root, or grant read access to the device",
    errno.ENOENT: "only privileged containers have it; OOM kills are known from counters",
}


class KernelLog:
    """Follows the log; Unreachable says why it cannot be opened."""

    def __init__(self, device: str = DEVICE, *, from_start: bool = False) -> None:
        try:
            self._handle = os.open(device, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
            try:
                # SEEK_SET is the oldest record, SEEK_END behind the newest
                # (Documentation/ABI/testing/dev-kmsg).
                os.lseek(self._handle, 0, os.SEEK_SET if from_start else os.SEEK_END)
            except OSError:
                os.close(self._handle)
                raise
        except OSError as error:
            raise _unreadable(device, error) from None
        self._device = device
        self.lost = 0
        """How many times records were overwritten before they could be read."""

    def fileno(self) -> int:
        """To poll for records to read."""
        return self._handle

    def records(self) -> Iterator[LogRecord]:
        """What has been logged since the last call, without waiting for more."""
        for _ in range(_AT_ONCE):
            try:
                line = os.read(self._handle, _LONGEST)
            except BlockingIOError:
                return
            except OSError as error:
                # EPIPE: records were overwritten. EINVAL: one does not fit.
                if error.errno == errno.EPIPE:
                    self.lost += 1
                    continue
                if error.errno == errno.EINVAL:  # longer than any record of an OOM report
                    continue
                raise _unreadable(self._device, error) from None
            if not line:
                return
            record = record_of(line.decode("utf-8", "replace"))
            if record is not None:
                yield record

    def close(self) -> None:
        os.close(self._handle)


def _unreadable(device: str, error: OSError) -> Unreachable:
    return Unreachable(
        f"{device}: {error.strerror}",
        hint=_HINTS.get(error.errno or 0, "OOM kills are then known only from counters"),
    )
