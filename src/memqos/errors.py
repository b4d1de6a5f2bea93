"""The one exception tree of memqos.

Exceptions are for broken input or a broken world. Expected outcomes (field errors, a denied
admission, a pod that does not fit) are values and live beside the rule that yields them.

    MemqosError
    ├── InputError          a file, document or field that cannot be read as what it claims to be
    ├── UnsupportedRelease  a Kubernetes release or feature gate memqos has no facts about
    ├── WriteRefused        the kernel, systemd or the runtime refused a value
    ├── JournalError        a journal that cannot be read or written, or is another tree's
    ├── Unreachable         a socket, endpoint or file system that does not answer
    └── LabError            an experiment that cannot be run here, or did not end
"""

from collections.abc import Iterable
from typing import Final

_LONGEST_QUOTE: Final = 60


class MemqosError(Exception):
    """What went wrong, where, and the next step."""

    def __init__(
        self, what: str, *, hint: str | None = None, snippet: tuple[str, ...] = ()
    ) -> None:
        super().__init__(what)
        self.what = what
        self.hint = hint
        self.snippet = snippet
        """Lines to copy after the hint, all in memqos's own words: only these are shown as lines.
        `what` and `hint` may quote anybody, and are shown as one."""

    @property
    def where(self) -> str | None:
        """Where it went wrong, in a form to search for; None where there is no place."""
        return None

    @property
    def sentence(self) -> str:
        """All of it but the snippet."""
        text = self.what if self.where is None else f"{self.where}: {self.what}"
        return text if self.hint is None else f"{text} – {self.hint}"

    @property
    def advice(self) -> str | None:
        """The hint and its snippet."""
        return None if self.hint is None else "\n".join([self.hint, *self.snippet])

    def __str__(self) -> str:
        return "\n".join([self.sentence, *self.snippet])


class InputError(MemqosError):
    """Input that cannot be read as what it claims to be: `file:line:column: what – hint`."""

    def __init__(
        self,
        what: str,
        *,
        file: str | None = None,
        line: int | None = None,
        column: int | None = None,
        field: str | None = None,
        hint: str | None = None,
        snippet: tuple[str, ...] = (),
    ) -> None:
        super().__init__(what, hint=hint, snippet=snippet)
        self.file = file
        self.line = line
        self.column = column
        self.field = field

    @property
    def where(self) -> str | None:
        places = [self.file, self.line, self.column]
        position = ":".join(str(place) for place in places if place is not None)
        parts = [part for part in (position, self.field) if part]
        return ": ".join(parts) or None


class UnsupportedRelease(MemqosError):
    """A Kubernetes release, or a feature gate, that memqos has no facts about."""


class WriteRefused(MemqosError):
    """A value that its owner would not take."""

    def __init__(
        self, path: str, value: str, *, errno: int | None = None, hint: str | None = None
    ) -> None:
        super().__init__(f"cannot write {value!r}", hint=hint)
        self.path = path
        self.value = value
        self.errno = errno

    @property
    def where(self) -> str:
        return self.path


class JournalError(MemqosError):
    """A journal of prior values that cannot be read or written, or is of another cgroup tree."""

    def __init__(self, what: str, *, hint: str | None = None, errno: int | None = None) -> None:
        super().__init__(what, hint=hint)
        self.errno = errno


class Unreachable(MemqosError):
    """Something outside memqos that does not answer."""


class LabError(MemqosError):
    """An experiment that cannot be run here, or did not end."""


def os_reason(error: OSError) -> str:
    """What the operating system says, as a part of a message."""
    return (error.strerror or str(error)).lower()


def nearest_name(name: str, known: Iterable[str], cutoff: float = 0.6) -> str | None:
    """The known name that a misspelt one probably stands for, in whichever case."""
    from difflib import get_close_matches

    spelled = {each.casefold(): each for each in known}
    near = get_close_matches(name.casefold(), spelled, n=1, cutoff=cutoff)
    return spelled[near[0]] if near else None


def quote_excerpt(text: str) -> str:
    """Quote a text that came from outside, cut to what fits into a message."""
    return repr(text if len(text) <= _LONGEST_QUOTE else f"{text[:_LONGEST_QUOTE]}…")
