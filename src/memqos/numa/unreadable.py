"""State files that no kubelet takes: what is wrong with them, in words and with the place."""

import re
from typing import Final

from memqos.errors import InputError
from memqos.numa.checkpoint import LoadedCheckpoint, UnreadableCheckpoint, read_checkpoint

_BYTE: Final = re.compile(r"\(byte (\d+)\)")
_VERIFY: Final = "memqos numa checkpoint verify says what it is worth"


def load_checkpoint(text: str, file: str) -> LoadedCheckpoint:
    """The state in a file that a kubelet would take."""
    found = read_checkpoint(text)
    if isinstance(found, UnreadableCheckpoint):
        raise checkpoint_error(found, file, _VERIFY)
    return found


def checkpoint_error(found: UnreadableCheckpoint, file: str, hint: str | None = None) -> InputError:
    """What is wrong with a state file, with its place."""
    what, byte = checkpoint_fault_text(found)
    if byte is None:
        return InputError(what, file=file, hint=hint)
    return InputError(what, file=file, line=1, column=byte + 1, hint=hint)


def checkpoint_fault_text(found: UnreadableCheckpoint) -> tuple[str, int | None]:
    """What is wrong with a state file, and at which byte, where that is known."""
    if found.kind == "checkpoint_corrupt":
        return f"corrupt: {found.detail}", None
    byte = _BYTE.search(found.detail)
    what = _BYTE.sub("", found.detail).replace("`", "").replace("$.", "").strip()
    inside = what.startswith("data:")
    return f"not a state file: {what}", None if byte is None or inside else int(byte[1])
