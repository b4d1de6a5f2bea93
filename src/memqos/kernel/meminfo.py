"""/proc/meminfo as numbers."""

import re
from typing import Final

from memqos.errors import InputError

_LINE: Final = re.compile(r"^(.+?):\s+([0-9]+)( kB)?$", re.MULTILINE)


def meminfo_of(text: str) -> dict[str, int]:
    """Bytes by the name of their line, and plain counts where a line has no unit."""
    return {
        name: int(number) << 10 if unit else int(number)
        for name, number, unit in _LINE.findall(text)
    }


def memory_of(text: str, name: str) -> int:
    """Bytes of one line, which must be there."""
    found = meminfo_of(text).get(name)
    if found is None:
        raise InputError(
            f"there is no {name} in it", field="meminfo", hint="give the text of /proc/meminfo"
        )
    return found
