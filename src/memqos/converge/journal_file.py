"""The file of a journal: appended to or replaced, each record with a checksum over those before."""

import os
from collections.abc import Sequence
from contextlib import suppress

from memqos.converge.records import JournalRecord, encode_journal
from memqos.host import durable


class JournalFile:
    """A journal on the disk; `checksum` is that of the last record it is known to have."""

    def __init__(self, path: str, *, checksum: int, is_whole: bool, is_damaged: bool) -> None:
        self.path = path
        self.is_whole = is_whole
        """Whether there is a file that another record can follow in."""
        self.appended = 0
        """Records since the file was last opened or written as a whole."""
        self._checksum = checksum
        self._is_damaged = is_damaged
        self._handle: int | None = None

    @property
    def can_append(self) -> bool:
        """Whether the file is open, and a record can follow in it."""
        return self._handle is not None and self.is_whole

    def open(self) -> None:
        """Open the file to append to it."""
        if self._handle is None:
            flags = os.O_WRONLY | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC
            self._handle = os.open(self.path, flags)

    def append(self, records: Sequence[JournalRecord], *, is_synced: bool = False) -> None:
        """Add records to the open file: all of them, or none and OSError."""
        assert self._handle is not None
        lines, checksum = encode_journal(records, self._checksum)
        before = os.fstat(self._handle).st_size
        try:
            durable.append(self._handle, lines)
            if is_synced:
                os.fsync(self._handle)
        except OSError:
            # A record after a torn one would not be read: what cannot be cut off is replaced later.
            self.is_whole = False
            os.ftruncate(self._handle, before)
            self.is_whole = True
            raise
        self._checksum = checksum
        self.appended += len(records)

    def replace(self, records: Sequence[JournalRecord]) -> None:
        """Put another file in its place, with these records alone."""
        data, checksum = encode_journal(records)
        self._keep_damaged()
        before = _inode(self.path)
        try:
            durable.replace(self.path, data)
        except OSError:
            # Where only its folder could not be synced, the new one is there, with a checksum that
            # nothing known here goes on from: the next write replaces it once more.
            self.is_whole = self.is_whole and _inode(self.path) == before
            raise
        self._checksum = checksum
        self.is_whole = True
        self.appended = 0

    def remove(self) -> None:
        """Remove the file."""
        self._keep_damaged()
        durable.remove(self.path)
        self.is_whole = False
        self.appended = 0

    def close(self) -> None:
        """Close the file, with all that was appended on the disk."""
        if self._handle is None:
            return
        handle, self._handle = self._handle, None
        try:
            os.fsync(handle)
        finally:
            os.close(handle)

    def _keep_damaged(self) -> None:
        """What cannot be read is kept for a person to look at."""
        if self._is_damaged:
            with suppress(FileNotFoundError):  # somebody has taken it away
                durable.link_aside(self.path, "damaged")
            self._is_damaged = False


def _inode(path: str) -> int | None:
    try:
        return os.lstat(path).st_ino
    except FileNotFoundError:
        return None
