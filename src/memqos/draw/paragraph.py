"""Sentences in lines that fit a terminal."""

from textwrap import wrap
from typing import Final

_WIDTH: Final = 100


def paragraph(text: str, first: str = "  ", rest: str = "  ") -> list[str]:
    """The lines of a text, each after its indent; what a person may copy stays in one piece."""
    return wrap(
        text,
        _WIDTH,
        initial_indent=first,
        subsequent_indent=rest,
        break_long_words=False,
        break_on_hyphens=False,
    )
