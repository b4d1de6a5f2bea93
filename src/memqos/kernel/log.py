"""The kernel's log: one record as /dev/kmsg returns it."""

import re
from typing import Final

import msgspec

_CONTINUES: Final = frozenset("c+")
"""How a fragment of a line is marked, in newer and older kernels (ABI/testing/dev-kmsg)."""
_FACILITY: Final = 3
"""Bits of the level; those above are the facility that wrote a record, 0 for the kernel."""
_ESCAPED: Final = re.compile(r"\\x([0-9a-f]{2})")


class LogRecord(msgspec.Struct, frozen=True):
    """One record of the kernel's log."""

    sequence: int
    at: int
    """Microseconds since the machine was started."""
    text: str
    continues: bool = False
    """Whether it is the rest of the line before it."""


def record_of(line: str) -> LogRecord | None:
    """A record as /dev/kmsg returns it: `6,1234,5678,-;text`; None where it is no such record,
    or not the kernel's own.

    Lines below it that start with a space are properties of a device, and skipped.
    """
    head, semicolon, body = line.partition(";")
    fields = head.split(",")
    if not semicolon or len(fields) < 3 or not all(is_number(field) for field in fields[:3]):
        return None
    # Writers to /dev/kmsg cannot use facility 0 (kernel/printk/printk.c, devkmsg_write): what has
    # another one may be a forged report.
    if int(fields[0]) >> _FACILITY:
        return None
    text = body.partition("\n")[0]
    continues = len(fields) > 3 and fields[3] in _CONTINUES
    return LogRecord(int(fields[1]), int(fields[2]), _unescape(text), continues)


def _unescape(text: str) -> str:
    """The kernel writes what is not printable ASCII as \\x0a, byte by byte (msg_add_ext_text)."""
    if "\\" not in text:
        return text
    raw = _ESCAPED.sub(lambda found: chr(int(found[1], 16)), text)
    try:
        return raw.encode("latin-1").decode("utf-8", "replace")
    except UnicodeEncodeError:
        return raw


def is_number(text: str) -> bool:
    """Whether a text is a number that the kernel may have written."""
    return text.isascii() and text.isdigit() and len(text) < 20
